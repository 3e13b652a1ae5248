//! A TPM for tests that holds its storage key, signs what it says, and lies: its answers are believed up to what is in
//! them. Nobody on the bus can do so; a TPM with a defect can, and so can who stood on the bus at the first sealing.

use std::collections::HashMap;
use std::convert::Infallible;

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use model::Secret;

use crate::channel::Transport;
use crate::code::{CommandCode, tag};
use crate::command::CONTINUE_SESSION;
use crate::kdf::{self, hmac_sha256, kdfa, kdfe, sha256};
use crate::object::{ObjectName, StorageKeyPublic};
use crate::wire::{Reader, Writer};

/// Answers each command of this code with these parameters, after a handle where the command makes one.
pub(crate) struct Liar {
    answers: HashMap<u32, Vec<u8>>,
    key: PrivateKey,
    session_key: Option<Secret<32>>,
    /// Codes of the commands that were sent, in order.
    pub(crate) asked: Vec<u32>,
}

const NONCE: [u8; 32] = [0x4e; 32];

impl Liar {
    pub(crate) fn new(answers: impl IntoIterator<Item = (CommandCode, Writer)>) -> Self {
        let answers = answers.into_iter().map(|(code, answer)| (code.value(), answer.as_slice().to_vec())).collect();
        let key = PrivateKey::generate(&ECDH_P256).expect("generate");
        Self { answers, key, session_key: None, asked: Vec::new() }
    }

    /// The public area of its storage key.
    fn storage_key(&self) -> Vec<u8> {
        let point = self.key.compute_public_key().expect("compute");
        let (x, y) = point.as_ref()[1..].split_at(32);
        let template = StorageKeyPublic::template();
        let before = template.as_slice().len() - 68;
        Writer::new().bytes(&template.as_slice()[..before]).sized(x).sized(y).as_slice().to_vec()
    }

    /// The name that seals are made under.
    pub(crate) fn name(&self) -> ObjectName {
        ObjectName::of(&self.storage_key())
    }

    /// The session's key, by the salt that only the storage key opens.
    fn start(&mut self, parameters: &[u8]) -> Vec<u8> {
        let mut reader = Reader::new(parameters);
        let nonce = reader.sized().expect("a nonce").to_vec();
        let salt = reader.sized().expect("a salt");
        if !salt.is_empty() {
            let mut salt = Reader::new(salt);
            let (x, y) = (salt.sized_array::<32>("x").expect("x"), salt.sized_array::<32>("y").expect("y"));
            let ours = StorageKeyPublic::parse(&self.storage_key()).expect("by the template").point.x;
            let point = UnparsedPublicKey::new(&ECDH_P256, [&[4][..], &x, &y].concat());
            let salt = agree(&self.key, point, (), |z| Ok(kdfe(z, "SECRET", &x, &ours))).expect("agree");
            self.session_key = Some(kdfa(salt.expose(), "ATH", &NONCE, &nonce));
        }
        Writer::new().sized(&NONCE).as_slice().to_vec()
    }

    /// Bytes behind the parameters: each session's answer, ours signed; the first parameter encrypted where asked.
    fn sign(&self, code: u32, area: &[u8], parameters: &mut [u8]) -> Writer {
        let (mut reader, mut signed) = (Reader::new(area), Writer::new());
        while !reader.rest().is_empty() {
            let session = reader.u32().expect("a handle");
            let nonce = reader.sized().expect("a nonce").to_vec();
            let attributes = reader.u8().expect("attributes");
            let hmac = reader.sized().expect("an HMAC");
            let Some(key) = self.session_key.as_ref().filter(|_| !hmac.is_empty()) else {
                let nonce: &[u8] = if session >> 24 == 3 { &NONCE } else { &[] };
                signed = signed.sized(nonce).u8(CONTINUE_SESSION).sized(&[]);
                continue;
            };
            if attributes & 0x40 != 0 {
                let (size, rest) = parameters.split_first_chunk_mut::<2>().expect("a sized parameter");
                let first = &mut rest[..usize::from(u16::from_be_bytes(*size))];
                kdf::encrypt(&kdfa(key.expose(), "CFB", &NONCE, &nonce), first).expect("encrypt");
            }
            let hash = sha256(&[&[0; 4], &code.to_be_bytes(), parameters]);
            signed = signed
                .sized(&NONCE)
                .u8(attributes)
                .sized(&hmac_sha256(key.expose(), &[&hash, &NONCE, &nonce, &[attributes]]));
        }
        signed
    }
}

impl Transport for Liar {
    type Error = Infallible;

    fn transact(&mut self, command: &[u8]) -> Result<Vec<u8>, Infallible> {
        let mut reader = Reader::new(command);
        let (kind, _size, code) =
            (reader.u16().expect("tag"), reader.u32().expect("size"), reader.u32().expect("code"));
        self.asked.push(code);
        let is = |other: CommandCode| code == other.value();
        let handles = match code {
            0x176 => 2,
            0x131 | 0x153 | 0x157 | 0x15e | 0x17f | 0x182 | 0x121 | 0x127 => 1,
            _ => 0, // reads and flushes
        };
        reader.take(4 * handles).expect("handles");
        let size = if kind == tag::SESSIONS { reader.u32().expect("size of the area") } else { 0 };
        let area = reader.take(usize::try_from(size).expect("small")).expect("an area").to_vec();
        let mut parameters = match code {
            _ if is(CommandCode::CreatePrimary) => {
                let public = self.storage_key();
                Writer::new()
                    .sized(&public)
                    .bytes(&CREATION)
                    .sized(ObjectName::of(&public).as_bytes())
                    .as_slice()
                    .to_vec()
            }
            _ if is(CommandCode::StartAuthSession) => self.start(reader.rest()),
            _ => self.answers.get(&code).cloned().unwrap_or_default(), // as the test has it
        };
        let handle = match code {
            0x131 | 0x157 => Writer::new().u32(0x8000_0000),
            0x176 => Writer::new().u32(0x0300_0000),
            _ => Writer::new(), // makes nothing
        };
        let sessions = self.sign(code, &area, &mut parameters);
        let body = if kind == tag::SESSIONS {
            let size = u32::try_from(parameters.len()).expect("small");
            handle.u32(size).bytes(&parameters).bytes(sessions.as_slice())
        } else {
            handle.bytes(&parameters)
        };
        let size = u32::try_from(10 + body.as_slice().len()).expect("small");
        Ok(Writer::new().u16(kind).u32(size).u32(0).bytes(body.as_slice()).as_slice().to_vec())
    }
}

/// Creation data, hash and ticket, all empty.
pub(crate) const CREATION: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
