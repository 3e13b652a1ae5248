//! The channel to a TPM: its storage key and the salted session in which every exchange runs, and the plain exchanges
//! that lead there. Owns which command travels how; knows nothing of seals.
//!
//! ```text
//!  open: CreatePrimary (empty password) ▸ StartAuthSession (salt under the storage key)
//!  call: sign, encrypt ▸ exchange ▸ verify, decrypt      any failure ends the session
//!  close: FlushContext session, FlushContext key
//! ```

use std::error::Error;

use zeroize::Zeroizing;

use crate::code::{CommandCode, ResponseCode, handle};
use crate::command::{Authorisation, Entity, frame};
use crate::kdf::CryptoError;
use crate::object::{ObjectName, StorageKeyPublic};
use crate::response::{self, AnswerFrame, TpmAnswer};
use crate::session::{Disbelief, Purpose, Request, Session};
use crate::wire::{MalformedAnswer, Writer};

/// The way to a TPM: a device file or an emulator's socket.
pub trait Transport {
    /// Why an exchange failed.
    type Error: Error + 'static;

    /// Sends one whole command and returns the whole answer, at most 4096 bytes. A TPM that answers "busy, again" is
    /// asked again here, with the pauses it needs; Linux does so for both its device files.
    ///
    /// # Errors
    /// When the device cannot be written or read. An answer that says "refused" is not an error here.
    fn transact(&mut self, command: &[u8]) -> Result<Vec<u8>, Self::Error>;
}

impl<T: Transport + ?Sized> Transport for &mut T {
    type Error = T::Error;

    fn transact(&mut self, command: &[u8]) -> Result<Vec<u8>, T::Error> {
        (**self).transact(command)
    }
}

/// Why something could not be had from the TPM. `E` is the transport's error.
#[derive(Debug, thiserror::Error)]
pub enum TpmError<E: Error + 'static> {
    /// The device failed while a command was sent or its answer read.
    #[error("send {command} to the TPM")]
    Transport {
        command: CommandCode,
        #[source]
        source: E,
    },
    /// The TPM answered with an error code.
    #[error("the TPM refuses {command}: {code}")]
    Refused {
        command: CommandCode,
        /// Reason that the TPM gives. It is not covered by an HMAC: the bus may have said it.
        code: ResponseCode,
    },
    /// The answer is not one to this command.
    #[error("read the TPM's answer to {command}")]
    Malformed {
        command: CommandCode,
        #[source]
        source: MalformedAnswer,
    },
    /// The answer's HMAC is wrong: it was changed on its way, or does not come from the TPM that holds the key.
    #[error("the answer to {command} was changed on its way from the TPM")]
    Forged { command: CommandCode },
    /// No key could be derived: no randomness, or the TPM's key is no point of its curve.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

impl<E: Error> TpmError<E> {
    /// The TPM's reason, if this is a refusal.
    #[must_use]
    pub const fn refusal(&self) -> Option<ResponseCode> {
        if let Self::Refused { code, .. } = self { Some(*code) } else { None }
    }
}

/// Sends a command as it is and takes the answer apart, believing nothing yet.
pub(crate) fn exchange<'a, T: Transport>(
    transport: &mut T,
    command: CommandCode,
    bytes: &[u8],
    sessions: usize,
    answer: &'a mut Zeroizing<Vec<u8>>,
) -> Result<AnswerFrame<'a>, TpmError<T::Error>> {
    **answer = transport.transact(bytes).map_err(|source| TpmError::Transport { command, source })?;
    match response::answer(command, sessions, answer) {
        Ok(TpmAnswer::Done(frame)) => Ok(frame),
        Ok(TpmAnswer::Refused(code)) => Err(TpmError::Refused { command, code }),
        Err(source) => Err(TpmError::Malformed { command, source }),
    }
}

/// Forgets a key, an object or a session (part 3, section 28.4). The one command that no session may sign.
pub(crate) fn flush<T: Transport>(transport: &mut T, handle: u32) -> Result<(), TpmError<T::Error>> {
    let command = CommandCode::FlushContext;
    let bytes = frame(command, &[], &[], &handle.to_be_bytes());
    let mut answer = Zeroizing::default();
    let done = exchange(transport, command, &bytes, 0, &mut answer)?;
    response::nothing(done.parameters).map_err(|source| TpmError::Malformed { command, source })
}

/// Starts a session, bound to no object, and returns its handle and the TPM's nonce.
fn start<T: Transport>(
    transport: &mut T,
    salted_to: u32,
    request: &Request,
) -> Result<(u32, [u8; 32]), TpmError<T::Error>> {
    let command = CommandCode::StartAuthSession;
    let bytes = frame(command, &[salted_to, handle::NULL], &[], request.parameters.as_slice());
    let mut answer = Zeroizing::default();
    let done = exchange(transport, command, &bytes, 0, &mut answer)?;
    let handle = new_handle(command, &done)?;
    let nonce = response::start_auth_session(done.parameters).map_err(|source| TpmError::Malformed { command, source });
    Ok((handle, flushed_on_error(transport, handle, nonce)?))
}

/// The handle that `command` made.
fn new_handle<E: Error>(command: CommandCode, done: &AnswerFrame<'_>) -> Result<u32, TpmError<E>> {
    done.handle.ok_or(TpmError::Malformed { command, source: MalformedAnswer::Truncated })
}

/// Forgets `handle` if what was to be done with it failed.
fn flushed_on_error<T: Transport, R>(
    transport: &mut T,
    handle: u32,
    result: Result<R, TpmError<T::Error>>,
) -> Result<R, TpmError<T::Error>> {
    if result.is_err() {
        // The first error is the one to tell; what cannot be flushed goes when the device is closed or reset.
        let _ = flush(transport, handle);
    }
    result
}

/// An unsalted policy session, for one use beside the salted one.
pub(crate) fn start_policy<T: Transport>(transport: &mut T) -> Result<u32, TpmError<T::Error>> {
    Ok(start(transport, handle::NULL, &Request::policy()?)?.0)
}

/// Command to be sent in the salted session.
pub(crate) struct Call<'a> {
    pub(crate) code: CommandCode,
    pub(crate) entities: &'a [Entity],
    /// Policy session that authorises the first entity, where the salted one does not.
    pub(crate) policy: Option<u32>,
    pub(crate) purpose: Purpose,
    pub(crate) parameters: Writer,
}

/// Parameters that the session verified and, where they were encrypted, decrypted.
pub(crate) struct Verified {
    pub(crate) handle: Option<u32>,
    pub(crate) parameters: Zeroizing<Vec<u8>>,
}

/// A storage key with a salted session to it.
pub(crate) struct Channel {
    /// None from the moment its hierarchy is closed, which takes it away.
    key_handle: Option<u32>,
    key: ObjectName,
    session_handle: u32,
    /// None from the moment a command is signed until its answer verified.
    session: Option<Session>,
}

impl Channel {
    pub(crate) fn open<T: Transport>(transport: &mut T) -> Result<Self, TpmError<T::Error>> {
        let (key_handle, key) = create_primary(transport)?;
        let salted = salted(transport, key_handle, &key);
        let (session_handle, session) = flushed_on_error(transport, key_handle, salted)?;
        Ok(Self { key_handle: Some(key_handle), key: key.name, session_handle, session: Some(session) })
    }

    /// The storage key's name: which TPM this is.
    pub(crate) const fn key(&self) -> ObjectName {
        self.key
    }

    /// The storage key, as what a command is about.
    pub(crate) fn key_entity(&self) -> Entity {
        Entity::Object { handle: self.key_handle.unwrap_or(handle::NULL), name: self.key }
    }

    /// The owner hierarchy is closed: the TPM has forgotten the storage key; the session goes on.
    pub(crate) const fn key_is_gone(&mut self) {
        self.key_handle = None;
    }

    /// Signs, sends, verifies. After a failure the session is gone and every further call fails as forged: whoever
    /// owns the channel closes it.
    pub(crate) fn call<T: Transport>(
        &mut self,
        transport: &mut T,
        call: Call<'_>,
    ) -> Result<Verified, TpmError<T::Error>> {
        let Call { code: command, entities, policy, purpose, mut parameters } = call;
        let session = self.session.take().ok_or(TpmError::Forged { command })?;
        let (pending, signature) = session.authorise(command, entities, parameters.as_mut_slice(), purpose)?;
        let salted = Authorisation {
            session: self.session_handle,
            nonce: &signature.nonce,
            attributes: signature.attributes,
            hmac: &signature.hmac,
        };
        let authorisations: Vec<_> = policy.map(Authorisation::policy).into_iter().chain([salted]).collect();
        let handles: Vec<u32> = entities.iter().map(|entity| entity.handle()).collect();
        let bytes = frame(command, &handles, &authorisations, parameters.as_slice());
        let mut answer = Zeroizing::default();
        let done = exchange(transport, command, &bytes, authorisations.len(), &mut answer)?;
        let signed = done.sessions.last().ok_or(TpmError::Forged { command })?;
        let verified = pending.verify(done.parameters, signed).map_err(|why| match why {
            Disbelief::Forged => TpmError::Forged { command },
            Disbelief::Crypto(failed) => TpmError::Crypto(failed),
        });
        let (session, parameters) = match done.handle {
            Some(handle) => flushed_on_error(transport, handle, verified)?,
            None => verified?,
        };
        self.session = Some(session);
        Ok(Verified { handle: done.handle, parameters })
    }

    /// Forgets session and key, the key also when the session could not be; the first failure is told.
    pub(crate) fn close<T: Transport>(self, transport: &mut T) -> Result<(), TpmError<T::Error>> {
        let session = flush(transport, self.session_handle);
        let key = self.key_handle.map_or(Ok(()), |key| flush(transport, key));
        session.and(key)
    }
}

fn create_primary<T: Transport>(transport: &mut T) -> Result<(u32, StorageKeyPublic), TpmError<T::Error>> {
    let command = CommandCode::CreatePrimary;
    let parameters = Writer::new()
        .sized(&[0; 4]) // no password, no data of ours
        .sized(StorageKeyPublic::template().as_slice())
        .sized(&[]) // outside info
        .u32(0); // creation PCRs
    let bytes = frame(command, &[handle::OWNER], &[Authorisation::EMPTY_PASSWORD], parameters.as_slice());
    let mut answer = Zeroizing::default();
    let done = exchange(transport, command, &bytes, 1, &mut answer)?;
    let handle = new_handle(command, &done)?;
    let key = response::storage_key(done.parameters).map_err(|source| TpmError::Malformed { command, source });
    Ok((handle, flushed_on_error(transport, handle, key)?))
}

fn salted<T: Transport>(
    transport: &mut T,
    key_handle: u32,
    key: &StorageKeyPublic,
) -> Result<(u32, Session), TpmError<T::Error>> {
    let (request, salt) = Request::salted(key.point)?;
    let (handle, nonce_tpm) = start(transport, key_handle, &request)?;
    Ok((handle, Session::new(&salt, &request.nonce_caller, nonce_tpm)))
}
