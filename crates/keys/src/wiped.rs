//! Decoding messages that hold secrets, without copies that nobody wipes.

use prost::bytes::Bytes;
use prost::{DecodeError, Message};
use zeroize::Zeroizing;

/// Decodes a message. From a slice, prost copies each field of bytes through a buffer that it frees as it is; from counted
/// bytes it takes a part of them, and these are wiped with the last part. The message's own fields are its to wipe:
/// those with secrets derive it (`ZeroizeOnDrop`).
///
/// # Errors
/// prost's, when the bytes are no such message.
pub fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    M::decode(Bytes::from_owner(Zeroizing::new(bytes.to_vec())))
}

#[cfg(test)]
mod tests {
    use zeroize::ZeroizeOnDrop;

    use crate::{attempt, binding, coordinator, seal, ticket};

    const fn wipes<M: ZeroizeOnDrop>() {}

    /// A field that is added later is wiped, too: which are is derived. A message that is not wiped does not compile here.
    #[test]
    fn messages_that_hold_secrets_wipe_all_their_fields() {
        wipes::<attempt::BodyWire>();
        wipes::<seal::BodyWire>();
        wipes::<coordinator::KeysWire>();
        wipes::<coordinator::AuthorityWire>();
        wipes::<ticket::TicketWire>();
        wipes::<binding::UnprotectedWire>();
    }
}
