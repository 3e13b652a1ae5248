//! Ethernet frames on a stream, as QEMU's `-netdev stream` sends them: each behind its length, 4 bytes big-endian
//! (QEMU: net/stream.c). Pure.

/// QEMU's own limit (NET_BUFSIZE in include/net/net.h): a longer one is not a frame but a stream out of step.
const LONGEST: usize = 4096 + 65536;

/// A frame as it travels.
pub(super) fn encode(frame: &[u8]) -> Vec<u8> {
    let length = u32::try_from(frame.len()).expect("frames are shorter than 4 GiB");
    [&length.to_be_bytes(), frame].concat()
}

/// The stream is out of step: a length that no frame has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes")]
pub(super) struct TooLong(usize);

/// Bytes into frames.
#[derive(Debug, Default)]
pub(super) struct Decoder(Vec<u8>);

impl Decoder {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole frame, if it is there.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let Some((length, rest)) = self.0.split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(TooLong(length));
        }
        let Some(frame) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.0.drain(..4 + length);
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
            let stream: Vec<u8> = frames.iter().flat_map(|frame| encode(frame)).collect();
            let (mut decoder, mut seen) = (Decoder::default(), Vec::new());
            for part in stream.chunks(cut) {
                decoder.push(part);
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push(frame);
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert!(decoder.0.is_empty());
        }
    }

    #[test]
    fn known_bytes() {
        assert_eq!(encode(b"ab"), [0, 0, 0, 2, b'a', b'b']);
    }

    #[test]
    fn a_stream_out_of_step_is_noticed() {
        let mut decoder = Decoder::default();
        decoder.push(&[0xff; 8]);
        assert_eq!(decoder.next(), Err(TooLong(0xffff_ffff)));
    }
}
