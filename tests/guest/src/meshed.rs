//! Bytes that are carried between two machines of a mesh, from one service to another.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use tokio::time::Instant;

use crate::say;

/// Where bytes are sent back as they came.
const PORT: u16 = 7001;
/// The machine that sends them back: the first of a cluster with the VPN prefix 10.0.0.0/24.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Carried in each direction.
const BYTES: usize = 10_000_000;
/// Longer than the mesh needs to measure a path, and than TCP waits at most before it tries again (`TCP_RTO_MAX`, 120 s).
const PATIENCE: Duration = Duration::from_secs(180);
const CHUNK: usize = 64 << 10;

/// Sends back whatever comes, to one after the other.
pub(super) fn returns() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    say("listening");
    for stream in listener.incoming() {
        let mut stream = stream?;
        // Whoever hung up meanwhile does not wait for it.
        let _hung_up = io::copy(&mut stream.try_clone()?, &mut stream);
    }
    Ok(())
}

/// Sends bytes to the first machine and takes them back at the same time: as many go each way.
pub(super) fn carries() -> io::Result<()> {
    let began = Instant::now();
    let mut stream = TcpStream::connect((FIRST, PORT))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut sending = stream.try_clone()?;
    let sender = std::thread::spawn(move || {
        (0..BYTES).step_by(CHUNK).try_for_each(|at| sending.write_all(&pattern(at, CHUNK.min(BYTES - at))))
    });
    let mut chunk = vec![0; CHUNK];
    for at in (0..BYTES).step_by(CHUNK) {
        let chunk = &mut chunk[..CHUNK.min(BYTES - at)];
        stream.read_exact(chunk)?;
        if *chunk != pattern(at, chunk.len()) {
            return Err(io::Error::other("other bytes came back"));
        }
    }
    sender.join().map_err(|_panic| io::Error::other("the sender panicked"))??;
    say(&format!("{BYTES} bytes there and back in {} ms", began.elapsed().as_millis()));
    Ok(())
}

fn pattern(from: usize, length: usize) -> Vec<u8> {
    // Another period than any power of two: a chunk in the wrong place is seen.
    (from..from + length).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect()
}
