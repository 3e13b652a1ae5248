//! The salted session: HMAC over every command and answer, AES-128-CFB over their first parameter
//! (part 1, sections 19.6 and 21).
//!
//! ```text
//!  start ──▶ Session{nonce_tpm} ── authorise ──▶ Pending{nonce_caller} ── verify ──▶ Session{next nonce_tpm}
//! ```
//! A [`Pending`] owns the session, so no second command can be signed before the answer to the first was verified,
//! and a session whose answer did not verify is gone. All entities here have an empty password, so the session key
//! alone keys every HMAC.

use model::Secret;
use zeroize::Zeroizing;

use crate::code::{CommandCode, algorithm};
use crate::command::{CONTINUE_SESSION, Entity};
use crate::kdf::{self, CryptoError, Point, hmac_matches, hmac_sha256, kdfa, sha256};
use crate::response::SessionAnswer;
use crate::wire::Writer;

/// Purpose of a session in one command (part 2, section 8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Only to sign command and answer.
    Audit,
    /// To authorise the first handle.
    Authorise,
    /// To authorise the first handle, with the first parameter encrypted both ways.
    AuthoriseEncrypted,
    /// To encrypt the answer's first parameter; another session authorises, or nothing has to.
    EncryptAnswer,
}

const DECRYPT: u8 = 0x20; // the TPM decrypts: the command's parameter is encrypted
const ENCRYPT: u8 = 0x40; // the TPM encrypts: the answer's parameter is
const AUDIT: u8 = 0x80;

impl Purpose {
    const fn attributes(self) -> u8 {
        CONTINUE_SESSION
            | match self {
                Self::Audit => AUDIT,
                Self::Authorise => 0,
                Self::AuthoriseEncrypted => DECRYPT | ENCRYPT,
                Self::EncryptAnswer => ENCRYPT,
            }
    }
}

/// Parameters of TPM2_StartAuthSession, and our nonce in them.
pub(crate) struct Request {
    pub(crate) parameters: Writer,
    pub(crate) nonce_caller: [u8; 32],
}

impl Request {
    /// An HMAC session with parameter encryption, whose salt only `storage_key` can open; and that salt.
    pub(crate) fn salted(storage_key: Point) -> Result<(Self, Secret<32>), CryptoError> {
        let (salt, point) = kdf::salt_for(storage_key)?;
        let sent = Writer::new().sized(&point.x).sized(&point.y);
        let nonce_caller = kdf::nonce()?;
        let parameters = Writer::new()
            .sized(&nonce_caller)
            .sized(sent.as_slice())
            .u8(HMAC_SESSION)
            .u16(algorithm::AES)
            .u16(128)
            .u16(algorithm::CFB)
            .u16(algorithm::SHA256);
        Ok((Self { parameters, nonce_caller }, salt))
    }

    /// A policy session. It carries no secret: the salted session beside it signs and encrypts.
    pub(crate) fn policy() -> Result<Self, CryptoError> {
        let nonce_caller = kdf::nonce()?;
        let parameters = Writer::new()
            .sized(&nonce_caller)
            .sized(&[])
            .u8(POLICY_SESSION)
            .u16(algorithm::NULL)
            .u16(algorithm::SHA256);
        Ok(Self { parameters, nonce_caller })
    }
}

const HMAC_SESSION: u8 = 0;
const POLICY_SESSION: u8 = 1;

/// A salted session between two commands.
pub(crate) struct Session {
    key: Secret<32>,
    nonce_tpm: [u8; 32],
}

/// A command was signed; its answer is awaited.
pub(crate) struct Pending {
    session: Session,
    nonce_caller: [u8; 32],
    code: CommandCode,
    purpose: Purpose,
}

/// Session's part of the command's authorisation area.
pub(crate) struct Signature {
    pub(crate) nonce: [u8; 32],
    pub(crate) attributes: u8,
    pub(crate) hmac: [u8; 32],
}

/// Why an answer was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disbelief {
    /// HMAC or nonce is wrong.
    Forged,
    /// The library failed to decrypt.
    Crypto(CryptoError),
}

impl Session {
    /// A session that the TPM started with `nonce_tpm`.
    pub(crate) fn new(salt: &Secret<32>, nonce_caller: &[u8; 32], nonce_tpm: [u8; 32]) -> Self {
        let key = kdfa(salt.expose(), "ATH", &nonce_tpm, nonce_caller);
        Self { key, nonce_tpm }
    }

    /// Encrypts the first parameter if the purpose says so, and signs the command.
    pub(crate) fn authorise(
        self,
        code: CommandCode,
        entities: &[Entity],
        parameters: &mut [u8],
        purpose: Purpose,
    ) -> Result<(Pending, Signature), CryptoError> {
        let nonce = kdf::nonce()?;
        let attributes = purpose.attributes();
        if attributes & DECRYPT != 0 {
            let key = kdfa(self.key.expose(), "CFB", &nonce, &self.nonce_tpm);
            kdf::encrypt(&key, first_sized(parameters).ok_or(CryptoError)?)?;
        }
        let names: Vec<u8> = entities.iter().flat_map(|entity| entity.name()).collect();
        let hash = sha256(&[&code.value().to_be_bytes(), &names, parameters]);
        let hmac = hmac_sha256(self.key.expose(), &[&hash, &nonce, &self.nonce_tpm, &[attributes]]);
        Ok((Pending { session: self, nonce_caller: nonce, code, purpose }, Signature { nonce, attributes, hmac }))
    }
}

impl Pending {
    /// Verifies a successful answer and decrypts its first parameter if the purpose says so.
    pub(crate) fn verify(
        self,
        parameters: &[u8],
        answer: &SessionAnswer<'_>,
    ) -> Result<(Session, Zeroizing<Vec<u8>>), Disbelief> {
        let nonce_tpm: [u8; 32] = answer.nonce.try_into().map_err(|_| Disbelief::Forged)?;
        let success = [0; 4];
        let hash = sha256(&[&success, &self.code.value().to_be_bytes(), parameters]);
        let signed: [&[u8]; 4] = [&hash, &nonce_tpm, &self.nonce_caller, &[answer.attributes]];
        if !hmac_matches(self.session.key.expose(), &signed, answer.hmac) {
            return Err(Disbelief::Forged);
        }
        let mut parameters = Zeroizing::new(parameters.to_vec());
        if self.purpose.attributes() & ENCRYPT != 0 {
            let key = kdfa(self.session.key.expose(), "CFB", &nonce_tpm, &self.nonce_caller);
            let first = first_sized(&mut parameters).ok_or(Disbelief::Forged)?;
            kdf::decrypt(&key, first).map_err(Disbelief::Crypto)?;
        }
        Ok((Session { key: self.session.key, nonce_tpm }, parameters))
    }
}

/// The bytes of the first parameter, which must be a `TPM2B`: its size stays in clear.
fn first_sized(parameters: &mut [u8]) -> Option<&mut [u8]> {
    let (size, rest) = parameters.split_first_chunk_mut()?;
    rest.get_mut(..usize::from(u16::from_be_bytes(*size)))
}
