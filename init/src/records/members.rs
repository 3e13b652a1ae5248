//! etcd's members, looked at and changed as the crate `member` decides. Whom a look finds goes into the records' view, where decisions
//! need it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use cluster::backends::{Backends, MemberPart};
use cluster::members::MemberStep;
use etcd::members::{Health, Member, MemberChange, MemberStatus, backends, change, seen, successor};
use model::{ETCD_CLIENT_PORT, NodeName};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::link::{Link, NoAnswer};
use super::{Records, Unread};

/// A member that says nothing for so long is silent.
const SILENT: Duration = Duration::from_secs(2);

/// Why members cannot be looked at, or not be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MembersError {
    /// This machine's own etcd does not say.
    #[error("look at etcd's members")]
    Etcd(#[from] NoAnswer),
    /// There is nothing to compare them with.
    #[error(transparent)]
    Unread(#[from] Unread),
}

/// Look at etcd's members with their backends.
#[derive(Debug)]
pub(crate) struct BackendsLook {
    pub(crate) backends: Backends,
    /// Whether this machine's etcd leads.
    pub(crate) leads: bool,
}

impl BackendsLook {
    /// Name of the machine whose etcd leads.
    pub(crate) fn leader(&self) -> Option<&NodeName> {
        let leader = self.backends.members.values().find(|member| member.part == MemberPart::Leader);
        leader.map(|member| &member.name)
    }
}

/// Last look at the members; connections to the others' etcd stay open from one look to the next.
#[derive(Debug, Default)]
pub(super) struct MembersLook {
    links: BTreeMap<Ipv4Addr, Link>,
    answers: Option<Answers>,
    /// Reason for which etcd refused the last change.
    refusal: String,
}

impl Records {
    /// Looks at the members, and shows them; their backends, and whether this etcd leads. Who they are is shown at once, by the health of the
    /// look before: whoever waits for a younger look waits for no member that is silent.
    ///
    /// # Errors
    /// [`MembersError`].
    pub(crate) async fn look_at_members(&self) -> Result<BackendsLook, MembersError> {
        let mut look = self.look.lock().await;
        let MembersLook { links, answers: last, .. } = &mut *look;
        let mut answers = listed(self).await?;
        if let Some(before) = last {
            answers.others.clone_from(&before.others);
            self.show(&answers)?;
        }
        answers.others = statuses(self, links, &answers).await;
        self.show(&answers)?;
        let found = BackendsLook { backends: self.backends(&answers)?, leads: answers.own.health.leads() };
        *last = Some(answers);
        Ok(found)
    }

    /// Asks all members how they are, over the connections of the looks; shows nothing.
    pub(super) async fn ask_members(&self) -> Result<Answers, NoAnswer> {
        let mut look = self.look.lock().await;
        let mut answers = listed(self).await?;
        answers.others = statuses(self, &mut look.links, &answers).await;
        Ok(answers)
    }

    /// Backends of the members that answered, by the names of the records.
    pub(super) fn backends(&self, answers: &Answers) -> Result<Backends, Unread> {
        self.read(|view, _| {
            let machines = view.state().at_addresses().into_iter();
            let named =
                machines.filter_map(|(vpn_ip, id)| Some((vpn_ip, (id, view.state().machine(&id)?.name.clone()))));
            backends(&answers.listed, &answers.said(), &named.collect())
        })
    }

    fn show(&self, answers: &Answers) -> Result<(), Unread> {
        let machines = self.read(|view, _| view.state().at_addresses())?;
        let members = seen(&answers.listed, &answers.own.health, &answers.healths(), &machines);
        self.seen.send_if_modified(|seen| {
            seen.view.as_mut().is_some_and(|view| view.see(members, answers.own.health.look()))
        });
        Ok(())
    }

    /// Changes the members as they were at the last look; whether etcd has taken it. It says itself when it is not ready: a learner
    /// behind, a member that has only just connected.
    ///
    /// # Errors
    /// [`MembersError`] where nothing is known of them.
    pub(crate) async fn change_member(&self, step: MemberStep) -> Result<bool, MembersError> {
        let mut look = self.look.lock().await;
        let MembersLook { answers: Some(answers), refusal, .. } = &mut *look else { return Ok(true) };
        let change = self.read(|view, _| {
            let address = |machine: &_| view.state().machine(machine).map(|machine| machine.vpn_ip);
            change(step, &answers.listed, (&answers.own.health, &answers.healths()), address)
        })?;
        let Some(change) = change else { return Ok(true) };
        let moves = matches!(change, MemberChange::MoveLeader(_));
        match self.link.change(change).await {
            Ok(()) if moves => tracing::info!(?step, "another coordinator's etcd leads, and takes the step"),
            Ok(()) => tracing::info!(?step, "etcd's members are changed"),
            Err(error) => {
                tracing::debug!(?step, %error, "etcd's members are not changed yet");
                *refusal = error.to_string();
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Has another voter lead, if one follows this machine's etcd: that refuses a step for longer than it should.
    ///
    /// # Errors
    /// [`MembersError`] where etcd does not do so.
    pub(crate) async fn pass_lead(&self) -> Result<(), MembersError> {
        let look = self.look.lock().await;
        let Some(change) = look.answers.as_ref().and_then(|answers| successor(&answers.own.health, &answers.healths()))
        else {
            return Ok(());
        };
        tracing::info!(refusal = look.refusal, "etcd here refuses a change of its members: another one is to lead");
        Ok(self.link.change(change).await?)
    }
}

/// Status of etcd's members, by their own word.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) own: MemberStatus,
    /// As this machine's etcd has them.
    pub(super) listed: Vec<Member>,
    /// Status of the other members that answered in time, by their VPN addresses.
    pub(super) others: Vec<(Ipv4Addr, MemberStatus)>,
}

/// Asks this machine's etcd who its members are, and all of them how they are.
pub(super) async fn answers(records: &Records) -> Result<Answers, NoAnswer> {
    let mut answers = listed(records).await?;
    answers.others = statuses(records, &mut BTreeMap::new(), &answers).await;
    Ok(answers)
}

/// Asks this machine's etcd who its members are; nobody else.
async fn listed(records: &Records) -> Result<Answers, NoAnswer> {
    let own = records.link.status().await?;
    Ok(Answers { own, listed: records.link.members().await?, others: Vec::new() })
}

impl Answers {
    fn healths(&self) -> Vec<Health> {
        self.others.iter().map(|(_, status)| status.health).collect()
    }

    /// Status of each member that answered, by etcd's number for it.
    pub(super) fn said(&self) -> BTreeMap<u64, &MemberStatus> {
        let all = self.others.iter().map(|(_, status)| status).chain([&self.own]);
        all.map(|status| (status.health.id, status)).collect()
    }
}

/// Asks the others how they are; a member that does not answer within `SILENT` is left out.
async fn statuses(
    records: &Records,
    links: &mut BTreeMap<Ipv4Addr, Link>,
    answers: &Answers,
) -> Vec<(Ipv4Addr, MemberStatus)> {
    let Answers { own, listed, .. } = answers;
    links.retain(|vpn_ip, _| listed.iter().any(|member| member.vpn_ip == *vpn_ip));
    let mut asked = JoinSet::new();
    for Member { vpn_ip, .. } in listed.iter().filter(|member| member.id != own.health.id) {
        let address = SocketAddrV4::new(*vpn_ip, ETCD_CLIENT_PORT);
        let link = links.entry(*vpn_ip).or_insert_with(|| Link::to(address, records.client.clone())).clone();
        let vpn_ip = *vpn_ip;
        asked.spawn(async move { Some((vpn_ip, timeout(SILENT, link.status()).await.ok()?.ok()?)) });
    }
    asked.join_all().await.into_iter().flatten().collect()
}
