//! A pod that asks its resolver for names, and writes down what it hears by UDP and by TCP (RFC 1035).

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::say;

/// The environment variable with the names, whole ones.
const NAMES: &str = "CALLS";
const ANSWERS: Duration = Duration::from_secs(5);
/// The longest answer that one by UDP may have.
const LONGEST: usize = 512;
const HEADER: usize = 12;
/// Kind and class of a question for an IPv4 address on the Internet.
const ADDRESS: [u8; 4] = [0, 1, 0, 1];

/// Asks for the address of each name.
pub(super) fn asks() -> io::Result<()> {
    let conf = fs::read_to_string("/etc/resolv.conf")?;
    let server = conf.lines().find_map(|line| line.strip_prefix("nameserver "));
    let server = server.ok_or_else(|| io::Error::other(format!("no resolver in {conf}")))?;
    let server = SocketAddr::new(server.trim().parse().map_err(io::Error::other)?, 53);
    let names = std::env::var(NAMES).map_err(io::Error::other)?;
    for name in names.split_whitespace() {
        let said = |answer: io::Result<Vec<u8>>| match answer {
            Err(error) => format!("no answer: {error}"),
            Ok(answer) => read(&answer).unwrap_or_else(|| "no sense".to_owned()),
        };
        let question = question(name);
        say(&format!("{name}: {} by UDP, {} by TCP", said(by_udp(server, &question)), said(by_tcp(server, &question))));
    }
    Ok(())
}

/// Text of a question, with the wish that the server asks others.
fn question(name: &str) -> Vec<u8> {
    let mut text = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        text.push(u8::try_from(label.len()).unwrap_or(0));
        text.extend_from_slice(label.as_bytes());
    }
    text.push(0);
    text.extend_from_slice(&ADDRESS);
    text
}

fn by_udp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(ANSWERS))?;
    socket.connect(server)?;
    socket.send(question)?;
    let mut answer = vec![0; LONGEST];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

fn by_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWERS)?;
    stream.set_read_timeout(Some(ANSWERS))?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// Addresses of an answer, or the word for its code. The names in it are not looked at: they are those of the question.
fn read(answer: &[u8]) -> Option<String> {
    let code = answer.get(3)? & 0xf;
    if code != 0 {
        return Some(match code {
            2 => "SERVFAIL".to_owned(),
            3 => "NXDOMAIN".to_owned(),
            5 => "REFUSED".to_owned(),
            other => format!("code {other}"),
        });
    }
    let records = u16::from_be_bytes([*answer.get(6)?, *answer.get(7)?]);
    let mut rest = behind_name(answer.get(HEADER..)?)?.get(ADDRESS.len()..)?;
    let mut addresses = Vec::new();
    for _ in 0..records {
        let record = behind_name(rest)?;
        let length = usize::from(u16::from_be_bytes([*record.get(8)?, *record.get(9)?]));
        let data = record.get(10..10 + length)?;
        if let (Ok(octets), true) = (<[u8; 4]>::try_from(data), record.starts_with(&ADDRESS)) {
            addresses.push(Ipv4Addr::from(octets).to_string());
        }
        rest = record.get(10 + length..)?;
    }
    Some(addresses.join(" "))
}

/// Skips a name: labels to the root, or to a pointer (RFC 1035, section 4.1.4).
fn behind_name(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        let length = *text.first()?;
        match length {
            0 => return text.get(1..),
            0xc0.. => return text.get(2..),
            _ => text = text.get(usize::from(length) + 1..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_behind_its_question() {
        let mut answer = question("a.example.");
        assert_eq!(read(&answer).as_deref(), Some(""), "no record");
        answer[7] = 2;
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 192, 0, 2, 1]);
        assert_eq!(read(&answer), None, "one is missing");
        answer.extend_from_slice(&[1, b'a', 0, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 192, 0, 2, 2]);
        assert_eq!(read(&answer).as_deref(), Some("192.0.2.1 192.0.2.2"));
        answer[3] = 5;
        assert_eq!(read(&answer).as_deref(), Some("REFUSED"));
    }
}
