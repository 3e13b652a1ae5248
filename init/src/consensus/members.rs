//! etcd's members as this coordinator sees them, and the next change of them: made by the coordinator whose etcd leads, one
//! at a time; where that one is to leave, another one leads first. Which change it is says `cluster::epochs`; what is seen
//! goes into the records' view, where decisions need it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use cluster::epochs::step;
use cluster::members::Members;
use etcd::members::{Change, Health, Member, change, seen};
use model::{ETCD_CLIENT_PORT, MachineId};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::link::{Link, NoAnswer};
use super::{Records, Unread};

/// A member that says nothing for so long is silent.
const SILENT: Duration = Duration::from_secs(2);
/// Between two looks while members are not yet those that they should be: etcd takes such changes in about a second.
const UNSETTLED: Duration = Duration::from_millis(500);
/// Otherwise: as long as etcd's own health interval.
const SETTLED: Duration = Duration::from_secs(5);

/// Why members are not looked at any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    /// This machine's own etcd does not say.
    #[error("look at etcd's members")]
    Etcd(#[from] NoAnswer),
    /// There is nothing to compare them with.
    #[error(transparent)]
    Unread(#[from] Unread),
}

/// What the records say of members.
struct Recorded {
    wanted: BTreeSet<MachineId>,
    machines: BTreeMap<Ipv4Addr, MachineId>,
    addresses: BTreeMap<MachineId, Ipv4Addr>,
}

/// Waits until this machine's etcd votes: a learner answers no question.
pub(super) async fn votes(link: &Link) -> Result<(), NoAnswer> {
    let mut told = false;
    while !link.health().await?.votes {
        if !std::mem::replace(&mut told, true) {
            tracing::info!("etcd keeps a copy here, and does not vote yet");
        }
        sleep(UNSETTLED).await;
    }
    Ok(())
}

/// Looks at the members for as long as etcd answers, and has them follow the records where this machine's etcd leads.
pub(super) async fn tend(records: &Records) -> Result<Infallible, Lost> {
    // Connections to the others' etcd stay open from one look to the next.
    let mut links = BTreeMap::new();
    let mut changed = records.seen.subscribe();
    loop {
        let members = look(records, &mut links).await?;
        changed.mark_unchanged();
        let recorded = recorded(records)?;
        let settled = records.read(|view, _| step(view.state()))?.is_none();
        // Of a lone coordinator nothing changes but by its own records.
        let alone = members.voters.len() == 1 && members.learners.is_empty() && recorded.wanted.len() == 1;
        tokio::select! {
            () = sleep(if settled { SETTLED } else { UNSETTLED }), if !alone => {}
            _seen = changed.changed() => {}
        }
    }
}

/// What members say of themselves.
pub(super) struct Answers {
    pub(super) own: Health,
    /// As this machine's etcd has them.
    pub(super) listed: Vec<Member>,
    /// Those of the others that answer in time.
    pub(super) others: Vec<(Ipv4Addr, Health)>,
}

/// Asks this machine's etcd who its members are, and all of them how they are.
pub(super) async fn answers(records: &Records, links: &mut BTreeMap<Ipv4Addr, Link>) -> Result<Answers, NoAnswer> {
    let own = records.link.health().await?;
    let listed = records.link.members().await?;
    links.retain(|vpn_ip, _| listed.iter().any(|member| member.vpn_ip == *vpn_ip));
    let others = healths(records, links, listed.iter().filter(|member| member.id != own.id)).await;
    Ok(Answers { own, listed, others })
}

/// One look, and one change where one is due.
async fn look(records: &Records, links: &mut BTreeMap<Ipv4Addr, Link>) -> Result<Members, Lost> {
    let Answers { own, listed, others } = answers(records, links).await?;
    let others: Vec<_> = others.into_iter().map(|(_, health)| health).collect();
    let recorded = recorded(records)?;
    let members = seen(&listed, &own, &others, &recorded.machines);
    records.seen.send_if_modified(|seen| {
        let Some(view) = seen.view.as_mut().filter(|view| *view.state().members() != members) else { return false };
        view.see(members.clone());
        true
    });
    if own.leads()
        && let Some(step) = records.read(|view, _| step(view.state()))?
        && let Some(change) = change(step, &listed, (&own, &others), |machine| recorded.addresses.get(machine).copied())
    {
        let moves = matches!(change, Change::MoveLeader(_));
        match records.link.change(change).await {
            Ok(()) if moves => tracing::info!(?step, "another coordinator's etcd leads, and takes the step"),
            Ok(()) => tracing::info!(?step, "etcd's members are changed"),
            // It says itself when it is ready: a learner behind, a member that has only just connected.
            Err(error) => tracing::debug!(?step, %error, "etcd's members are not changed yet"),
        }
    }
    Ok(members)
}

/// What the others say of themselves, as far as they do so in time.
async fn healths<'a>(
    records: &Records,
    links: &mut BTreeMap<Ipv4Addr, Link>,
    others: impl Iterator<Item = &'a Member>,
) -> Vec<(Ipv4Addr, Health)> {
    let mut asked = JoinSet::new();
    for Member { vpn_ip, .. } in others {
        let address = SocketAddrV4::new(*vpn_ip, ETCD_CLIENT_PORT);
        let link = links.entry(*vpn_ip).or_insert_with(|| Link::to(address, records.client.clone())).clone();
        let vpn_ip = *vpn_ip;
        asked.spawn(async move { Some((vpn_ip, timeout(SILENT, link.health()).await.ok()?.ok()?)) });
    }
    asked.join_all().await.into_iter().flatten().collect()
}

fn recorded(records: &Records) -> Result<Recorded, Unread> {
    records.read(|view, _| {
        let state = view.state();
        let addresses = state.machines().map(|(id, machine)| (*id, machine.vpn_ip)).collect();
        Recorded { wanted: state.coordinators().clone(), machines: state.at_addresses(), addresses }
    })
}
