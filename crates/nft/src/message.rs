//! Messages of nf_tables within nfnetlink (`include/uapi/linux/netfilter/nfnetlink.h`), and the kernel's answers to them.

use netlink_packet_core::{
    Emitable as _, ErrorBuffer, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader,
};

/// Subsystem of nfnetlink.
const NF_TABLES: u16 = 10;
/// Message types that begin and end a transaction.
const BEGIN: u16 = 16;
const END: u16 = 17;
/// Family of both, which say it of none.
const UNSPECIFIED: u8 = 0;
/// Bytes of a netlink header, and of nfnetlink's behind it: family, version, resource in network byte order.
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;

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
    GetTable = 1,
    DeleteTable = 2,
    NewChain = 3,
    GetChain = 4,
    DeleteChain = 5,
    NewRule = 6,
    GetRule = 7,
    DeleteRule = 8,
    NewSet = 9,
    GetSet = 10,
    DeleteSet = 11,
    NewElements = 12,
    GetElements = 13,
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

/// Message that asks for one thing (`NLM_F_ACK`), or for all of a kind (`NLM_F_DUMP`).
pub(crate) fn question(of: MessageKind, flags: u16, family: Family, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    message(&mut bytes, of, (flags, 1), family, body);
    bytes
}

/// Answers of the kernel to one question, as far as they have come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers {
    /// Attributes of each message.
    pub(crate) bodies: Vec<Vec<u8>>,
}

/// Progress of the answers to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswersProgress {
    /// More is to come.
    More,
    /// All is there.
    Done,
    /// Something was changed meanwhile: the question is to be asked again.
    Again,
    /// The kernel refused (`errno(3)`).
    Refused(i32),
}

impl Answers {
    /// Takes what the kernel sent at once.
    pub fn take(&mut self, sent: &[u8]) -> AnswersProgress {
        for answer in messages(sent) {
            if answer.flags() & NLM_F_DUMP_INTR != 0 {
                self.bodies.clear();
                return AnswersProgress::Again;
            }
            match answer.message_type() {
                NLMSG_DONE => return AnswersProgress::Done,
                NLMSG_ERROR => return error(&answer).map_or(AnswersProgress::Done, AnswersProgress::Refused),
                _of_nf_tables => self.bodies.push(answer.payload().get(FAMILY_HEADER..).unwrap_or_default().to_vec()),
            }
        }
        AnswersProgress::More
    }
}

/// Errors among answers of the kernel: the sequence number of the message that each is about, and the error's number.
pub(crate) fn errors(answers: &[u8]) -> Vec<(u32, i32)> {
    let errors = messages(answers).filter(|answer| answer.message_type() == NLMSG_ERROR);
    errors.filter_map(|answer| Some((answer.sequence_number(), error(&answer)?))).collect()
}

/// Messages that the kernel sent at once, up to the first that is cut off.
fn messages(mut sent: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(sent).ok()?;
        sent = sent.get((message.length() as usize).next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Number of the error that an answer tells (`errno(3)`); none where it acknowledges.
fn error(answer: &NetlinkBuffer<&[u8]>) -> Option<i32> {
    ErrorBuffer::new_checked(answer.payload()).ok()?.code().map(|code| -code.get())
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
    fn answers_end_with_their_last_and_begin_anew_after_a_change() {
        let sent = |kind: u8, flags: u8, code: i32| {
            let mut bytes = vec![20, 0, 0, 0, kind, if kind > 3 { 10 } else { 0 }, flags, 0, 1, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend(code.to_ne_bytes());
            bytes[0] = if kind == 2 { 36 } else { 20 };
            bytes.resize(bytes[0].into(), 0);
            bytes
        };
        let (table, done, refused) = (sent(4, 2, 0), sent(3, 2, 0), sent(2, 0, -2));
        let mut answers = Answers::default();
        assert_eq!(answers.take(&[table.clone(), table.clone()].concat()), AnswersProgress::More);
        assert_eq!((answers.take(&done), answers.bodies.len()), (AnswersProgress::Done, 2));
        assert_eq!(answers.take(&refused), AnswersProgress::Refused(2));
        assert_eq!(answers.take(&sent(2, 0, 0)), AnswersProgress::Done, "an acknowledgement");
        assert_eq!((answers.take(&sent(4, 16, 0)), answers.bodies.len()), (AnswersProgress::Again, 0));
        assert_eq!(answers.take(&table[..9]), AnswersProgress::More, "half a header");
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
