//! Enrolment: reads what a boot decides by, then performs what `enrol` decided. Decides nothing itself.
//!
//! ```text
//!   read ─► Found ───────────────── uplink, public API ───────────────► act ─► Outcome
//!    ESP, header, TPM, unseal;       (network, VPN prefix and name       effects in the order of the plan;
//!    writes nothing anywhere          come from Found)                   Member, or a state to stay in
//! ```
//! Whatever fails leaves the machine up, with console and API, in a state that says why.

mod found;
mod member;
mod newborn;
mod perform;
mod vault;

use std::io;

use enrol::create::{Plan, State};
use enrol::found::{Reason, Verdict};
use model::{ClusterId, Ipv4Prefix, NetworkConfig, PowerOn, Secret, Settled, Stay, Underway};

use crate::machine::disk::Disk;
use crate::machine::esp::{self, Esp};
use crate::machine::kernel::Boot;
use crate::machine::tpm::Tpm;
use crate::runtime::chain::Chain;
use crate::runtime::child::Children;
use crate::runtime::clock::{self, Floor};
use crate::runtime::tasks;
use crate::shown::board::Board;
use crate::storage::{self, CloseError, Mounted};

pub(crate) use member::{Authorities, Known, Member};
use member::{Membership, Opening};
use newborn::{Birth, Newborn};
use perform::{Performer, StepError};

/// Why nothing can be decided: what was there could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The ESP.
    #[error("read the ESP")]
    Esp(#[from] esp::Error),
    /// The data header.
    #[error("read the data partition")]
    Header(#[from] storage::HeaderError),
}

/// What was found on this machine, and what it means.
#[derive(Debug)]
pub(crate) struct Found {
    /// How the machine gets its public addresses.
    pub(crate) network: NetworkConfig,
    /// Where VPN addresses come from.
    pub(crate) vpn_prefix: Ipv4Prefix,
    /// What the seal says of the machine, if it opened.
    pub(crate) known: Option<Known>,
    /// Why there is no identity and will be none: what is wrong with the config. It names nobody, so anybody may be told.
    pub(crate) refused: Option<Reason>,
    decision: Decision,
    /// One paragraph: what it means, what is wrong, what was left alone, what to do.
    why: String,
    tpm: Option<Tpm>,
    esp: Esp,
}

/// What this boot does, with what it needs to do it.
#[derive(Debug)]
enum Decision {
    /// Makes a cluster.
    Create(Box<newborn::Order>),
    /// Opens what is there.
    Open(Box<Opening>),
    /// Waits.
    Stays(Stay),
}

/// What became of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A member with its data open. The TPM is capped; services may start.
    Member(Box<Member>, Underway),
    /// The machine stays like this; one paragraph says what is wrong, what was left alone, what to do.
    Stays(Settled, String),
}

/// A member and its open data, or what failed and what was left.
type Attempt = Result<Member, Failed>;

/// Why an attempt to become a member failed, in one paragraph.
struct Failed(String);

/// Where enrolment happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    /// Holds everything that is written.
    pub(crate) disk: &'a Disk,
    /// Shows how far it is.
    pub(crate) board: &'a Board,
    /// Runs what makes the file system.
    pub(crate) children: &'a Children,
}

/// Mounts the ESP, reads everything and decides. Writes nothing, but for the TPM's random bytes in the kernel's pool.
///
/// # Errors
/// [`ReadError`] when ESP or data header are there but cannot be read.
pub(crate) async fn read(disk: &Disk, boot: &Boot) -> Result<Found, ReadError> {
    let (disk, class) = (disk.clone(), boot.class);
    let found = tasks::blocking(move || {
        let esp = Esp::mount(&disk.esp)?;
        let files = esp.read()?;
        let header = storage::read_header(&disk.data)?;
        Ok(found::decide(esp, &files, &header, class, Tpm::find(class)))
    });
    found.await
}

/// Does what was decided.
///
/// # Errors
/// [`CloseError`] when something failed and the data partition could not be closed again: then only a restart makes sure
/// that its key is gone. Everything else that fails is a state to stay in.
pub(crate) async fn act(found: Found, power_on: PowerOn, site: Site<'_>) -> Result<Outcome, CloseError> {
    let Found { decision, why, tpm, esp, .. } = found;
    let (underway, attempt) = match decision {
        Decision::Stays(stay) => return Ok(Outcome::Stays(power_on.stays(stay), why)),
        Decision::Create(order) => {
            let underway = power_on.enrols();
            site.board.underway(&underway, &why);
            (underway, create(*order, tpm, esp, site).await?)
        }
        Decision::Open(opening) => {
            let underway = if opening.finishes_create() { power_on.enrols() } else { power_on.opens() };
            site.board.underway(&underway, &why);
            clock::not_before(Floor::Seal(opening.clear.sealed_at));
            mend(site).await;
            (underway, open(*opening, tpm, esp, site).await?)
        }
    };
    Ok(match attempt {
        Ok(member) => Outcome::Member(Box::new(member), underway),
        Err(Failed(reason)) => Outcome::Stays(underway.fails(), reason),
    })
}

/// Mends the partition table, if this boot came up by its backup. Only where the disk is the machine's own and may be
/// written; without it the machine runs as well, and says that one copy is all it has.
async fn mend(site: Site<'_>) {
    let disk = site.disk.clone();
    match tasks::blocking(move || disk.mend_table()).await {
        Ok(false) => {}
        Ok(true) => tracing::warn!("the primary partition table was damaged: mended from its backup"),
        Err(error) => site.board.error(&format!("the partition table is not mended: {}", Chain(&error))),
    }
}

async fn create(order: newborn::Order, mut tpm: Option<Tpm>, esp: Esp, site: Site<'_>) -> Result<Attempt, CloseError> {
    site.board.step("identity");
    let birth = Birth {
        class: site.board.boot().class,
        endpoints: site.board.read(|view| endpoints(&view.public_addresses)),
        now: clock::unix(),
    };
    let made = tasks::blocking(move || {
        let made = Newborn::make(order, tpm.as_mut(), birth);
        (made, tpm)
    });
    let (made, tpm) = made.await;
    let newborn = match made {
        Ok(newborn) => newborn,
        Err(error) => return Ok(Err(failed("could not make the cluster's keys", &error, "Nothing was written"))),
    };
    let Newborn { plan, membership, keys } = newborn;
    membership.show(site.board);
    let mut performer = Performer::new(membership.disk, membership.holder, esp, tpm, Some(keys));
    match drive(&mut performer, plan, site).await {
        Ok(data) => member(membership, data, site.board).await,
        Err((step, error)) => {
            performer.undo().await?;
            let left = "The machine goes on, or starts over, when it is restarted";
            Ok(Err(failed(&format!("could not {step}"), &error, left)))
        }
    }
}

async fn open(opening: Opening, tpm: Option<Tpm>, esp: Esp, site: Site<'_>) -> Result<Attempt, CloseError> {
    let (plan, membership) = match opening.plan() {
        Ok(plan) => plan,
        Err(error) => return Ok(Err(failed("could not make ready to open the data", &error, "Nothing was written"))),
    };
    membership.show(site.board);
    let mut performer = Performer::new(membership.disk, membership.holder, esp, tpm, None);
    match drive(&mut performer, plan, site).await {
        Ok(data) => member(membership, data, site.board).await,
        Err((step, error)) => {
            performer.undo().await?;
            Ok(Err(match &error {
                StepError::Map(refused) => refuses(refused.layer(), &error),
                StepError::Mount(_) => refuses(enrol::found::Layer::Filesystem, &error),
                StepError::Disk(_)
                | StepError::Header(_)
                | StepError::Make(_)
                | StepError::Vault(_)
                | StepError::Esp(_)
                | StepError::Tpm(_)
                | StepError::OutOfOrder => failed(&format!("could not {step}"), &error, "The data was left as it was"),
            }))
        }
    }
}

/// Performs a plan up to the point where services may start; what follows is the boot's.
async fn drive(
    performer: &mut Performer,
    plan: Plan,
    site: Site<'_>,
) -> Result<Mounted, (enrol::create::Step, StepError)> {
    use enrol::create::{Effect, Event, Step};
    let mut effects = Vec::new();
    let mut state = State::start(plan, &mut effects);
    while let Some(effect) = effects.pop() {
        let step = effect.step();
        if let Effect::Report(unexpected) = effect {
            tracing::error!(%unexpected, "enrolment");
            continue;
        }
        if matches!(effect, Effect::StartServices | Effect::Announce) {
            break;
        }
        site.board.step(perform::name(step));
        if let Err(error) = performer.perform(effect, site).await {
            let _the_next_boot_decides_anew = state.handle(Event::Failed(step), &mut effects);
            return Err((step, error));
        }
        if let Some(name) = perform::milestone(step) {
            site.board.reached(name, api::MilestoneKind::Step);
        }
        state = state.handle(Event::Done(step), &mut effects);
    }
    performer.take_mounted().ok_or((Step::Mount, StepError::OutOfOrder))
}

/// Reads what the data partition keeps: the same way after create as at every later boot.
async fn member(membership: Membership, data: Mounted, board: &Board) -> Result<Attempt, CloseError> {
    let level = data.level();
    let loaded = tasks::blocking(|| vault::load(vault::ROOT)).await;
    let error: Box<dyn std::error::Error + Send> = match (loaded, level) {
        (Ok(kept), Ok(level)) => {
            board.update(|view| view.level = Some(level));
            return Ok(Ok(membership.complete(kept, data)));
        }
        (Err(error), _) => Box::new(error),
        (_, Err(error)) => Box::new(error),
    };
    let failed = failed("could not read the cluster's keys", &*error, "The data was left as it was");
    drop(error);
    tasks::blocking(move || storage::close(&data)).await?;
    Ok(Err(failed))
}

/// The key under which the cluster's Secrets lie in etcd. Only who starts an apiserver asks for it: neither it nor the
/// master secret it comes from stays in memory.
///
/// # Errors
/// [`vault::LoadError`] when the data partition does not give the master secret.
pub(crate) async fn kubernetes_secrets_key(cluster: ClusterId) -> Result<Secret<32>, vault::LoadError> {
    tasks::blocking(move || {
        let master = vault::load_master_secret(vault::ROOT)?;
        Ok(keys::identity::kubernetes_secrets_key(&master, cluster))
    })
    .await
}

/// Deletes the first-contact secret: the owner has called. To be told by `Context::claimed`.
///
/// # Errors
/// When the file is there and cannot be removed; the secret in memory is gone all the same.
pub(crate) async fn forget_first_contact() -> io::Result<()> {
    tasks::blocking(|| vault::forget_first_contact(vault::ROOT)).await
}

fn refuses(layer: enrol::found::Layer, error: &StepError) -> Failed {
    Failed(format!("{} ({})", Verdict::Failed(layer).message(), Chain(error)))
}

fn failed(what: &str, error: &(dyn std::error::Error + 'static), left: &str) -> Failed {
    Failed(format!("{what}: {}. {left}", Chain(error)))
}

/// Where other machines will find this one: its public addresses, as the board shows them (`address/bits …`).
fn endpoints(public_addresses: &[String]) -> Vec<String> {
    let address =
        |shown: &String| shown.split('/').next().map(|address| format!("{address}:{}", model::PUBLIC_API_PORT));
    public_addresses.iter().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_the_addresses_that_the_board_shows() {
        let shown = ["192.0.2.10/24 (eth0)".to_owned(), "198.51.100.7/32 (eth1)".to_owned()];
        assert_eq!(endpoints(&shown), ["192.0.2.10:7836", "198.51.100.7:7836"]);
        assert!(endpoints(&[]).is_empty());
    }
}
