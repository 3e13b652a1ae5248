//! Secrets that root finds in a machine, masked, so that a test can have PID 1 search its memory for them.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::say;

/// Flips every bit: what is masked is not found by who looks for what it stands for.
const MASK: u8 = 0xff;

/// Writes down whether there could be core dumps, and the secrets that root finds on the data partition, as `name masked-hex`:
/// PID 1 should hold one copy of each, or none.
pub(super) fn all() -> io::Result<()> {
    say(&format!("core dumps: {}", core_dumps()));
    for name in ["vpn.key", "master-secret", "cairn.key", "etcd.key", "kubernetes.key", "front.key"] {
        let mut bytes = fs::read(format!("/data/cairn/{name}"))?;
        // PKCS#8 holds the private scalar as an octet string of 32 bytes (RFC 5915, section 3).
        if name.ends_with(".key") && bytes.len() > 32 {
            let scalar = bytes.windows(2).position(|tag| tag == [4, 32]).ok_or(io::ErrorKind::InvalidData)?;
            bytes = bytes.get(scalar + 2..scalar + 34).ok_or(io::ErrorKind::InvalidData)?.to_vec();
        }
        let mut line = format!("{name} ");
        bytes.iter().try_for_each(|byte| write!(line, "{:02x}", byte ^ MASK)).map_err(io::Error::other)?;
        say(&line);
    }
    Ok(())
}

/// Whether the kernel could write a process' memory to a file (`kernel/sys.c`, core(5)): it has no such setting then.
fn core_dumps() -> bool {
    !matches!(Path::new("/proc/sys/kernel/core_pattern").try_exists(), Ok(false))
}
