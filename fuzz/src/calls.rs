//! Messages of the APIs: what a machine is asked, and what who calls one is answered. As on a connection prost reads the
//! bytes first; what is looked for lies in the conversion behind it. A message whose conversion refuses nothing has no
//! function here.

use api::wire;
use api::{
    Claim, Condition, DefragmentStep, FieldError, HandedOver, KeyRequest, ListPage, ListedEtcd, ListedMachine,
    ListedOwner, ListedRegistry, ListedTicket, MachineChange, MachineStatus, Milestone, NewTicket, OwnerHalf, Presence,
    PublicState, Recovery, ReleasedKey, RestoreStage, Service, TunnelPart, VolumeRemoval, WorkerVolumes,
};
use cluster::Knowledge;
use cluster::record::{OwnerRecord, PublishTerms, RegistryRecord, UserRecord, UserTerms};
use cluster::request::Offer;
use model::{MachineId, OwnerPubKey, RegistryHost, TicketId, UserName};
use prost::Message;

use crate::{ParseVerdict, outcome};

/// Reads a message, and checks that it says the same again when it is sent and read.
fn message<Wire, Read>(bytes: &[u8]) -> ParseVerdict
where
    Wire: Message + Default + From<Read>,
    Read: TryFrom<Wire, Error = FieldError>,
{
    let Ok(wire) = Wire::decode(bytes) else { return ParseVerdict::Refused };
    let Ok(read) = Read::try_from(wire) else { return ParseVerdict::Refused };
    let sent = Wire::from(read).encode_to_vec();
    let wire = Wire::decode(sent.as_slice()).expect("our own message");
    let again = Read::try_from(wire).expect("what was read is sent so that it is read");
    assert_eq!(Wire::from(again).encode_to_vec(), sent, "a message says the same again");
    ParseVerdict::Accepted
}

/// State that a machine tells everybody.
pub fn public_state(bytes: &[u8]) -> ParseVerdict {
    message::<wire::GetStateResponse, PublicState>(bytes)
}

/// Identity that a machine claims at first contact.
pub fn claim(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ClaimResponse, Claim>(bytes)
}

/// A blank machine's proof that it knows its code.
pub fn proof_of_code(bytes: &[u8]) -> ParseVerdict {
    let Ok(answer) = wire::ProveCodeResponse::decode(bytes) else { return ParseVerdict::Refused };
    outcome(&api::proof_of_code(&answer))
}

/// Which key a machine asks for.
pub fn key_asked(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ReleaseKeyRequest, KeyRequest>(bytes)
}

/// The keys that it is given.
pub fn key_released(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ReleaseKeyResponse, ReleasedKey>(bytes)
}

/// Recovery record that a waiting machine shows its owner.
pub fn recovery(bytes: &[u8]) -> ParseVerdict {
    message::<wire::RecoveryRecordResponse, Recovery>(bytes)
}

/// The key that the owner gives it.
pub fn key_given(bytes: &[u8]) -> ParseVerdict {
    message::<wire::GiveClusterKeyRequest, OwnerHalf>(bytes)
}

/// Question of a machine for floating addresses.
pub fn addresses_asked(bytes: &[u8]) -> ParseVerdict {
    message::<wire::HoldRequest, api::FloatingAddresses>(bytes)
}

/// Announcement of a machine to its coordinators.
pub fn announced(bytes: &[u8]) -> ParseVerdict {
    message::<wire::AnnounceRequest, Presence>(bytes)
}

/// Keys that a coordinator hands over to another.
pub fn handed_over(bytes: &[u8]) -> ParseVerdict {
    message::<wire::HandOverResponse, HandedOver>(bytes)
}

/// A part of what is carried to another machine.
pub fn tunnel_part(bytes: &[u8]) -> ParseVerdict {
    message::<wire::TunnelRequest, TunnelPart>(bytes)
}

/// A change of what a machine is to the cluster.
pub fn machine_change(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ChangeMachineRequest, (MachineId, MachineChange)>(bytes)
}

/// The machine that is asked whether it may leave.
pub fn removal_checked(bytes: &[u8]) -> ParseVerdict {
    message::<wire::CheckRemovalRequest, MachineId>(bytes)
}

/// A ticket that is to be issued.
pub fn ticket_offer(bytes: &[u8]) -> ParseVerdict {
    message::<wire::IssueTicketRequest, Offer>(bytes)
}

/// The ticket that is to be revoked.
pub fn ticket_revoked(bytes: &[u8]) -> ParseVerdict {
    message::<wire::RevokeTicketRequest, TicketId>(bytes)
}

/// The ticket that was issued.
pub fn ticket_issued(bytes: &[u8]) -> ParseVerdict {
    message::<wire::IssueTicketResponse, NewTicket>(bytes)
}

/// A piece of the list of machines.
pub fn machine_list(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ListMachinesResponse, ListPage<ListedMachine>>(bytes)
}

/// A piece of the list of tickets.
pub fn ticket_list(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ListTicketsResponse, ListPage<ListedTicket>>(bytes)
}

/// An owner who is to be added.
pub fn owner_added(bytes: &[u8]) -> ParseVerdict {
    message::<wire::AddOwnerRequest, OwnerRecord>(bytes)
}

/// A user who is to be added.
pub fn user_added(bytes: &[u8]) -> ParseVerdict {
    message::<wire::AddUserRequest, UserTerms>(bytes)
}

/// The user who is to be removed.
pub fn user_removed(bytes: &[u8]) -> ParseVerdict {
    message::<wire::RemoveUserRequest, UserName>(bytes)
}

/// The list of users.
pub fn user_list(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ListUsersResponse, ListPage<UserRecord>>(bytes)
}

/// The owner who is to be removed.
pub fn owner_removed(bytes: &[u8]) -> ParseVerdict {
    message::<wire::RemoveOwnerRequest, OwnerPubKey>(bytes)
}

/// The list of owners.
pub fn owner_list(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ListOwnersResponse, ListPage<ListedOwner>>(bytes)
}

/// A registry of which something is to be said.
pub fn registry_set(bytes: &[u8]) -> ParseVerdict {
    message::<wire::SetRegistryRequest, RegistryRecord>(bytes)
}

/// The registry of which nothing is to be said any more.
pub fn registry_removed(bytes: &[u8]) -> ParseVerdict {
    message::<wire::RemoveRegistryRequest, RegistryHost>(bytes)
}

/// The list of registries.
pub fn registry_list(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ListRegistriesResponse, ListPage<ListedRegistry>>(bytes)
}

/// Volumes of a worker, as an owner is told of them.
pub fn volume_list(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ListVolumesResponse, WorkerVolumes>(bytes)
}

/// Members of etcd, as an owner is told of them.
pub fn etcd_listed(bytes: &[u8]) -> ParseVerdict {
    message::<wire::EtcdStatusResponse, Vec<ListedEtcd>>(bytes)
}

/// Step of a defragmentation, as an owner is told of it.
pub fn etcd_defragmented(bytes: &[u8]) -> ParseVerdict {
    message::<wire::DefragmentEtcdResponse, DefragmentStep>(bytes)
}

/// Stage of a restore, as an owner is told of it.
pub fn restore_stage(bytes: &[u8]) -> ParseVerdict {
    message::<wire::RestoreKubernetesResponse, RestoreStage>(bytes)
}

/// The volume that an owner has deleted.
pub fn volume_removed(bytes: &[u8]) -> ParseVerdict {
    message::<wire::RemoveVolumeRequest, VolumeRemoval>(bytes)
}

/// Ports that are to be published.
pub fn publish_added(bytes: &[u8]) -> ParseVerdict {
    message::<wire::PublishRequest, PublishTerms>(bytes)
}

/// The list of rules that publish ports.
pub fn publish_list(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ListPublishedResponse, ListPage<api::ListedRule>>(bytes)
}

/// Knowledge with which a machine begins to listen.
pub fn peers_asked(bytes: &[u8]) -> ParseVerdict {
    message::<wire::PeersRequest, Knowledge>(bytes)
}

/// All that a machine says of itself to its owner.
pub fn status(bytes: &[u8]) -> ParseVerdict {
    message::<wire::StatusResponse, MachineStatus>(bytes)
}

/// Conditions that a machine shows.
pub fn conditions(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ConditionsResponse, Vec<Condition>>(bytes)
}

/// Services that a machine shows.
pub fn services(bytes: &[u8]) -> ParseVerdict {
    message::<wire::ServicesResponse, Vec<Service>>(bytes)
}

/// Timeline of a machine's boot so far.
pub fn timeline(bytes: &[u8]) -> ParseVerdict {
    message::<wire::TimelineResponse, Vec<Milestone>>(bytes)
}
