//! Keeps the kernel's WireGuard peers, and the routes to their pods, those of the cluster: performs what the crate `mesh`
//! decides, and decides nothing. Whoever hears of peers tells it through [`Told`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex};

use cluster::peer::Peer;
use cluster::peers::{Known, News};
use cluster::state::PeerVersion;
use mesh::kernel::{Found, Route};
use mesh::{Effect, Event};
use model::{Ipv4Prefix, MachineId, POD_PREFIX};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::{Handle, RouteMessageBuilder};
use tokio::sync::{Notify, watch};

use super::{Error, Mesh};
use crate::runtime::services::until;
use crate::runtime::{clock, lock};

/// What this machine was told of the others; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    peers: Mutex<Heard>,
    news: Notify,
    /// As of when all of it is.
    version: watch::Sender<Option<PeerVersion>>,
}

#[derive(Debug, Default)]
struct Heard {
    known: Known,
    /// What has changed since the mesh asked last.
    fresh: BTreeMap<MachineId, Option<Peer>>,
}

impl Told {
    /// What coordinators are asked with; none before they told anything.
    pub(crate) fn version(&self) -> Option<PeerVersion> {
        lock::even_if_poisoned(&self.0.peers).known.version()
    }

    /// What was told before this boot is heard.
    pub(crate) fn begin(&self, known: Known) {
        self.0.version.send_replace(known.version());
        lock::even_if_poisoned(&self.0.peers).known = known;
        self.0.news.notify_one();
    }

    /// Tells when something was told that was not known.
    pub(super) fn versions(&self) -> watch::Receiver<Option<PeerVersion>> {
        self.0.version.subscribe()
    }

    /// All that was told.
    pub(crate) fn known(&self) -> Known {
        lock::even_if_poisoned(&self.0.peers).known.clone()
    }

    /// Where a machine is in the VPN, if it is a peer now.
    pub(crate) fn vpn_ip(&self, machine: &MachineId) -> Option<Ipv4Addr> {
        lock::even_if_poisoned(&self.0.peers).known.peers().get(machine).map(|peer| peer.vpn_ip)
    }

    /// Takes what a coordinator said.
    pub(crate) fn take(&self, news: News) {
        let mut heard = lock::even_if_poisoned(&self.0.peers);
        let fresh = heard.known.take(news);
        if !fresh.is_empty() {
            heard.fresh.extend(fresh);
            self.0.news.notify_one();
        }
        self.0.version.send_if_modified(|version| std::mem::replace(version, heard.known.version()) != *version);
    }

    /// All of it; nothing before something was told.
    fn all(&self) -> Option<BTreeMap<MachineId, mesh::peer::Peer>> {
        let mut heard = lock::even_if_poisoned(&self.0.peers);
        heard.known.version()?;
        heard.fresh.clear();
        Some(heard.known.peers().iter().map(|(id, peer)| (*id, in_the_mesh(peer))).collect())
    }

    /// What has changed since that was asked last.
    async fn changed(&self) -> BTreeMap<MachineId, Option<mesh::peer::Peer>> {
        self.0.news.notified().await;
        let fresh = std::mem::take(&mut lock::even_if_poisoned(&self.0.peers).fresh);
        fresh.into_iter().map(|(id, peer)| (id, peer.as_ref().map(in_the_mesh))).collect()
    }
}

/// A peer as WireGuard needs it: by addresses, since the kernel knows no names.
fn in_the_mesh(peer: &Peer) -> mesh::peer::Peer {
    let address = |endpoint: &keys::endpoint::Endpoint| endpoint.to_string().parse::<SocketAddrV4>().ok();
    mesh::peer::Peer {
        key: peer.vpn_key,
        vpn_ip: peer.vpn_ip,
        pods: peer.pods,
        endpoints: peer.endpoints.iter().filter_map(address).collect(),
    }
}

/// Follows what is told; a task for good. Before anything is, it changes nothing.
///
/// # Errors
/// [`Error`] names what the kernel refused.
pub(crate) async fn keep(mesh: Mesh, told: Told) -> Result<(), Error> {
    let mut decides = mesh::Mesh::start(mesh.own, mesh.network.kept, clock::now());
    let mut effects = Vec::new();
    let mut event = loop {
        match told.all() {
            Some(all) => break Event::Peers(all),
            None => drop(told.changed().await),
        }
    };
    loop {
        decides.handle(event, clock::now(), &mut effects);
        let mut due = VecDeque::from(std::mem::take(&mut effects));
        while let Some(effect) = due.pop_front() {
            if let Some(found) = perform(&mesh, effect).await? {
                decides.handle(Event::Looked(found), clock::now(), &mut effects);
                due.extend(effects.drain(..));
            }
        }
        event = tokio::select! {
            changed = told.changed() => Event::Changed(changed),
            () = until(decides.poll_timeout().map(|(due, _why)| due)) => Event::Tick,
        };
    }
}

/// Performs one effect; a look has an answer.
async fn perform(mesh: &Mesh, effect: Effect) -> Result<Option<Found>, Error> {
    let routes = mesh.network.handle.route();
    match effect {
        Effect::Configure(changes) => mesh.wireguard.change(&changes).await?,
        Effect::Route(Route::Add(prefix)) => {
            let failed = |error| Error::Route(prefix, error);
            routes.add(route(prefix, mesh.index)).replace().execute().await.map_err(failed)?;
        }
        Effect::Route(Route::Remove(prefix)) => {
            let failed = |error| Error::Route(prefix, error);
            routes.del(route(prefix, mesh.index)).execute().await.map_err(failed)?;
        }
        Effect::Look => {
            let peers = mesh.wireguard.peers().await?;
            let routes = routes_to(&mesh.network.handle, mesh.index).await?;
            return Ok(Some(Found { peers, routes }));
        }
        Effect::Report(overlap) => tracing::warn!("{overlap}"),
    }
    Ok(None)
}

fn route(prefix: Ipv4Prefix, index: u32) -> RouteMessage {
    RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(prefix.address(), prefix.bits())
        .output_interface(index)
        .build()
}

/// The prefixes of pods that are routed to the interface.
async fn routes_to(handle: &Handle, index: u32) -> Result<BTreeSet<Ipv4Prefix>, Error> {
    let mut all = handle.route().get(RouteMessageBuilder::<Ipv4Addr>::new().build()).execute();
    let mut found = BTreeSet::new();
    while let Some(route) = tokio_stream::StreamExt::next(&mut all).await {
        found.extend(pods_of(&route.map_err(Error::Routes)?, index));
    }
    Ok(found)
}

/// The prefix of pods that a route is to, if it leads to the interface.
fn pods_of(route: &RouteMessage, index: u32) -> Option<Ipv4Prefix> {
    let leads = |attribute: &RouteAttribute| matches!(attribute, RouteAttribute::Oif(oif) if *oif == index);
    let address = route.attributes.iter().find_map(|attribute| {
        let RouteAttribute::Destination(RouteAddress::Inet(address)) = attribute else { return None };
        Some(*address)
    });
    let address = address.filter(|_| route.attributes.iter().any(leads))?;
    let prefix = Ipv4Prefix::new(address, route.header.destination_prefix_length).ok()?;
    POD_PREFIX.contains(address).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use keys::endpoint::Endpoint;
    use model::VpnPubKey;

    use super::*;

    const VERSION: PeerVersion = PeerVersion { recoveries: 0, revision: 7 };

    fn peer(n: u8) -> Peer {
        let endpoint = |text: &str| Endpoint::read(text).expect("an endpoint");
        Peer {
            machine: MachineId([n; 16]),
            vpn_key: VpnPubKey([n; 32]),
            vpn_ip: Ipv4Addr::new(10, 118, 0, n),
            pods: None,
            endpoints: vec![endpoint("m.example:7838"), endpoint("[2001:db8::1]:7838"), endpoint("192.0.2.9:7838")],
        }
    }

    fn whole(peers: &[u8]) -> News {
        News::Whole { version: VERSION, peers: peers.iter().map(|n| (MachineId([*n; 16]), peer(*n))).collect() }
    }

    /// Proves: M3
    #[tokio::test]
    async fn what_is_told_reaches_the_mesh_once_whole_and_then_by_what_has_changed() {
        let told = Told::default();
        assert!(told.all().is_none() && told.version().is_none(), "nothing is changed before something is told");
        told.take(whole(&[1, 2]));
        assert_eq!(told.version(), Some(VERSION));
        let all = told.all().expect("it was told");
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [MachineId([1; 16]), MachineId([2; 16])]);
        let version = PeerVersion { revision: 8, ..VERSION };
        let peers = [(MachineId([1; 16]), None), (MachineId([3; 16]), Some(peer(3)))].into();
        told.take(News::Changed { since: VERSION, version, peers });
        told.take(News::Changed { since: VERSION, version, peers: BTreeMap::new() });
        // The first news was heard with the whole; what it left to be told is nothing.
        let mut changed = told.changed().await;
        if changed.is_empty() {
            changed = told.changed().await;
        }
        assert_eq!(changed.keys().copied().collect::<Vec<_>>(), [MachineId([1; 16]), MachineId([3; 16])]);
        assert!(changed[&MachineId([1; 16])].is_none() && changed[&MachineId([3; 16])].is_some());
        let gone = [(MachineId([3; 16]), None)].into();
        told.take(News::Changed { since: version, version: PeerVersion { revision: 9, ..VERSION }, peers: gone });
        assert_eq!(told.changed().await.len(), 1, "what was heard is not heard again");
        assert_eq!(told.all().expect("it was told").len(), 1, "a mesh that begins again hears all");
    }

    #[test]
    fn the_kernel_is_told_addresses_and_no_names() {
        assert_eq!(in_the_mesh(&peer(1)).endpoints, ["192.0.2.9:7838".parse().expect("an address")]);
    }

    #[test]
    fn only_a_route_to_pods_that_leads_to_the_interface_is_the_meshs() {
        let prefix = |text: &str| text.parse::<Ipv4Prefix>().expect("a prefix");
        let pods = route(prefix("10.244.7.0/24"), 5);
        assert_eq!(pods_of(&pods, 5), Some(prefix("10.244.7.0/24")));
        assert_eq!(pods_of(&pods, 6), None, "the bridge of this machine's own pods");
        assert_eq!(pods_of(&route(prefix("10.118.0.0/16"), 5), 5), None, "the VPN's, which the address brought");
        let everything = RouteMessageBuilder::<Ipv4Addr>::new().output_interface(5).build();
        assert_eq!(pods_of(&everything, 5), None);
    }
}
