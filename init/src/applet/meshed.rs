//! The debug profile's programs by which a mesh is tried: bytes are carried between two machines of it, and the kernel's part of
//! it is changed behind PID 1's back. They must never be more than a service could be.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use super::say;
use crate::network::mesh::peers;
use crate::runtime::clock;

/// Where bytes are sent back as they came.
const PORT: u16 = 7001;
/// The machine that sends them back: the first of a cluster with the VPN prefix 10.0.0.0/24.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Carried in each direction.
const BYTES: usize = 10_000_000;
/// Longer than the mesh needs to measure a path, and TCP to try again.
const PATIENCE: Duration = Duration::from_secs(120);
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
    let began = clock::now();
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
    say(&format!("{BYTES} bytes there and back in {} ms", clock::now().duration_since(began).as_millis()));
    Ok(())
}

fn pattern(from: usize, length: usize) -> Vec<u8> {
    // Another period than any power of two: a chunk in the wrong place is seen.
    (from..from + length).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect()
}

/// Puts a peer of nobody in the place of those that are there, and waits until all is as it was.
pub(super) fn foreign() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let began = clock::now();
        let before = peers::put_a_foreign_one_in_their_place().await.map_err(io::Error::other)?;
        while peers::keys().await.map_err(io::Error::other)? != before {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let took = clock::now().duration_since(began).as_millis();
        say(&format!("{} peers are back and the foreign one is gone after {took} ms", before.len()));
        Ok(())
    })
}
