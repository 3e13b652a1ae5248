//! Ethernet frames, alone and on a stream as QEMU's `-netdev stream` sends them: each behind its length, 4 bytes
//! big-endian (QEMU: net/stream.c). Knows the header only, never what a frame carries. Pure.

use std::sync::Arc;

use crate::machine::Mac;

/// Destination, source, type (IEEE 802.3, clause 3).
pub(super) const HEADER: usize = 14;
/// QEMU's own limit (NET_BUFSIZE in include/net/net.h): a longer one is not a frame but a stream out of step.
const LONGEST: usize = 4096 + 65536;

/// A frame with a whole header. Copies share their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame(Arc<[u8]>);

/// Fewer bytes than a header has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes are no Ethernet frame")]
pub struct Runt(pub usize);

impl Frame {
    /// Takes what came from a cable.
    ///
    /// # Errors
    /// [`Runt`]
    pub fn parse(bytes: &[u8]) -> Result<Self, Runt> {
        if bytes.len() < HEADER { Err(Runt(bytes.len())) } else { Ok(Self(bytes.into())) }
    }

    /// Destination of the frame: a station, or a group of them.
    #[must_use]
    pub fn destination(&self) -> Mac {
        self.address(0)
    }

    /// Station that the frame says it is from.
    #[must_use]
    pub fn source(&self) -> Mac {
        self.address(6)
    }

    /// All of it, without the checksum that no virtual cable carries.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn address(&self, at: usize) -> Mac {
        Mac(*self.0[at..].first_chunk().expect("a frame has a whole header"))
    }
}

/// Puts a frame behind its length, as it travels.
pub fn encode(frame: &[u8], stream: &mut Vec<u8>) {
    let length = u32::try_from(frame.len()).expect("frames are shorter than 4 GiB");
    stream.extend_from_slice(&length.to_be_bytes());
    stream.extend_from_slice(frame);
}

/// The stream is out of step: a length that no frame has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes")]
pub struct TooLong(pub usize);

/// Decoder of bytes into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// How many of them have been read.
    read: usize,
}

impl Decoder {
    /// Takes bytes that came from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        // What was read is let go once for each piece, not once for each frame in it.
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes of the next whole frame, if they are there. They may still be a [`Runt`].
    ///
    /// # Errors
    /// [`TooLong`]
    pub fn pop(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let Some((length, rest)) = self.bytes[self.read..].split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(TooLong(length));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        self.read += 4 + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_any_cut_of_the_stream(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..10),
            cut in 1usize..50,
        ) {
            let mut stream = Vec::new();
            frames.iter().for_each(|frame| encode(frame, &mut stream));
            let (mut decoder, mut seen) = (Decoder::default(), Vec::new());
            for part in stream.chunks(cut) {
                decoder.push(part);
                while let Some(frame) = decoder.pop().unwrap() {
                    seen.push(frame.to_vec());
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert_eq!(decoder.read, decoder.bytes.len());
        }
    }

    #[test]
    fn known_bytes() {
        let mut stream = vec![7];
        encode(b"ab", &mut stream);
        assert_eq!(stream, [7, 0, 0, 0, 2, b'a', b'b']);
    }

    #[test]
    fn a_stream_out_of_step_is_noticed() {
        let mut decoder = Decoder::default();
        decoder.push(&[0xff; 8]);
        assert_eq!(decoder.pop(), Err(TooLong(0xffff_ffff)));
    }

    #[test]
    fn a_header_is_read_and_less_is_none() {
        let frame = Frame::parse(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0]).unwrap();
        assert_eq!(frame.destination(), Mac([1, 2, 3, 4, 5, 6]));
        assert_eq!(frame.source(), Mac([7, 8, 9, 10, 11, 12]));
        assert_eq!(Frame::parse(&[0; 13]), Err(Runt(13)));
    }
}
