//! The records of a cluster, as an owner asks one of its coordinators for them without the owner's tool: here it is the case
//! that says which coordinator answers. It must not be taken for that tool, since it believes whoever answers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use api::wire::{
    ChangeMachineRequest, IssueTicketRequest, ListMachinesRequest, ListTicketsRequest, RevokeTicketRequest,
};
use api::{FieldError, ListPage, ListedMachine, ListedTicket, MachineChange, NewTicket, Target, TunnelPart};
use cluster::record::UnixSeconds;
use cluster::request::Offer;
use model::{ClusterRole, MachineId, MachinePubKey, TicketId, TicketPubKey};
use pki::PrivateKey;
use tonic::{Status, Streaming};

use crate::client::{ATTEMPT, Client, PublicClient, Shown};

/// A coordinator under emulation, beside others, answers within seconds.
const ANSWER: Duration = Duration::from_secs(20);
/// Tickets of cases never expire, whatever a machine's clock says: 2100-01-01.
pub(crate) const NOT_AFTER: UnixSeconds = UnixSeconds(4_102_444_800);

/// A connection of the owner's to a coordinator.
#[derive(Debug)]
pub struct Records(Client);

impl Records {
    /// Connects to a coordinator in one attempt.
    ///
    /// # Errors
    /// When nobody answers there.
    pub fn at(address: SocketAddr, key: &PrivateKey) -> anyhow::Result<Self> {
        Client::dial(address, Shown::Owner(key), ATTEMPT).map(Self)
    }

    /// The cluster's machines.
    ///
    /// # Errors
    /// When there is no answer, or none that makes sense.
    pub fn machines(&mut self) -> anyhow::Result<ListPage<ListedMachine>> {
        whole(self.ask(async |client| {
            pieces(client.list_machines(ListMachinesRequest { call: false }).await?.into_inner()).await
        })?)
    }

    /// The cluster's tickets.
    ///
    /// # Errors
    /// When there is no answer, or none that makes sense.
    pub fn tickets(&mut self) -> anyhow::Result<ListPage<ListedTicket>> {
        whole(self.ask(async |client| pieces(client.list_tickets(ListTicketsRequest {}).await?.into_inner()).await)?)
    }

    /// Issues a ticket of that key.
    ///
    /// # Errors
    /// When it is not acknowledged.
    pub fn issue(&mut self, key: TicketPubKey, uses: u32, role: ClusterRole) -> anyhow::Result<NewTicket> {
        self.offer(Offer { uses, role, ..one_node(key) })
    }

    /// Issues a ticket of that key for one machine alone.
    ///
    /// # Errors
    /// When it is not acknowledged.
    pub fn issue_for(&mut self, key: TicketPubKey, machine: MachinePubKey) -> anyhow::Result<NewTicket> {
        self.offer(Offer { machine: Some(machine), ..one_node(key) })
    }

    fn offer(&mut self, offer: Offer) -> anyhow::Result<NewTicket> {
        let request = IssueTicketRequest::from(offer);
        let answer = self.ask(async |client| Ok(client.issue_ticket(request).await?.into_inner()))?;
        Ok(answer.try_into()?)
    }

    /// Revokes a ticket.
    ///
    /// # Errors
    /// When it is not acknowledged.
    pub fn revoke(&mut self, ticket: TicketId) -> anyhow::Result<()> {
        let request = RevokeTicketRequest::from(ticket);
        self.ask(async |client| client.revoke_ticket(request).await.map(drop))
    }

    /// Changes what a machine is to the cluster.
    ///
    /// # Errors
    /// When it is not acknowledged.
    pub fn change(&mut self, machine: MachineId, change: MachineChange) -> anyhow::Result<()> {
        let request = ChangeMachineRequest::from((machine, change));
        self.ask(async |client| client.change_machine(request).await.map(drop))
    }

    /// The machine that is asked reaches that one over the VPN: a connection to its public API stands.
    ///
    /// # Errors
    /// When none comes to stand.
    pub fn reaches(&mut self, machine: MachineId) -> anyhow::Result<()> {
        let open = tokio_stream::once(TunnelPart::Open(Target::Machine(machine)).into());
        self.ask(async |client| client.tunnel(open).await.map(drop))
    }

    fn ask<T>(&mut self, call: impl AsyncFnOnce(&mut PublicClient) -> Result<T, Status>) -> anyhow::Result<T> {
        Ok(self.0.within(ANSWER, call)??)
    }
}

/// An offer that lets any one machine in, as a node.
fn one_node(key: TicketPubKey) -> Offer {
    let (role, kubernetes) = (ClusterRole::Node, BTreeSet::new());
    Offer { key, uses: 1, not_after: NOT_AFTER, role, kubernetes, machine: None, node_name: None }
}

async fn pieces<P>(mut answer: Streaming<P>) -> Result<Vec<P>, Status> {
    let mut pieces = Vec::new();
    while let Some(piece) = answer.message().await? {
        pieces.push(piece);
    }
    Ok(pieces)
}

/// All pieces as one list, which is as old as the oldest of them.
fn whole<T, P: TryInto<ListPage<T>, Error = FieldError>>(pieces: Vec<P>) -> anyhow::Result<ListPage<T>> {
    let mut all = ListPage::empty();
    for piece in pieces {
        all.append(piece.try_into()?);
    }
    Ok(all)
}
