//! Floating addresses of this machine: coordinators are asked for those that it is named for, and its uplink has them for as long as it
//! may. Decides nothing: `cluster::floating` does. Cut off, the machine lets go of them by its own clock, and at once behind a standstill.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use ::member::VpnPlace;
use api::vpn_client::VpnClient;
use cluster::desired::Desired;
use cluster::floating::AddressKeeper;
use cluster::orders::OrderBook;
use model::{Chain, MachineId};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::attend::{self, ClientError, Dialler};
use super::perform::Performer;
use crate::network::uplink::{self, Uplink};
use crate::runtime::clock;
use crate::runtime::services::{Ends, Run, Unit, until};

/// Longest time for an answer: another coordinator may still be asked in time.
const ANSWERS: Duration = Duration::from_secs(2);
/// Time after which an address is tried again that the uplink did not get.
const AGAIN: Duration = Duration::from_secs(5);

/// Why addresses are kept no longer; another try begins with those that the uplink has.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("read which addresses the machine is to ask for")]
    Orders(#[from] cluster::record::BadRecord),
    #[error(transparent)]
    Uplink(#[from] uplink::Error),
}

/// Unit that keeps the addresses.
pub(crate) fn unit(performer: &Performer, uplink: &Uplink) -> Unit {
    let (performer, uplink) = (performer.clone(), uplink.clone());
    Unit::task("floating", Ends::Never, Run::task(move || keep(performer.clone(), uplink.clone())))
}

/// Connections to coordinators, kept from one question to the next: on a slow machine a new one for each takes longer than an answer may.
struct Connections {
    dialler: Dialler,
    kept: BTreeMap<Ipv4Addr, VpnClient<Channel>>,
}

impl Connections {
    /// Connection to the coordinator at this place: the one of the question before, or a new one.
    fn to(&mut self, (_, address): VpnPlace) -> VpnClient<Channel> {
        self.kept.entry(address).or_insert_with(|| self.dialler.client(address)).clone()
    }

    /// Drops the connection to this place: the coordinator may have begun anew, and a connection from before waits for long.
    fn failed(&mut self, (_, address): VpnPlace) {
        self.kept.remove(&address);
    }
}

/// Keeps them until that fails; then the uplink has none.
async fn keep(performer: Performer, uplink: Uplink) -> Result<(), Error> {
    let ended = follow(&performer, &uplink).await;
    uplink.float(&BTreeSet::new(), |_| false).await?;
    ended
}

async fn follow(performer: &Performer, uplink: &Uplink) -> Result<(), Error> {
    let member = performer.member();
    let (own, facts) = (member.identity.holder.machine, performer.board().facts().clone());
    let dialler = Dialler::new(&member.identity, member.recorded.key_generation, &facts)?;
    let mut connections = Connections { dialler, kept: BTreeMap::new() };
    let (mut orders, desired) = (performer.ordered(), performer.desired());
    let mut standstill = facts.standstills().watch();
    let mut keeper = AddressKeeper::begin(clock::now());
    let (mut asked, mut has, mut again) = (JoinSet::new(), BTreeSet::new(), None);
    loop {
        keeper.name(named(&mut orders)?);
        let places = places(&desired.borrow(), own);
        if let Some((nth, addresses)) = keeper.question(clock::now()) {
            // Nobody to ask is no answer, too.
            let place = places.get(nth % places.len().max(1)).copied();
            let coordinator = place.map(|place| connections.to(place));
            asked.spawn(async move {
                let answer = attend::hold(coordinator?, addresses, ANSWERS).await;
                Some((place?, answer))
            });
        }
        let held = keeper.held(clock::now());
        let is_tried = again.is_none_or(|at| clock::now() >= at);
        let wanted = if is_tried { held.clone() } else { held.intersection(&has).copied().collect() };
        has = uplink.float(&wanted, |address| keeper.held(clock::now()).contains(&address)).await?;
        if is_tried {
            again = (has != held).then(|| clock::now() + AGAIN);
        }
        let next = keeper.poll_timeout().into_iter().chain(again).min();
        tokio::select! {
            Some(answer) = asked.join_next() => {
                let granted = match answer {
                    Ok(Some((_, Ok(granted)))) => Some(granted),
                    Ok(Some((place, Err(error)))) => {
                        tracing::debug!(error = %Chain(&error), "a coordinator does not say which addresses may be held");
                        connections.failed(place);
                        None
                    }
                    Ok(None) | Err(_) => None,
                };
                keeper.answered(granted, clock::now());
            }
            changed = orders.changed() => if changed.is_err() { return Ok(()) },
            // Its clock does not say how long it was away.
            () = standstill.wait() => {
                (keeper, asked) = (AddressKeeper::begin(clock::now()), JoinSet::new());
                connections.kept.clear();
            }
            () = until(next) => {}
        }
    }
}

fn named(orders: &mut watch::Receiver<OrderBook>) -> Result<BTreeSet<Ipv4Addr>, Error> {
    Ok(orders.borrow_and_update().floating()?)
}

/// Coordinators in the order in which they are asked: the machine itself first, if it is one.
fn places(desired: &Desired, own: MachineId) -> Vec<VpnPlace> {
    let (mut places, others): (Vec<_>, Vec<_>) =
        desired.coordinators.iter().map(|(id, known)| (*id, known.vpn_ip)).partition(|(id, _)| *id == own);
    places.extend(others);
    places
}
