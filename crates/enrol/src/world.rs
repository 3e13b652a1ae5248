//! A machine's disk, ESP and TPM in memory, and boots of it that may be cut after any effect or in the middle of one.
//! What it refuses by panicking is what must never happen.

use keys::binding::{Binding, TpmObject};
use keys::data_key::{ClusterHalf, Volume};
use keys::header::{Copies, Copy, HEADER_BYTES, State as HeaderState};
use keys::identity::cluster_id;
use keys::pair::{File, Next, Pair, SLOT_BYTES};
use keys::seal::{self, Body, SealFiles};
use keys::share;
use model::{BootClass, ClusterId, ClusterKey, DiskUuid, Level, PcrSelection, SealRoot, Secret};

use crate::config::{Tpm, WithoutTpm};
use crate::create::{
    Draft, Effect, Event, HeaderCopy, Issued, Mapping, Material, NextWrites, Plan, Protected, Situation, State,
};
use crate::fixture::{config, owner, secret};
use crate::found::{Found, FoundConfig, FoundSeal, Leftover, Locked, Verdict, decide};

const SECTOR: usize = 512;

/// What survives a cut.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) tpm: Tpm,
    pub(crate) headers: [Vec<u8>; 2],
    pub(crate) esp: [[Vec<u8>; 2]; 4],
    pub(crate) config: Option<Vec<u8>>,
    pub(crate) filesystem: Option<Filesystem>,
    attempts: u8,
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

/// How a boot ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Cut,
    Running(ClusterId),
    Waiting(String),
}

/// What a boot has in memory.
#[derive(Default)]
struct Memory {
    mapped: Option<Vec<u8>>,
    mounted: bool,
    capped: bool,
    served: bool,
    announced: bool,
}

impl World {
    /// A flashed disk with a create config on its ESP.
    pub(crate) fn flashed(level: Level, tpm: Tpm) -> Self {
        let blank = || [vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]];
        let bytes = config(level, WithoutTpm::Unprotected).sign(&owner()).expect("a good config");
        Self {
            tpm,
            headers: [vec![0; HEADER_BYTES], vec![0; HEADER_BYTES]],
            esp: std::array::from_fn(|_| blank()),
            config: Some(bytes.to_vec()),
            filesystem: None,
            attempts: 0,
        }
    }

    pub(crate) fn pair(&mut self, file: File) -> &mut [Vec<u8>; 2] {
        &mut self.esp[File::ALL.iter().position(|row| *row == file).expect("all pairs are there")]
    }

    fn slots(&self, file: File) -> [&[u8]; 2] {
        let [first, second] = &self.esp[File::ALL.iter().position(|row| *row == file).expect("all pairs are there")];
        [first, second]
    }

    /// Reads everything and decides, like the shell.
    pub(crate) fn decide<R>(&self, then: impl FnOnce(Verdict, Option<&Body>, Option<&ClusterHalf>) -> R) -> R {
        let copies = Copies::read(&self.headers[0], &self.headers[1]);
        let config = FoundConfig::read(None, self.config.as_deref());
        let (files, _) = seal::read(self.slots(File::Seal));
        let mut body = None;
        let mut locked = None;
        if let SealFiles::Candidates(candidates) = &files {
            for candidate in candidates {
                let opened = self.released(&candidate.clear.binding).map(SealRoot).and_then(|root| {
                    candidate.open(&root).map_err(Locked::Body) // as the shell tries them: the first that opens
                });
                match opened {
                    Ok(opened) => body = body.or(Some(opened)),
                    Err(error) => locked = locked.or(Some(error)),
                }
            }
        }
        let half = body.as_ref().and_then(|body| self.half(body.disk));
        let seal = match (&files, &body, locked) {
            (SealFiles::None, ..) => FoundSeal::None,
            (SealFiles::Newer(version), ..) => FoundSeal::Newer(*version),
            (SealFiles::Malformed(error), ..) => FoundSeal::Malformed(*error),
            (SealFiles::Candidates(_), Some(body), _) => FoundSeal::Open(body),
            (SealFiles::Candidates(_), None, locked) => FoundSeal::Locked(locked.expect("none opened")),
        };
        let verdict = decide(Found { seal, header: &copies, cluster: half.as_ref(), config, tpm: self.tpm });
        then(verdict, body.as_ref(), half.as_ref())
    }

    fn half(&self, disk: DiskUuid) -> Option<ClusterHalf> {
        let (shares, _) = share::read(self.slots(File::Share), disk);
        let share = shares.first()?;
        self.released(&share.binding).ok().map(|key| share.half(ClusterKey(key)))
    }

    /// A TPM that keeps a secret in the blob it gives out, and knows its own by the storage key's name.
    fn protect(&self, held: &Secret<32>) -> Binding {
        match self.tpm {
            Tpm::Present => Binding::Tpm(TpmObject {
                pcrs: PcrSelection::of(&[11]),
                storage_key_name: std::array::from_fn(|at| if at == 1 { 0x0b } else { 0 }),
                public: vec![1],
                private: held.expose().to_vec(),
            }),
            Tpm::Absent | Tpm::ZeroPcr(_) => Binding::Unprotected(held.duplicate()),
        }
    }

    fn released(&self, binding: &Binding) -> Result<Secret<32>, Locked> {
        match (binding, Locked::before_asking(binding, self.tpm)) {
            (_, Some(locked)) => Err(locked),
            (Binding::Tpm(object), None) => keys::derive::secret(&object.private).ok_or(Locked::OtherTpm),
            (Binding::Unprotected(held), None) => Ok(held.duplicate()),
        }
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
        let plan = self.decide(|verdict, body, half| match verdict {
            Verdict::Create(verified) => {
                assert!(!self.committed(), "a create on a committed disk");
                Ok(self.plan(*verified))
            }
            Verdict::Open(opened) => {
                let body = body.expect("only a seal opens");
                Ok(Plan::open(opened, Leftover::of(body, self.config.as_deref())))
            }
            Verdict::CommitThenOpen(opened) => {
                let body = body.expect("only a seal opens");
                let leftover = Leftover::of(body, self.config.as_deref());
                Ok(Plan::commit_then_open(opened, body, half, [0xcc; 32], leftover).expect("the half opened it"))
            }
            other @ (Verdict::Blank | Verdict::AwaitingKeys { .. } | Verdict::NeedsOwner(_) | Verdict::Failed(_)) => {
                Err(Ended::Waiting(other.message()))
            }
        });
        let plan = match plan {
            Ok(plan) => plan,
            Err(waiting) => return waiting,
        };
        let creating = self.attempts;
        self.attempts = creating + 1;
        self.run(plan, creating, cut)
    }

    fn run(&mut self, plan: Plan, attempt: u8, cut: Option<Cut>) -> Ended {
        let mut memory = Memory::default();
        let mut effects = Vec::new();
        let mut state = State::start(plan, &mut effects);
        for performed in 0.. {
            let Some(effect) = effects.pop() else { break };
            let step = effect.step();
            if let Some(cut) = cut.filter(|cut| cut.after == performed) {
                self.tear(effect, cut.sectors);
                return Ended::Cut;
            }
            self.perform(effect, attempt, &mut memory);
            state = state.handle(Event::Done(step), &mut effects);
        }
        assert!(matches!(state, State::Finished) && memory.announced, "a plan that ends has announced the machine");
        Ended::Running(self.filesystem.as_ref().and_then(|it| it.cluster).expect("a running machine has its CA"))
    }

    fn plan(&self, verified: crate::config::Verified) -> Plan {
        let mut counter = self.attempts;
        let material = Material::draw(|bytes| {
            counter = counter.wrapping_add(31);
            bytes.fill(counter);
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(material) = material;
        let issued = Issued {
            ca_spki: ca_spki(self.attempts),
            ca_certificate: b"CA certificate".to_vec(),
            machine_certificate: b"machine certificate".to_vec(),
        };
        let draft = Draft::new(verified, material, issued);
        let next = |file| Pair::read(file, self.slots(file)).next;
        let situation = Situation {
            boot_class: BootClass::Direct,
            now: 1_790_000_000,
            next: NextWrites {
                seal: next(File::Seal),
                share: next(File::Share),
                directory: next(File::Directory),
                record: next(File::Record),
            },
        };
        let protected = Protected {
            seal: self.protect(&draft.seal_root().0),
            share: self.protect(&draft.cluster_key().0),
            owner: draft.for_owner().expect("seals"),
            directory: draft.directory(vec!["192.0.2.10:7836".into()]),
            directory_signature: vec![0x30; 70],
        };
        draft.plan(protected, &situation).expect("fits")
    }

    fn perform(&mut self, effect: Effect, attempt: u8, memory: &mut Memory) {
        match effect {
            Effect::GrowData => {}
            Effect::WriteHeader { copy, bytes, .. } => self.headers[place(copy)] = bytes.to_vec(),
            Effect::MapVolume { volume, mapping } => {
                let key = match volume {
                    Volume::Raw => vec![],
                    Volume::Encrypted(key) => key.xts().expose().to_vec(),
                    Volume::Authenticated(key) => [&key.xts().expose()[..], key.integrity().expose()].concat(),
                };
                if mapping == Mapping::Format {
                    assert!(!self.committed(), "block layers formatted over committed data");
                    self.filesystem = None;
                }
                memory.mapped = Some(key);
            }
            Effect::MakeFilesystem => {
                assert!(!self.committed(), "a filesystem made over committed data");
                let key = memory.mapped.clone().expect("mapped before mkfs");
                self.filesystem = Some(Filesystem { key, cluster: None });
            }
            Effect::Mount => {
                let key = &self.filesystem.as_ref().expect("there is a filesystem to mount").key;
                assert_eq!(Some(key), memory.mapped.as_ref(), "the filesystem is under this key");
                memory.mounted = true;
            }
            Effect::PopulateData(_) => {
                assert!(memory.mounted && !self.committed(), "a CA made on a committed disk");
                self.filesystem.as_mut().expect("mounted").cluster = Some(cluster_id(&ca_spki(attempt)));
            }
            Effect::WriteEsp { file, slot, bytes } => {
                assert!(!memory.capped, "sealed after the cap");
                let durable = self.filesystem.as_ref().and_then(|it| it.cluster).is_some();
                assert!(durable, "the ESP is written after the data partition holds its keys");
                self.pair(file)[slot] = bytes.to_vec();
            }
            Effect::RemoveConfig => {
                assert!(self.committed(), "the config goes only once the header is committed");
                self.config = None;
            }
            Effect::ExtendCap => memory.capped = true,
            Effect::StartServices => {
                assert!(memory.capped && memory.mounted, "services start behind the cap, on mounted data");
                memory.served = true;
            }
            Effect::Announce => {
                assert!(memory.served && self.committed(), "Claim is answered only once the header is committed");
                memory.announced = true;
            }
            Effect::Report(unexpected) => panic!("{unexpected}"),
        }
    }

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
                let config = self.config.as_mut().expect("there is a config to remove");
                let zeros = vec![0; config.len()];
                over(config, &zeros[..zeros.len().min(sectors * SECTOR)]);
            }
            // A half-made filesystem or a half-written directory of keys is none.
            Effect::MakeFilesystem => self.filesystem = None,
            Effect::GrowData
            | Effect::MapVolume { .. }
            | Effect::Mount
            | Effect::PopulateData(_)
            | Effect::ExtendCap
            | Effect::StartServices
            | Effect::Announce
            | Effect::Report(_) => {}
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
pub(crate) fn finished(level: Level, tpm: Tpm) -> (World, ClusterId) {
    let mut world = World::flashed(level, tpm);
    match world.boot(None) {
        Ended::Running(cluster) => (world, cluster),
        other @ (Ended::Cut | Ended::Waiting(_)) => panic!("{other:?}"),
    }
}

/// Another cluster's half of the right name.
pub(crate) fn wrong_half(disk: DiskUuid) -> ClusterHalf {
    ClusterHalf { key: ClusterKey(secret(0x99)), disk, generation: 1 }
}

/// The first write of a pair goes to its first slot.
pub(crate) const FIRST: Next = Next::FIRST;
