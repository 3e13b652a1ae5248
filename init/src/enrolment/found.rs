//! From the bytes that were read to a decision: unseals, finds the cluster's half, asks `enrol`, keeps what the decision
//! needs. Writes nothing.

use enrol::found::{Found as Facts, FoundConfig, FoundSeal, Leftover, Locked, Reason, Verdict, decide as judge};
use keys::binding::Binding;
use keys::data_key::ClusterHalf;
use keys::header::Copies;
use keys::pair::{File, Pair};
use keys::seal::{self, Body, Candidate, Clear, SealError, SealFiles};
use keys::share;
use model::{BootClass, ClusterKey, Ipv4Prefix, NetworkConfig, SealRoot, Secret, Stay, VPN_PREFIX};

use super::newborn::Order;
use super::{Decision, Found, Known, Opening};
use crate::machine::esp::{Esp, Files};
use crate::machine::tpm::{self, NotReleased, Tpm};
use crate::runtime::chain::Chain;

/// What was made of the seal.
enum Unsealed {
    None,
    Newer(u32),
    Malformed(SealError),
    Locked(Clear, Locked),
    Open(Clear, Box<Body>),
}

/// Decides what this boot does, with the TPM that was found, or what kept it from being used.
pub(super) fn decide(
    esp: Esp,
    files: &Files,
    header: &Copies,
    class: BootClass,
    tpm: Result<Option<Tpm>, tpm::Error>,
) -> Found {
    let unsealed = tpm.and_then(|mut tpm| Ok((unseal(files.seal.bytes(), class, tpm.as_mut())?, tpm)));
    match unsealed {
        Ok((unsealed, tpm)) => with_seal(esp, files, header, unsealed, tpm),
        Err(error) => broken(esp, &error),
    }
}

/// A TPM that fails decides nothing: the machine comes up with the defaults and says so.
fn broken(esp: Esp, error: &tpm::Error) -> Found {
    let reason = format!(
        "the TPM is there and does not work: {}. Nothing was changed. Restart the machine; if that does not help, look at \
         the TPM's settings in the firmware",
        Chain(error)
    );
    Basics::default().found(Decision::Stays(Stay::Failed), reason, None, esp)
}

/// What network and API need, whatever was decided.
#[derive(Default)]
struct Basics {
    known: Option<Known>,
    network: NetworkConfig,
    vpn_prefix: Option<Ipv4Prefix>,
}

impl Basics {
    /// From the seal, which says it in clear; from the config before there is one.
    fn of(unsealed: &Unsealed, config: &FoundConfig) -> Self {
        let known = match unsealed {
            Unsealed::Open(clear, body) => Some(Known::of(clear, body)),
            Unsealed::None | Unsealed::Newer(_) | Unsealed::Malformed(_) | Unsealed::Locked(..) => None,
        };
        match (unsealed, config) {
            (Unsealed::Locked(clear, _) | Unsealed::Open(clear, _), _) => {
                Self { known, network: clear.network.clone(), vpn_prefix: Some(clear.vpn_prefix) }
            }
            (Unsealed::None, FoundConfig::Good(verified)) => Self {
                known,
                network: verified.config.network.clone(),
                vpn_prefix: Some(verified.config.create.vpn_prefix),
            },
            (Unsealed::None, FoundConfig::Absent | FoundConfig::Refused(_))
            | (Unsealed::Newer(_) | Unsealed::Malformed(_), _) => Self::default(),
        }
    }

    fn found(self, decision: Decision, why: String, tpm: Option<Tpm>, esp: Esp) -> Found {
        let Self { known, network, vpn_prefix } = self;
        let vpn_prefix = vpn_prefix.unwrap_or(VPN_PREFIX);
        Found { known, refused: None, network, vpn_prefix, decision, why, tpm, esp }
    }
}

fn with_seal(esp: Esp, files: &Files, header: &Copies, unsealed: Unsealed, mut tpm: Option<Tpm>) -> Found {
    let next = enrol::create::NextWrites {
        seal: seal::read(files.seal.bytes()).1,
        share: Pair::read(File::Share, files.share.bytes()).next,
        directory: Pair::read(File::Directory, files.directory.bytes()).next,
        record: Pair::read(File::Record, files.record.bytes()).next,
    };
    let config = FoundConfig::read(
        files.fw_cfg.as_ref().map(|bytes| bytes.as_slice()),
        files.config.as_ref().map(|bytes| bytes.as_slice()),
    );
    let tpm_state = Tpm::state(tpm.as_ref());
    let basics = Basics::of(&unsealed, &config);
    let half = match &unsealed {
        Unsealed::Open(_, body) => cluster_half(files, body, tpm.as_mut()),
        Unsealed::None | Unsealed::Newer(_) | Unsealed::Malformed(_) | Unsealed::Locked(..) => None,
    };
    let seal = match &unsealed {
        Unsealed::None => FoundSeal::None,
        Unsealed::Newer(version) => FoundSeal::Newer(*version),
        Unsealed::Malformed(error) => FoundSeal::Malformed(*error),
        Unsealed::Locked(_, locked) => FoundSeal::Locked(*locked),
        Unsealed::Open(_, body) => FoundSeal::Open(body),
    };
    let verdict = judge(Facts { seal, header, cluster: half.as_ref(), config, tpm: tpm_state });
    let why = verdict.message();
    let refused = if let Verdict::NeedsOwner(reason @ Reason::Config(_)) = verdict { Some(reason) } else { None };
    // A verdict to act on that lacks what it was made from would be a mistake of ours; nothing is acted on then.
    let stays = Decision::Stays(verdict.stay().unwrap_or(Stay::Failed));
    let decision = match (verdict, unsealed) {
        (Verdict::Create(verified), _) => Decision::Create(Box::new(Order { verified: *verified, next })),
        (Verdict::Open(opened) | Verdict::CommitThenOpen(opened), Unsealed::Open(clear, body)) => {
            let leftover = leftover(files, &body);
            Decision::Open(Box::new(Opening { opened, clear, body: *body, half, leftover }))
        }
        _ => stays, // the rest are states to stay in
    };
    Found { refused, ..basics.found(decision, why, tpm, esp) }
}

/// A sealed machine takes no config any more: one line in the log says so.
fn leftover(files: &Files, body: &Body) -> Leftover {
    let leftover = Leftover::of(body, files.config.as_ref().map(|bytes| bytes.as_slice()));
    if leftover == Leftover::Ignore || files.fw_cfg.is_some() {
        tracing::info!("{}", Leftover::IGNORED);
    }
    leftover
}

/// Opens the newest seal that opens; otherwise says what keeps the newest one shut.
fn unseal(slots: [&[u8]; 2], class: BootClass, mut tpm: Option<&mut Tpm>) -> Result<Unsealed, tpm::Error> {
    let candidates = match seal::read(slots).0 {
        SealFiles::None => return Ok(Unsealed::None),
        SealFiles::Newer(version) => return Ok(Unsealed::Newer(version)),
        SealFiles::Malformed(error) => return Ok(Unsealed::Malformed(error)),
        SealFiles::Candidates(candidates) => candidates,
    };
    let mut shut = Unsealed::None;
    for candidate in candidates {
        match open(&candidate, class, tpm.as_deref_mut()) {
            Ok(body) => return Ok(Unsealed::Open(candidate.clear, Box::new(body))),
            Err(NotReleased::Failed(error)) => return Err(error),
            Err(NotReleased::Locked(locked)) => {
                if matches!(shut, Unsealed::None) {
                    shut = Unsealed::Locked(candidate.clear, locked);
                }
            }
        }
    }
    Ok(shut)
}

fn open(candidate: &Candidate, class: BootClass, tpm: Option<&mut Tpm>) -> Result<Body, NotReleased> {
    let sealed = candidate.clear.boot_class;
    // Without a TPM nothing was measured, so how the machine was started makes no difference.
    if matches!(candidate.clear.binding, Binding::Tpm(_)) && sealed != class {
        return Err(NotReleased::Locked(Locked::BootClass { sealed, now: class }));
    }
    let root = SealRoot(released(&candidate.clear.binding, tpm)?);
    candidate.open(&root).map_err(|error| NotReleased::Locked(Locked::Body(error)))
}

/// The secret that a binding keeps.
fn released(binding: &Binding, tpm: Option<&mut Tpm>) -> Result<Secret<32>, NotReleased> {
    if let Some(locked) = Locked::before_asking(binding, Tpm::state(tpm.as_deref())) {
        return Err(NotReleased::Locked(locked));
    }
    match (binding, tpm) {
        (Binding::Unprotected(secret), _) => Ok(secret.duplicate()),
        (Binding::Tpm(object), Some(tpm)) => tpm.unseal(object),
        (Binding::Tpm(_), None) => Err(NotReleased::Locked(Locked::NoTpm)),
    }
}

/// The cluster's half of the data key, from this machine's own share. Without one the cluster has to be asked.
fn cluster_half(files: &Files, body: &Body, mut tpm: Option<&mut Tpm>) -> Option<ClusterHalf> {
    let (shares, _) = share::read(files.share.bytes(), body.disk);
    shares.into_iter().find_map(|share| match released(&share.binding, tpm.as_deref_mut()) {
        Ok(key) => Some(share.half(ClusterKey(key))),
        Err(NotReleased::Locked(locked)) => {
            tracing::warn!(%locked, "the share does not open");
            None
        }
        Err(NotReleased::Failed(error)) => {
            tracing::warn!(error = %Chain(&error), "the share does not open");
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use enrol::config::{Create, EnrolmentConfig, WithoutTpm};
    use enrol::create::{Effect, Event, HeaderCopy, State};
    use keys::header::HEADER_BYTES;
    use keys::identity::SigningKey;
    use keys::pair::SLOT_BYTES;
    use keys::recovery::RecoveryPubKey;
    use model::{ColdStart, FirstContact, Level, NodeName, Role};
    use zeroize::Zeroizing;

    use super::super::newborn::{Birth, Newborn};
    use super::super::perform::milestone;
    use super::*;
    use crate::machine::esp::Slots;

    /// ESP and data header in memory: what a machine without a TPM finds.
    struct Machine {
        files: Files,
        header: [Vec<u8>; 2],
    }

    impl Machine {
        fn with_config(level: Level, without_tpm: WithoutTpm) -> Self {
            Self::named(None, level, without_tpm)
        }

        fn named(node: Option<NodeName>, level: Level, without_tpm: WithoutTpm) -> Self {
            let secret = |byte| Secret::take(&mut [byte; 32]);
            let owner = SigningKey::from_seed(secret(1));
            let config = EnrolmentConfig {
                node,
                first_contact: FirstContact(secret(2)),
                network: NetworkConfig::Dhcp,
                create: Create {
                    owner_pub_key: owner.public(),
                    owner_recovery: RecoveryPubKey::of(&secret(3)),
                    level,
                    cold_start: ColdStart::Automatic,
                    without_tpm,
                    vpn_prefix: VPN_PREFIX,
                    kubernetes_roles: vec![Role::Node],
                },
            };
            let blank = || Slots([vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]].map(Zeroizing::new));
            let files = Files {
                seal: blank(),
                share: blank(),
                directory: blank(),
                record: blank(),
                config: Some(config.sign(&owner).expect("a machine takes it")),
                fw_cfg: None,
            };
            Self { files, header: [vec![0; HEADER_BYTES], vec![0; HEADER_BYTES]] }
        }

        fn found(&self) -> Found {
            let header = Copies::read(&self.header[0], &self.header[1]);
            decide(Esp::unmounted(), &self.files, &header, BootClass::Direct, Ok(None))
        }

        fn decide(&self) -> Decision {
            self.found().decision
        }

        /// Performs what concerns ESP and header; returns what the timeline would say.
        fn perform(&mut self, plan: enrol::create::Plan) -> Vec<&'static str> {
            let (mut effects, mut reached) = (Vec::new(), Vec::new());
            let mut state = State::start(plan, &mut effects);
            while let Some(effect) = effects.pop() {
                let step = effect.step();
                match effect {
                    Effect::WriteHeader { copy, bytes, .. } => {
                        self.header[usize::from(copy == HeaderCopy::Second)] = bytes.to_vec();
                    }
                    Effect::WriteEsp { file, slot, bytes } => {
                        let slots = match file {
                            File::Seal => &mut self.files.seal,
                            File::Share => &mut self.files.share,
                            File::Directory => &mut self.files.directory,
                            File::Record => &mut self.files.record,
                        };
                        slots.0[slot] = bytes;
                    }
                    Effect::GrowData
                    | Effect::MapVolume { .. }
                    | Effect::MakeFilesystem
                    | Effect::Mount
                    | Effect::PopulateData(_)
                    | Effect::RemoveConfig
                    | Effect::ExtendCap
                    | Effect::StartServices
                    | Effect::Announce => {} // neither ESP nor header
                    Effect::Report(unexpected) => panic!("{unexpected}"),
                }
                reached.extend(milestone(step));
                state = state.handle(Event::Done(step), &mut effects);
            }
            assert!(matches!(state, State::Finished));
            reached
        }
    }

    fn newborn(decision: Decision) -> Newborn {
        let Decision::Create(order) = decision else { panic!("a config and a blank disk: {decision:?}") };
        let now = Duration::from_secs(1_800_000_000);
        Newborn::make(*order, None, Birth { class: BootClass::Direct, endpoints: vec![], now }).expect("made")
    }

    /// Proves: D2 D4 S7 S11
    #[test]
    fn what_create_writes_opens_at_the_next_boot_as_the_same_machine() {
        for level in Level::ALL {
            let mut machine = Machine::with_config(*level, WithoutTpm::Unprotected);
            let Newborn { plan, membership, .. } = newborn(machine.decide());
            machine.perform(plan);
            let Decision::Open(opening) = machine.decide() else { panic!("sealed and committed at {level}") };
            assert_eq!(opening.leftover, Leftover::Remove, "the config that made it");
            assert!(opening.finishes_create(), "what create does last is not done");
            let (_, again) = opening.plan().expect("opens");
            assert_eq!(again.holder, membership.holder);
            assert_eq!(again.identity.public(), membership.identity.public());
            assert_eq!((again.name, again.disk), (membership.name, membership.disk));
            assert_eq!(again.certificate, membership.certificate);
            machine.files.config = None;
            let Decision::Open(opening) = machine.decide() else { panic!("a member at {level}") };
            assert!(!opening.finishes_create(), "a member that reopens enrols no more");
        }
    }

    /// Proves: S6
    #[test]
    fn a_name_that_the_config_chose_is_the_machines_name_also_at_the_next_boot() {
        let chosen = NodeName::chosen("one").expect("a name");
        let mut machine = Machine::named(Some(chosen.clone()), Level::Insecure, WithoutTpm::Unprotected);
        let Newborn { plan, membership, .. } = newborn(machine.decide());
        assert_eq!(membership.name, chosen);
        machine.perform(plan);
        let Decision::Open(opening) = machine.decide() else { panic!("sealed and committed") };
        assert_eq!(opening.plan().expect("opens").1.name, chosen);
    }

    #[test]
    fn the_timeline_names_each_step_of_create_once_and_in_its_order() {
        let mut machine = Machine::with_config(Level::Encrypted, WithoutTpm::Unprotected);
        let Newborn { plan, .. } = newborn(machine.decide());
        let expected = "grow-data header layers mkfs mount keys share record directory seal commit remove-config cap \
                        start-services announce";
        assert_eq!(machine.perform(plan).join(" "), expected);
    }

    /// Proves: D2
    #[test]
    fn without_its_share_a_locked_disk_waits_for_the_cluster() {
        let mut machine = Machine::with_config(Level::Encrypted, WithoutTpm::Unprotected);
        let Newborn { plan, .. } = newborn(machine.decide());
        machine.perform(plan);
        machine.files.share = Slots([vec![], vec![]].map(Zeroizing::new));
        assert!(matches!(machine.decide(), Decision::Stays(Stay::AwaitingKeys)));
    }

    /// Proves: D14
    #[test]
    fn a_lost_seal_never_becomes_a_new_cluster() {
        let mut machine = Machine::with_config(Level::Authenticated, WithoutTpm::Unprotected);
        let Newborn { plan, .. } = newborn(machine.decide());
        machine.perform(plan);
        machine.files.seal = Slots([vec![], vec![]].map(Zeroizing::new));
        assert!(machine.files.config.is_some(), "a create config is there");
        assert!(matches!(machine.decide(), Decision::Stays(Stay::NeedsOwner)));
    }

    /// Proves: D5 S1
    #[test]
    fn refused_configs_and_broken_tpms_are_states_with_reasons() {
        let mut machine = Machine::with_config(Level::Authenticated, WithoutTpm::Refuse);
        let found = machine.found();
        assert!(matches!(found.decision, Decision::Stays(Stay::NeedsOwner)) && found.why.contains("no TPM"));
        machine.files.config = Some(Zeroizing::new(vec![]));
        assert!(matches!(machine.decide(), Decision::Stays(Stay::NeedsOwner)));
        machine.files.config = None;
        assert!(matches!(machine.decide(), Decision::Stays(Stay::Blank)));
        let header = Copies::read(&machine.header[0], &machine.header[1]);
        let error = Err(tpm::Error::Open(std::io::ErrorKind::PermissionDenied.into()));
        let found = decide(Esp::unmounted(), &machine.files, &header, BootClass::Direct, error);
        assert!(matches!(found.decision, Decision::Stays(Stay::Failed)));
    }
}
