//! Has this coordinator do its part for the cold-start key: what that is says `cluster::epochs`; the share is on the ESP before
//! the records are told so. One whose etcd has no vote yet, or no leader, sees what is due in its own etcd's copy; another
//! coordinator, to which it announces itself, tells the records for it.

use std::convert::Infallible;
use std::time::Duration;

use cluster::epochs::{Due, Holding, due, stands, takes};
use cluster::key::Key;
use cluster::request::Request;
use etcd::wire::etcdserverpb::RangeRequest;
use model::{Chain, MachineId, MachinePubKey};
use tokio::sync::watch;
use tokio::time::sleep;

use super::keep::{self, Of};
use super::link::NoAnswer;
use super::{NotGranted, Records};
use crate::enrolment::shares::{Shares, WriteError};

/// Between two tries of what did not succeed: others may have been first, or etcd has no leader. And between two looks into this
/// machine's own copy, which tells nothing by itself.
const AGAIN: Duration = Duration::from_secs(1);

/// Why nothing is held any more; it is begun again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The share is not on the ESP.
    #[error("write this machine's share of the cold-start key")]
    Write(#[from] WriteError),
}

/// Looks at what is due each time that something else is seen; a task for good.
pub(super) async fn hold(
    records: &Records,
    shares: &Shares,
    tells: &watch::Sender<Option<u32>>,
) -> Result<Infallible, Error> {
    let (key, itself) = (records.first.key(), records.first.machine());
    let mut seen = records.seen.subscribe();
    let (mut mended, mut looked_at) = (None, None);
    loop {
        seen.mark_unchanged();
        let found = records.read(|view, _| (due(view.state(), &itself), stands(view.state(), &itself)));
        let Ok((due, stands)) = found else {
            tokio::select! {
                _we_hold_the_sender = seen.changed() => {}
                () = sleep(AGAIN) => {
                    let changed = changed(records).await.ok();
                    if changed.is_some() && changed != looked_at && hold_alone(records, shares, &itself, tells).await? {
                        looked_at = changed;
                    }
                }
            }
            continue;
        };
        // Once in a boot, and when another epoch stands: a share that was lost is written again. And when the machine's cluster key
        // rotates: its share carries what the cluster gives.
        if let Some(holding) = stands.filter(|holding| mended.as_ref() != Some(holding)) {
            let (epoch, holders) = (holding.epoch.number(), holding.epoch.holders().len());
            let rotates = mended.as_ref().is_some_and(|before: &Holding| before.generations != holding.generations);
            match (shares.hold(holding.clone()).await?, rotates) {
                (false, _) => {}
                (true, true) => {
                    tracing::info!(epoch, "this machine's share carries the cluster keys that are given now")
                }
                (true, false) => tracing::warn!(epoch, "this machine's share was not there: it is written again"),
            }
            tracing::info!(epoch, holders, "this epoch of the cold-start key stands");
            mended = Some(holding);
        }
        if let Ok(takes) = records.read(|view, _| takes(view.state(), &itself, mended.as_ref())) {
            records.first.takes_key(takes);
        }
        let done = match due {
            Some(due) => perform(records, shares, key, due).await?,
            None => Ok(()),
        };
        match done {
            Ok(()) => {
                let _we_hold_the_sender = seen.changed().await;
            }
            Err(refused) => {
                tracing::info!(reason = %Chain(&refused), "the cold-start key is not another one yet");
                sleep(AGAIN).await;
            }
        }
    }
}

/// In which revision epochs were changed last, as this machine's etcd has it.
async fn changed(records: &Records) -> Result<i64, NoAnswer> {
    let asked = RangeRequest { key: Key::ColdStart.bytes(), serializable: true, ..RangeRequest::default() };
    Ok(records.link.range(asked).await?.kvs.first().map_or(0, |epochs| epochs.mod_revision))
}

/// Where nothing of the records was seen since the start: writes the share of an epoch that has begun, by this machine's own copy,
/// and tells so. Whether that could be read. This machine may have opened by the epoch before, which the others hold no shares of.
async fn hold_alone(
    records: &Records,
    shares: &Shares,
    itself: &MachineId,
    tells: &watch::Sender<Option<u32>>,
) -> Result<bool, Error> {
    let Ok(view) = keep::read(records, Of::ThisMachine).await else { return Ok(false) };
    if let Some(Due::Hold(holding)) = due(view.state(), itself) {
        let epoch = holding.epoch.number();
        if shares.hold(holding).await? {
            tracing::info!(
                epoch,
                "this machine holds its share of an epoch of the cold-start key that does not stand yet"
            );
        }
        tells.send_if_modified(|told| told.replace(epoch) != Some(epoch));
    }
    Ok(true)
}

async fn perform(
    records: &Records,
    shares: &Shares,
    machine: MachinePubKey,
    due: Due,
) -> Result<Result<(), NotGranted>, Error> {
    let request = match due {
        Due::Begin => Request::BeginEpoch,
        Due::Hold(holding) => {
            let Holding { epoch, .. } = &holding;
            let number = epoch.number();
            shares.hold(holding).await?;
            tracing::info!(epoch = number, "this machine holds its share of the cold-start key");
            Request::AcknowledgeEpoch { machine, number }
        }
    };
    Ok(records.decide(request).await.map(drop))
}
