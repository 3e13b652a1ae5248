//! Wishes that a machine has of its TPM. Owns the order of commands for each wish and which failure means what; the
//! bytes are made and read elsewhere.
//!
//! Every object and session that a wish needs is forgotten again, also when it fails.

use std::error::Error;
use std::fmt;

use model::{PcrSelection, Secret};
use zeroize::Zeroizing;

use crate::channel::{Call, Channel, TpmError, Transport, exchange, flush, start_policy};
use crate::code::{CommandCode, ResponseCode, algorithm};
use crate::command::{Entity, frame};
use crate::object::{ObjectName, SealedObject, SealedPublic};
use crate::pcr::{CAP_PCR, CapOf, PcrValues, PolicyDigest, cap_digest, selection_wire};
use crate::response;
use crate::session::Purpose;
use crate::wire::{MalformedAnswer, Writer};

/// A TPM in its owner's hands. The storage key and the salted session are made at the first wish that needs them,
/// kept for the next, and forgotten when this is dropped.
pub struct Tpm<T: Transport> {
    transport: T,
    channel: Option<Channel>,
}

/// Why the pool could not be given random bytes. `E` is the transport's error, `P` the pool's.
#[derive(Debug, thiserror::Error)]
pub enum SeedError<E: Error + 'static, P: Error + 'static> {
    /// The TPM or the way to it failed.
    #[error("ask the TPM for random bytes")]
    Tpm(#[source] TpmError<E>),
    /// The pool did not take them.
    #[error("mix the TPM's random bytes into the pool")]
    Pool(#[source] P),
}

/// Why a sealed secret could not be had. `E` is the transport's error.
#[derive(Debug, thiserror::Error)]
pub enum UnsealError<E: Error + 'static> {
    /// The PCRs are not those of the sealing.
    #[error(
        "the TPM's measurements are not those the secret was sealed to: what was booted has changed, or the cap is set"
    )]
    PcrMismatch,
    /// The storage key has another name.
    #[error(
        "the secret was sealed by another TPM: this one was cleared or replaced, or the disk comes from another machine"
    )]
    OtherTpm,
    /// The sealed object's bytes are not what a TPM made.
    #[error("the sealed object is damaged")]
    Damaged,
    /// Too many failed authorisations, by something else: our objects do not count into it.
    #[error("the TPM is locked out after failed authorisations")]
    Lockout,
    /// The TPM or the way to it failed.
    #[error(transparent)]
    Tpm(#[from] TpmError<E>),
}

impl<T: Transport> Tpm<T> {
    /// Takes the transport; sends nothing yet. The TPM must have been started, as firmware or kernel do.
    pub const fn new(transport: T) -> Self {
        Self { transport, channel: None }
    }

    /// Gives `pool` random bytes twice, each time with the bits of entropy that they are worth. The first cross the bus
    /// in clear: somebody may have heard or chosen them, so they are worth nothing; but the session that comes next
    /// draws on the pool. The second come encrypted and signed in that session, and count in full.
    ///
    /// # Errors
    /// [`SeedError`]
    pub fn seed<P: Error + 'static>(
        &mut self,
        mut pool: impl FnMut(&Secret<32>, u16) -> Result<(), P>,
    ) -> Result<(), SeedError<T::Error, P>> {
        let heard = self.random_in_clear().map_err(SeedError::Tpm)?;
        pool(&heard, 0).map_err(SeedError::Pool)?;
        let secret = self.random().map_err(SeedError::Tpm)?;
        pool(&secret, 256).map_err(SeedError::Pool)
    }

    fn random_in_clear(&mut self) -> Result<Secret<32>, TpmError<T::Error>> {
        let command = CommandCode::GetRandom;
        let bytes = frame(command, &[], &[], &RANDOM_BYTES);
        let mut answer = Zeroizing::default();
        let done = exchange(&mut self.transport, command, &bytes, 0, &mut answer)?;
        response::get_random(done.parameters).map_err(malformed(command))
    }

    fn random(&mut self) -> Result<Secret<32>, TpmError<T::Error>> {
        let code = CommandCode::GetRandom;
        self.in_channel(|transport, channel| {
            let parameters = Writer::new().bytes(&RANDOM_BYTES);
            let call = Call { code, entities: &[], policy: None, purpose: Purpose::EncryptAnswer, parameters };
            let done = channel.call(transport, call)?;
            response::get_random(&done.parameters).map_err(malformed(code))
        })
    }

    /// The selected PCRs of the SHA-256 bank, as the TPM signs them.
    ///
    /// # Errors
    /// [`TpmError`]
    pub fn read_pcrs(&mut self, selection: PcrSelection) -> Result<PcrValues, TpmError<T::Error>> {
        let code = CommandCode::PcrRead;
        self.in_channel(|transport, channel| {
            let parameters = Writer::new().bytes(&selection_wire(selection));
            let call = Call { code, entities: &[], policy: None, purpose: Purpose::Audit, parameters };
            let done = channel.call(transport, call)?;
            response::pcr_read(selection, &done.parameters).map_err(malformed(code))
        })
    }

    /// The cap: extends PCR 11, so that nothing sealed by this crate opens until the next boot.
    ///
    /// # Errors
    /// [`TpmError`]; then the cap must be taken for not set.
    pub fn cap(&mut self, of: CapOf) -> Result<(), TpmError<T::Error>> {
        let code = CommandCode::PcrExtend;
        self.in_channel(|transport, channel| {
            let pcr = Entity::Fixed(CAP_PCR.into());
            let parameters = Writer::new().u32(1).u16(algorithm::SHA256).bytes(&cap_digest(of));
            let call = Call { code, entities: &[pcr], policy: None, purpose: Purpose::Authorise, parameters };
            let done = channel.call(transport, call)?;
            response::nothing(&done.parameters).map_err(malformed(code))
        })
    }

    /// The storage key's name: the same until the TPM is cleared.
    ///
    /// # Errors
    /// [`TpmError`]
    pub fn storage_key(&mut self) -> Result<ObjectName, TpmError<T::Error>> {
        self.in_channel(|_, channel| Ok(channel.key()))
    }

    /// Seals `secret` to `policy`. The PCRs need not match it now.
    ///
    /// # Errors
    /// [`TpmError`]
    pub fn seal(&mut self, secret: &Secret<32>, policy: PolicyDigest) -> Result<SealedObject, TpmError<T::Error>> {
        let code = CommandCode::Create;
        self.in_channel(|transport, channel| {
            let sensitive = Writer::new().sized(&[]).sized(secret.expose()); // no password
            let parameters = Writer::new()
                .sized(sensitive.as_slice())
                .sized(SealedPublic::template(policy).as_slice())
                .sized(&[]) // outside info
                .u32(0); // creation PCRs
            let purpose = Purpose::AuthoriseEncrypted;
            let call = Call { code, entities: &[channel.key_entity()], policy: None, purpose, parameters };
            let done = channel.call(transport, call)?;
            let created = response::create(&done.parameters).map_err(malformed(code))?;
            let sealed = SealedObject {
                public: created.public.to_vec(),
                private: created.private.to_vec(),
                storage_key: channel.key(),
            };
            match sealed.check() {
                Ok(public) if public.policy == policy => Ok(sealed),
                Ok(_) => Err(malformed(code)(MalformedAnswer::Field("sealed object's policy"))),
                Err(source) => Err(malformed(code)(source)),
            }
        })
    }

    /// Opens a sealed secret while the PCRs of `selection` are those it was sealed to.
    ///
    /// # Errors
    /// [`UnsealError`]
    pub fn unseal(
        &mut self,
        sealed: &SealedObject,
        selection: PcrSelection,
    ) -> Result<Secret<32>, UnsealError<T::Error>> {
        let public = sealed.check().map_err(|_| UnsealError::Damaged)?;
        self.in_channel(|transport, channel| {
            if channel.key() != sealed.storage_key {
                return Err(UnsealError::OtherTpm);
            }
            let object = load(transport, channel, sealed, &public)?;
            let secret = unseal_loaded(transport, channel, object, selection);
            forgotten(transport, object.handle(), secret)
        })
    }

    /// Forgets storage key and session; dropping does the same but cannot tell of a failure.
    ///
    /// # Errors
    /// [`TpmError`] when the TPM could not be told to.
    pub fn close(mut self) -> Result<(), TpmError<T::Error>> {
        self.channel.take().map_or(Ok(()), |channel| channel.close(&mut self.transport))
    }

    /// Does `work` in the channel, which is opened if it is not, and closed if the work fails: a session does not
    /// survive an answer that was not verified.
    pub(crate) fn in_channel<R, F: From<TpmError<T::Error>>>(
        &mut self,
        work: impl FnOnce(&mut T, &mut Channel) -> Result<R, F>,
    ) -> Result<R, F> {
        let mut channel = match self.channel.take() {
            Some(open) => open,
            None => Channel::open(&mut self.transport)?,
        };
        let result = work(&mut self.transport, &mut channel);
        if result.is_ok() {
            self.channel = Some(channel);
        } else {
            // The work's error is the one to tell; what cannot be flushed goes when the device is closed or reset.
            let _ = channel.close(&mut self.transport);
        }
        result
    }
}

impl<T: Transport> Drop for Tpm<T> {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            // Nobody is left to tell; `close` is for those who want to know.
            let _ = channel.close(&mut self.transport);
        }
    }
}

impl<T: Transport> fmt::Debug for Tpm<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tpm").field("storage_key", &self.channel.as_ref().map(Channel::key)).finish_non_exhaustive()
    }
}

/// How many are asked for at once.
const RANDOM_BYTES: [u8; 2] = 32u16.to_be_bytes();

pub(crate) fn malformed<E: Error>(command: CommandCode) -> impl Fn(MalformedAnswer) -> TpmError<E> {
    move |source| TpmError::Malformed { command, source }
}

/// Loads the sealed object under the storage key.
fn load<T: Transport>(
    transport: &mut T,
    channel: &mut Channel,
    sealed: &SealedObject,
    public: &SealedPublic,
) -> Result<Entity, UnsealError<T::Error>> {
    let code = CommandCode::Load;
    let parameters = Writer::new().sized(&sealed.private).sized(&sealed.public);
    let entities = [channel.key_entity()];
    let call = Call { code, entities: &entities, policy: None, purpose: Purpose::Authorise, parameters };
    let done = channel.call(transport, call).map_err(|error| match error.refusal() {
        // The parameters are the two blobs, and the HMAC over them was right: the TPM does not know them.
        Some(code) if code.is_about_parameter() => UnsealError::Damaged,
        _ => UnsealError::Tpm(error), // as the TPM or the device told it
    })?;
    let handle = done.handle.ok_or(malformed(code)(MalformedAnswer::Truncated))?;
    match response::load(&done.parameters) {
        Ok(name) if name == public.name => Ok(Entity::Object { handle, name }),
        Ok(_) => {
            forgotten(transport, handle, Err(malformed(code)(MalformedAnswer::Field("loaded object's name")).into()))
        }
        Err(source) => forgotten(transport, handle, Err(malformed(code)(source).into())),
    }
}

/// Opens a loaded object with a policy session over the PCRs as they are now.
fn unseal_loaded<T: Transport>(
    transport: &mut T,
    channel: &mut Channel,
    object: Entity,
    selection: PcrSelection,
) -> Result<Secret<32>, UnsealError<T::Error>> {
    let policy = start_policy(transport)?;
    let secret = unseal_with(transport, channel, object, policy, selection);
    forgotten(transport, policy, secret)
}

fn unseal_with<T: Transport>(
    transport: &mut T,
    channel: &mut Channel,
    object: Entity,
    policy: u32,
    selection: PcrSelection,
) -> Result<Secret<32>, UnsealError<T::Error>> {
    let code = CommandCode::PolicyPcr;
    let parameters = Writer::new().sized(&[]).bytes(&selection_wire(selection)); // whatever the PCRs hold: Unseal compares
    let entities = [Entity::Fixed(policy)];
    let call = Call { code, entities: &entities, policy: None, purpose: Purpose::Audit, parameters };
    let done = channel.call(transport, call)?;
    response::nothing(&done.parameters).map_err(malformed(code))?;

    let code = CommandCode::Unseal;
    let purpose = Purpose::EncryptAnswer;
    let call = Call { code, entities: &[object], policy: Some(policy), purpose, parameters: Writer::new() };
    let done = channel.call(transport, call).map_err(|error| match error.refusal().map(ResponseCode::error) {
        Some(ResponseCode::POLICY_FAIL | ResponseCode::PCR_CHANGED) => UnsealError::PcrMismatch,
        Some(ResponseCode::LOCKOUT) => UnsealError::Lockout,
        _ => UnsealError::Tpm(error), // as the TPM or the device told it
    })?;
    Ok(response::unseal(&done.parameters).map_err(malformed(code))?)
}

/// Forgets `handle` whatever came of it. The result's own error goes before that of forgetting.
fn forgotten<T: Transport, R>(
    transport: &mut T,
    handle: u32,
    result: Result<R, UnsealError<T::Error>>,
) -> Result<R, UnsealError<T::Error>> {
    let flushed = flush(transport, handle);
    let value = result?;
    flushed?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use model::BootClass;

    use super::*;
    use crate::liar::{CREATION, Liar};
    use crate::pcr::sealing_pcrs;

    const OURS: PolicyDigest = PolicyDigest([0x11; 32]);
    const OTHER: PolicyDigest = PolicyDigest([0x22; 32]);
    const SECRET: [u8; 32] = [0x33; 32];

    /// The public area of an object with this policy, as a TPM makes it.
    fn public(policy: PolicyDigest) -> Vec<u8> {
        let template = SealedPublic::template(policy);
        let area = template.as_slice().strip_suffix(&[0, 0]).expect("an empty unique value");
        Writer::new().bytes(area).sized(&[0x44; 32]).as_slice().to_vec()
    }

    fn sealing(policy: PolicyDigest) -> Result<SealedObject, TpmError<std::convert::Infallible>> {
        let created = Writer::new().sized(&[0x55; 16]).sized(&public(policy)).bytes(&CREATION);
        Tpm::new(Liar::new([(CommandCode::Create, created)])).seal(&Secret::take(&mut SECRET.clone()), OURS)
    }

    /// An object made under somebody else's policy could be opened past ours.
    ///
    /// Proves: D5
    #[test]
    fn an_object_with_another_policy_than_was_asked_for_is_no_seal() {
        assert!(sealing(OURS).is_ok());
        let refused = sealing(OTHER).expect_err("another policy");
        let expected = MalformedAnswer::Field("sealed object's policy");
        assert!(matches!(refused, TpmError::Malformed { command: CommandCode::Create, source } if source == expected));
    }

    /// Proves: D5
    #[test]
    fn another_object_than_the_seals_is_not_opened() {
        let public = public(OURS);
        let unsealed = |loaded: ObjectName| {
            let liar = Liar::new([
                (CommandCode::Load, Writer::new().sized(loaded.as_bytes())),
                (CommandCode::Unseal, Writer::new().sized(&SECRET)),
            ]);
            let sealed = SealedObject { public: public.clone(), private: vec![0x55; 16], storage_key: liar.name() };
            let mut tpm = Tpm::new(liar);
            let opened = tpm.unseal(&sealed, sealing_pcrs(BootClass::Direct).expect("not reserved"));
            (opened, tpm.transport.asked.clone())
        };
        let (opened, _) = unsealed(ObjectName::of(&public));
        assert_eq!(opened.expect("its own object").expose(), &SECRET);
        let (opened, asked) = unsealed(ObjectName::of(b"another object"));
        let expected = MalformedAnswer::Field("loaded object's name");
        assert!(matches!(
            opened,
            Err(UnsealError::Tpm(TpmError::Malformed { command: CommandCode::Load, source })) if source == expected
        ));
        assert!(!asked.contains(&CommandCode::Unseal.value()), "and the TPM is not asked for its secret");
    }
}
