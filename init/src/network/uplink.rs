//! The uplink: every Ethernet link up, with an address by DHCP or from the config, behind a filter and routing
//! rules that were there before the first link.
//!
//! It knows nothing of the mesh: VPN and pod prefixes are only names of what an uplink must never reach or be given.

mod carrier;
mod dhcp;
mod filter;
mod floating;
pub(crate) mod published;
mod rules;

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use cluster::published::OpenPort;
use cluster::record::BadRecord;
use model::{Assignment, Ipv4Prefix, NetworkConfig, Prefixes};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use tokio::sync::{Mutex as AsyncMutex, watch};

use self::carrier::Carriers;
use self::filter::Filter;
use self::floating::FloatingHeld;
use super::nftables::{self, TextFile};
use super::policies::PolicyTable;
use super::refusal;
use crate::facts::Address;
use crate::runtime::child::Children;
use crate::runtime::durable;
use crate::runtime::services::Services;
use crate::runtime::tasks::{self, Task};
use crate::shown::board::Board;

/// Where resolvers are written; /etc/resolv.conf is a link to it.
const RESOLV_CONF: &str = "/run/resolv.conf";

/// Failed step of the uplink's set-up or upkeep.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel's routing socket does not open.
    #[error("open the kernel's routing socket")]
    Socket(#[source] io::Error),
    /// A rule was refused: without all of them no link goes up.
    #[error("set routing rule {0}")]
    Rule(u32, #[source] io::Error),
    /// The filter is not in force: without it no link goes up.
    #[error("set the filter of packets")]
    Filter(#[source] nftables::Error),
    /// Orders make no sense.
    #[error("read which ports are ordered to be open")]
    Published(#[from] BadRecord),
    /// The route that keeps packets to pods from leaving by an uplink was refused.
    #[error("set the route to pods that are not there")]
    NoPod(#[source] io::Error),
    /// A link did not come up.
    #[error("bring link `{0}` up")]
    Link(String, #[source] io::Error),
    /// An address or route was refused.
    #[error("set {0} on link `{1}`")]
    Address(&'static str, String, #[source] io::Error),
    /// An address whose lease is over could not be found or removed.
    #[error("take {0} away from link `{1}`")]
    TakeAway(Ipv4Addr, String, #[source] io::Error),
    /// Links or addresses could not be listed.
    #[error("list {0}")]
    List(&'static str, #[source] io::Error),
    /// The kernel does not tell its links.
    #[error("read the links")]
    Links(#[source] io::Error),
    /// The kernel's news of links have an end.
    #[error("hear of the links")]
    Unheard,
    /// Resolvers could not be written.
    #[error("write {RESOLV_CONF}")]
    Resolvers(#[source] io::Error),
    /// The tasks that serve the links are not taken into the tree.
    #[error("start what serves the links")]
    Tree(#[from] supervise::ChangeError),
    /// A DHCP client cannot use its link.
    #[error("open a packet socket on link `{0}`")]
    Packet(String, #[source] io::Error),
}

/// An Ethernet link of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    /// The kernel's, such as `eth0`.
    name: String,
    /// The kernel's; the same for as long as the card is plugged in.
    index: u32,
    mac: [u8; 6],
}

/// Resolvers by link index.
pub(crate) type Resolvers = Vec<(u32, Vec<Ipv4Addr>)>;

/// Resolvers of all links, in the order in which they are asked.
pub(crate) fn all(resolvers: &Resolvers) -> Vec<Ipv4Addr> {
    resolvers.iter().flat_map(|(_, servers)| servers).copied().collect()
}

/// The network as seen by the kernel: what links have, and how to change it.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// Handle of a netlink socket for links, addresses, routes and rules.
    pub(crate) handle: Handle,
    board: Board,
    /// Resolvers by link, so that one lease does not wipe another's.
    resolvers: watch::Sender<Resolvers>,
    /// Links that have a carrier.
    carriers: watch::Sender<Carriers>,
    _carrying: Arc<Task<()>>,
}

/// Links that are up; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    pub(crate) network: Network,
    /// Table by which policies judge pods.
    pub(crate) policies: PolicyTable,
    children: Children,
    /// Links that the rules name.
    links: Vec<Link>,
    /// By what the kernel goes now; whoever changes that holds it.
    in_force: Arc<AsyncMutex<InForce>>,
    floating: Arc<AsyncMutex<FloatingHeld>>,
}

/// Filter and addresses that the kernel has.
#[derive(Debug)]
struct InForce {
    filter: String,
    /// Ground that the filter is made from, besides the links.
    prefixes: Option<Prefixes>,
    assignment: Option<Assignment>,
    published: Vec<OpenPort>,
    /// Address among those of its pods at which the machine serves them; on `lo`.
    gateway: Option<Ipv4Addr>,
    /// Whether other programs may have set what leads to pods.
    leads: bool,
}

/// Index of `lo` (`LOOPBACK_IFINDEX`, include/net/net_namespace.h).
const LOOPBACK: u32 = 1;

impl Uplink {
    /// Sets the rules, then brings all links up and gives them addresses as `config` says; DHCP clients run in `tree`. Does
    /// not wait for a lease.
    ///
    /// # Errors
    /// [`Error`] names the step; a machine without its filter and routing rules stays off the network.
    pub(crate) async fn up(
        board: &Board,
        (tree, children): (&Services, &Children),
        config: &NetworkConfig,
        prefixes: Option<Prefixes>,
    ) -> Result<Self, Error> {
        let network = Network::open(board)?;
        // kubelet reads it, whether a link names a resolver or not.
        fs::write(RESOLV_CONF, "").map_err(Error::Resolvers)?;
        let links = links().map_err(|error| Error::List("links", error))?;
        board.facts().update(|now| now.prefixes = prefixes);
        let filter = filter(&links, (prefixes, None), &[]);
        nftables::perform(children, TextFile::Filter, &filter).await.map_err(Error::Filter)?;
        rules::set(&network.handle, prefixes, &links).await?;
        let loopback = LinkUnspec::new_with_name("lo").up().build();
        let is_up = network.handle.link().set(loopback).execute().await;
        is_up.map_err(|error| Error::Link("lo".into(), refusal(error)))?;
        for link in &links {
            network.up(link).await?;
        }
        tree.take(vec![carrier::unit(&network, &links)]).await?;
        match config {
            NetworkConfig::Dhcp => tree.take(dhcp::clients(&network, links.clone())).await?,
            NetworkConfig::Static { address, prefix_bits, gateway, dns } => {
                if let Some(link) = links.first() {
                    let lease = Lease {
                        address: *address,
                        prefix_bits: *prefix_bits,
                        gateway: *gateway,
                        resolvers: dns.clone(),
                    };
                    network.configure(link, &lease).await?;
                }
            }
        }
        let (assignment, published) = (None, Vec::new());
        let in_force = InForce { filter, prefixes, assignment, published, gateway: None, leads: false };
        let in_force = Arc::new(AsyncMutex::new(in_force));
        let policies = PolicyTable::of(children);
        Ok(Self { network, policies, children: children.clone(), links, in_force, floating: Arc::default() })
    }

    /// Goes by the prefixes of the machine's cluster, and its place there, from now on; the same again changes nothing.
    ///
    /// # Errors
    /// [`Error`] names the step; rules are left that deny no less than before.
    pub(crate) async fn belong(&self, prefixes: Prefixes, assignment: &Assignment) -> Result<(), Error> {
        let mut in_force = self.in_force.lock().await;
        let (before, prefixes) = (self.network.prefixes(), Some(prefixes));
        let wanted = filter(&self.links, (prefixes, Some(assignment)), &in_force.published);
        self.perform(&mut in_force, wanted).await?;
        (in_force.prefixes, in_force.assignment) = (prefixes, Some(assignment.clone()));
        if let Some(pods) = assignment.pods() {
            self.policies.begin(pods).await.map_err(Error::Filter)?;
        }
        let gateway = assignment.gateway();
        if gateway != in_force.gateway {
            self.network.stand_for(in_force.gateway, gateway).await?;
            in_force.gateway = gateway;
        }
        in_force.leads |= gateway.is_some();
        rules::change(&self.network.handle, (before, prefixes), &self.links).await?;
        self.network.board.facts().update(|now| now.prefixes = prefixes);
        Ok(())
    }

    /// Opens these ports to the networks of the uplinks, and no others, from now on; the same again changes nothing. A port that was
    /// open is closed to connections that began then, too.
    ///
    /// # Errors
    /// [`Error::Filter`]; the ports of before are open then.
    pub(crate) async fn publish(&self, ports: Vec<OpenPort>) -> Result<(), Error> {
        let mut in_force = self.in_force.lock().await;
        let wanted = filter(&self.links, (in_force.prefixes, in_force.assignment.as_ref()), &ports);
        self.perform(&mut in_force, wanted).await?;
        in_force.published = ports;
        Ok(())
    }

    async fn perform(&self, in_force: &mut InForce, wanted: String) -> Result<(), Error> {
        if wanted != in_force.filter {
            nftables::perform(&self.children, TextFile::Filter, &wanted).await.map_err(Error::Filter)?;
            in_force.filter = wanted;
        }
        Ok(())
    }

    /// Leads nothing to pods any more, now that the machine runs none and nothing that would lead to others'.
    ///
    /// # Errors
    /// [`Error::Filter`]; it leads on then, and may be asked again.
    pub(crate) async fn leads_to_no_pod(&self) -> Result<(), Error> {
        let mut in_force = self.in_force.lock().await;
        if in_force.leads {
            nftables::perform(&self.children, TextFile::Filter, &filter::without_others())
                .await
                .map_err(Error::Filter)?;
            in_force.leads = false;
        }
        self.policies.end().await.map_err(Error::Filter)
    }
}

/// Address, gateway and resolvers of a link, by DHCP or from the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    address: Ipv4Addr,
    prefix_bits: u8,
    gateway: Option<Ipv4Addr>,
    resolvers: Vec<Ipv4Addr>,
}

impl Network {
    fn open(board: &Board) -> Result<Self, Error> {
        let (connection, handle, _multicast) = rtnetlink::new_connection().map_err(Error::Socket)?;
        let carrying = tasks::spawn(connection);
        let (board, carriers) = (board.clone(), watch::Sender::default());
        Ok(Self { handle, board, resolvers: watch::Sender::default(), carriers, _carrying: Arc::new(carrying) })
    }

    /// The prefixes of VPN, pods and services, once they are known: no link is given an address of theirs.
    fn prefixes(&self) -> Option<Prefixes> {
        self.board.facts().read(|now| now.prefixes)
    }

    /// The addresses that links have, each with its prefix.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.board.facts().read(|now| now.links.iter().map(|link| link.address).collect())
    }

    /// The resolvers of all links.
    pub(crate) fn resolvers(&self) -> Vec<Ipv4Addr> {
        all(&self.resolvers.borrow())
    }

    /// Tells when a link has got other resolvers, or lost them.
    pub(crate) fn resolvers_change(&self) -> watch::Receiver<Resolvers> {
        self.resolvers.subscribe()
    }

    /// Tells when a link has got or lost its carrier.
    pub(crate) fn carriers(&self) -> watch::Receiver<Carriers> {
        self.carriers.subscribe()
    }

    async fn up(&self, link: &Link) -> Result<(), Error> {
        let message = LinkUnspec::new_with_index(link.index).up().build();
        self.handle.link().set(message).execute().await.map_err(|error| Error::Link(link.name.clone(), refusal(error)))
    }

    /// Gives `link` the address, route and resolvers of `lease`; the same again changes nothing.
    async fn configure(&self, link: &Link, lease: &Lease) -> Result<(), Error> {
        let failed = |what| move |error| Error::Address(what, link.name.clone(), refusal(error));
        let address = self.handle.address().add(link.index, lease.address.into(), lease.prefix_bits);
        address.replace().execute().await.map_err(failed("the address"))?;
        if let Some(gateway) = lease.gateway {
            let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).output_interface(link.index);
            let route = self.handle.route().add(route.priority(100 + link.index).build());
            route.replace().execute().await.map_err(failed("the default route"))?;
        }
        self.resolve(link.index, lease.resolvers.clone()).map_err(Error::Resolvers)?;
        self.tell(link, Some(lease));
        Ok(())
    }

    /// Takes back what [`Self::configure`] gave.
    async fn deconfigure(&self, link: &Link, lease: &Lease) -> Result<(), Error> {
        self.take_away((link.index, &link.name), lease.address).await?;
        self.resolve(link.index, Vec::new()).map_err(Error::Resolvers)?;
        self.tell(link, None);
        Ok(())
    }

    /// Has `lo` the address at which the machine serves its pods, and no longer that of before.
    async fn stand_for(&self, before: Option<Ipv4Addr>, after: Option<Ipv4Addr>) -> Result<(), Error> {
        if let Some(after) = after {
            let address = self.handle.address().add(LOOPBACK, after.into(), 32).replace().execute();
            address.await.map_err(|error| Error::Address("the gateway of pods", "lo".into(), refusal(error)))?;
        }
        match before {
            Some(before) => self.take_away((LOOPBACK, "lo"), before).await,
            None => Ok(()),
        }
    }

    /// Takes an address away from a link, and the routes through it.
    async fn take_away(&self, (index, name): (u32, &str), address: Ipv4Addr) -> Result<(), Error> {
        let failed = |error| Error::TakeAway(address, name.to_owned(), refusal(error));
        let mut given = self.handle.address().get().set_link_index_filter(index).execute();
        while let Some(message) = tokio_stream::StreamExt::next(&mut given).await {
            let message = message.map_err(failed)?;
            let ours = AddressAttribute::Local(address.into());
            if message.header.family == AddressFamily::Inet && message.attributes.contains(&ours) {
                self.handle.address().del(message).execute().await.map_err(failed)?;
            }
        }
        Ok(())
    }

    fn resolve(&self, link: u32, servers: Vec<Ipv4Addr>) -> io::Result<()> {
        self.resolvers.send_modify(|resolvers| {
            resolvers.retain(|(index, _)| *index != link);
            resolvers.push((link, servers));
            resolvers.sort_unstable();
        });
        let lines = self.resolvers().into_iter().map(|server| format!("nameserver {server}\n"));
        fs::write(RESOLV_CONF, lines.collect::<String>())
    }

    /// From now on it is a fact what the link has.
    fn tell(&self, link: &Link, lease: Option<&Lease>) {
        let address = lease.map(|lease| Address {
            ip: lease.address,
            prefix: Ipv4Prefix::around(lease.address, lease.prefix_bits).expect("the kernel took it, with 32 at most"),
        });
        self.board.facts().update(|now| now.link(&link.name, address));
    }
}

/// Text of the filter of a machine with these uplinks.
fn filter(
    uplinks: &[Link],
    (prefixes, assignment): (Option<Prefixes>, Option<&Assignment>),
    published: &[OpenPort],
) -> String {
    let uplinks = uplinks.iter().map(|link| link.name.as_str()).collect();
    Filter { uplinks, prefixes, assignment, published }.text()
}

/// Ethernet links with a device behind them: not loopback, not WireGuard, not a pod's.
fn links() -> io::Result<Vec<Link>> {
    const ETHERNET: &str = "1"; // ARPHRD_ETHER
    let mut links = Vec::new();
    for entry in fs::read_dir("/sys/class/net")? {
        let path = entry?.path();
        let read = |file: &str| fs::read_to_string(path.join(file)).map(|text| text.trim().to_owned());
        if !durable::exists(&path.join("device"))? || read("type")? != ETHERNET {
            continue;
        }
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let (Ok(index), Some(mac)) = (read("ifindex")?.parse(), parse_mac(&read("address")?)) else { continue };
        links.push(Link { name: name.to_owned(), index, mac });
    }
    links.sort_by_key(|link| link.index);
    Ok(links)
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

#[cfg(test)]
impl Network {
    /// A network whose kernel answers nothing.
    fn of_a_dead_kernel() -> Self {
        let (_dropped, handle, _multicast) = rtnetlink::new_connection().expect("a routing socket");
        let carrying = Arc::new(tasks::spawn(std::future::ready(())));
        let (board, _reader) = Board::new(crate::facts::Facts::new(crate::machine::kernel::Boot::fixture()).0);
        let (resolvers, carriers) = (watch::Sender::default(), watch::Sender::default());
        Self { handle, board, resolvers, carriers, _carrying: carrying }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_addresses_are_read_strictly() {
        assert_eq!(parse_mac("52:54:00:12:34:56"), Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
        for bad in ["", "52:54:00:12:34", "52:54:00:12:34:56:78", "52:54:00:12:34:xx"] {
            assert_eq!(parse_mac(bad), None, "{bad}");
        }
    }
}
