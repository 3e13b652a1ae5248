//! The web container: answers any HTTP request on port 8080 with one line that names its pod.
//!
//! It shows that pods run and reach their network. One request at a time, no keep-alive, bounded reads: it must stay
//! too simple to break.
//!
//! With the argument `--files` a request for more than `/` is answered with that file as this process sees it, so that
//! whoever started the pod can look into it.

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
/// Longest request head that is read; nothing in it is looked at but, with `--files`, the path.
const LONGEST_HEAD: usize = 8192;
/// Most bytes that are shown of a file.
const LONGEST_FILE: u64 = 1 << 20;

/// Content of an answer, by the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// The pod's name.
    Greeting,
    /// The pod's name, and its files where a path is asked for.
    Files,
}

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
    let greeting = format!("Hello from {}\n", host.trim());
    let shows = if std::env::args().any(|argument| argument == "--files") { Shows::Files } else { Shows::Greeting };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away in between is no concern of the next one.
            let _gone = answer(stream, &greeting, shows);
        }
    });
    end.wait()?;
    Ok(())
}

fn answer(mut stream: TcpStream, greeting: &str, shows: Shows) -> io::Result<()> {
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
    let response = match asked_file(&head).filter(|_| shows == Shows::Files) {
        None => response("200 OK", greeting.as_bytes()),
        Some(path) => match file(path) {
            Ok(content) => response("200 OK", &content),
            Err(error) => response("404 Not Found", format!("{path}: {error}\n").as_bytes()),
        },
    };
    stream.write_all(&response)
}

/// The path of a request for more than `/`.
fn asked_file(head: &[u8]) -> Option<&str> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let path = std::str::from_utf8(line).ok()?.split(' ').nth(1)?;
    (path.len() > 1 && path.starts_with('/')).then_some(path)
}

fn file(path: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path)?.take(LONGEST_FILE).read_to_end(&mut content)?;
    Ok(content)
}

fn response(status: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to a request that is sent in these pieces.
    fn said(pieces: &[&str], shows: Shows) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let server = thread::spawn(move || answer(listener.accept().expect("a client").0, "Hello from pod\n", shows));
        let mut client = TcpStream::connect(address).expect("listening");
        for piece in pieces {
            client.write_all(piece.as_bytes()).expect("connected");
        }
        let mut text = String::new();
        client.read_to_string(&mut text).expect("answered and closed");
        server.join().expect("no panic").expect("answered");
        text
    }

    #[test]
    fn a_request_in_pieces_gets_the_page() {
        for shows in [Shows::Greeting, Shows::Files] {
            let text = said(&["GET / HTTP/1.1\r\n", "host: pod\r\n\r\n"], shows);
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nHello from pod\n"), "{text}");
        }
    }

    #[test]
    fn files_are_shown_where_that_was_asked_for_and_nowhere_else() {
        let request = ["GET /proc/self/status HTTP/1.1\r\n\r\n"];
        assert!(said(&request, Shows::Greeting).ends_with("\r\n\r\nHello from pod\n"));
        let text = said(&request, Shows::Files);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\r\n\r\nName:\t"), "{text}");
        let none = said(&["GET /none HTTP/1.1\r\n\r\n"], Shows::Files);
        assert!(none.starts_with("HTTP/1.1 404 Not Found\r\n"), "{none}");
    }
}
