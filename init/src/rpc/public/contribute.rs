//! Coordinators that were all switched off give each other their shares: one that waits, or one that is open and whose etcd has
//! no leader. Whoever has one releases keys by its records instead. Decides nothing beyond that: `enrol` does.

use std::time::Duration;

use keys::cold_start::Contribution;
use model::{Chain, MachinePubKey};
use tonic::Status;

use super::context::Context;
use crate::enrolment::contribute::NotExchanged;
use crate::rpc::session::Origin;

/// For so long etcd may have no leader before this machine gives its share: elections take less.
const LEADERLESS: Duration = Duration::from_secs(10);

/// Exchanges shares with the machine that the connection proved.
pub(super) async fn contribute(
    context: &Context,
    (key, origin): (MachinePubKey, Origin),
    given: Contribution,
) -> Result<Contribution, Status> {
    let source = origin.peer.ip();
    let _place = context.machines.begin(source)?;
    if let Ok(records) = context.records()
        && leads(records.silent_for())
    {
        return Err(api::not_yet("etcd has a leader here: ask for the key; nothing was exchanged"));
    }
    let machine = keys::identity::machine_id(&key.0);
    let exchanged = context.ways.exchange.contribute(machine, source, given).await;
    exchanged.map_err(|why| {
        tracing::info!(%machine, reason = %Chain(&why), "no share is exchanged");
        refused(&why)
    })
}

/// Whether etcd has a leader, or had one a moment ago; `silent` says for how long it has told nothing.
fn leads(silent: Option<Duration>) -> bool {
    silent.is_none_or(|silent| silent < LEADERLESS)
}

fn refused(why: &NotExchanged) -> Status {
    let text = Chain(why).to_string();
    match why {
        NotExchanged::NoPart => Status::failed_precondition(text),
        NotExchanged::NotShared(_) => Status::permission_denied(text),
        NotExchanged::Read(_) => Status::unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use enrol::contribute::NotShared;
    use model::MachineId;

    use super::*;

    /// A share is worth a key: while records can be asked they decide.
    ///
    /// Proves: K6
    #[test]
    fn shares_are_exchanged_where_etcd_has_had_no_leader_for_a_while() {
        assert!(leads(None) && leads(Some(Duration::from_secs(9))));
        assert!(!leads(Some(LEADERLESS)));
    }

    /// Who is refused for good does not ask as if nobody were there.
    #[test]
    fn a_refusal_says_whether_asking_again_helps() {
        let code = |why| refused(&why).code();
        assert_eq!(code(NotExchanged::NoPart), tonic::Code::FailedPrecondition);
        let stranger = NotShared::NoCoordinator(MachineId([9; 16]));
        assert_eq!(code(stranger.into()), tonic::Code::PermissionDenied);
    }
}
