//! Has this coordinator do its part for the cold-start key: what that is says `cluster::epochs`; the share is on the ESP before
//! the records are told so. Nothing happens here while etcd has one voter.

use std::convert::Infallible;
use std::time::Duration;

use cluster::epochs::{Due, Holding, due, stands};
use cluster::request::Request;
use model::{Chain, MachineId, MachinePubKey};
use tokio::time::sleep;

use super::keep::{self, Of};
use super::{LEADERLESS, NotGranted, Records};
use crate::enrolment::shares::{Shares, WriteError};

/// Between two tries of what did not succeed: others may have been first, or etcd has no leader.
const AGAIN: Duration = Duration::from_secs(1);

/// Why nothing is held any more; it is begun again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The share is not on the ESP.
    #[error("write this machine's share of the cold-start key")]
    Write(#[from] WriteError),
}

/// Looks at what is due each time that something else is seen; a task for good.
pub(super) async fn hold(records: &Records, shares: &Shares) -> Result<Infallible, Error> {
    let key = records.first.key();
    let itself = keys::identity::machine_id(&key.0);
    let mut seen = records.seen.subscribe();
    let mut mended = None;
    loop {
        seen.mark_unchanged();
        let found = records.read(|view, _| (due(view.state(), &itself), stands(view.state(), &itself)));
        let Ok((due, stands)) = found else {
            tokio::select! {
                _we_hold_the_sender = seen.changed() => {}
                () = sleep(LEADERLESS) => hold_alone(records, shares, &itself).await?,
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

/// Where nothing of the records was seen since the start, for want of a leader: writes the share of an epoch that had begun when all
/// were switched off, and did not stand yet. This machine may have opened by the epoch before, which the others hold no shares of.
async fn hold_alone(records: &Records, shares: &Shares, itself: &MachineId) -> Result<(), Error> {
    let Ok(view) = keep::read(records, Of::ThisMachine).await else { return Ok(()) };
    if let Some(Due::Hold(holding)) = due(view.state(), itself) {
        let epoch = holding.epoch.number();
        if shares.hold(holding).await? {
            tracing::info!(
                epoch,
                "this machine holds its share of an epoch that does not stand yet: others may open by it"
            );
        }
    }
    Ok(())
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
