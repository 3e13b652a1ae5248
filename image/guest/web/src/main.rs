//! The web container: answers any HTTP request on port 8080 with one line that names its pod.
//!
//! It shows that pods run and reach their network. One request at a time, no keep-alive, bounded reads: it must stay
//! too simple to break.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

/// Above 1023, so no privilege is needed.
const PORT: u16 = 8080;
/// A client that says nothing for this long makes room for the next one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest request head that is read; nothing in it is looked at.
const LONGEST_HEAD: usize = 8192;

fn main() -> io::Result<()> {
    let mut end = SigSet::empty();
    end.add(Signal::SIGTERM);
    end.add(Signal::SIGINT);
    // Process 1 of a container ignores signals it has not asked for; blocked before the thread starts, it inherits this.
    end.thread_block()?;
    // Any IPv6 address takes IPv4 too, unless IPv6 is off.
    let listener =
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).or_else(|_| TcpListener::bind(("0.0.0.0", PORT)))?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let page = response(host.trim());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away in between is no concern of the next one.
            let _gone = answer(stream, &page);
        }
    });
    end.wait()?;
    Ok(())
}

fn answer(mut stream: TcpStream, page: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST_HEAD {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => head.extend_from_slice(&buffer[..length]),
        }
    }
    stream.write_all(page.as_bytes())
}

fn response(host: &str) -> String {
    let body = format!("Hello from {host}\n");
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_pieces_gets_the_page() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let server = thread::spawn(move || answer(listener.accept().expect("a client").0, &response("pod")));
        let mut client = TcpStream::connect(address).expect("listening");
        for piece in ["GET / HTTP/1.1\r\n", "host: pod\r\n\r\n"] {
            client.write_all(piece.as_bytes()).expect("connected");
        }
        let mut text = String::new();
        client.read_to_string(&mut text).expect("answered and closed");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nHello from pod\n"), "{text}");
        server.join().expect("no panic").expect("answered");
    }
}
