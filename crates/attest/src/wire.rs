//! Wire primitives: big-endian integers and 16-bit sized buffers (part 2, sections 5 and 10.4).
//!
//! Knows no command and no meaning. Reading never panics; writing wipes its buffer when dropped, because some
//! commands carry a secret until it is encrypted in place.

use zeroize::Zeroizing;

/// Larger than every command of this crate, so that a buffer with a secret in it is never moved by growing.
const COMMAND_CAPACITY: usize = 4096;

/// Why bytes are not the answer that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedAnswer {
    /// The bytes end too early.
    #[error("the bytes end too early")]
    Truncated,
    /// Bytes are left over.
    #[error("bytes are left over")]
    Trailing,
    /// The size in the header is not the size of the bytes.
    #[error("the size in the header is wrong")]
    Size,
    /// The tag says with sessions where there are none, or the reverse.
    #[error("unexpected tag {0:#06x}")]
    Tag(u16),
    /// A field has a value that this command's answer cannot have.
    #[error("unexpected value of the {0}")]
    Field(&'static str),
}

/// Builds commands and what is hashed into names and policies.
pub(crate) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(Zeroizing::new(Vec::with_capacity(COMMAND_CAPACITY)))
    }

    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A `TPM2B`: size, then the bytes. Callers pass what they built or what they bounded when they parsed it.
    pub(crate) fn sized(self, bytes: &[u8]) -> Self {
        let size = u16::try_from(bytes.len()).expect("a sized buffer is bounded where it is parsed or built");
        self.u16(size).bytes(bytes)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub(crate) fn into_vec(self) -> Zeroizing<Vec<u8>> {
        self.0
    }
}

/// Reads an answer from its front.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], MalformedAnswer> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(MalformedAnswer::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedAnswer> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(MalformedAnswer::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MalformedAnswer> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MalformedAnswer> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MalformedAnswer> {
        self.array().map(u32::from_be_bytes)
    }

    /// The bytes of a `TPM2B`.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], MalformedAnswer> {
        let size = self.u16()?;
        self.take(usize::from(size))
    }

    /// The bytes of a `TPM2B` that must be exactly `N`; `field` names it in the error.
    pub(crate) fn sized_array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], MalformedAnswer> {
        self.sized()?.try_into().map_err(|_| MalformedAnswer::Field(field))
    }

    /// Bytes that are not read yet.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Done: nothing may be left.
    pub(crate) const fn finish(self) -> Result<(), MalformedAnswer> {
        if self.0.is_empty() { Ok(()) } else { Err(MalformedAnswer::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(a: u8, b: u16, c: u32, d in prop::collection::vec(any::<u8>(), 0..300)) {
            let bytes = Writer::new().u8(a).u16(b).u32(c).sized(&d).into_vec();
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.u8(), Ok(a));
            prop_assert_eq!(reader.u16(), Ok(b));
            prop_assert_eq!(reader.u32(), Ok(c));
            prop_assert_eq!(reader.sized(), Ok(d.as_slice()));
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        #[test]
        fn a_sized_buffer_never_reads_past_the_end(size: u16, bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let framed = Writer::new().u16(size).bytes(&bytes).into_vec();
            let read = Reader::new(&framed).sized().map(<[u8]>::len);
            let expected = if usize::from(size) <= bytes.len() { Ok(usize::from(size)) } else { Err(MalformedAnswer::Truncated) };
            prop_assert_eq!(read, expected);
        }
    }
}
