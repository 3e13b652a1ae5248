//! The primitives, each in the one form the formats use: HKDF-SHA256, SHA-256, AES-256-GCM, comparison in constant
//! time. Everything comes from aws-lc-rs; nothing here knows what a key is for beyond its [`Purpose`].

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, digest, hkdf};
use model::Secret;
use zeroize::Zeroizing;

use crate::purpose::Purpose;

/// Bytes that AES-256-GCM adds to what it encrypts.
pub const TAG_BYTES: usize = 16;

/// HKDF-SHA256 (RFC 5869): extract with `salt`, expand with the purpose's label and then `context` to `N` bytes.
/// Parts of variable length in `context` carry their own length.
#[must_use]
pub fn hkdf<const N: usize>(salt: &[u8], secret: &[u8], purpose: Purpose, context: &[&[u8]]) -> Secret<N> {
    const { assert!(N <= 255 * 32, "HKDF-SHA256 gives at most 255 hashes") };
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let info = [&[purpose.bytes()], context].concat();
    let expanded = extracted.expand(&info, Length(N)).expect("N is within HKDF's bound");
    Secret::fill(|out| expanded.fill(out)).expect("the output has the length that was asked for")
}

/// A secret of `N` bytes out of `bytes`, if they are as many. The source is the caller's to wipe.
#[must_use]
pub fn secret<const N: usize>(bytes: &[u8]) -> Option<Secret<N>> {
    let bytes: &[u8; N] = bytes.try_into().ok()?;
    Secret::fill(|out| {
        out.copy_from_slice(bytes);
        Ok::<(), std::convert::Infallible>(())
    })
    .ok()
}

/// SHA-256 of the parts one after another.
#[must_use]
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// Whether two public-length values are equal, in time that does not tell where they differ.
#[must_use]
pub fn equal(left: &[u8], right: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(left, right).is_ok()
}

/// Refusal of AES-256-GCM: a wrong key, another nonce or AAD, or changed bytes. It cannot tell which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("authentication failed: another key, or changed bytes")]
pub struct Unauthentic;

/// Encrypts `plain` under AES-256-GCM; the tag follows the ciphertext. A (key, nonce) pair is used once.
#[must_use]
pub fn encrypt(key: &Secret<32>, nonce: [u8; 12], aad: &[u8], plain: &[u8]) -> Vec<u8> {
    // Room for the tag from the start: growing would leave a copy of the plain text behind.
    let mut bytes = Vec::with_capacity(plain.len() + TAG_BYTES);
    bytes.extend_from_slice(plain);
    gcm(key)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut bytes)
        .expect("what Cairn encrypts is far below the bound of AES-GCM");
    bytes
}

/// The inverse of [`encrypt`].
///
/// # Errors
/// [`Unauthentic`] when key, nonce, AAD or bytes are not those of the encryption.
pub fn decrypt(
    key: &Secret<32>,
    nonce: [u8; 12],
    aad: &[u8],
    cipher: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Unauthentic> {
    let mut bytes = Zeroizing::new(cipher.to_vec());
    let length = gcm(key)
        .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut bytes)
        .map_err(|_| Unauthentic)?
        .len();
    bytes.truncate(length);
    Ok(bytes)
}

fn gcm(key: &Secret<32>) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose()).expect("AES-256 takes 32 bytes"))
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    #[test]
    fn sha256_is_that_of_fips_180() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(HEXLOWER.encode(&sha256(&[b"a", b"", b"bc"])), expected);
    }

    #[test]
    fn what_was_encrypted_opens_only_with_everything_equal() {
        let key = Secret::take(&mut [1; 32]);
        let cipher = encrypt(&key, [2; 12], b"aad", b"plain");
        assert_eq!(cipher.len(), 5 + TAG_BYTES);
        assert_eq!(decrypt(&key, [2; 12], b"aad", &cipher).as_deref().map(Vec::as_slice), Ok(&b"plain"[..]));
        let other = Secret::take(&mut [3; 32]);
        assert_eq!(decrypt(&other, [2; 12], b"aad", &cipher), Err(Unauthentic));
        assert_eq!(decrypt(&key, [3; 12], b"aad", &cipher), Err(Unauthentic));
        assert_eq!(decrypt(&key, [2; 12], b"add", &cipher), Err(Unauthentic));
        assert_eq!(decrypt(&key, [2; 12], b"aad", &cipher[..TAG_BYTES - 1]), Err(Unauthentic));
    }

    /// Proves: K8
    #[test]
    fn a_purpose_and_its_context_make_another_key() {
        let key = |salt: &[u8], purpose, context: &[&[u8]]| *hkdf::<32>(salt, b"secret", purpose, context).expose();
        let base = key(b"salt", Purpose::Seal, &[b"context"]);
        assert_ne!(base, key(b"salz", Purpose::Seal, &[b"context"]));
        assert_ne!(base, key(b"salt", Purpose::Cap, &[b"context"]));
        assert_ne!(base, key(b"salt", Purpose::Seal, &[b"contexT"]));
    }
}
