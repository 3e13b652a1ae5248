//! Evidence for the host, when all has been measured: what runs, read from the kernel, and the hashes of what it runs
//! from. Whoever connects gets it; then the floor powers off.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use benches::evidence::Evidence;
use benches::floor::{ADDRESS, EVIDENCE_PORT};
use tokio::net::TcpListener;

use crate::services::Services;
use crate::{Error, system};

/// Where the root has executables.
const PROGRAMS: &[&str] = &["/bin", "/opt/cni/bin"];

/// Waits for the host, tells it, and powers off.
pub(crate) async fn serve(services: Services) -> Result<(), Error> {
    let failed = |error| Error::System("tell the host", error);
    let listener = TcpListener::bind((ADDRESS, EVIDENCE_PORT)).await.map_err(failed)?;
    let (stream, _peer) = listener.accept().await.map_err(failed)?;
    let mut stream = stream.into_std().map_err(failed)?;
    stream.set_nonblocking(false).map_err(failed)?;
    let text = serde_json::to_vec(&collect(&services).map_err(failed)?).map_err(|error| failed(error.into()))?;
    stream.write_all(&text).and_then(|()| stream.shutdown(std::net::Shutdown::Write)).map_err(failed)?;
    // The host has read all when it closes.
    io::copy(&mut stream, &mut io::sink()).map_err(failed)?;
    system::end(services.running().into_iter().map(|(_, pid)| pid))
}

fn collect(services: &Services) -> io::Result<Evidence> {
    let mut argv = BTreeMap::new();
    for (name, pid) in services.running() {
        let line = fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))?;
        argv.insert(name.to_string(), line.split_terminator('\0').map(str::to_owned).collect());
    }
    let mut sha256 = BTreeMap::new();
    for folder in PROGRAMS {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                sha256.insert(entry.path().display().to_string(), hash(&entry.path())?);
            }
        }
    }
    // What hashing has left in this process's memory says nothing.
    Ok(Evidence { argv, sha256, ours: 0, resident: None })
}

fn hash(path: &Path) -> io::Result<String> {
    let hash = digest(&SHA256, &fs::read(path)?);
    Ok(hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}
