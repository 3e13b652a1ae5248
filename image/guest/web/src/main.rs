//! The web container: answers any HTTP request on port 8080 with one line that names its pod.
//!
//! It shows that pods run and reach their network. One request at a time, no keep-alive, bounded reads: it must stay
//! too simple to break.
//!
//! With the argument `--files` a request for more than `/` is answered with that file as this process sees it, so that
//! whoever started the pod can look into it. With `--visits FILE` the line counts the requests, in a file that outlives the pod where
//! it is on a volume; a number is durable before it is told.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
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
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shows {
    /// The pod's name.
    Greeting,
    /// The pod's name, and its files where a path is asked for.
    Files,
    /// The pod's name, and how many requests came, which this file counts.
    Visits(PathBuf),
}

impl Shows {
    /// Reads a command line, the program's name left out.
    fn read(words: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        let unknown = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let mut words = words.into_iter();
        match words.next() {
            None => Ok(Self::Greeting),
            Some(option) if option == "--files" => Ok(Self::Files),
            Some(option) if option == "--visits" => match words.next() {
                Some(file) => Ok(Self::Visits(file.into())),
                None => unknown("--visits needs a file that counts them".into()),
            },
            Some(option) => unknown(format!("{option:?} is neither --files nor --visits FILE")),
        }
    }
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
    let greeting = format!("Hello from {}", host.trim());
    let shows = Shows::read(std::env::args_os().skip(1))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away in between is no concern of the next one.
            let _gone = answer(stream, &greeting, &shows);
        }
    });
    end.wait()?;
    Ok(())
}

fn answer(mut stream: TcpStream, greeting: &str, shows: &Shows) -> io::Result<()> {
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
    let response = match (shows, asked_file(&head)) {
        (Shows::Files, Some(path)) => match file(path) {
            Ok(content) => response("200 OK", &content),
            Err(error) => response("404 Not Found", format!("{path}: {error}\n").as_bytes()),
        },
        (Shows::Visits(file), _) => match count(file) {
            Ok(visits) => response("200 OK", format!("{greeting}, visit {visits}\n").as_bytes()),
            Err(error) => response("500 Internal Server Error", format!("{}: {error}\n", file.display()).as_bytes()),
        },
        (Shows::Greeting, _) | (Shows::Files, None) => response("200 OK", format!("{greeting}\n").as_bytes()),
    };
    stream.write_all(&response)
}

/// Counts a request in a file: the number is there, wherever the power is cut, before it is given.
fn count(file: &Path) -> io::Result<u64> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let before = match fs::read_to_string(file) {
        Ok(text) => text.trim_end().parse::<u64>().map_err(|_| invalid("no number of visits"))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let visits = before.checked_add(1).ok_or_else(|| invalid("visits beyond all numbers"))?;
    let next = file.with_extension("next");
    let mut written = File::create(&next)?;
    written.write_all(format!("{visits}\n").as_bytes())?;
    written.sync_all()?;
    fs::rename(&next, file)?;
    File::open(folder)?.sync_all()?;
    Ok(visits)
}

/// The path of a request for more than `/`.
fn asked_file(head: &[u8]) -> Option<&str> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let path = std::str::from_utf8(line).ok()?.split(' ').nth(1)?;
    (path.len() > 1 && path.starts_with('/')).then_some(path)
}

fn file(path: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(LONGEST_FILE).read_to_end(&mut content)?;
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
    fn said(pieces: &[&str], shows: &Shows) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shows = shows.clone();
        let server = thread::spawn(move || answer(listener.accept().expect("a client").0, "Hello from pod", &shows));
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
            let text = said(&["GET / HTTP/1.1\r\n", "host: pod\r\n\r\n"], &shows);
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nHello from pod\n"), "{text}");
        }
    }

    #[test]
    fn files_are_shown_where_that_was_asked_for_and_nowhere_else() {
        let request = ["GET /proc/self/status HTTP/1.1\r\n\r\n"];
        assert!(said(&request, &Shows::Greeting).ends_with("\r\n\r\nHello from pod\n"));
        let text = said(&request, &Shows::Files);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\r\n\r\nName:\t"), "{text}");
        let none = said(&["GET /none HTTP/1.1\r\n\r\n"], &Shows::Files);
        assert!(none.starts_with("HTTP/1.1 404 Not Found\r\n"), "{none}");
    }

    #[test]
    fn visits_are_counted_on_from_where_the_file_is() {
        let folder = std::env::temp_dir().join(format!("cairn-visits-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("visits");
        let visit = || said(&["GET /any HTTP/1.1\r\n\r\n"], &Shows::Visits(file.clone()));
        for number in 1..=2 {
            assert!(visit().ends_with(&format!("\r\n\r\nHello from pod, visit {number}\n")));
        }
        fs::write(&file, "41\n").expect("written");
        assert!(visit().ends_with("Hello from pod, visit 42\n"));
        for damaged in ["", "many\n", "18446744073709551615\n"] {
            fs::write(&file, damaged).expect("written");
            assert!(visit().starts_with("HTTP/1.1 500 "), "{damaged:?} is counted on from nothing");
            assert_eq!(fs::read_to_string(&file).expect("there"), damaged);
        }
        fs::remove_dir_all(&folder).expect("removed");
        assert!(visit().starts_with("HTTP/1.1 500 "), "no folder");
    }

    #[test]
    fn the_command_line_says_what_is_shown() {
        let read = |words: &[&str]| Shows::read(words.iter().map(OsString::from)).map_err(|error| error.to_string());
        assert_eq!(read(&[]), Ok(Shows::Greeting));
        assert_eq!(read(&["--files"]), Ok(Shows::Files));
        assert_eq!(read(&["--visits", "/data/visits"]), Ok(Shows::Visits("/data/visits".into())));
        assert_eq!(read(&["--visits"]), Err("--visits needs a file that counts them".into()));
        assert_eq!(read(&["--visit"]), Err("\"--visit\" is neither --files nor --visits FILE".into()));
    }
}
