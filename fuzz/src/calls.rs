//! Messages of the APIs: what a machine is asked, and what who calls one is answered. As on a connection prost reads the
//! bytes first; what is looked for lies in the conversion behind it. A message whose conversion refuses nothing has no
//! function here.

use api::wire;
use api::{
    Announced, Claim, Condition, HandedOver, KeyAsked, KeyGiven, KeyReleased, Listed, ListedMachine, ListedTicket,
    MachineChange, MachineStatus, Malformed, Milestone, NewTicket, PublicState, Recovery, Service, TunnelPart,
};
use cluster::request::Offer;
use model::{MachineId, TicketId};
use prost::Message;

use crate::{Outcome, outcome};

/// What is read is sent so that it is read as the same.
fn message<Wire, Read>(bytes: &[u8]) -> Outcome
where
    Wire: Message + Default + From<Read>,
    Read: TryFrom<Wire, Error = Malformed>,
{
    let Ok(wire) = Wire::decode(bytes) else { return Outcome::Refused };
    let Ok(read) = Read::try_from(wire) else { return Outcome::Refused };
    let sent = Wire::from(read).encode_to_vec();
    let wire = Wire::decode(sent.as_slice()).expect("our own message");
    let again = Read::try_from(wire).expect("what was read is sent so that it is read");
    assert_eq!(Wire::from(again).encode_to_vec(), sent, "a message says the same again");
    Outcome::Accepted
}

/// What a machine tells everybody of itself.
pub fn public_state(bytes: &[u8]) -> Outcome {
    message::<wire::GetStateResponse, PublicState>(bytes)
}

/// What a machine claims to be, at first contact.
pub fn claim(bytes: &[u8]) -> Outcome {
    message::<wire::ClaimResponse, Claim>(bytes)
}

/// A blank machine's proof that it knows its code.
pub fn proof_of_code(bytes: &[u8]) -> Outcome {
    let Ok(answer) = wire::ProveCodeResponse::decode(bytes) else { return Outcome::Refused };
    outcome(&api::proof_of_code(&answer))
}

/// Which key a machine asks for.
pub fn key_asked(bytes: &[u8]) -> Outcome {
    message::<wire::ReleaseKeyRequest, KeyAsked>(bytes)
}

/// The keys that it is given.
pub fn key_released(bytes: &[u8]) -> Outcome {
    message::<wire::ReleaseKeyResponse, KeyReleased>(bytes)
}

/// What a machine that waits shows its owner.
pub fn recovery(bytes: &[u8]) -> Outcome {
    message::<wire::RecoveryRecordResponse, Recovery>(bytes)
}

/// The key that the owner gives it.
pub fn key_given(bytes: &[u8]) -> Outcome {
    message::<wire::GiveClusterKeyRequest, KeyGiven>(bytes)
}

/// What a machine says of itself to its coordinators.
pub fn announced(bytes: &[u8]) -> Outcome {
    message::<wire::AnnounceRequest, Announced>(bytes)
}

/// What a coordinator hands over to another.
pub fn handed_over(bytes: &[u8]) -> Outcome {
    message::<wire::HandOverResponse, HandedOver>(bytes)
}

/// A part of what is carried to another machine.
pub fn tunnel_part(bytes: &[u8]) -> Outcome {
    message::<wire::TunnelRequest, TunnelPart>(bytes)
}

/// A change of what a machine is to the cluster.
pub fn machine_change(bytes: &[u8]) -> Outcome {
    message::<wire::ChangeMachineRequest, (MachineId, MachineChange)>(bytes)
}

/// A ticket that is to be issued.
pub fn ticket_offer(bytes: &[u8]) -> Outcome {
    message::<wire::IssueTicketRequest, Offer>(bytes)
}

/// The ticket that is to be revoked.
pub fn ticket_revoked(bytes: &[u8]) -> Outcome {
    message::<wire::RevokeTicketRequest, TicketId>(bytes)
}

/// The ticket that was issued.
pub fn ticket_issued(bytes: &[u8]) -> Outcome {
    message::<wire::IssueTicketResponse, NewTicket>(bytes)
}

/// A piece of the list of machines.
pub fn machine_list(bytes: &[u8]) -> Outcome {
    message::<wire::ListMachinesResponse, Listed<ListedMachine>>(bytes)
}

/// A piece of the list of tickets.
pub fn ticket_list(bytes: &[u8]) -> Outcome {
    message::<wire::ListTicketsResponse, Listed<ListedTicket>>(bytes)
}

/// All that a machine says of itself to its owner.
pub fn status(bytes: &[u8]) -> Outcome {
    message::<wire::StatusResponse, MachineStatus>(bytes)
}

/// Its conditions.
pub fn conditions(bytes: &[u8]) -> Outcome {
    message::<wire::ConditionsResponse, Vec<Condition>>(bytes)
}

/// Its services.
pub fn services(bytes: &[u8]) -> Outcome {
    message::<wire::ServicesResponse, Vec<Service>>(bytes)
}

/// Its boot so far.
pub fn timeline(bytes: &[u8]) -> Outcome {
    message::<wire::TimelineResponse, Vec<Milestone>>(bytes)
}
