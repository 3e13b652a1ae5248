//! `cluster create --coordinators`: has members hold the cluster's state beside the first machine, and waits until etcd has
//! them. One more than an odd number keeps a copy and does not vote: that is waited for, too.

use std::time::Duration;

use api::{EtcdMember, ListedMachine, MachineChange, RoleDirection};
use cluster::role::AnyRole;
use model::{KubernetesRole, NodeName};

use crate::clock::Deadline;
use crate::context::{Context, OpenError};
use crate::failure::{Advice, Code, Failure};
use crate::machine::CallError;
use crate::screen::Progress;

/// etcd does not follow.
#[derive(Debug, thiserror::Error)]
#[error("the cluster does not have its coordinators after {} s: {last}", after.as_secs())]
pub(crate) struct NoCoordinators {
    after: Duration,
    /// State of etcd that was seen last, or the error in its place.
    last: String,
}

impl Advice for NoCoordinators {
    fn code(&self) -> Code {
        Code::Timeout
    }

    fn unchanged(&self) -> &'static str {
        "the machines are members, and become coordinators when they can"
    }

    fn next(&self) -> Option<String> {
        Some("cairnctl machine list".to_owned())
    }
}

/// Makes coordinators of these machines, which are members, and then control planes if they are to be that.
pub(super) async fn coordinate(
    (names, control_planes): (&[NodeName], bool),
    context: &Context,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (mut session, _) = context.open_coordinator().await?;
    let listed = session.machines().await?.rows;
    let are_meant = |machine: &&ListedMachine| names.iter().any(|name| name.as_str() == machine.name);
    for machine in listed.iter().filter(are_meant) {
        let coordinates = MachineChange::Role(AnyRole::Coordinator, RoleDirection::Add);
        session.change_machine(machine.id, coordinates).await?;
    }
    let mut last = String::new();
    let looked = deadline.until(async || {
        // The machine that answers may be in an election just then.
        last = match session.machines().await.map_err(OpenError::from) {
            Ok(listed) => match still_to_come(&listed.rows, names) {
                None => return Ok(Some(())),
                Some(still) => still,
            },
            Err(error) if error.may_pass() => error.to_string(),
            Err(error) => return Err(error),
        };
        progress.show(&last);
        Ok(None)
    });
    let Some(()) = looked.await? else { return Err(NoCoordinators { after: deadline.length(), last }.into()) };
    for machine in listed.iter().filter(are_meant).filter(|_| control_planes) {
        let role = AnyRole::Kubernetes(KubernetesRole::ControlPlane);
        // Whoever votes by the last look answers by another that it just takes.
        let asked = deadline.until(async || {
            match session.change_machine(machine.id, MachineChange::Role(role, RoleDirection::Add)).await {
                Err(CallError::NotNow { .. }) => Ok(None),
                asked => asked.map(Some),
            }
        });
        asked.await?.ok_or_else(|| NoCoordinators {
            after: deadline.length(),
            last: format!("`{}` does not take the control plane", machine.name),
        })?;
    }
    Ok(())
}

/// How far etcd has come with these machines and the first one; none once all are what they should be to it.
fn still_to_come(listed: &[ListedMachine], names: &[NodeName]) -> Option<String> {
    let wanted = names.len() + 1;
    let voters = if wanted.is_multiple_of(2) { wanted - 1 } else { wanted };
    let are = |member: EtcdMember| listed.iter().filter(|machine| machine.etcd == Some(member)).count();
    let (vote, copy) = (are(EtcdMember::Voter), are(EtcdMember::Learner));
    let done = vote == voters && vote + copy == wanted;
    (!done).then(|| format!("etcd: {vote} of {voters} vote, {copy} keep a copy without a vote"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use cluster::record::Standing;
    use model::{ClusterRole, MachineId};

    use super::*;

    #[test]
    fn voters_are_waited_for_and_an_even_one_until_it_has_its_copy() {
        let machine = |etcd| ListedMachine {
            id: MachineId([1; 16]),
            name: "m1".to_owned(),
            role: ClusterRole::Coordinator,
            kubernetes: [].into(),
            standing: Standing::Member,
            version: "0.1.0".to_owned(),
            vpn_ip: Ipv4Addr::new(10, 118, 0, 1),
            addresses: vec![],
            last_seen: None,
            etcd,
            silent: false,
            may_hold_keys: false,
            share_due: false,
            awaits_approval: false,
            generations: cluster::record::Generations::One(1),
        };
        let (voter, learner) = (Some(EtcdMember::Voter), Some(EtcdMember::Learner));
        let still = |members: &[Option<EtcdMember>], others: usize| {
            let listed: Vec<_> = members.iter().map(|etcd| machine(*etcd)).collect();
            still_to_come(&listed, &vec![NodeName::chosen("m2").expect("a name"); others])
        };
        let waits = still(&[voter, learner, None], 2).expect("two are missing");
        assert_eq!(waits, "etcd: 1 of 3 vote, 1 keep a copy without a vote");
        assert_eq!(
            still(&[voter, voter, learner], 2).as_deref(),
            Some("etcd: 2 of 3 vote, 1 keep a copy without a vote")
        );
        assert_eq!(still(&[voter, voter, voter, None, None], 2), None);
        assert_eq!(still(&[voter, learner], 1), None, "two coordinators are one voter and a copy");
        assert!(still(&[voter, None], 1).is_some());
    }
}
