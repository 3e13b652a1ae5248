//! etcd's members looked at with their backends, and had defragmented one at a time: for the machine's own life, and for owners. Whose turn
//! it is decides `cluster::backends`.

use std::net::SocketAddrV4;

use api::{EtcdAnswer, ListedEtcd};
use etcd::members::MemberStatus;
use model::{ETCD_CLIENT_PORT, MachineId};

use super::Records;
use super::link::{Link, NoAnswer};
use super::members::{BackendsLook, MembersError};
use crate::runtime::{clock, lock};

/// End of a request to defragment a member.
#[derive(Debug)]
pub(crate) enum DefragmentEnd {
    /// The member is done.
    Done,
    /// Another one is under way, or may be; nothing was asked for.
    Busy,
    /// The member did not answer, and may go on.
    Unknown(NoAnswer),
}

impl Records {
    /// Looks at etcd's members with their backends.
    ///
    /// # Errors
    /// [`MembersError`].
    pub(crate) async fn look_at_backends(&self) -> Result<BackendsLook, MembersError> {
        let answers = self.ask_members().await?;
        Ok(BackendsLook { backends: self.backends(&answers)?, leads: answers.own.health.leads() })
    }

    /// Members of etcd, as an owner is told of them.
    ///
    /// # Errors
    /// [`MembersError`].
    pub(crate) async fn list_etcd(&self) -> Result<Vec<ListedEtcd>, MembersError> {
        let answers = self.ask_members().await?;
        let backends = self.backends(&answers)?;
        let said = answers.said();
        let addresses = self.read(|view, _| view.state().at_addresses())?;
        let row = |member: &etcd::members::Member| {
            let machine = *addresses.get(&member.vpn_ip)?;
            let found = backends.members.get(&machine)?;
            let answer = said.get(&member.id).map(|status| shown(status));
            Some(ListedEtcd { machine, name: found.name.clone(), part: found.part, answer })
        };
        let mut rows: Vec<_> = answers.listed.iter().filter_map(row).collect();
        rows.sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
        Ok(rows)
    }

    /// Has the etcd of a machine defragment its backend, unless another one does so by this machine's word. Where it does not answer, it
    /// may go on: then it stays the one that does so for a while.
    ///
    /// # Errors
    /// [`MembersError`]: the member is not defragmented.
    pub(crate) async fn defragment(&self, machine: MachineId) -> Result<DefragmentEnd, MembersError> {
        let address = self.read(|view, _| view.state().machine(&machine).map(|machine| machine.vpn_ip))?;
        let link = match address.filter(|_| machine != self.first.machine()) {
            Some(vpn_ip) => Link::to(SocketAddrV4::new(vpn_ip, ETCD_CLIENT_PORT), self.client.clone()),
            None => self.link.clone(),
        };
        if !lock::even_if_poisoned(&self.defragments).take(clock::now()) {
            return Ok(DefragmentEnd::Busy);
        }
        tracing::info!(%machine, "a member of etcd is defragmented");
        match link.defragment().await {
            Err(error) if error.of_etcd().is_none() => return Ok(DefragmentEnd::Unknown(error)),
            done => {
                lock::even_if_poisoned(&self.defragments).give_back();
                done?;
            }
        }
        tracing::info!(%machine, "the member is defragmented");
        Ok(DefragmentEnd::Done)
    }

    /// Disarms etcd's alarm NOSPACE.
    ///
    /// # Errors
    /// [`MembersError`].
    pub(crate) async fn disarm_no_space(&self) -> Result<(), MembersError> {
        if self.link.disarm_no_space().await? {
            tracing::info!("etcd's alarm NOSPACE is disarmed");
        }
        Ok(())
    }
}

fn shown(status: &MemberStatus) -> EtcdAnswer {
    let MemberStatus { health, backend, version, alarms, errors } = status.clone();
    EtcdAnswer { revision: health.revision, backend, version, alarms, errors }
}
