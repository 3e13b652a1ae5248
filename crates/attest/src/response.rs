//! Answers of a TPM: a parser per command, strict and total. Whatever bytes come, the result is a value or an error.
//!
//! Never trusts: an answer is meaning only after the session verified it, which is not done here. Public so that a
//! fuzzer can reach every parser.

use std::fmt;

use model::{PcrSelection, Secret};

use crate::code::{CommandCode, ResponseCode, capability, tag};
use crate::object::{ObjectName, StorageKeyPublic};
use crate::pcr::{PcrDigest, PcrValues, selection_wire};
use crate::wire::{MalformedAnswer, Reader};

/// Answer to a command: an error, or a frame.
#[derive(Debug)]
pub enum TpmAnswer<'a> {
    /// The command failed; nothing follows.
    Refused(ResponseCode),
    /// The command succeeded.
    Done(AnswerFrame<'a>),
}

/// The parts of a successful answer. `Debug` shows sizes only: parameters may be a secret in clear.
pub struct AnswerFrame<'a> {
    /// Handle of the new key, object or session, for the commands that make one.
    pub handle: Option<u32>,
    /// Parameters, as they were hashed into the sessions' HMACs.
    pub parameters: &'a [u8],
    /// Answers of the command's sessions, in their order.
    pub sessions: Vec<SessionAnswer<'a>>,
}

impl fmt::Debug for AnswerFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerFrame({} bytes of parameters, {} sessions)", self.parameters.len(), self.sessions.len())
    }
}

/// Part of an answer that belongs to a session (part 2, section 10.13.3).
#[derive(Debug)]
pub struct SessionAnswer<'a> {
    /// The TPM's next nonce.
    pub nonce: &'a [u8],
    /// Attributes, as hashed into the HMAC.
    pub attributes: u8,
    /// HMAC over the answer; empty where the session has no key.
    pub hmac: &'a [u8],
}

/// Takes an answer to `code`, sent with `sessions` sessions, apart.
///
/// # Errors
/// [`MalformedAnswer`] when it is not the answer to such a command.
pub fn answer(code: CommandCode, sessions: usize, bytes: &[u8]) -> Result<TpmAnswer<'_>, MalformedAnswer> {
    let mut reader = Reader::new(bytes);
    let tag = reader.u16()?;
    if usize::try_from(reader.u32()?) != Ok(bytes.len()) {
        return Err(MalformedAnswer::Size);
    }
    let response = reader.u32()?;
    if response != 0 {
        reader.finish()?;
        return Ok(TpmAnswer::Refused(ResponseCode(response)));
    }
    let expected = if sessions == 0 { tag::NO_SESSIONS } else { tag::SESSIONS };
    if tag != expected {
        return Err(MalformedAnswer::Tag(tag));
    }
    let handle = if code.answers_with_handle() { Some(reader.u32()?) } else { None };
    if sessions == 0 {
        return Ok(TpmAnswer::Done(AnswerFrame { handle, parameters: reader.rest(), sessions: Vec::new() }));
    }
    let size = usize::try_from(reader.u32()?).map_err(|_| MalformedAnswer::Size)?;
    let parameters = reader.take(size)?;
    let sessions = (0..sessions)
        .map(|_| Ok(SessionAnswer { nonce: reader.sized()?, attributes: reader.u8()?, hmac: reader.sized()? }))
        .collect::<Result<_, MalformedAnswer>>()?;
    reader.finish()?;
    Ok(TpmAnswer::Done(AnswerFrame { handle, parameters, sessions }))
}

/// Parameters of an answer that has none.
///
/// # Errors
/// [`MalformedAnswer::Trailing`] when there are some.
pub const fn nothing(parameters: &[u8]) -> Result<(), MalformedAnswer> {
    Reader::new(parameters).finish()
}

/// TPM2_GetCapability, asked for one property: its value.
///
/// # Errors
/// [`MalformedAnswer`], also when the TPM tells another property or none.
pub fn property(wanted: u32, parameters: &[u8]) -> Result<u32, MalformedAnswer> {
    let mut reader = Reader::new(parameters);
    let _there_are_more = reader.u8()?;
    let told = [reader.u32()?, reader.u32()?, reader.u32()?];
    let value = reader.u32()?;
    reader.finish()?;
    if told == [capability::TPM_PROPERTIES, 1, wanted] {
        Ok(value)
    } else {
        Err(MalformedAnswer::Field("TPM property"))
    }
}

/// TPM2_GetRandom: 32 bytes.
///
/// # Errors
/// [`MalformedAnswer`], also when there are fewer.
pub fn get_random(parameters: &[u8]) -> Result<Secret<32>, MalformedAnswer> {
    one_secret(parameters, "random bytes")
}

/// TPM2_Unseal: the 32 bytes that were sealed.
///
/// # Errors
/// [`MalformedAnswer`], also when there are not exactly 32.
pub fn unseal(parameters: &[u8]) -> Result<Secret<32>, MalformedAnswer> {
    one_secret(parameters, "sealed secret")
}

fn one_secret(parameters: &[u8], field: &'static str) -> Result<Secret<32>, MalformedAnswer> {
    let mut reader = Reader::new(parameters);
    let bytes = reader.sized()?;
    reader.finish()?;
    if bytes.len() != 32 {
        return Err(MalformedAnswer::Field(field));
    }
    Secret::fill(|secret| {
        secret.copy_from_slice(bytes);
        Ok(())
    })
}

/// TPM2_PCR_Read: the values of all PCRs of `selection`.
///
/// # Errors
/// [`MalformedAnswer`]; in particular a TPM without a SHA-256 bank answers with another selection.
pub fn pcr_read(selection: PcrSelection, parameters: &[u8]) -> Result<PcrValues, MalformedAnswer> {
    let mut reader = Reader::new(parameters);
    let _update_counter = reader.u32()?;
    let expected = selection_wire(selection);
    if reader.take(expected.len())? != expected {
        return Err(MalformedAnswer::Field("PCR selection: the TPM has no SHA-256 bank"));
    }
    if usize::try_from(reader.u32()?) != Ok(selection.pcrs().count()) {
        return Err(MalformedAnswer::Field("number of PCRs"));
    }
    let digests = selection.pcrs().map(|_| reader.sized_array("PCR").map(PcrDigest)).collect::<Result<Vec<_>, _>>()?;
    reader.finish()?;
    PcrValues::new(selection, digests).ok_or(MalformedAnswer::Field("number of PCRs"))
}

/// TPM2_CreatePrimary: the storage key, which must be of our template. Its name.
///
/// # Errors
/// [`MalformedAnswer`], also when the TPM's name for it is not the hash of what it shows.
pub fn create_primary(parameters: &[u8]) -> Result<ObjectName, MalformedAnswer> {
    storage_key(parameters).map(|key| key.name)
}

pub(crate) fn storage_key(parameters: &[u8]) -> Result<StorageKeyPublic, MalformedAnswer> {
    let mut reader = Reader::new(parameters);
    let key = StorageKeyPublic::parse(reader.sized()?)?;
    creation(&mut reader)?;
    let name = reader.sized()?;
    reader.finish()?;
    if name == key.name.as_bytes() { Ok(key) } else { Err(MalformedAnswer::Field("storage key's name")) }
}

/// Creation data, its hash and ticket: they would prove to the same TPM later that it made the object. Not used.
fn creation(reader: &mut Reader<'_>) -> Result<(), MalformedAnswer> {
    let (_data, _hash) = (reader.sized()?, reader.sized()?);
    let (_ticket_tag, _hierarchy, _ticket) = (reader.u16()?, reader.u32()?, reader.sized()?);
    Ok(())
}

/// The two blobs of an object that was just created.
#[derive(Debug, PartialEq, Eq)]
pub struct ObjectBlobs<'a> {
    /// Encrypted under the storage key.
    pub private: &'a [u8],
    /// Public area.
    pub public: &'a [u8],
}

/// TPM2_Create: the object's blobs.
///
/// # Errors
/// [`MalformedAnswer`]
pub fn create(parameters: &[u8]) -> Result<ObjectBlobs<'_>, MalformedAnswer> {
    let mut reader = Reader::new(parameters);
    let (private, public) = (reader.sized()?, reader.sized()?);
    creation(&mut reader)?;
    reader.finish()?;
    Ok(ObjectBlobs { private, public })
}

/// TPM2_Load: the object's name.
///
/// # Errors
/// [`MalformedAnswer`]
pub fn load(parameters: &[u8]) -> Result<ObjectName, MalformedAnswer> {
    let mut reader = Reader::new(parameters);
    let name = reader.sized()?;
    reader.finish()?;
    name.try_into().map_err(|_| MalformedAnswer::Field("loaded object's name"))
}

/// TPM2_StartAuthSession: the TPM's first nonce, as long as ours.
///
/// # Errors
/// [`MalformedAnswer`]
pub fn start_auth_session(parameters: &[u8]) -> Result<[u8; 32], MalformedAnswer> {
    let mut reader = Reader::new(parameters);
    let nonce = reader.sized_array("nonce")?;
    reader.finish()?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use model::BootClass;
    use proptest::prelude::*;

    use super::*;
    use crate::pcr::sealing_pcrs;
    use crate::wire::Writer;

    const ALL: [CommandCode; 13] = [
        CommandCode::HierarchyControl,
        CommandCode::ClearControl,
        CommandCode::GetCapability,
        CommandCode::CreatePrimary,
        CommandCode::Create,
        CommandCode::Load,
        CommandCode::Unseal,
        CommandCode::FlushContext,
        CommandCode::StartAuthSession,
        CommandCode::GetRandom,
        CommandCode::PcrRead,
        CommandCode::PolicyPcr,
        CommandCode::PcrExtend,
    ];

    fn selection() -> PcrSelection {
        sealing_pcrs(BootClass::Uefi).expect("not reserved")
    }

    fn framed(tag: u16, response: u32, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(10 + body.len()).expect("small");
        Writer::new().u16(tag).u32(size).u32(response).bytes(body).as_slice().to_vec()
    }

    fn parse_everything(bytes: &[u8]) {
        let _ = (nothing(bytes), get_random(bytes).is_ok(), unseal(bytes).is_ok(), create_primary(bytes));
        let _ = (create(bytes), load(bytes), start_auth_session(bytes), pcr_read(selection(), bytes));
        let _ = property(capability::PERMANENT, bytes);
    }

    #[test]
    fn a_frame_is_taken_apart() {
        let body = Writer::new().u32(0x8000_0000).u32(2).bytes(b"pp").sized(b"nonce").u8(1).sized(b"hmac");
        let bytes = framed(tag::SESSIONS, 0, body.as_slice());
        let Ok(TpmAnswer::Done(frame)) = answer(CommandCode::Load, 1, &bytes) else { panic!("well formed") };
        assert_eq!((frame.handle, frame.parameters), (Some(0x8000_0000), &b"pp"[..]));
        let [session] = &frame.sessions[..] else { panic!("one session") };
        assert_eq!((session.nonce, session.attributes, session.hmac), (&b"nonce"[..], 1, &b"hmac"[..]));
        assert_eq!(answer(CommandCode::Load, 0, &bytes).err(), Some(MalformedAnswer::Tag(tag::SESSIONS)));
        assert_eq!(answer(CommandCode::Load, 2, &bytes).err(), Some(MalformedAnswer::Truncated));
        assert_eq!(answer(CommandCode::Load, 1, &bytes[..bytes.len() - 1]).err(), Some(MalformedAnswer::Size));
    }

    #[test]
    fn a_refusal_carries_nothing_else() {
        let refusal = framed(tag::NO_SESSIONS, 0x99d, &[]);
        assert!(matches!(answer(CommandCode::Unseal, 2, &refusal), Ok(TpmAnswer::Refused(ResponseCode(0x99d)))));
        let more = framed(tag::NO_SESSIONS, 0x99d, &[0]);
        assert_eq!(answer(CommandCode::Unseal, 2, &more).err(), Some(MalformedAnswer::Trailing));
    }

    #[test]
    fn a_tpm_without_a_sha256_bank_is_told_as_such() {
        let empty_bank = Writer::new().u32(1).u32(0).u32(0);
        assert!(pcr_read(selection(), empty_bank.as_slice()).is_err());
        let wrong = Writer::new().u32(1).u32(1).u16(0x0004).u8(3).bytes(&[0; 3]).u32(0);
        let error = pcr_read(selection(), wrong.as_slice()).expect_err("SHA-1 only").to_string();
        assert!(error.contains("no SHA-256 bank"), "{error}");
    }

    #[test]
    fn a_property_is_the_one_that_was_asked_for() {
        let told = |number| Writer::new().u8(1).u32(capability::TPM_PROPERTIES).u32(1).u32(number).u32(0x105);
        let read = |number| property(capability::PERMANENT, told(number).as_slice());
        assert_eq!(read(capability::PERMANENT), Ok(0x105));
        assert_eq!(read(capability::STARTUP_CLEAR), Err(MalformedAnswer::Field("TPM property")));
        let none = Writer::new().u8(0).u32(capability::TPM_PROPERTIES).u32(0);
        assert!(property(capability::PERMANENT, none.as_slice()).is_err());
    }

    /// The TPM shows a key and says its name: a name that is not the hash of what it shows is another key's.
    #[test]
    fn a_storage_key_with_another_name_is_refused() {
        let template = StorageKeyPublic::template();
        let public = template.as_slice();
        let answer = |name: &[u8]| {
            let creation = Writer::new().sized(&[]).sized(&[]).u16(0).u32(0).sized(&[]);
            Writer::new().sized(public).bytes(creation.as_slice()).sized(name)
        };
        let right = ObjectName::of(public);
        assert_eq!(create_primary(answer(right.as_bytes()).as_slice()), Ok(right));
        let other = create_primary(answer(ObjectName::of(b"another key").as_bytes()).as_slice());
        assert_eq!(other, Err(MalformedAnswer::Field("storage key's name")));
    }

    #[test]
    fn a_secret_is_32_bytes() {
        for size in [0, 31, 33] {
            assert!(unseal(Writer::new().sized(&vec![1; size]).as_slice()).is_err());
        }
        assert!(unseal(Writer::new().sized(&[1; 32]).as_slice()).is_ok());
    }

    proptest! {
        #[test]
        fn no_answer_panics_a_parser(bytes in prop::collection::vec(any::<u8>(), 0..300), sessions in 0usize..3) {
            parse_everything(&bytes);
            for code in ALL {
                let _ = answer(code, sessions, &bytes);
            }
        }

        /// The same with a frame that is right, so that the insides are reached.
        #[test]
        fn no_framed_answer_panics_a_parser(
            body in prop::collection::vec(prop_oneof![Just(0u8), Just(32), Just(34), any::<u8>()], 0..300),
            signed: bool,
            sessions in 0usize..3,
        ) {
            let bytes = framed(if signed { tag::SESSIONS } else { tag::NO_SESSIONS }, 0, &body);
            for code in ALL {
                if let Ok(TpmAnswer::Done(frame)) = answer(code, sessions, &bytes) {
                    parse_everything(frame.parameters);
                }
            }
        }

        #[test]
        fn pcr_values_are_read_in_order(digests: [[u8; 32]; 7]) {
            let start = Writer::new().u32(9).bytes(&selection_wire(selection())).u32(7);
            let bytes = digests.iter().fold(start, |writer, digest| writer.sized(digest));
            let values = pcr_read(selection(), bytes.as_slice()).expect("well formed");
            prop_assert_eq!(values.iter().map(|(_, digest)| digest.0).collect::<Vec<_>>(), digests);
        }
    }
}
