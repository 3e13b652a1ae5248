//! A machine's disk, ESP and TPM in memory, and boots of it that may be cut after any effect or in the middle of one. What
//! is read, decided and performed in a boot is what runs on a machine; only the disk, the TPM and the authority are not.
//! What it refuses by panicking is what must never happen.

use std::convert::Infallible;

use cluster::desired::{Desired, DesiredShares, EtcdPart};
use cluster::epochs::ShareOrder;
use cluster::record::{Generations, OwnerRecord, Release, Standing, UnixSeconds};
use cluster::redeem::{RedeemAnswer, RedeemRequest};
use cluster::state::StateVersion;
use keys::binding::TpmObject;
use keys::cold_start::Epoch;
use keys::coordinator::AuthorityKeys;
use keys::data_key::{ClusterHalf, Volume};
use keys::directory::{self, Coordinator, Directory, DirectoryMinimum, Notes};
use keys::header::{Copies, Copy, HEADER_BYTES, HeaderState};
use keys::identity::{cluster_id, cluster_key, machine_id};
use keys::recovery::RecoveryPubKey;
use keys::two_slot::{File, NextSlot, SLOT_BYTES, Slots};
use model::{
    Assignment, BootClass, ClusterId, ClusterKey, ClusterRole, ColdStart, DiskUuid, Level, MachineId, MachinePubKey,
    MasterSecret, NodeName, OwnerPubKey, PcrSelection, Prefixes, RootHash, Secret, VPN_PREFIX,
};
use unlock::renewal::Renewal;
use unlock::share;
use zeroize::Zeroizing;

use crate::asking::{self, AnswerError, GivenAnswers, WaitingMachine};
use crate::config::{EnrolmentConfig, WithoutTpm};
use crate::create::{Creation, CreationMaterial, NewAuthorities, Signer};
use crate::failure::Layer;
use crate::files::Files;
use crate::fixture::{ca, config, config_that_starts, owner, redeeming, secret};
use crate::found::{BootDecision, Findings, Inputs, decide};
use crate::join::{self, About, AdmissionOffer, JoiningMachine};
use crate::keeper::{Keeper, ReleaseError, SealLock};
use crate::making::{Fresh, IssuedCertificates};
use crate::member::Membership;
use crate::plan::{Halt, Performer, Plan, Refusal};
use crate::seal::Seal;
use crate::step::{Effect, HeaderCopy, Mapping, NewData};
use crate::wait::Wait;

const SECTOR: usize = 512;

/// Machine and cluster of a test, as far as they survive a cut.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) tpm: Option<Chip>,
    pub(crate) headers: [Vec<u8>; 2],
    pub(crate) files: Files,
    pub(crate) filesystem: Option<Filesystem>,
    pub(crate) boot_class: BootClass,
    /// The cluster that a ticket leads to.
    pub(crate) store: Store,
    pub(crate) attempts: u8,
    /// Which cluster key its disk takes, as it would tell its cluster after the last plan that was made.
    pub(crate) tells: u32,
}

/// A TPM: it keeps a secret in the blob it gives out, and knows its own by the storage key's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chip {
    /// Differs between TPMs, and from before it was cleared.
    pub(crate) storage_key: u8,
    /// The measurement of this boot.
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
            Health::Fails => Err(ChipFails),
        }
    }

    fn release(&mut self, object: &TpmObject) -> Result<Secret<32>, ReleaseError<ChipFails>> {
        match self.health {
            Health::Works => {}
            Health::Fails => return Err(ReleaseError::Failed(ChipFails)),
        }
        if object.storage_key_name != self.name() {
            return Err(ReleaseError::Locked(SealLock::OtherTpm));
        }
        if object.public != [1 + self.measured] {
            return Err(ReleaseError::Locked(SealLock::Pcrs));
        }
        Ok(keys::derive::secret(&object.private).expect("32 bytes were sealed"))
    }
}

impl Chip {
    fn name(&self) -> [u8; 34] {
        std::array::from_fn(|at| [0, 0x0b, self.storage_key].get(at).copied().unwrap_or(0))
    }
}

/// The cluster that a ticket leads to: it lets in as many machines as the ticket has uses, and answers each the same again.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) uses: usize,
    /// Machines that the cluster let in, with the disk of each.
    pub(crate) admitted: Vec<(MachinePubKey, DiskUuid)>,
    pub(crate) role: ClusterRole,
    /// Which keys of each disk it gives.
    pub(crate) generations: Generations,
}

impl Default for Store {
    fn default() -> Self {
        Self { uses: 1, admitted: vec![], role: ClusterRole::Node, generations: Generations::One(1) }
    }
}

impl Store {
    /// GivenAnswers a request, unless the ticket is used up.
    pub(crate) fn redeem(
        &mut self,
        machine: MachinePubKey,
        request: &[u8],
        exporter: &[u8; 32],
    ) -> Option<RedeemAnswer> {
        let request = RedeemRequest::verify(request, machine, exporter).expect("a good request");
        let asks = (machine, request.body().disk);
        let known = self.admitted.iter().position(|it| *it == asks);
        let at = known.unwrap_or(self.admitted.len());
        if known.is_none() {
            assert!(self.admitted.iter().all(|it| it.0 != machine), "a machine keeps its disk");
            if self.admitted.len() >= self.uses {
                return None;
            }
            self.admitted.push(asks);
        }
        let (coordinator, cluster) = (MachineId([1; 16]), cluster_id(&ca().spki));
        let coordinators = vec![Coordinator { machine: coordinator, endpoints: vec!["192.0.2.1:7836".to_owned()] }];
        let vpn_ip = VPN_PREFIX.nth(u32::try_from(at).expect("a few") + 2).expect("an address");
        let assignment = Assignment::new(vpn_ip, self.role, [].into(), None);
        let desired = Desired {
            at: Some(StateVersion::default()),
            look: None,
            standing: Standing::Admitted,
            assignment: assignment.expect("they fit"),
            prefixes: Prefixes::of(VPN_PREFIX),
            coordinators: [].into(),
            etcd: EtcdPart::Out,
            shares: DesiredShares::default(),
            owners: vec![OwnerRecord { key: OwnerPubKey(owner().public()), recovery: RecoveryPubKey::of(&secret(2)) }],
            level: Level::Insecure,
            cold_start: ColdStart::Automatic,
        };
        Some(RedeemAnswer {
            time: UnixSeconds(1_800_000_000),
            certificate: b"machine certificate".to_vec(),
            ca_certificate: b"CA certificate".to_vec(),
            desired,
            node_name: NodeName::derived(machine_id(&machine.0)),
            key_generation: 1,
            cluster_key: Self::half(asks.1, 1),
            directory: ca().sign(&Directory { cluster, version: 5, coordinators }.unsigned()),
            peers: vec![],
        })
    }

    /// The half of a machine that it let in.
    fn release(&self, machine: MachineId, disk: DiskUuid, generation: u32) -> Option<ClusterHalf> {
        let knows = self.admitted.iter().any(|it| machine_id(&it.0.0) == machine && it.1 == disk);
        let next = self.generations.behind(generation).map(|next| Self::half(disk, next));
        let half = || ClusterHalf { key: Self::half(disk, generation), disk, generation, next };
        (knows && self.generations.include(generation)).then(half)
    }

    /// The cluster's half of what opens a disk.
    pub(crate) fn half(disk: DiskUuid, generation: u32) -> ClusterKey {
        cluster_key(&MasterSecret(secret(0x70)), cluster_id(&ca().spki), disk, generation)
    }
}

/// A machine's account of itself, beside what it made.
pub(crate) fn about() -> About {
    About { release: Release(0, 2, 0), root_hash: RootHash([7; 32]), endpoints: vec![] }
}

/// Certificates that the cluster's CA issued with every answer.
pub(crate) fn issued() -> IssuedCertificates {
    IssuedCertificates {
        ca_spki: ca().spki.clone(),
        ca_certificate: b"CA certificate".to_vec(),
        machine_certificate: b"machine certificate".to_vec(),
    }
}

/// Random bytes that differ from boot to boot.
pub(crate) fn drawn(boot: u8) -> impl FnMut(&mut [u8]) -> Result<(), Infallible> {
    let mut counter = boot;
    move |bytes| {
        counter = counter.wrapping_add(31);
        bytes.fill(counter);
        Ok(())
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

/// Trouble that a boot meets.
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
pub(crate) enum PerformError {
    #[error("the power went")]
    Cut,
    #[error("the disk fails")]
    Fails,
    #[error("it is under another key")]
    WrongKey,
}

/// A boot, and what it has in memory.
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
        Self::with(&config(level, WithoutTpm::Unprotected), tpm)
    }

    /// The same, whose owner opens it after each start.
    pub(crate) fn manual(level: Level, tpm: Option<Chip>) -> Self {
        Self::with(&config_that_starts(ColdStart::Manual, level, WithoutTpm::Unprotected), tpm)
    }

    /// The same with a config that joins.
    pub(crate) fn invited(level: Level, tpm: Option<Chip>) -> Self {
        Self::with(&redeeming(level, WithoutTpm::Unprotected), tpm)
    }

    fn with(config: &EnrolmentConfig, tpm: Option<Chip>) -> Self {
        let blank = || Slots([vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]].map(Zeroizing::new));
        let bytes = config.sign(&owner()).expect("a good config");
        Self {
            tpm,
            headers: [vec![0; HEADER_BYTES], vec![0; HEADER_BYTES]],
            files: Files {
                unreadable: Vec::new(),
                seal: blank(),
                share: blank(),
                directory: blank(),
                record: blank(),
                config: Some(bytes),
                fw_cfg: None,
            },
            filesystem: None,
            boot_class: BootClass::Direct,
            store: Store::default(),
            attempts: 0,
            tells: 0,
        }
    }

    pub(crate) const fn slots(&mut self, file: File) -> &mut [Zeroizing<Vec<u8>>; 2] {
        &mut self.files.slots(file).0
    }

    /// All that a boot finds and decides in this world.
    pub(crate) fn found(&self) -> Findings {
        self.found_given(GivenAnswers::default())
    }

    /// GivenAnswers that a machine decides with which waits for its half and is given this one.
    pub(crate) fn given_half(&self, half: ClusterHalf) -> Result<GivenAnswers, AnswerError> {
        let BootDecision::Wait(wait, seal) = self.found().decision else { panic!("it has its half") };
        answered(&wait, seal.as_deref(), asking::Answer::Half(half))
    }

    fn found_given(&self, given: GivenAnswers) -> Findings {
        self.found_with(given, Ok(self.tpm.clone().as_mut()))
    }

    /// The same with another TPM.
    pub(crate) fn found_with(&self, given: GivenAnswers, tpm: Result<Option<&mut Chip>, ChipFails>) -> Findings {
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

    /// Boots, and is cut where `cut` says, or runs to the end.
    pub(crate) fn boot(&mut self, cut: Option<Cut>) -> Ended {
        self.boot_given(GivenAnswers::default(), cut)
    }

    /// The rest of a boot that waited until it was given something.
    pub(crate) fn boot_given(&mut self, given: GivenAnswers, cut: Option<Cut>) -> Ended {
        self.boot_in(given, cut.map_or(Trouble::None, Trouble::Cut))
    }

    /// Boots, and the effect with the number `effect` fails.
    pub(crate) fn boot_failing_at(&mut self, effect: usize) -> Ended {
        self.boot_in(GivenAnswers::default(), Trouble::Fails(effect))
    }

    fn boot_in(&mut self, given: GivenAnswers, trouble: Trouble) -> Ended {
        let decision = match self.found_given(given).decision {
            BootDecision::Wait(wait, seal) => {
                let member = wait.locked_member(seal.as_deref());
                let half = member.and_then(|member| {
                    self.store.release(member.identity().holder.machine, member.disk(), member.generation())
                });
                return match half {
                    None => Ended::Waiting(wait.message()),
                    Some(half) => {
                        let given = answered(&wait, seal.as_deref(), asking::Answer::Half(half));
                        self.boot_in(given.expect("the cluster gives the right one"), trouble)
                    }
                };
            }
            decision @ (BootDecision::Create(_)
            | BootDecision::Join(_)
            | BootDecision::Admitted(_)
            | BootDecision::Open(_)) => decision,
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
        let (plan, membership) = match decision {
            BootDecision::Create(creation) => boot.create(*creation),
            BootDecision::Join(joining) => match boot.join(*joining) {
                Ok(planned) => planned,
                Err(ended) => return ended,
            },
            BootDecision::Open(mut opening) => {
                let raised = opening.raise(&ca().spki, boot.world.tpm.as_mut(), drawn(attempt), 1_790_000_000);
                raised.expect("a chip that seals");
                opening.plan(drawn(attempt.wrapping_add(13))).expect("what opened commits")
            }
            BootDecision::Admitted(_) | BootDecision::Wait(..) => {
                unreachable!("nobody was asked yet, and who waits is above")
            }
        };
        boot.world.tells = membership.recorded.key_generation;
        match plan.perform(&mut boot) {
            Ok(_capped) => {
                assert!(boot.capped && boot.mounted, "a plan ends with the cap, on open data");
                let seal = self.seal_minimum();
                let known = (membership.minimum.seal, membership.minimum.version);
                assert_eq!(known, (seal.seal, seal.version), "a member knows its seal as its next boot reads it");
                Ended::Running(self.filesystem.as_ref().and_then(|it| it.cluster).expect("a member has its CA"))
            }
            Err(Halt::Failed(_)) if boot.cut => Ended::Cut,
            Err(Halt::Failed(failure)) => {
                assert!(boot.mapped.is_none() && !boot.mounted, "what a plan opened is closed when it fails");
                Ended::Waiting(Wait::Failed(failure).message())
            }
            Err(Halt::Open(never)) => match never {},
        }
    }

    /// Has both slots of the directory hold one of these versions, as the cluster signs it, and the note up to which it is vouched for.
    pub(crate) fn directories(&mut self, versions: [u64; 2], vouched: Option<u64>) {
        for (slot, version) in versions.into_iter().enumerate() {
            let directory = Directory { cluster: cluster_id(&ca().spki), version, coordinators: vec![] };
            let notes = Notes { vouched, lowers: None };
            let file = directory::emit(slot as u64 + 1, &ca().sign(&directory.unsigned()), notes).expect("fits");
            self.slots(File::Directory)[slot] = file.into();
        }
    }

    /// Has a machine that created its cluster hold its share for these generations of its cluster key, as a coordinator writes it
    /// while it serves.
    pub(crate) fn holds(&mut self, generations: Generations) {
        let Ok(material) = CreationMaterial::draw(drawn(0));
        let (holder, disk, key) = {
            let found = self.found();
            let body = &found.seal().expect("a member's seal opens").body;
            (body.holder(), body.disk, body.share_key())
        };
        let holding = ShareOrder { epoch: Epoch::first(holder.machine), stands: Some(1), disk, generations };
        let written = share::hold(&holding, &holder, &material.master_secret, &key, &self.files.share);
        let write = written.expect("it holds it").expect("another generation is another share");
        self.slots(File::Share)[write.slot] = write.bytes.into();
        for over in share::superseded(&self.files.share.clone(), 1) {
            self.slots(File::Share)[over.slot] = over.bytes.into();
        }
    }

    /// The cluster key that each copy of the header takes; none at level insecure.
    pub(crate) fn locked_with(&self) -> [Option<u32>; 2] {
        Copies::read(&self.headers[0], &self.headers[1]).0.map(|copy| match copy {
            Copy::Valid(header) => header.lock.map(|lock| lock.key_generation),
            Copy::Blank | Copy::Refused(_) => panic!("a member has two headers: {copy:?}"),
        })
    }

    /// Minimum of directories, by the seal that opens.
    pub(crate) fn seal_minimum(&self) -> DirectoryMinimum {
        self.found().seal().expect("a member's seal opens").minimum()
    }

    /// Below which the seal that opens believes no directory, but by the owner's word.
    pub(crate) fn minimum(&self) -> u64 {
        self.seal_minimum().version
    }

    /// The directory's file as a member keeps it that runs on this ESP.
    pub(crate) fn renewal(&self) -> Renewal {
        Renewal::of(&self.files.directory, ca().spki.clone(), self.seal_minimum())
    }

    /// The version of the directory that the next boot goes by.
    pub(crate) fn believes(&self) -> u64 {
        let slots = &self.files.directory;
        let directory = unlock::directory::newest(slots, &ca().spki, self.seal_minimum().beside(slots.bytes()));
        directory.expect("one is believed").expect("there is one").version
    }

    /// Contents of the disk that a boot must not change before the machine was let in.
    fn disk(&self) -> (Vec<Vec<u8>>, Option<Filesystem>) {
        (self.headers.to_vec(), self.filesystem.clone())
    }
}

impl Boot<'_> {
    fn create(&mut self, creation: Creation) -> (Plan, Membership) {
        assert!(!self.world.committed(), "a create on a committed disk");
        let Ok(material) = CreationMaterial::draw(drawn(self.attempt));
        let issued = IssuedCertificates { ca_spki: ca_spki(self.attempt), ..issued() };
        let draft = creation.draft(material, authorities(issued), vec!["192.0.2.10:7836".into()]);
        draft.plan(self.world.tpm.as_mut(), &Somebody, 1_790_000_000).expect("fits")
    }

    /// Asks twice, as a machine whose first answer was lost, and goes on with one of the answers.
    fn join(&mut self, joining: JoiningMachine) -> Result<(Plan, Membership), Ended> {
        assert!(!self.world.committed(), "a join on a committed disk");
        let before = self.world.disk();
        let Ok(material) = join::Material::draw(drawn(self.attempt));
        let attempting = joining.attempt(material, self.world.tpm.as_mut()).expect("fits");
        let asker = match attempting.perform(self) {
            Ok(asker) => asker,
            Err(_) if self.cut => return Err(Ended::Cut),
            Err(failure) => return Err(Ended::Waiting(failure.to_string())),
        };
        assert!(before == self.world.disk(), "nothing of the disk is touched before the machine is let in");
        let machine = MachinePubKey(asker.identity().public());
        let answers: Option<Vec<_>> = [[0xe0; 32], [0xe1; 32]]
            .iter()
            .map(|exporter| self.world.store.redeem(machine, &asker.request(&about(), exporter), exporter))
            .collect();
        let Some(mut answers) = answers else { return Err(Ended::Waiting("the ticket is used up".to_owned())) };
        let answer = answers.swap_remove(usize::from(self.attempt % 2));
        let offer = asker.judge(AdmissionOffer { answer, issued: issued() }, &[]);
        let offer = offer.map_err(|why| Ended::Waiting(why.to_string()))?;
        let wait = Wait::LetIn(Box::new(asker));
        let again =
            self.world.found_given(answered(&wait, None, asking::Answer::Retry).expect("it asks again")).decision;
        assert!(matches!(again, BootDecision::Join(_)), "who asks again asks by the same config: {again:?}");
        let given = answered(&wait, None, asking::Answer::FittingOffer(Box::new(offer))).expect("it is taken");
        let decision = self.world.found_given(given).decision;
        let BootDecision::Admitted(draft) = decision else {
            panic!("the same machine reads its attempt: {decision:?}")
        };
        let Ok(fresh) = Fresh::draw(drawn(self.attempt.wrapping_add(7)));
        Ok(draft.plan(fresh, self.world.tpm.as_mut(), 1_790_000_000).expect("fits"))
    }
}

/// GivenAnswers a waiting machine, and returns what is decided with next.
fn answered(wait: &Wait, seal: Option<&Seal>, answer: asking::Answer) -> Result<GivenAnswers, AnswerError> {
    match WaitingMachine::begin(wait, seal).0.hears(answer) {
        asking::Effect::Resume(given) => Ok(given),
        asking::Effect::Report(refused) => Err(refused),
        other @ (asking::Effect::Ask(_)
        | asking::Effect::Cancel
        | asking::Effect::Renew(_)
        | asking::Effect::Cap(_)) => panic!("{other:?}"),
    }
}

/// Signer of the first directory, whose signature nobody verifies here.
pub(crate) struct Somebody;

impl Signer for Somebody {
    type Error = Infallible;

    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, Infallible> {
        Ok(vec![0x30; 70])
    }
}

/// Authorities of a cluster that is created, with this certificate of the machine.
pub(crate) fn authorities(issued: IssuedCertificates) -> NewAuthorities {
    let keys = |byte| AuthorityKeys { certificate: vec![byte], key: vec![byte, 1].into() };
    let (cairn, etcd, kubernetes, front) = (keys(0xa0), keys(0xa1), keys(0xa2), keys(0xa4));
    NewAuthorities { issued, cairn, etcd, kubernetes, front, service_accounts: vec![0xa3].into() }
}

impl Performer for Boot<'_> {
    type Error = PerformError;
    type Open = Infallible;

    fn perform(&mut self, effect: Effect) -> Result<(), PerformError> {
        let number = self.performed;
        self.performed += 1;
        match self.trouble {
            Trouble::Cut(cut) if cut.after == number => {
                self.cut = true;
                self.world.tear(effect, cut.sectors);
                return Err(PerformError::Cut);
            }
            Trouble::Fails(failing) if failing == number => return Err(PerformError::Fails),
            Trouble::None | Trouble::Cut(_) | Trouble::Fails(_) => {}
        }
        self.do_it(effect)
    }

    fn refused_by(error: &PerformError) -> Option<Refusal> {
        match error {
            PerformError::WrongKey => Some(Refusal::Layer(Layer::Filesystem)),
            PerformError::Cut | PerformError::Fails => None,
        }
    }

    fn close(&mut self) -> Result<(), Infallible> {
        (self.mapped, self.mounted) = (None, false);
        Ok(())
    }
}

impl Boot<'_> {
    fn do_it(&mut self, effect: Effect) -> Result<(), PerformError> {
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
                    return Err(PerformError::WrongKey);
                }
                self.mounted = true;
            }
            Effect::PopulateData(data) => {
                assert!(self.mounted && !world.committed(), "a CA made on a committed disk");
                let cluster = match *data {
                    NewData::Created { .. } => cluster_id(&ca_spki(self.attempt)),
                    NewData::Joined { .. } => cluster_id(&ca().spki),
                };
                world.filesystem.as_mut().expect("mounted").cluster = Some(cluster);
            }
            Effect::WriteAttempt { slot, bytes } => world.slots(File::Seal)[slot] = bytes,
            Effect::EraseAttempt { slot } => {
                let seals = &world.slots(File::Seal);
                assert!(seals[1 - slot].iter().any(|byte| *byte != 0), "an attempt goes once there is a seal");
                world.slots(File::Seal)[slot].fill(0);
            }
            Effect::WriteEsp { file, slot, bytes } => {
                let durable = world.filesystem.as_ref().and_then(|it| it.cluster).is_some();
                assert!(durable, "the ESP is written after the data partition holds its keys");
                world.slots(file)[slot] = bytes;
            }
            Effect::RaiseMinimum { slot, bytes } => {
                assert!(world.committed() && self.loaded, "the machine that opens is raised, and no other");
                world.slots(File::Seal)[slot] = bytes;
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
            Effect::WriteEsp { file, slot, bytes } => over(&mut self.slots(file)[slot], &bytes),
            Effect::WriteAttempt { slot, bytes } | Effect::RaiseMinimum { slot, bytes } => {
                over(&mut self.slots(File::Seal)[slot], &bytes)
            }
            Effect::EraseAttempt { slot } => over(&mut self.slots(File::Seal)[slot], &[0; SLOT_BYTES]),
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

/// The first write of a file goes to its first slot.
pub(crate) const FIRST: NextSlot = NextSlot::FIRST;
