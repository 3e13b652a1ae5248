//! Calls of owners about the cluster's records: lists, in pieces; tickets; changes of machines and owners. Decides
//! nothing: `records` does.

use api::{ListPage, ListedMachine, ListedOwner, ListedRegistry, ListedRule, ListedTicket, MachineChange, NewTicket};
use cluster::View;
use cluster::denial::Denial;
use cluster::record::{MachineRecord, OwnerRecord, PublishRecord, RegistryRecord, Standing, UserRecord};
use cluster::request::{self, Asks, Offer};
use cluster::txn::Grant;
use model::{KubernetesRole, MachineId, OwnerPubKey, PUBLIC_API_PORT};
use pki::judge_authority;
use tonic::Status;

use crate::network::mesh::roll::Seen;
use crate::records::{GrantError, Records, RecoveryRefusal, Unread};

/// Rows of a piece: far below what an answer may have.
const PIECE: usize = 500;

/// The machine runs no etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this machine is no coordinator and has no records of the cluster; nothing was done; ask a coordinator")]
pub(super) struct NoCoordinator;

impl From<NoCoordinator> for Status {
    fn from(error: NoCoordinator) -> Self {
        Self::failed_precondition(error.to_string())
    }
}

impl From<Unread> for Status {
    fn from(error: Unread) -> Self {
        api::not_yet(error.to_string())
    }
}

impl From<GrantError> for Status {
    fn from(error: GrantError) -> Self {
        let text = error.to_string();
        match error {
            GrantError::Denied(Denial::UnknownTicket | Denial::UnknownMachine) => Self::not_found(text),
            GrantError::Denied(Denial::UnknownOwner) => Self::permission_denied(text),
            GrantError::Denied(Denial::NoVoters) => api::not_yet(text),
            GrantError::Denied(_) | GrantError::Full => Self::failed_precondition(text),
            GrantError::Unread(_) | GrantError::OthersFirst | GrantError::Leaderless(_) => api::not_yet(text),
            GrantError::Busy | GrantError::PutOff => Self::resource_exhausted(text),
            GrantError::Unanswered(_) => Self::unknown(text),
        }
    }
}

impl From<RecoveryRefusal> for Status {
    fn from(error: RecoveryRefusal) -> Self {
        let text = error.to_string();
        match error {
            RecoveryRefusal::Silent(_) => api::not_yet(text),
            RecoveryRefusal::Learner
            | RecoveryRefusal::Leader
            | RecoveryRefusal::OthersLead(_)
            | RecoveryRefusal::Denied(_)
            | RecoveryRefusal::Records(_) => Self::failed_precondition(text),
            RecoveryRefusal::Note(_) => Self::internal(text),
        }
    }
}

/// All machines, by name, with when they were seen last.
pub(super) fn machines(records: &Records, seen: &Seen) -> Result<Vec<ListPage<ListedMachine>>, Status> {
    let rows = |view: &View| {
        let (members, late) = (view.state().members(), cluster::epochs::unacknowledged(view.state()));
        let row = |(id, machine): (&MachineId, _)| ListedMachine::of(machine, (members, &late), seen.get(id).copied());
        let mut rows: Vec<_> = view.state().machines().map(row).collect();
        // Those that were removed last.
        rows.sort_by(|one, other| {
            let order = |it: &ListedMachine| (it.standing == Standing::Removed, it.name.clone());
            order(one).cmp(&order(other))
        });
        rows
    };
    Ok(records.read(|view, old_since| pieces(rows(view), old_since))?)
}

/// All tickets, the newest first.
pub(super) fn tickets(records: &Records) -> Result<Vec<ListPage<ListedTicket>>, Status> {
    let rows = |view: &View| {
        let mut rows: Vec<_> = view.state().tickets().map(|(_, ticket)| ListedTicket::of(ticket)).collect();
        rows.sort_by(|one, other| (other.issued_at, one.id).cmp(&(one.issued_at, other.id)));
        rows
    };
    Ok(records.read(|view, old_since| pieces(rows(view), old_since))?)
}

/// All owners, and whom of them this machine's recovery record is for.
pub(super) fn owners(records: &Records) -> Result<ListPage<ListedOwner>, Status> {
    let row =
        |owner: &OwnerRecord| ListedOwner { recovers: owner.recovery == records.recovery_key(), owner: owner.clone() };
    let rows = |view: &View| view.state().cluster().iter().flat_map(|cluster| &cluster.owners).map(row).collect();
    Ok(records.read(|view, old_since| ListPage { old_since, rows: rows(view) })?)
}

/// All registries that owners said something of, by host.
pub(super) fn registries(records: &Records) -> Result<ListPage<ListedRegistry>, Status> {
    let rows = |view: &View| view.state().registries().values().map(ListedRegistry::of).collect();
    Ok(records.read(|view, old_since| ListPage { old_since, rows: rows(view) })?)
}

/// All rules that publish ports, by number.
pub(super) fn published(records: &Records) -> Result<ListPage<ListedRule>, Status> {
    let rows = |view: &View| {
        let state = view.state();
        let holder = |rule: &PublishRecord| state.floating().get(&rule.terms.address()?).map(|(machine, _)| *machine);
        let listed = |rule: &PublishRecord| ListedRule { record: rule.clone(), holder: holder(rule) };
        state.published().values().map(listed).collect()
    };
    Ok(records.read(|view, old_since| ListPage { old_since, rows: rows(view) })?)
}

/// Says how images of a registry are pulled. containerd refuses to pull anything by a file of certificates in which there is none.
pub(super) async fn set_registry(records: &Records, by: OwnerPubKey, registry: RegistryRecord) -> Result<(), Status> {
    if registry.authorities().iter().any(|certificate| judge_authority(certificate).is_err()) {
        return Err(NoCertificate.into());
    }
    ask(records, by, Asks::SetRegistry(registry.into())).await
}

/// Bytes that are to prove a registry, and are no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a certificate of the registry's authority is no X.509 certificate in DER; nothing was changed; give another file"
)]
struct NoCertificate;

impl From<NoCertificate> for Status {
    fn from(error: NoCertificate) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

/// All users of Kubernetes, by name.
pub(super) fn users(records: &Records) -> Result<ListPage<UserRecord>, Status> {
    Ok(records.read(|view, old_since| ListPage { old_since, rows: view.state().users().cloned().collect() })?)
}

/// A machine that joins does not vote in etcd, and a control plane needs that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a machine that joins runs no Kubernetes control plane, since its etcd does not vote yet; nothing was changed; issue the ticket \
     without, and give the role when the machine votes: cairnctl machine role add NAME control-plane"
)]
struct NoControlPlane;

impl From<NoControlPlane> for Status {
    fn from(error: NoControlPlane) -> Self {
        Self::failed_precondition(error.to_string())
    }
}

/// Whether machines can be what the ticket makes them.
fn is_served(offer: &Offer) -> Result<(), NoControlPlane> {
    if offer.kubernetes.contains(&KubernetesRole::ControlPlane) { Err(NoControlPlane) } else { Ok(()) }
}

/// Issues a ticket; says where its holder has to go.
pub(super) async fn issue(records: &Records, by: OwnerPubKey, offer: Offer) -> Result<NewTicket, Status> {
    is_served(&offer)?;
    let granted = records.grant(request::Request::Owner { by, asks: Asks::IssueTicket(offer) }).await?;
    let Grant::Ticket(id) = granted else { return Err(Status::internal("a ticket was asked for, and none granted")) };
    Ok(NewTicket {
        id,
        coordinators: records.read(|view, _| coordinators(view.state().machines().map(|(_, machine)| machine)))?,
    })
}

/// Changes what a machine is to the cluster.
pub(super) async fn change(
    records: &Records,
    by: OwnerPubKey,
    machine: MachineId,
    change: MachineChange,
) -> Result<(), Status> {
    ask(records, by, change.asks(machine)).await
}

/// Has the cluster's records say what an owner asks for; nothing comes of it but that.
pub(super) async fn ask(records: &Records, by: OwnerPubKey, asks: Asks) -> Result<(), Status> {
    records.grant(request::Request::Owner { by, asks }).await?;
    Ok(())
}

/// Where the public APIs of coordinators are: one place of each before the second of any, as many as a ticket names.
fn coordinators<'a>(machines: impl Iterator<Item = &'a MachineRecord>) -> Vec<String> {
    let reported = machines.filter(|machine| machine.coordinates()).map(|machine| &machine.endpoints.reported);
    let mut places: Vec<_> = reported.flat_map(|of_one| of_one.iter().enumerate()).collect();
    places.sort_by_key(|(rank, _)| *rank);
    let mut endpoints = Vec::new();
    for (_, endpoint) in places {
        let endpoint = endpoint.with_port(PUBLIC_API_PORT).to_string();
        if endpoints.len() < keys::endpoint::MOST_ENDPOINTS && !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    endpoints
}

/// A list of no rows is one piece, too: it says how old it is.
fn pieces<T>(rows: Vec<T>, old_since: Option<api::UnixMillis>) -> Vec<ListPage<T>> {
    let mut rows = rows.into_iter().peekable();
    let mut pieces = Vec::new();
    loop {
        pieces.push(ListPage { old_since, rows: rows.by_ref().take(PIECE).collect() });
        if rows.peek().is_none() {
            return pieces;
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::record::UnixSeconds;
    use keys::endpoint::Endpoint;
    use model::{ClusterRole, TicketPubKey};

    use super::*;
    use crate::records::fixture;

    #[test]
    fn a_list_comes_in_pieces_and_an_empty_one_in_one() {
        let lengths =
            |rows: usize| pieces(vec![0; rows], None).iter().map(|piece| piece.rows.len()).collect::<Vec<_>>();
        assert_eq!((lengths(0), lengths(1), lengths(500)), (vec![0], vec![1], vec![500]));
        assert_eq!(lengths(1001), [500, 500, 1]);
    }

    #[test]
    fn a_refusal_says_what_was_left_and_how_it_may_end() {
        let shown = |error: GrantError| {
            let status = Status::from(error);
            (status.code(), status.message().to_owned())
        };
        let (code, text) = shown(GrantError::Denied(Denial::UnknownTicket));
        assert_eq!(
            (code, &*text),
            (tonic::Code::NotFound, "the cluster does not know this ticket; nothing was changed")
        );
        let (code, text) = shown(GrantError::OthersFirst);
        assert!(code == api::NOT_YET && text.ends_with("nothing was changed; try again"), "{text}");
        assert_eq!(shown(GrantError::Unread(Unread)).0, api::NOT_YET);
        assert_eq!(shown(GrantError::Denied(Denial::NoVoters)).0, api::NOT_YET);
        assert_eq!(Status::from(Unread).code(), api::NOT_YET);
        assert_eq!(Status::from(NoCoordinator).code(), tonic::Code::FailedPrecondition);
    }

    /// Proves: Q1
    #[tokio::test]
    async fn owners_are_listed_with_whom_the_recovery_record_is_for() {
        let machine = crate::rpc::world::Machine::running();
        let records = fixture::records(&machine.facts, &[], None);
        let listed = owners(&records).expect("it was read");
        assert_eq!((listed.old_since, listed.rows.len(), listed.rows[0].recovers), (None, 1, true));
        assert_eq!(listed.rows[0].owner.recovery, records.recovery_key());
    }

    /// Proves: W5
    #[tokio::test]
    async fn a_registry_is_not_proved_by_what_is_no_certificate() {
        let machine = crate::rpc::world::Machine::running();
        let records = fixture::records(&machine.facts, &[], None);
        let host = model::RegistryHost::read("r.example.org").expect("a host");
        let set = async |authorities| {
            let registry = RegistryRecord::new(host, vec![], authorities).expect("a registry");
            set_registry(&records, OwnerPubKey([1; 32]), registry).await.expect_err("no etcd runs here").code()
        };
        assert_eq!(set(vec![vec![1; 9]]).await, tonic::Code::InvalidArgument);
        let now = pki::UnixTime::since_unix_epoch(crate::runtime::clock::unix());
        let authority = pki::Authority::create(pki::AuthorityKind::Kubernetes, now).expect("an authority");
        assert_ne!(set(vec![authority.certificate().to_vec()]).await, tonic::Code::InvalidArgument, "it is asked");
    }

    /// Proves: S3
    #[test]
    fn a_ticket_names_every_coordinator_before_a_second_place() {
        let at = |n: u8, places: &[&str]| {
            let mut machine = fixture::machine(n, Standing::Member);
            machine.role = ClusterRole::Coordinator;
            machine.endpoints.reported =
                places.iter().map(|place| Endpoint::read(&format!("{place}:7838")).expect("an endpoint")).collect();
            machine
        };
        let uplinks = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
        let mut machines = vec![at(1, &uplinks), at(2, &["198.51.100.2", "198.51.100.3"]), at(3, &["203.0.113.3"])];
        machines.push(MachineRecord { role: ClusterRole::Node, ..at(4, &["203.0.113.4"]) });
        machines.push(MachineRecord { standing: Standing::Removed, ..at(5, &["203.0.113.5"]) });
        let named = coordinators(machines.iter());
        let expected = ["192.0.2.1", "198.51.100.2", "203.0.113.3", "192.0.2.2", "198.51.100.3", "192.0.2.3"];
        assert_eq!(named[..6], expected.map(|place| format!("{place}:7836")));
        assert_eq!(named.len(), keys::endpoint::MOST_ENDPOINTS, "{named:?}");
    }

    #[test]
    fn a_ticket_with_a_role_that_nothing_serves_is_refused() {
        let offer = |roles: &[KubernetesRole]| Offer {
            key: TicketPubKey([1; 32]),
            uses: 1,
            not_after: UnixSeconds(1),
            role: ClusterRole::Node,
            kubernetes: roles.iter().copied().collect(),
            machine: None,
            node_name: None,
        };
        assert_eq!(is_served(&offer(&[])), Ok(()));
        assert_eq!(is_served(&offer(&[KubernetesRole::Worker])), Ok(()));
        assert_eq!(is_served(&offer(KubernetesRole::ALL)), Err(NoControlPlane));
        assert_eq!(Status::from(NoControlPlane).code(), tonic::Code::FailedPrecondition);
    }
}
