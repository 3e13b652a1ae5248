//! Coordinators that were all switched off give each other their shares: one that waits, or one that is open and whose etcd has
//! no leader. Whoever has one releases keys by its records instead. Decides nothing beyond that: `unlock` does.

use keys::cold_start::Contribution;
use model::{Chain, MachinePubKey};
use tonic::Status;
use unlock::exchange::ExchangeError;

use super::context::Context;
use crate::enrolment::contribute::ContributeError;
use crate::rpc::session::Origin;

/// Exchanges shares with the machine that the connection proved.
pub(super) async fn contribute(
    context: &Context,
    (key, origin): (MachinePubKey, Origin),
    given: Contribution,
) -> Result<Contribution, Status> {
    let machine = keys::identity::machine_id(&key.0);
    let _place = context.reach.machines.begin(machine)?;
    if let Ok(records) = context.reach.records()
        && records.etcd_has_leader()
    {
        let refusal = api::not_yet("etcd has a leader here: ask for the key; nothing was exchanged");
        return Err(if records.is_led() { records.by_leader(&refusal) } else { refusal });
    }
    let exchanged = context.entrance.ways.exchange.contribute(machine, origin.peer.ip(), given).await;
    exchanged.map_err(|why| refused(&why))
}

fn refused(why: &ContributeError) -> Status {
    let text = Chain(why).to_string();
    match why {
        ContributeError::NoPart => Status::failed_precondition(text),
        ContributeError::Exchange(ExchangeError::MayHaveLeader) => api::not_yet(text),
        ContributeError::Exchange(_) => Status::permission_denied(text),
        ContributeError::Read(_) => Status::unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster::record::Standing;
    use model::{MachineId, Secret};

    use super::*;
    use crate::records::fixture::{machine, records};
    use crate::rpc::world::{Machine, origin};

    /// While etcd has a leader whoever wants a key has to ask for it, and its record decides. Proves: K6
    #[tokio::test]
    async fn no_share_is_given_while_etcd_has_a_leader() {
        let asked = Machine::running();
        let says = async |silent: Option<Duration>| {
            let others = [machine(1, Standing::Member)];
            asked.context.reach.coordinate(Some(records(&asked.facts, &others, silent)), None);
            let given = Contribution { epoch: 1, share: Secret::take(&mut [1; 32]), seen: [].into() };
            let caller = (MachinePubKey([1; 32]), origin(None, "192.0.2.1:1001"));
            let refusal = contribute(&asked.context, caller, given).await.expect_err("this machine has no share");
            (refusal.message().to_owned(), api::told_by_leader(&refusal).is_some())
        };
        let has_a_leader = String::from("etcd has a leader here: ask for the key; nothing was exchanged");
        assert_eq!(says(None).await, (has_a_leader.clone(), true));
        assert_eq!(says(Some(Duration::from_secs(5))).await, (has_a_leader, false), "it may be in an election");
        let (text, led) = says(Some(Duration::from_secs(60))).await;
        assert!(text.contains("takes no part in a cold start") && !led, "it is asked for: {text}");
    }

    /// A refusal for good has another code than one that may end.
    #[test]
    fn a_refusal_says_whether_asking_again_helps() {
        let code = |why| refused(&why).code();
        assert_eq!(code(ContributeError::NoPart), tonic::Code::FailedPrecondition);
        assert_eq!(code(ExchangeError::MayHaveLeader.into()), api::NOT_YET);
        let stranger = ExchangeError::NoCoordinator(MachineId([9; 16]));
        assert_eq!(code(stranger.into()), tonic::Code::PermissionDenied);
    }
}
