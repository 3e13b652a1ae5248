//! Key derivation and parameter encryption as the TPM does them (part 1, sections 11.4.10.2,
//! 11.4.10.3 and 21.3, annex C).
//!
//! Pure functions over bytes, SHA-256 and AES-128 only. Never keeps a key: what it derives it hands out as [`Secret`].

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::cipher::{
    AES_128, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::{digest, hmac};
use model::Secret;

/// The cryptographic library failed, or the TPM's key is no point of its curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("derive the keys of a TPM session")]
pub struct CryptoError;

/// A point of P-256, as two big-endian coordinates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) x: [u8; 32],
    pub(crate) y: [u8; 32],
}

/// SHA-256 over the parts, one after another.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// HMAC-SHA-256 over the parts, to be compared by [`hmac_matches`] only.
pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")
}

/// Whether `tag` is the HMAC over the parts, in constant time.
pub(crate) fn hmac_matches(key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), &parts.concat(), tag).is_ok()
}

/// KDFa: 256 bits, one round of SP 800-108 in counter mode. `label` without its terminating zero.
pub(crate) fn kdfa(key: &[u8], label: &str, context_u: &[u8], context_v: &[u8]) -> Secret<32> {
    let mut derived = hmac_sha256(key, &[&[0, 0, 0, 1], label.as_bytes(), &[0], context_u, context_v, &BITS]);
    Secret::take(&mut derived)
}

/// KDFe: 256 bits, one round of SP 800-56A. `label` without its terminating zero.
pub(crate) fn kdfe(z: &[u8], label: &str, party_u: &[u8; 32], party_v: &[u8; 32]) -> Secret<32> {
    let mut derived = sha256(&[&[0, 0, 0, 1], z, label.as_bytes(), &[0], party_u, party_v]);
    Secret::take(&mut derived)
}

/// Everything derived here is as long as one round: a session key, or an AES-128 key and its IV.
const BITS: [u8; 4] = 256u32.to_be_bytes();

/// A salt that only the holder of `storage_key` can find out, and the point to send it (part 1, annex C).
pub(crate) fn salt_for(storage_key: Point) -> Result<(Secret<32>, Point), CryptoError> {
    let ours = PrivateKey::generate(&ECDH_P256).map_err(|_| CryptoError)?;
    let public = ours.compute_public_key().map_err(|_| CryptoError)?;
    let (x, y) = coordinates(public.as_ref()).ok_or(CryptoError)?;
    let theirs = [&[UNCOMPRESSED][..], &storage_key.x, &storage_key.y].concat();
    let salt = agree(&ours, UnparsedPublicKey::new(&ECDH_P256, theirs), CryptoError, |z| {
        Ok(kdfe(z, "SECRET", &x, &storage_key.x))
    })?;
    Ok((salt, Point { x, y }))
}

/// First byte of an uncompressed point (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

fn coordinates(point: &[u8]) -> Option<([u8; 32], [u8; 32])> {
    let (x, y) = point.strip_prefix(&[UNCOMPRESSED])?.split_at_checked(32)?;
    Some((x.try_into().ok()?, y.try_into().ok()?))
}

/// Random bytes for a nonce.
pub(crate) fn nonce() -> Result<[u8; 32], CryptoError> {
    let mut nonce = [0; 32];
    SystemRandom::new().fill(&mut nonce).map_err(|_| CryptoError)?;
    Ok(nonce)
}

/// Encrypts in place with AES-128-CFB; `key_and_iv` are 16 bytes each.
pub(crate) fn encrypt(key_and_iv: &Secret<32>, data: &mut [u8]) -> Result<(), CryptoError> {
    let (key, iv) = split(key_and_iv)?;
    let key = EncryptingKey::cfb128(key).map_err(|_| CryptoError)?;
    key.less_safe_encrypt(data, EncryptionContext::Iv128(iv)).map(drop).map_err(|_| CryptoError)
}

/// The inverse of [`encrypt`].
pub(crate) fn decrypt(key_and_iv: &Secret<32>, data: &mut [u8]) -> Result<(), CryptoError> {
    let (key, iv) = split(key_and_iv)?;
    let key = DecryptingKey::cfb128(key).map_err(|_| CryptoError)?;
    key.decrypt(data, DecryptionContext::Iv128(iv)).map(drop).map_err(|_| CryptoError)
}

fn split(key_and_iv: &Secret<32>) -> Result<(UnboundCipherKey, FixedLength<16>), CryptoError> {
    let (key, iv) = key_and_iv.expose().split_at(16);
    let iv: [u8; 16] = iv.try_into().map_err(|_| CryptoError)?;
    Ok((UnboundCipherKey::new(&AES_128, key).map_err(|_| CryptoError)?, iv.into()))
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        HEXLOWER.decode(text.as_bytes()).expect("hexadecimal")
    }

    fn counting() -> [u8; 32] {
        std::array::from_fn(|index| u8::try_from(index).expect("32 fits"))
    }

    /// Computed with Python: `hmac.new(key, pack('>I', 1) + b'ATH\0' + u + v + pack('>I', 256), 'sha256')`.
    #[test]
    fn kdfa_has_its_known_answers() {
        let derived = |label| HEXLOWER.encode(kdfa(&counting(), label, &[0xaa; 32], &[0xbb; 32]).expose());
        assert_eq!(derived("ATH"), "bb9b7f11a0bf57417f1322938de626ef68b0c8ec03dada9edc924d577c909845");
        assert_eq!(derived("CFB"), "30f31c8ddb5e03ba079d74cf53abe792a8b4e8dd5344b415b3bd4b77ba423b6f");
    }

    /// Computed with Python: `sha256(pack('>I', 1) + z + b'SECRET\0' + u + v)`.
    #[test]
    fn kdfe_has_its_known_answer() {
        let derived = kdfe(&[0xcc; 32], "SECRET", &[0xaa; 32], &[0xbb; 32]);
        let expected = "a107b348385a339b263d876ddf9ebb8b7c11b66785e6bc86a169130e63580697";
        assert_eq!(HEXLOWER.encode(derived.expose()), expected);
    }

    /// NIST SP 800-38A, section F.3.13, with a last block that is not full.
    #[test]
    fn cfb_has_its_known_answer() {
        let key = hex("2b7e151628aed2a6abf7158809cf4f3c000102030405060708090a0b0c0d0e0f");
        let key = Secret::take(&mut key.try_into().expect("32 bytes"));
        let plain = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46");
        let mut data = plain.clone();
        encrypt(&key, &mut data).expect("encrypt");
        assert_eq!(HEXLOWER.encode(&data), "3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f1ce58b26751f67");
        decrypt(&key, &mut data).expect("decrypt");
        assert_eq!(data, plain);
    }

    #[test]
    fn no_nonce_is_used_twice() {
        assert_ne!(nonce(), nonce());
    }

    #[test]
    fn a_salt_is_for_the_keys_holder_and_for_points_of_the_curve() {
        let theirs = PrivateKey::generate(&ECDH_P256).expect("generate");
        let public = theirs.compute_public_key().expect("compute");
        let (x, y) = coordinates(public.as_ref()).expect("uncompressed");
        let (salt, point) = salt_for(Point { x, y }).expect("salt");
        let sent = [&[UNCOMPRESSED][..], &point.x, &point.y].concat();
        let opened =
            agree(&theirs, UnparsedPublicKey::new(&ECDH_P256, sent), (), |z| Ok(kdfe(z, "SECRET", &point.x, &x)));
        assert_eq!(opened.expect("agree").expose(), salt.expose());
        assert_eq!(salt_for(Point { x, y: x }).err(), Some(CryptoError), "not on the curve");
    }
}
