//! From the bytes that were read to a decision: unseals, finds the cluster's half, asks `enrol`, keeps what the decision
//! needs. Writes nothing.

use enrol::found::{Found as Facts, FoundConfig, FoundSeal, Leftover, Locked, Verdict, decide as judge};
use keys::binding::Binding;
use keys::data_key::ClusterHalf;
use keys::header::Copies;
use keys::pair::{File, Pair};
use keys::seal::{self, Body, Candidate, Clear, SealError, SealFiles};
use keys::share;
use model::{BootClass, ClusterKey, Ipv4Prefix, MachineState, NetworkConfig, SealRoot, Secret, VPN_PREFIX};

use rustix::time::{ClockId, Timespec, clock_settime};

use super::newborn::Order;
use super::{Decision, Found, Opening};
use crate::esp::{Esp, Files};
use crate::services::Chain;
use crate::tpm::{self, NotReleased, Tpm};

/// What was made of the seal.
enum Unsealed {
    None,
    Newer(u32),
    Malformed(SealError),
    Locked(Clear, Locked),
    Open(Clear, Box<Body>),
}

/// Decides what this boot does.
pub(super) fn decide(esp: Esp, files: &Files, header: &Copies, class: BootClass) -> Found {
    match Tpm::find(class) {
        Ok(mut tpm) => match unseal(files.seal.bytes(), class, tpm.as_mut()) {
            Ok(unsealed) => with_seal(esp, files, header, unsealed, tpm),
            Err(error) => broken(esp, &error),
        },
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
    let decision = Decision::Stays(MachineState::Failed, reason);
    Basics::default().found(decision, None, esp)
}

/// What the network needs, whatever was decided.
#[derive(Default)]
struct Basics {
    network: NetworkConfig,
    vpn_prefix: Option<Ipv4Prefix>,
}

impl Basics {
    /// From the seal, which says it in clear; from the config before there is one.
    fn of(unsealed: &Unsealed, config: &FoundConfig) -> Self {
        match (unsealed, config) {
            (Unsealed::Locked(clear, _) | Unsealed::Open(clear, _), _) => {
                Self { network: clear.network.clone(), vpn_prefix: Some(clear.vpn_prefix) }
            }
            (Unsealed::None, FoundConfig::Good(verified)) => {
                Self { network: verified.config.network.clone(), vpn_prefix: Some(verified.config.create.vpn_prefix) }
            }
            (Unsealed::None, FoundConfig::Absent | FoundConfig::Refused(_))
            | (Unsealed::Newer(_) | Unsealed::Malformed(_), _) => Self::default(),
        }
    }

    fn found(self, decision: Decision, tpm: Option<Tpm>, esp: Esp) -> Found {
        let Self { network, vpn_prefix } = self;
        Found { network, vpn_prefix: vpn_prefix.unwrap_or(VPN_PREFIX), decision, tpm, esp }
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
    let decision = match (verdict, unsealed) {
        (Verdict::Create(verified), _) => Decision::Create(Box::new(Order { verified: *verified, next })),
        (Verdict::Open(opened) | Verdict::CommitThenOpen(opened), Unsealed::Open(clear, body)) => {
            let leftover = leftover(files, &body);
            no_earlier_than(clear.sealed_at);
            Decision::Open(Box::new(Opening { opened, clear, body: *body, half, leftover }))
        }
        (verdict, _) => Decision::Stays(verdict.state(), verdict.message()), // the rest are states to stay in
    };
    basics.found(decision, tpm, esp)
}

/// A clock without a battery may be years behind; it is not earlier than when the seal was written, which only an opened
/// seal says.
fn no_earlier_than(sealed_at: u64) {
    let Ok(seconds) = i64::try_from(sealed_at) else { return };
    if crate::clock::unix().as_secs() >= sealed_at {
        return;
    }
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    match clock_settime(ClockId::Realtime, time) {
        Ok(()) => tracing::info!(sealed_at, "the clock was before the last seal: set to that"),
        Err(error) => tracing::warn!(%error, "the clock is before the last seal and cannot be set"),
    }
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
