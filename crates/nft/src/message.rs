//! Messages of nf_tables within nfnetlink (`include/uapi/linux/netfilter/nfnetlink.h`), and the kernel's answers to them.

use netlink_packet_core::{Emitable as _, ErrorBuffer, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader};

/// Subsystem of nfnetlink.
const NF_TABLES: u16 = 10;
/// Message types that begin and end a transaction.
const BEGIN: u16 = 16;
const END: u16 = 17;
/// Family of both, which say it of none.
const UNSPECIFIED: u8 = 0;
/// Bytes of a netlink header, and of nfnetlink's behind it: family, version, resource in network byte order.
const HEADER: usize = 16;

/// Family of a table (`NFPROTO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet = 1,
    /// IPv4.
    Ip = 2,
    /// IPv6.
    Ip6 = 10,
}

impl Family {
    /// Reads the name that nftables gives a family.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Inet, Self::Ip, Self::Ip6].into_iter().find(|family| family.name() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        }
    }
}

/// Kind of a message (`NFT_MSG_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    NewTable = 0,
    DeleteTable = 2,
    NewChain = 3,
    DeleteChain = 5,
    NewRule = 6,
    DeleteRule = 8,
    NewSet = 9,
    DeleteSet = 11,
    NewElements = 12,
    DeleteElements = 14,
    DestroyTable = 26,
    DestroyChain = 27,
    DestroyRule = 28,
    DestroySet = 29,
    DestroyElements = 30,
}

/// Number of a message of nf_tables.
pub(crate) const fn kind(kind: MessageKind) -> u16 {
    NF_TABLES << 8 | kind as u16
}

/// Message that begins a transaction.
pub(crate) fn begin(out: &mut Vec<u8>) {
    push(out, BEGIN, (0, 0), (UNSPECIFIED, NF_TABLES), &[]);
}

/// Message that ends a transaction. Without it the kernel only looks whether it could be done.
pub(crate) fn end(out: &mut Vec<u8>) {
    push(out, END, (0, 0), (UNSPECIFIED, NF_TABLES), &[]);
}

/// Message about a family, with flags and a sequence number by which the kernel's answer names it.
pub(crate) fn message(out: &mut Vec<u8>, of: MessageKind, (flags, sequence): (u16, u32), family: Family, body: &[u8]) {
    push(out, kind(of), (flags, sequence), (family as u8, 0), body);
}

fn push(out: &mut Vec<u8>, kind: u16, (flags, sequence): (u16, u32), (family, resource): (u8, u16), body: &[u8]) {
    let mut header = NetlinkHeader::default();
    let [high, low] = resource.to_be_bytes();
    let body = [&[family, 0, high, low], body].concat();
    // A body is made of attributes, each of less than 64 KiB, and of few of them.
    header.length = u32::try_from(HEADER + body.len()).expect("a message is short");
    (header.message_type, header.flags, header.sequence_number) = (kind, NLM_F_REQUEST | flags, sequence);
    let start = out.len();
    out.resize(start + HEADER, 0);
    header.emit(&mut out[start..]);
    out.extend(body);
}

/// Errors among answers of the kernel: the sequence number of the message that each is about, and the error's number.
pub(crate) fn errors(mut answers: &[u8]) -> Vec<(u32, i32)> {
    let mut errors = Vec::new();
    while let Ok(answer) = NetlinkBuffer::new_checked(answers) {
        if answer.message_type() == NLMSG_ERROR
            && let Ok(error) = ErrorBuffer::new_checked(answer.payload())
            && let Some(code) = error.code()
        {
            errors.push((answer.sequence_number(), -code.get()));
        }
        let length = (answer.length() as usize).next_multiple_of(4);
        answers = answers.get(length..).unwrap_or_default();
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_both_headers_before_its_attributes() {
        let mut out = Vec::new();
        message(&mut out, MessageKind::NewTable, (0x400, 7), Family::Inet, &[1, 2, 3, 4]);
        let expected = [24, 0, 0, 0, 0, 10, 1, 4, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4];
        assert_eq!(out, expected);
        out.clear();
        begin(&mut out);
        assert_eq!(out, [20, 0, 0, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10]);
    }

    #[test]
    fn errors_name_the_message_that_they_are_about() {
        let answer = |sequence: u8, code: i32| {
            let mut bytes = vec![36, 0, 0, 0, 2, 0, 0, 0, sequence, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend(code.to_ne_bytes());
            bytes.resize(36, 0);
            bytes
        };
        assert_eq!(errors(&[answer(3, -2), answer(4, 0), answer(5, -17)].concat()), [(3, 2), (5, 17)]);
        assert_eq!(errors(&[9; 7]), []);
    }
}
