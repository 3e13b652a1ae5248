//! Activation from outside: a blank machine and whoever hands it its config prove to each other, on one TLS connection, that
//! they know the code on the machine's screen. Bytes and exporter in, proofs and verdicts out; no I/O, no clock.
//!
//! ```text
//!  caller  Caller ──believes(proof)──► ProvenPeer ──hands_in(config)──► proof, and only now the config
//!             ▲ HMAC "server" ‖ exporter ‖ SPKI                        │ HMAC "client" ‖ exporter ‖ SHA-256(config)
//!  machine BlankMachine: Open ──────────────────────────────────────────► Judging ──accepted──► Taken
//!             ▲                                                         │
//!             └───────────── the config is not taken ◄──────────────────┘
//! ```
//! The order is held by types: what hands a config in is made by checking the machine's proof. A relay has two connections, so
//! two exporters; an impostor lacks the code; and who only listens learns nothing that helps: the code has 128 bits.

use std::fmt;

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;
use model::{ConfigDigest, Secret};
use zeroize::Zeroizing;

use crate::derive::{hkdf, sha256};
use crate::purpose::Purpose;

/// Label of the TLS 1.3 exporter (RFC 8446, section 7.5) whose 32 bytes go into the proofs; its context is absent.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-cairn-activation";
/// Wrong codes on one connection before it is not listened to any more. Others are: nobody who guesses keeps the owner out.
pub const MOST_TRIES: u8 = 4;
/// The largest config that is handed in: one that holds the largest ticket fits.
pub const MOST_CONFIG_BYTES: usize = 8 << 10;

const CODE_BYTES: usize = 16;
/// 12 bits, so that code and checksum fill their letters.
const CHECKSUM_BITS: usize = 12;
/// Letters of base32 in a code.
const LETTERS: usize = (CODE_BYTES * 8 + CHECKSUM_BITS) / 5;
/// Letters between two dashes.
const GROUP: usize = 4;
const _: () = assert!((CODE_BYTES * 8 + CHECKSUM_BITS).is_multiple_of(5) && LETTERS.is_multiple_of(GROUP));

/// Code that a blank machine shows on its screen, fresh per boot.
///
/// ```text
/// base32 (RFC 4648, lower case) of 16 random bytes ‖ first 12 bits of
/// SHA-256("cairn/v1/checksum/activation" ‖ the 16 bytes), in seven groups of four letters
/// ```
pub struct Code(Secret<CODE_BYTES>);

/// Why a text is no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCode {
    /// Too few or too many letters.
    #[error("a code has {LETTERS} letters and digits, this text {0}")]
    Length(usize),
    /// A letter that no code has.
    #[error("a code has no `{0}`: it is made of the letters a to z and the digits 2 to 7")]
    Letter(char),
    /// Another checksum.
    #[error("the code was mistyped: its last letters do not fit the others")]
    Checksum,
}

impl Code {
    /// Draws one from `fill`, which fills a slice with random bytes.
    ///
    /// # Errors
    /// What `fill` returns.
    pub fn draw<E>(fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        Secret::fill(|bytes: &mut [u8; CODE_BYTES]| fill(bytes)).map(Self)
    }

    /// Reads what a person typed: in either case, with dashes and spaces wherever they like them.
    ///
    /// # Errors
    /// [`BadCode`] says what is wrong with it.
    pub fn from_text(text: &str) -> Result<Self, BadCode> {
        let letters = || text.chars().filter(|letter| *letter != '-' && !letter.is_whitespace());
        let base32 = |letter: &char| letter.is_ascii_alphabetic() || ('2'..='7').contains(letter);
        if let Some(other) = letters().find(|letter| !base32(letter)) {
            return Err(BadCode::Letter(other));
        }
        let count = letters().count();
        if count != LETTERS {
            return Err(BadCode::Length(count));
        }
        // Half a byte is missing to whole ones: a letter and a half of zeros, which say nothing.
        let mut upper = Zeroizing::new(String::with_capacity(PADDED));
        upper.extend(letters().map(|letter| letter.to_ascii_uppercase()).chain(['A'; PADDED - LETTERS]));
        let mut bytes = Zeroizing::new([0; BYTES + 2]);
        let decoded = BASE32_NOPAD.decode_mut(upper.as_bytes(), &mut bytes[..]);
        decoded.expect("letters of base32, eight for each five bytes");
        let (code, sum) = bytes.split_at(CODE_BYTES);
        if sum[..2] != checksum(code) {
            return Err(BadCode::Checksum);
        }
        Ok(Self(crate::derive::secret(code).expect("16 bytes")))
    }

    /// As the screen shows it.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let code = self.0.expose();
        let bytes = Zeroizing::new([&code[..], &checksum(code)].concat());
        let mut letters = Zeroizing::new(BASE32_NOPAD.encode(&bytes));
        letters.make_ascii_lowercase();
        let mut text = Zeroizing::new(String::with_capacity(LETTERS + LETTERS / GROUP));
        for (at, letter) in letters.chars().take(LETTERS).enumerate() {
            text.extend((at > 0 && at % GROUP == 0).then_some('-'));
            text.push(letter);
        }
        text
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, hkdf::<32>(&[], self.0.expose(), Purpose::Activation, &[]).expose())
    }
}

/// Code and checksum, the half byte filled up.
const BYTES: usize = CODE_BYTES + CHECKSUM_BITS.div_ceil(8);
/// Letters of a whole number of base32's blocks.
const PADDED: usize = LETTERS.next_multiple_of(8);
const _: () = assert!(PADDED / 8 * 5 == BYTES + 2);

/// The lower half of the second byte is none of it.
fn checksum(code: &[u8]) -> [u8; 2] {
    let sum = sha256(&[Purpose::ActivationChecksum.bytes(), code]);
    [sum[0], sum[1] & 0xf0]
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code")
    }
}

/// Connection as both of its ends see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// 32 bytes exported from the TLS session.
    pub exporter: [u8; 32],
    /// SHA-256 of the SubjectPublicKeyInfo of the machine's certificate on it.
    pub leaf_spki: [u8; 32],
}

impl Connection {
    /// All parts have a fixed length, so none carries it; the two words differ.
    fn machines_words(&self) -> Vec<u8> {
        [&b"server"[..], &self.exporter, &self.leaf_spki].concat()
    }

    fn callers_words(&self, config: ConfigDigest) -> Vec<u8> {
        [&b"client"[..], &self.exporter, &config.0].concat()
    }
}

/// HMAC-SHA256 under the code.
pub type Proof = [u8; 32];

fn sign(code: &Code, words: &[u8]) -> Proof {
    let mut proof = [0; 32];
    proof.copy_from_slice(hmac::sign(&code.key(), words).as_ref());
    proof
}

fn holds(code: &Code, words: &[u8], proof: &[u8]) -> bool {
    hmac::verify(&code.key(), words, proof).is_ok()
}

/// Caller that knows the code: has told nothing yet, and believes nobody.
#[derive(Debug)]
pub struct ActivationCaller<'a> {
    code: &'a Code,
    connection: Connection,
}

/// Somebody who knows the code is at the other end of the connection. Only [`ActivationCaller::believes`] makes one, so that no config is
/// on its way before:
///
/// ```compile_fail,E0451
/// fn beside(caller: keys::activation::ActivationCaller<'_>) -> keys::activation::ProvenPeer<'_> {
///     keys::activation::ProvenPeer { caller } // nobody proved anything
/// }
/// ```
#[derive(Debug)]
pub struct ProvenPeer<'a> {
    caller: ActivationCaller<'a>,
}

/// Another code, or another view of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "whoever answers does not know this code: it was mistyped, or is another machine's or an earlier start's, or somebody is between"
)]
pub struct CodeMismatch;

impl<'a> ActivationCaller<'a> {
    /// Somebody with this code, on this connection.
    #[must_use]
    pub const fn new(code: &'a Code, connection: Connection) -> Self {
        Self { code, connection }
    }

    /// Checks the machine's proof, in constant time.
    ///
    /// # Errors
    /// [`CodeMismatch`]: nothing was told, and nothing is to be.
    pub fn believes(self, proof: &[u8]) -> Result<ProvenPeer<'a>, CodeMismatch> {
        if holds(self.code, &self.connection.machines_words(), proof) {
            Ok(ProvenPeer { caller: self })
        } else {
            Err(CodeMismatch)
        }
    }
}

impl ProvenPeer<'_> {
    /// Proof that goes with this config.
    #[must_use]
    pub fn hands_in(&self, config: &[u8]) -> Proof {
        sign(self.caller.code, &self.caller.connection.callers_words(ConfigDigest(sha256(&[config]))))
    }
}

/// Tries that one connection has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tries(u8);

impl Default for Tries {
    fn default() -> Self {
        Self(MOST_TRIES)
    }
}

/// A blank machine that waits for a config.
#[derive(Debug)]
pub struct BlankMachine {
    code: Code,
    stands: Stands,
}

/// Where its activation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// For anybody with the code.
    Open,
    /// A config came with a right proof, and is looked at.
    Judging,
    /// The machine has its config.
    Taken,
}

/// Why a config is not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandInError {
    /// The proof is not made with the code on the screen, for this connection and this config.
    #[error("the code is not the one on the machine's screen")]
    Code,
    /// Too many of those.
    #[error("too many wrong codes on this connection")]
    Tries,
    /// More than [`MOST_CONFIG_BYTES`].
    #[error("the config has {0} bytes, at most {MOST_CONFIG_BYTES} are taken")]
    TooLarge(usize),
    /// Another config is being looked at.
    #[error("somebody else is activating the machine at this moment")]
    Underway,
    /// Another config was taken.
    #[error("somebody else has activated the machine")]
    Taken,
}

impl BlankMachine {
    /// A machine with this code on its screen.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self { code, stands: Stands::Open }
    }

    /// Proof, to anybody who knows the code, that the machine knows it, too.
    #[must_use]
    pub fn proof(&self, connection: &Connection) -> Proof {
        sign(&self.code, &connection.machines_words())
    }

    /// Somebody hands in a config: whether it is to be looked at. If it is, [`Self::judged`] has to follow, and until then
    /// nobody else's is looked at.
    ///
    /// # Errors
    /// [`HandInError`]; nothing was changed but what the connection may still try. A wrong code is told before anything that only
    /// those may know who have the right one.
    pub fn handed_in(
        &mut self,
        connection: &Connection,
        tries: &mut Tries,
        config: &[u8],
        proof: &[u8],
    ) -> Result<(), HandInError> {
        if tries.0 == 0 {
            return Err(HandInError::Tries);
        }
        if config.len() > MOST_CONFIG_BYTES {
            return Err(HandInError::TooLarge(config.len()));
        }
        if !holds(&self.code, &connection.callers_words(ConfigDigest(sha256(&[config]))), proof) {
            tries.0 -= 1;
            return Err(HandInError::Code);
        }
        match self.stands {
            Stands::Open => {
                self.stands = Stands::Judging;
                Ok(())
            }
            Stands::Judging => Err(HandInError::Underway),
            Stands::Taken => Err(HandInError::Taken),
        }
    }

    /// Notes the verdict on the config that was looked at.
    pub fn judged(&mut self, verdict: Verdict) {
        self.stands = match (self.stands, verdict) {
            (Stands::Taken, _) | (_, Verdict::Accepted) => Stands::Taken,
            (Stands::Open | Stands::Judging, Verdict::NotTaken) => Stands::Open,
        };
    }
}

/// Verdict on a config that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The machine goes on with it.
    Accepted,
    /// The machine does not go on with it, and waits for another.
    NotTaken,
}

#[cfg(test)]
mod tests;
