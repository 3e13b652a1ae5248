//! Netlink attributes as nf_tables has them: numbers in network byte order, names with a zero behind them (`netlink(7)`).

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NlaBuffer, NlasIterator};

/// Most bytes of an attribute with its header: its length is a number of 16 bits.
const MOST_BYTES: usize = u16::MAX as usize;

/// Attributes of a message, or of another attribute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Attributes {
    bytes: Vec<u8>,
    /// Whether some attribute was longer than its length can say.
    is_too_long: bool,
}

/// An attribute is longer than 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than one netlink message can hold")]
pub struct AttributeError;

impl Attributes {
    pub(crate) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let attribute = DefaultNla::new(kind, value.to_vec());
        let start = self.bytes.len();
        self.is_too_long |= attribute.buffer_len() > MOST_BYTES;
        if !self.is_too_long {
            self.bytes.resize(start + attribute.buffer_len(), 0);
            attribute.emit(&mut self.bytes[start..]);
        }
        self
    }

    pub(crate) fn name(self, kind: u16, name: &str) -> Self {
        self.bytes(kind, &[name.as_bytes(), &[0]].concat())
    }

    pub(crate) fn number(self, kind: u16, number: u32) -> Self {
        self.bytes(kind, &number.to_be_bytes())
    }

    pub(crate) fn long(self, kind: u16, number: u64) -> Self {
        self.bytes(kind, &number.to_be_bytes())
    }

    pub(crate) fn nested(mut self, kind: u16, inner: &Self) -> Self {
        self.is_too_long |= inner.is_too_long;
        self.bytes(kind | NLA_F_NESTED, &inner.bytes)
    }

    /// Bytes on the wire.
    ///
    /// # Errors
    /// [`AttributeError`].
    pub(crate) fn finish(self) -> Result<Vec<u8>, AttributeError> {
        if self.is_too_long { Err(AttributeError) } else { Ok(self.bytes) }
    }
}

/// Value of the first attribute of a kind, among those that `bytes` begin with.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    all(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// Attributes with their kinds, up to the first that is cut off.
pub(crate) fn all(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|attribute: NlaBuffer<&[u8]>| {
        let (kind, length) = (attribute.kind(), attribute.value_length());
        (kind, &attribute.into_inner()[4..4 + length])
    })
}

/// Number of four or eight bytes, in network byte order.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    (value.len() <= 8).then(|| value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Name with a zero behind it.
pub(crate) fn name(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_say_their_length_without_it() {
        let inner = Attributes::default().name(1, "ab").number(2, 0x0102_0304);
        let bytes = Attributes::default().nested(3, &inner).finish().expect("they are short");
        let expected = [20, 0, 3, 0x80, 7, 0, 1, 0, b'a', b'b', 0, 0, 8, 0, 2, 0, 1, 2, 3, 4];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let inner = Attributes::default().name(1, "ab").number(2, 7);
        let bytes = Attributes::default().nested(3, &inner).long(4, 9).finish().expect("they are short");
        let nested = find(&bytes, 3).expect("it is there");
        assert_eq!((find(nested, 1).map(name), find(nested, 2).and_then(number)), (Some(String::from("ab")), Some(7)));
        assert_eq!((find(&bytes, 4).and_then(number), find(&bytes, 5)), (Some(9), None));
        assert_eq!(
            all(&bytes[..bytes.len() - 1]).map(|(kind, _)| kind).collect::<Vec<_>>(),
            [3],
            "the last is cut off"
        );
        assert_eq!((number(&[0; 9]), name(b"x")), (None, String::from("x")));
    }

    #[test]
    fn what_its_length_cannot_say_is_refused() {
        let fits = Attributes::default().bytes(1, &[0; MOST_BYTES - 7]);
        assert!(fits.clone().finish().is_ok());
        assert_eq!(Attributes::default().nested(1, &fits).finish(), Err(AttributeError));
        assert_eq!(Attributes::default().bytes(1, &[0; MOST_BYTES]).finish(), Err(AttributeError));
    }
}
