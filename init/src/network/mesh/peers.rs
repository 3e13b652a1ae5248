//! Keeps the kernel's WireGuard peers, and the routes to their pods, those of the cluster: performs what the crate `mesh`
//! decides, and decides nothing. Whoever hears of peers tells it through [`Told`].

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex};

use cluster::peer::Peer;
use cluster::peers::{News, PeerBook};
use cluster::state::StateVersion;
use keys::endpoint::Endpoint;
use mesh::kernel::{KernelState, Route, UplinkRoute, Way};
use mesh::surroundings::Surroundings;
use mesh::{Effect, Event};
use model::{Ipv4Prefix, MachineId, VPN_PORT};
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteType,
};
use tokio::sync::{Notify, watch};
use unlock::whereabouts::Whereabouts;

use super::echoes::Echoes;
use super::roll::Roll;
use super::{Error, Mesh};
use crate::machine::randomness;
use crate::network::refusal;
use crate::runtime::services::until;
use crate::runtime::standstills::NextStandstill;
use crate::runtime::{clock, lock};

/// Peers that coordinators told this machine; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    peers: Mutex<Heard>,
    news: Notify,
    /// Roll call, by which others learn which peers are there.
    roll: Roll,
    /// Where machines were heard that the cluster does not name, since that was asked last. Coordinators ask.
    learnt: Mutex<BTreeMap<MachineId, SocketAddrV4>>,
    learns: Notify,
}

#[derive(Debug, Default)]
struct Heard {
    known: PeerBook,
    /// Changes since the mesh asked last.
    fresh: BTreeMap<MachineId, Option<Peer>>,
    /// Addresses at which voters were heard of in this boot, without which those that moved would not find one another; each until
    /// something newer is told of the machine.
    sighted: BTreeMap<MachineId, Vec<Ipv4Addr>>,
}

impl Told {
    /// Version with which coordinators are asked; none before they told anything.
    pub(crate) fn version(&self) -> Option<StateVersion> {
        lock::even_if_poisoned(&self.0.peers).known.version()
    }

    /// Begins with the peers that were known before this boot.
    pub(crate) fn begin(&self, known: PeerBook) {
        lock::even_if_poisoned(&self.0.peers).known = known;
        self.0.news.notify_one();
    }

    /// All that was told.
    pub(crate) fn known(&self) -> PeerBook {
        lock::even_if_poisoned(&self.0.peers).known.clone()
    }

    /// By which it is found out who of them is there.
    pub(crate) fn roll(&self) -> &Roll {
        &self.0.roll
    }

    /// Waits until machines are heard where the cluster does not say that they are; there.
    pub(crate) async fn learnt(&self) -> BTreeMap<MachineId, Endpoint> {
        self.0.learns.notified().await;
        let learnt = std::mem::take(&mut *lock::even_if_poisoned(&self.0.learnt));
        let place = |at: SocketAddrV4| Endpoint::read(&at.to_string()).expect("an address and a port");
        learnt.into_iter().map(|(machine, at)| (machine, place(at))).collect()
    }

    fn learns(&self, machine: MachineId, at: SocketAddrV4) {
        lock::even_if_poisoned(&self.0.learnt).insert(machine, at);
        self.0.learns.notify_one();
    }

    /// Where a machine is in the VPN, if it is a peer now.
    pub(crate) fn vpn_ip(&self, machine: &MachineId) -> Option<Ipv4Addr> {
        lock::even_if_poisoned(&self.0.peers).known.peers().get(machine).map(|peer| peer.vpn_ip)
    }

    /// Takes what a coordinator said.
    pub(crate) fn take(&self, news: News) {
        let mut heard = lock::even_if_poisoned(&self.0.peers);
        let fresh = heard.known.take(news);
        heard.sighted.retain(|machine, _| !fresh.contains_key(machine));
        if !fresh.is_empty() {
            heard.fresh.extend(fresh);
            self.0.news.notify_one();
        }
    }

    /// Takes where voters were heard of in this boot.
    fn sight(&self, whereabouts: &Whereabouts) {
        let mut heard = lock::even_if_poisoned(&self.0.peers);
        let Heard { known, fresh, sighted } = &mut *heard;
        for machine in whereabouts.machines() {
            let addresses: Vec<_> = whereabouts.of(machine).iter().filter_map(address).map(|at| *at.ip()).collect();
            if sighted.get(&machine) != Some(&addresses)
                && let Some(peer) = known.peers().get(&machine)
            {
                sighted.insert(machine, addresses);
                fresh.insert(machine, Some(peer.clone()));
                self.0.news.notify_one();
            }
        }
    }

    /// All of it; nothing before something was told.
    fn all(&self) -> Option<BTreeMap<MachineId, mesh::peer::MeshPeer>> {
        let mut heard = lock::even_if_poisoned(&self.0.peers);
        heard.known.version()?;
        heard.fresh.clear();
        let Heard { known, sighted, .. } = &*heard;
        Some(known.peers().iter().map(|(id, peer)| (*id, in_the_mesh(peer, sighted.get(id)))).collect())
    }

    /// Waits for changes, and gives all since the last call.
    async fn changed(&self) -> BTreeMap<MachineId, Option<mesh::peer::MeshPeer>> {
        self.0.news.notified().await;
        let mut heard = lock::even_if_poisoned(&self.0.peers);
        let Heard { fresh, sighted, .. } = &mut *heard;
        let in_the_mesh = |id: &MachineId, peer: &Peer| in_the_mesh(peer, sighted.get(id));
        std::mem::take(fresh).into_iter().map(|(id, peer)| (id, peer.map(|peer| in_the_mesh(&id, &peer)))).collect()
    }
}

/// A peer as WireGuard needs it: by addresses of IPv4, the only ones that uplinks have; first where it was sighted.
fn in_the_mesh(peer: &Peer, sighted: Option<&Vec<Ipv4Addr>>) -> mesh::peer::MeshPeer {
    let sighted = sighted.into_iter().flatten().map(|ip| SocketAddrV4::new(*ip, VPN_PORT));
    let mut endpoints: Vec<_> = sighted.collect();
    for told in peer.endpoints.iter().filter_map(address) {
        if !endpoints.contains(&told) {
            endpoints.push(told);
        }
    }
    mesh::peer::MeshPeer { key: peer.vpn_key, vpn_ip: peer.vpn_ip, pods: peer.pods, endpoints }
}

fn address(endpoint: &Endpoint) -> Option<SocketAddrV4> {
    match endpoint.address()? {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    }
}

/// Follows what is told, and where voters are sighted; a task for good. Before anything is told, it changes nothing. After a standstill
/// new sessions are begun.
///
/// # Errors
/// [`Error`] names what the kernel refused.
pub(crate) async fn keep(
    mesh: Mesh,
    told: Told,
    mut sighted: watch::Receiver<Whereabouts>,
    mut standstill: NextStandstill,
) -> Result<(), Error> {
    let echoes = Echoes::open(mesh.vpn_ip).map_err(Error::Echoes)?;
    let mut carriers = mesh.network.carriers();
    let mut effects = Vec::new();
    let kernel_is_told = randomness::kernel_is_told();
    let mut event = loop {
        told.sight(&sighted.borrow_and_update());
        match told.all() {
            Some(all) => break Event::Peers(all),
            None => drop(told.changed().await),
        }
    };
    let mut decides = mesh::Mesh::start(mesh.own, mesh.prefixes, look(&mesh).await?, clock::now());
    loop {
        decides.handle(event, clock::now(), &mut effects);
        let mut due = VecDeque::from(std::mem::take(&mut effects));
        let mut written = 0_u32;
        while let Some(effect) = due.pop_front() {
            written += u32::from(matches!(effect, Effect::Configure(_) | Effect::Route(_)));
            if let Some(found) = perform(&mesh, &echoes, &told, effect).await? {
                decides.handle(Event::Looked(found), clock::now(), &mut effects);
                due.extend(effects.drain(..));
            }
        }
        if written > 0 {
            tracing::info!(messages = written, peers = decides.peers(), "the kernel's mesh is changed");
        }
        event = tokio::select! {
            changed = told.changed() => Event::Changed(changed),
            Ok(()) = sighted.changed() => {
                told.sight(&sighted.borrow_and_update());
                Event::Tick
            }
            changed = carriers.changed() => {
                changed.expect("the network has the sender");
                Event::LinksChanged
            }
            () = told.roll().called() => Event::Called,
            () = standstill.wait() => Event::Copied { kernel_is_told },
            echo = echoes.next() => Event::Echoed(echo.map_err(Error::Echoes)?),
            () = until(decides.poll_timeout().map(|(due, _why)| due)) => Event::Tick,
        };
    }
}

/// Performs one effect; a look has an answer.
async fn perform(mesh: &Mesh, echoes: &Echoes, told: &Told, effect: Effect) -> Result<Option<KernelState>, Error> {
    let routes = mesh.network.handle.route();
    match effect {
        Effect::Configure(changes) => mesh.wireguard.change(&changes).await?,
        Effect::Route(Route::Set(to, limit)) => {
            let failed = |error| Error::Route(to, refusal(error));
            routes.add(route(to, limit, mesh.index)).replace().execute().await.map_err(failed)?;
            if let Some(limit) = limit {
                tracing::info!(%to, limit, "the path is narrow: larger packets are not sent");
            }
        }
        Effect::Route(Route::Remove(to)) => {
            let failed = |error| Error::Route(to, refusal(error));
            routes.del(route(to, None, mesh.index)).execute().await.map_err(failed)?;
        }
        Effect::Route(Route::Detour(to, way)) => {
            let set = routes.add(detour(to, way)).replace().execute().await.map_err(refusal);
            match set {
                Ok(()) => tracing::info!(%to, ?way, "the usual way is silent: another one is taken"),
                Err(error) => tracing::debug!(%to, ?way, %error, "the link is gone meanwhile: the next look tells"),
            }
        }
        Effect::Route(Route::Return(to)) => {
            let usual = routes.del(detour(to, None)).execute().await.map_err(refusal);
            match usual {
                Ok(()) => tracing::info!(%to, "the usual way is taken"),
                Err(error) => tracing::debug!(%to, %error, "the link is gone meanwhile: the next look tells"),
            }
        }
        Effect::Echo(echo) => echoes.ask(echo),
        Effect::Look => return look(mesh).await.map(Some),
        Effect::Report(overlap) => tracing::warn!("{overlap}"),
        Effect::Learnt(machine, at) => told.learns(machine, at),
        Effect::Heard(heard) => told.roll().answer(heard),
    }
    Ok(None)
}

/// Route to a prefix by the interface, for packets of this size at most.
pub(super) fn route(to: Ipv4Prefix, limit: Option<u16>, index: u32) -> RouteMessage {
    let route = RouteMessageBuilder::<Ipv4Addr>::new();
    let mut route = route.destination_prefix(to.address(), to.bits()).output_interface(index).build();
    let metrics = limit.map(|limit| {
        // The other side is not asked for larger ones either. A segment has 40 bytes of headers.
        vec![RouteMetric::Mtu(limit.into()), RouteMetric::Advmss(u32::from(limit).saturating_sub(40))]
    });
    route.attributes.extend(metrics.map(RouteAttribute::Metrics));
    route
}

/// Marks detours: nobody else's routes have this number (`RTPROT_*`, `include/uapi/linux/rtnetlink.h`).
const DETOUR: RouteProtocol = RouteProtocol::Other(118);

/// A route to one address alone, by a way, or by whichever one it has.
fn detour(to: Ipv4Addr, way: impl Into<Option<Way>>) -> RouteMessage {
    let route = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(to, 32).protocol(DETOUR);
    let Some(Way { link, gateway }) = way.into() else { return route.build() };
    let route = route.output_interface(link);
    match gateway {
        Some(gateway) => route.gateway(gateway).build(),
        None => route.build(),
    }
}

/// Reads what the kernel has: the peers, and all routes that are the mesh's or tell by which way peers are reached.
async fn look(mesh: &Mesh) -> Result<KernelState, Error> {
    let peers = mesh.wireguard.peers().await?;
    let links = mesh.network.addresses().into_iter().map(|address| (address.ip, address.prefix)).collect();
    let resolvers = mesh.network.resolvers().into_iter().collect();
    let surroundings = Surroundings { links, resolvers, ..Surroundings::default() };
    let mut found = KernelState { peers, surroundings, ..KernelState::default() };
    let own = Own { index: mesh.index, pods: mesh.prefixes.pods };
    let mut all = mesh.network.handle.route().get(RouteMessageBuilder::<Ipv4Addr>::new().build()).execute();
    while let Some(route) = tokio_stream::StreamExt::next(&mut all).await {
        take(&route.map_err(|error| Error::Routes(refusal(error)))?, own, &mut found);
    }
    Ok(found)
}

/// Interface of the mesh, and where the cluster's pods are: routes of the mesh are told by both.
#[derive(Debug, Clone, Copy)]
struct Own {
    index: u32,
    pods: Ipv4Prefix,
}

fn take(route: &RouteMessage, own: Own, found: &mut KernelState) {
    found.routes.extend(ours(route, own));
    let Some(used @ UplinkRoute { to, way, .. }) = by_an_uplink(route, own.index) else { return };
    found.surroundings.gateways.extend(way.gateway);
    if route.header.protocol == DETOUR {
        found.detours.insert(to.address(), way);
    } else if !route.header.flags.intersects(RouteFlags::Dead | RouteFlags::Linkdown) {
        // The kernel passes over those that cannot be used.
        found.uplinks.push(used);
    }
}

/// A route that does not lead to the interface. Those to the machine's own pods are among them; no peer is reached by one.
fn by_an_uplink(route: &RouteMessage, index: u32) -> Option<UplinkRoute> {
    let (mut to, mut metric, mut link, mut gateway) = (Ipv4Addr::UNSPECIFIED, 0, None, None);
    for attribute in &route.attributes {
        if let RouteAttribute::Destination(RouteAddress::Inet(address)) = attribute {
            to = *address;
        } else if let RouteAttribute::Priority(priority) = attribute {
            metric = *priority;
        } else if let RouteAttribute::Oif(oif) = attribute {
            link = Some(*oif);
        } else if let RouteAttribute::Gateway(RouteAddress::Inet(address)) = attribute {
            gateway = Some(*address);
        }
    }
    let link = link.filter(|link| *link != index)?;
    let to = Ipv4Prefix::new(to, route.header.destination_prefix_length).ok()?;
    let set = route.header.table == RouteHeader::RT_TABLE_MAIN && route.header.kind == RouteType::Unicast;
    set.then_some(UplinkRoute { to, metric, way: Way { link, gateway } })
}

/// Prefix and path limit of a route that is the mesh's: to pods, or to one peer. None for any other.
fn ours(route: &RouteMessage, Own { index, pods }: Own) -> Option<(Ipv4Prefix, Option<u16>)> {
    let leads = |attribute: &RouteAttribute| matches!(attribute, RouteAttribute::Oif(oif) if *oif == index);
    let address = route.attributes.iter().find_map(|attribute| {
        let RouteAttribute::Destination(RouteAddress::Inet(address)) = attribute else { return None };
        Some(*address)
    });
    // The machine's own address has a route of another kind.
    let set = route.header.table == RouteHeader::RT_TABLE_MAIN && route.header.kind == RouteType::Unicast;
    let address = address.filter(|_| set && route.attributes.iter().any(leads))?;
    let to = Ipv4Prefix::new(address, route.header.destination_prefix_length).ok()?;
    let limit = route.attributes.iter().find_map(|attribute| {
        let RouteAttribute::Metrics(metrics) = attribute else { return None };
        metrics.iter().find_map(|metric| if let RouteMetric::Mtu(limit) = metric { Some(*limit) } else { None })
    });
    // One that is no size of a packet is none of ours, and is put right.
    let limit = limit.map(|limit| u16::try_from(limit).unwrap_or(u16::MAX));
    (pods.contains(address) || to.bits() == 32).then_some((to, limit))
}

#[cfg(test)]
mod tests {
    use keys::endpoint::Endpoint;
    use model::VpnPubKey;

    use super::*;

    const VERSION: StateVersion = StateVersion { recoveries: 0, revision: 7 };

    fn endpoint(text: &str) -> Endpoint {
        Endpoint::read(text).expect("an endpoint")
    }

    fn peer(n: u8) -> Peer {
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
    async fn peers_reach_the_mesh_once_whole_and_then_by_their_changes() {
        let told = Told::default();
        assert!(told.all().is_none() && told.version().is_none(), "nothing is changed before something is told");
        told.take(whole(&[1, 2]));
        assert_eq!(told.version(), Some(VERSION));
        let all = told.all().expect("it was told");
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [MachineId([1; 16]), MachineId([2; 16])]);
        let version = StateVersion { revision: 8, ..VERSION };
        let peers = [(MachineId([1; 16]), None), (MachineId([3; 16]), Some(peer(3)))].into();
        told.take(News::Changed { since: VERSION, version, peers });
        told.take(News::Changed { since: VERSION, version, peers: BTreeMap::new() });
        // The first news was heard with the whole; what it left to be told is nothing.
        let mut changed = told.changed().await;
        if changed.is_empty() {
            changed = told.changed().await;
        }
        assert_eq!(changed.keys().copied().collect::<Vec<_>>(), [MachineId([1; 16]), MachineId([3; 16])]);
        let at = |n| told.vpn_ip(&MachineId([n; 16]));
        assert_eq!([at(1), at(2), at(3)], [None, Some(peer(2).vpn_ip), Some(peer(3).vpn_ip)]);
        assert!(changed[&MachineId([1; 16])].is_none() && changed[&MachineId([3; 16])].is_some());
        let gone = [(MachineId([3; 16]), None)].into();
        told.take(News::Changed { since: version, version: StateVersion { revision: 9, ..VERSION }, peers: gone });
        assert_eq!(told.changed().await.len(), 1, "what was heard is not heard again");
        assert_eq!(told.all().expect("it was told").len(), 1, "a mesh that begins again hears all");
    }

    /// Proves: K6 M6
    #[tokio::test]
    async fn voters_are_tried_where_they_were_sighted_until_news_of_them() {
        let told = Told::default();
        told.take(whole(&[1, 2]));
        told.changed().await;
        let at = |ip: &str| ip.parse::<SocketAddrV4>().expect("an address");
        let moved = MachineId([1; 16]);
        let heard = [(moved, vec![endpoint("198.51.100.7:7836"), endpoint("192.0.2.9:7836")])].into();
        told.sight(&Whereabouts { heard, ..Whereabouts::default() });
        let changed = told.changed().await;
        let places = changed[&moved].clone().map(|peer| peer.endpoints);
        assert_eq!(places, Some(vec![at("198.51.100.7:7838"), at("192.0.2.9:7838")]), "each once");
        assert_eq!(changed.len(), 1);
        let tried = |told: &Told| told.all().expect("it was told")[&moved].endpoints.clone();
        assert_eq!(tried(&told)[0], at("198.51.100.7:7838"), "a mesh that begins again, too");
        let version = StateVersion { revision: 8, ..VERSION };
        let mut anew = peer(1);
        anew.endpoints = vec![endpoint("198.51.100.8:7838")];
        told.take(News::Changed { since: VERSION, version, peers: [(moved, Some(anew))].into() });
        assert_eq!(tried(&told), [at("198.51.100.8:7838")], "what the records say is newer");
    }

    #[test]
    fn the_kernel_is_told_addresses_and_no_names() {
        assert_eq!(in_the_mesh(&peer(1), None).endpoints, ["192.0.2.9:7838".parse().expect("an address")]);
    }

    /// Proves: M7 M9
    #[test]
    fn only_routes_of_the_interface_to_pods_or_peers_are_the_meshs() {
        let prefix = |text: &str| text.parse::<Ipv4Prefix>().expect("a prefix");
        let (pods, peer) = (prefix("10.244.7.0/24"), prefix("10.118.0.9/32"));
        let ours = |route: &RouteMessage, index| ours(route, Own { index, pods: prefix("10.244.0.0/16") });
        assert_eq!(ours(&route(pods, None, 5), 5), Some((pods, None)));
        assert_eq!(ours(&route(pods, None, 6), 5), None, "the bridge of this machine's own pods");
        let others = Own { index: 5, pods: prefix("10.32.0.0/16") };
        assert_eq!(super::ours(&route(pods, None, 5), others), None, "in a cluster whose pods are elsewhere");
        assert!(super::ours(&route(prefix("10.32.7.0/24"), None, 5), others).is_some());
        assert_eq!(ours(&route(peer, Some(1328), 5), 5), Some((peer, Some(1328))));
        assert_eq!(ours(&route(prefix("10.118.0.0/16"), None, 5), 5), None, "the VPN's, which the address brought");
        let mut own = route(peer, None, 5);
        own.header.kind = RouteType::Local;
        assert_eq!(ours(&own, 5), None, "the machine's own address");
        let everything = RouteMessageBuilder::<Ipv4Addr>::new().output_interface(5).build();
        assert_eq!(ours(&everything, 5), None);
    }

    /// Proves: M12
    #[test]
    fn a_route_tells_its_way_and_a_detour_is_told_from_all_others() {
        let way = Way { link: 3, gateway: Some(Ipv4Addr::new(198, 51, 100, 1)) };
        let to = Ipv4Addr::new(192, 0, 2, 9);
        let set = detour(to, way);
        assert_eq!(set.header.protocol, RouteProtocol::Other(118));
        let alone = Ipv4Prefix::new(to, 32).expect("an address");
        assert_eq!(by_an_uplink(&set, 5), Some(UplinkRoute { to: alone, metric: 0, way }));
        assert_eq!(by_an_uplink(&set, 3), None, "the interface is no uplink");
        assert_eq!(by_an_uplink(&detour(to, None), 5), None, "only to be taken away");
        let usual = RouteMessageBuilder::<Ipv4Addr>::new().gateway([192, 0, 2, 1].into()).output_interface(2);
        let usual = usual.priority(102).build();
        let everything = Ipv4Prefix::new(Ipv4Addr::UNSPECIFIED, 0).expect("a prefix");
        let way = Way { link: 2, gateway: Some([192, 0, 2, 1].into()) };
        assert_eq!(by_an_uplink(&usual, 5), Some(UplinkRoute { to: everything, metric: 102, way }));
        assert_ne!(usual.header.protocol, DETOUR);
        let mut own = usual;
        own.header.kind = RouteType::Local;
        assert_eq!(by_an_uplink(&own, 5), None);
    }

    /// Proves: M6
    #[test]
    fn a_gateway_is_known_though_its_link_has_no_carrier() {
        let gateway = Ipv4Addr::new(192, 0, 2, 1);
        let usual = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).output_interface(2);
        let mut usual = usual.priority(102).build();
        let own = Own { index: 5, pods: "10.244.0.0/16".parse().expect("a prefix") };
        let mut found = KernelState::default();
        take(&usual, own, &mut found);
        usual.header.flags |= RouteFlags::Linkdown;
        let mut lost = KernelState::default();
        take(&usual, own, &mut lost);
        assert_eq!((found.uplinks.len(), lost.uplinks.len()), (1, 0));
        for found in [found, lost] {
            assert!(found.surroundings.include(gateway));
        }
    }

    /// Proves: M9
    #[test]
    fn a_limit_is_what_is_sent_and_what_is_asked_for() {
        let to = "10.118.0.9/32".parse().expect("a prefix");
        let metrics = RouteAttribute::Metrics(vec![RouteMetric::Mtu(1328), RouteMetric::Advmss(1288)]);
        assert!(route(to, Some(1328), 5).attributes.contains(&metrics));
        let has_metrics = |attribute: &RouteAttribute| matches!(attribute, RouteAttribute::Metrics(_));
        assert!(!route(to, None, 5).attributes.iter().any(has_metrics));
    }
}
