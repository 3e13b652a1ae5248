//! A machine's disk, ESP and TPM in memory, and boots of it that may be cut after any effect or in the middle of one. What
//! is read, decided and performed in a boot is what runs on a machine; only the disk, the TPM and the authority are not.
//! What it refuses by panicking is what must never happen.

use std::convert::Infallible;

use keys::binding::TpmObject;
use keys::data_key::Volume;
use keys::header::{Copies, Copy, HEADER_BYTES, State as HeaderState};
use keys::identity::cluster_id;
use keys::pair::{File, Next, SLOT_BYTES};
use model::{BootClass, ClusterId, Level, PcrSelection, Secret};
use zeroize::Zeroizing;

use crate::asking::Given;
use crate::config::WithoutTpm;
use crate::create::{Draft, Issued, Material, SignedDirectory};
use crate::fixture::{config, owner};
use crate::found::{Creation, Decision, Files, Found, Inputs, Slots, decide};
use crate::keeper::{Keeper, Locked, NotReleased};
use crate::plan::{Effect, Halt, HeaderCopy, Mapping, Performer, Plan};
use crate::wait::{Layer, Wait};

const SECTOR: usize = 512;

/// What survives a cut.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) tpm: Option<Chip>,
    pub(crate) headers: [Vec<u8>; 2],
    pub(crate) files: Files,
    pub(crate) filesystem: Option<Filesystem>,
    pub(crate) boot_class: BootClass,
    attempts: u8,
}

/// A TPM: it keeps a secret in the blob it gives out, and knows its own by the storage key's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chip {
    /// Differs between TPMs, and from before it was cleared.
    pub(crate) storage_key: u8,
    /// What was measured in this boot.
    pub(crate) measured: u8,
    pub(crate) zero_pcr: Option<u8>,
    pub(crate) health: Health,
}

/// Whether a TPM answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Works,
    Fails,
    /// It has opened the seal and fails then.
    FailsAtTheShare,
}

/// A TPM that does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the TPM fails")]
pub(crate) struct ChipFails;

impl Keeper for Chip {
    type Error = ChipFails;

    fn zero_pcr(&self) -> Option<u8> {
        self.zero_pcr
    }

    fn seal(&mut self, secret: &Secret<32>) -> Result<TpmObject, ChipFails> {
        match self.health {
            Health::Works => Ok(TpmObject {
                pcrs: PcrSelection::of(&[11]),
                storage_key_name: self.name(),
                public: vec![1 + self.measured],
                private: secret.expose().to_vec(),
            }),
            Health::Fails | Health::FailsAtTheShare => Err(ChipFails),
        }
    }

    fn release(&mut self, object: &TpmObject) -> Result<Secret<32>, NotReleased<ChipFails>> {
        match self.health {
            Health::Works => {}
            Health::Fails => return Err(NotReleased::Failed(ChipFails)),
            Health::FailsAtTheShare => self.health = Health::Fails,
        }
        if object.storage_key_name != self.name() {
            return Err(NotReleased::Locked(Locked::OtherTpm));
        }
        if object.public != [1 + self.measured] {
            return Err(NotReleased::Locked(Locked::Pcrs));
        }
        Ok(keys::derive::secret(&object.private).expect("32 bytes were sealed"))
    }
}

impl Chip {
    fn name(&self) -> [u8; 34] {
        std::array::from_fn(|at| [0, 0x0b, self.storage_key].get(at).copied().unwrap_or(0))
    }
}

/// A filesystem, readable only under the key it was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filesystem {
    key: Vec<u8>,
    /// The cluster whose CA keys it holds, once they are durable.
    pub(crate) cluster: Option<ClusterId>,
}

/// Where a boot is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// After so many whole effects.
    pub(crate) after: usize,
    /// And so many sectors of the next one, where it writes any.
    pub(crate) sectors: usize,
}

/// What goes wrong in a boot.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    None,
    /// The power.
    Cut(Cut),
    /// The effect with this number, before it does anything.
    Fails(usize),
}

/// How a boot ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Cut,
    Running(ClusterId),
    Waiting(String),
}

/// Why an effect did not happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPerformed {
    #[error("the power went")]
    Cut,
    #[error("the disk fails")]
    Fails,
    #[error("it is under another key")]
    WrongKey,
}

/// One boot: what it has in memory.
struct Boot<'a> {
    world: &'a mut World,
    attempt: u8,
    trouble: Trouble,
    performed: usize,
    cut: bool,
    mapped: Option<Vec<u8>>,
    mounted: bool,
    loaded: bool,
    capped: bool,
}

impl World {
    /// A flashed disk with a create config on its ESP.
    pub(crate) fn flashed(level: Level, tpm: Option<Chip>) -> Self {
        let blank = || Slots([vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]].map(Zeroizing::new));
        let bytes = config(level, WithoutTpm::Unprotected).sign(&owner()).expect("a good config");
        Self {
            tpm,
            headers: [vec![0; HEADER_BYTES], vec![0; HEADER_BYTES]],
            files: Files {
                seal: blank(),
                share: blank(),
                directory: blank(),
                record: blank(),
                config: Some(bytes),
                fw_cfg: None,
            },
            filesystem: None,
            boot_class: BootClass::Direct,
            attempts: 0,
        }
    }

    pub(crate) const fn pair(&mut self, file: File) -> &mut [Zeroizing<Vec<u8>>; 2] {
        &mut self.files.pair(file).0
    }

    /// What a boot makes of it.
    pub(crate) fn found(&self) -> Found {
        self.found_given(Given::default())
    }

    fn found_given(&self, given: Given) -> Found {
        self.found_with(given, Ok(self.tpm.clone().as_mut()))
    }

    /// The same with another TPM.
    pub(crate) fn found_with(&self, given: Given, tpm: Result<Option<&mut Chip>, ChipFails>) -> Found {
        let header = &Copies::read(&self.headers[0], &self.headers[1]);
        decide(Inputs { files: &self.files, header, boot_class: self.boot_class, given }, tpm)
    }

    /// Whether somebody's data is on the disk.
    pub(crate) fn committed(&self) -> bool {
        Copies::read(&self.headers[0], &self.headers[1])
            .0
            .iter()
            .any(|copy| matches!(copy, Copy::Valid(header) if header.state == HeaderState::Committed))
    }

    /// One boot, cut where `cut` says, or run to its end.
    pub(crate) fn boot(&mut self, cut: Option<Cut>) -> Ended {
        self.boot_given(Given::default(), cut)
    }

    /// The rest of a boot that waited until it was given something.
    pub(crate) fn boot_given(&mut self, given: Given, cut: Option<Cut>) -> Ended {
        self.boot_in(given, cut.map_or(Trouble::None, Trouble::Cut))
    }

    /// One boot whose effect with the number `effect` fails.
    pub(crate) fn boot_failing_at(&mut self, effect: usize) -> Ended {
        self.boot_in(Given::default(), Trouble::Fails(effect))
    }

    fn boot_in(&mut self, given: Given, trouble: Trouble) -> Ended {
        let plan = match self.found_given(given).decision {
            Decision::Create(creation) => {
                assert!(!self.committed(), "a create on a committed disk");
                self.plan(*creation)
            }
            Decision::Open(opening) => {
                let salt = |bytes: &mut [u8]| {
                    bytes.fill(0xcc);
                    Ok::<(), Infallible>(())
                };
                opening.plan(salt).expect("what opened commits").0
            }
            Decision::Wait(wait, _) => return Ended::Waiting(wait.message()),
        };
        let attempt = self.attempts;
        self.attempts = attempt + 1;
        let mut boot = Boot {
            world: self,
            attempt,
            trouble,
            performed: 0,
            cut: false,
            mapped: None,
            mounted: false,
            loaded: false,
            capped: false,
        };
        match plan.perform(&mut boot) {
            Ok(_capped) => {
                assert!(boot.capped && boot.mounted, "a plan ends with the cap, on open data");
                Ended::Running(self.filesystem.as_ref().and_then(|it| it.cluster).expect("a member has its CA"))
            }
            Err(Halt::Failed(_)) if boot.cut => Ended::Cut,
            Err(Halt::Failed(wait)) => {
                assert!(boot.mapped.is_none() && !boot.mounted, "what a plan opened is closed when it fails");
                assert!(matches!(wait, Wait::Failed(_)), "{wait:?}");
                Ended::Waiting(wait.message())
            }
            Err(Halt::Open(never)) => match never {},
        }
    }

    fn plan(&mut self, creation: Creation) -> Plan {
        let mut counter = self.attempts;
        let material = Material::draw(|bytes| {
            counter = counter.wrapping_add(31);
            bytes.fill(counter);
            Ok::<(), Infallible>(())
        });
        let Ok(material) = material;
        let issued = Issued {
            ca_spki: ca_spki(self.attempts),
            ca_certificate: b"CA certificate".to_vec(),
            machine_certificate: b"machine certificate".to_vec(),
        };
        let draft = creation.draft(material, issued);
        let signed = signed(&draft);
        draft.plan(self.tpm.as_mut(), signed, 1_790_000_000).expect("fits").0
    }
}

/// The first directory with somebody's signature.
pub(crate) fn signed(draft: &Draft) -> SignedDirectory {
    let directory = draft.directory(vec!["192.0.2.10:7836".into()]);
    SignedDirectory { directory, signature: vec![0x30; 70] }
}

impl Performer for Boot<'_> {
    type Error = NotPerformed;
    type Open = Infallible;

    fn perform(&mut self, effect: Effect) -> Result<(), NotPerformed> {
        let number = self.performed;
        self.performed += 1;
        match self.trouble {
            Trouble::Cut(cut) if cut.after == number => {
                self.cut = true;
                self.world.tear(effect, cut.sectors);
                return Err(NotPerformed::Cut);
            }
            Trouble::Fails(failing) if failing == number => return Err(NotPerformed::Fails),
            Trouble::None | Trouble::Cut(_) | Trouble::Fails(_) => {}
        }
        self.do_it(effect)
    }

    fn refused_by(error: &NotPerformed) -> Option<Layer> {
        match error {
            NotPerformed::WrongKey => Some(Layer::Filesystem),
            NotPerformed::Cut | NotPerformed::Fails => None,
        }
    }

    fn close(&mut self) -> Result<(), Infallible> {
        (self.mapped, self.mounted) = (None, false);
        Ok(())
    }
}

impl Boot<'_> {
    fn do_it(&mut self, effect: Effect) -> Result<(), NotPerformed> {
        assert!(!self.capped, "nothing follows the cap");
        let world = &mut *self.world;
        match effect {
            Effect::MendTable | Effect::GrowData => {}
            Effect::WriteHeader { copy, bytes, .. } => world.headers[place(copy)] = bytes.to_vec(),
            Effect::MapVolume { volume, mapping, .. } => {
                let key = match volume {
                    Volume::Raw => vec![],
                    Volume::Encrypted(key) => key.xts().expose().to_vec(),
                    Volume::Authenticated(key) => [&key.xts().expose()[..], key.integrity().expose()].concat(),
                };
                if mapping == Mapping::Format {
                    assert!(!world.committed(), "block layers formatted over committed data");
                    world.filesystem = None;
                }
                self.mapped = Some(key);
            }
            Effect::MakeFilesystem => {
                assert!(!world.committed(), "a filesystem made over committed data");
                let key = self.mapped.clone().expect("mapped before mkfs");
                world.filesystem = Some(Filesystem { key, cluster: None });
            }
            Effect::Mount => {
                let key = &world.filesystem.as_ref().expect("there is a filesystem to mount").key;
                if Some(key) != self.mapped.as_ref() {
                    return Err(NotPerformed::WrongKey);
                }
                self.mounted = true;
            }
            Effect::PopulateData(_) => {
                assert!(self.mounted && !world.committed(), "a CA made on a committed disk");
                world.filesystem.as_mut().expect("mounted").cluster = Some(cluster_id(&ca_spki(self.attempt)));
            }
            Effect::WriteEsp { file, slot, bytes } => {
                let durable = world.filesystem.as_ref().and_then(|it| it.cluster).is_some();
                assert!(durable, "the ESP is written after the data partition holds its keys");
                world.pair(file)[slot] = bytes;
            }
            Effect::RemoveConfig => {
                assert!(world.committed(), "the config goes only once the header is committed");
                world.files.config = None;
            }
            Effect::LoadKeys => {
                assert!(self.mounted, "keys lie on the data partition");
                self.loaded = true;
            }
            Effect::Cap(holder) => {
                assert!(world.committed() && self.loaded, "behind the cap is a member, whole");
                let cluster = world.filesystem.as_ref().and_then(|it| it.cluster);
                assert_eq!(cluster, Some(holder.cluster), "the cap names the cluster that the data is of");
                self.capped = true;
            }
        }
        Ok(())
    }
}

impl World {
    /// The first `sectors` of what an effect writes; effects that are not one write are not begun.
    fn tear(&mut self, effect: Effect, sectors: usize) {
        let over = |old: &mut Vec<u8>, new: &[u8]| {
            let end = (sectors * SECTOR).min(new.len());
            old[..end].copy_from_slice(&new[..end]);
        };
        match effect {
            Effect::WriteHeader { copy, bytes, .. } => over(&mut self.headers[place(copy)], &bytes[..]),
            Effect::WriteEsp { file, slot, bytes } => over(&mut self.pair(file)[slot], &bytes),
            Effect::RemoveConfig => {
                // One that a person gave leaves nothing to remove.
                let Some(config) = self.files.config.as_mut() else { return };
                let zeros = vec![0; config.len()];
                over(config, &zeros[..zeros.len().min(sectors * SECTOR)]);
            }
            // A half-made filesystem or a half-written directory of keys is none.
            Effect::MakeFilesystem => self.filesystem = None,
            Effect::MendTable
            | Effect::GrowData
            | Effect::MapVolume { .. }
            | Effect::Mount
            | Effect::PopulateData(_)
            | Effect::LoadKeys
            | Effect::Cap(_) => {}
        }
    }
}

fn ca_spki(attempt: u8) -> Vec<u8> {
    vec![0xca, attempt]
}

fn place(copy: HeaderCopy) -> usize {
    match copy {
        HeaderCopy::First => 0,
        HeaderCopy::Second => 1,
    }
}

/// A disk that finished create, and the cluster it made.
pub(crate) fn finished(level: Level, tpm: Option<Chip>) -> (World, ClusterId) {
    let mut world = World::flashed(level, tpm);
    match world.boot(None) {
        Ended::Running(cluster) => (world, cluster),
        other @ (Ended::Cut | Ended::Waiting(_)) => panic!("{other:?}"),
    }
}

/// The first write of a pair goes to its first slot.
pub(crate) const FIRST: Next = Next::FIRST;
