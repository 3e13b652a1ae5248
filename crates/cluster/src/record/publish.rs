//! Record of a rule by which ports of uplinks are open: which, on which machines, to whom, and who answers there.
//!
//! ```text
//! message Publish { uint32 version = 1; uint64 id = 2; repeated string ports = 3; repeated bytes machines = 4;
//!                   repeated string sources = 5; optional string namespace = 6; optional string address = 7; }
//! ```
//! Without a namespace whatever listens on the machine answers: a host port of a pod, or a pod in the host's network. With one it is
//! services of type LoadBalancer in that namespace alone, on the machines that are named, or on all workers where none is. They are reached
//! at the machines' own addresses, or at a floating one, which one of these machines holds at a time.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use model::{Ipv4Prefix, MachineId, NamespaceName, PUBLIC_API_PORT, PortProtocol, PublishId, UplinkPort, VPN_PORT};
use prost::Message as _;

use super::{BadRecord, VERSION, decode, sized};

/// Most rules of a cluster.
pub const MOST_PUBLISHED: usize = 64;
/// Most ports of a rule.
pub const MOST_PUBLISHED_PORTS: usize = 32;
/// Most machines that a rule names.
pub const MOST_PUBLISHING_MACHINES: usize = 256;
/// Most prefixes of sources that a rule names.
pub const MOST_PUBLISHED_SOURCES: usize = 32;

/// Ports as an owner publishes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishTerms {
    ports: BTreeSet<UplinkPort>,
    users: PortUsers,
    sources: BTreeSet<Ipv4Prefix>,
    address: Option<Ipv4Addr>,
}

/// Users of published ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortUsers {
    /// Programs that listen on these machines, whatever they are.
    Hosts(BTreeSet<MachineId>),
    /// Services of type LoadBalancer in a namespace, on these machines; on all workers where none is named.
    Services(NamespaceName, BTreeSet<MachineId>),
}

/// Rule that publishes ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishRecord {
    /// Number of the rule.
    pub id: PublishId,
    /// Terms of the rule.
    pub terms: PublishTerms,
}

/// Reason why ports cannot be published so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPublish {
    /// No port, or too many.
    #[error("a rule publishes 1 to {MOST_PUBLISHED_PORTS} ports")]
    Ports,
    /// A port of Cairn's own.
    #[error("{0} is Cairn's own, and open to everybody")]
    Reserved(UplinkPort),
    /// No machine, or too many.
    #[error("a rule names at most {MOST_PUBLISHING_MACHINES} machines, and at least one where it names no namespace")]
    Machines,
    /// Too many sources.
    #[error("a rule names at most {MOST_PUBLISHED_SOURCES} prefixes of sources")]
    Sources,
    /// A floating address that no machine can have.
    #[error("{0} is no address that a machine of a network can have")]
    Address(Ipv4Addr),
    /// A floating address for what listens on machines.
    #[error("a floating address is for services: a rule with one names their namespace")]
    AddressOfHosts,
    /// A field that is not what it should be.
    #[error("its {0} cannot be used")]
    Field(&'static str),
}

/// Whether a port is open to everybody on every machine, and leads to PID 1.
fn is_reserved(port: UplinkPort) -> bool {
    matches!((port.protocol(), port.number()), (PortProtocol::Tcp, PUBLIC_API_PORT) | (PortProtocol::Udp, VPN_PORT))
}

impl PublishTerms {
    /// Ports for who uses them, to these sources; to everybody where none is named.
    ///
    /// # Errors
    /// [`BadPublish`] names what does not go.
    pub fn new(
        ports: BTreeSet<UplinkPort>,
        users: PortUsers,
        sources: BTreeSet<Ipv4Prefix>,
    ) -> Result<Self, BadPublish> {
        if !(1..=MOST_PUBLISHED_PORTS).contains(&ports.len()) {
            return Err(BadPublish::Ports);
        }
        if let Some(port) = ports.iter().find(|port| is_reserved(**port)) {
            return Err(BadPublish::Reserved(*port));
        }
        let least = match &users {
            PortUsers::Hosts(_) => 1,
            PortUsers::Services(..) => 0,
        };
        if !(least..=MOST_PUBLISHING_MACHINES).contains(&users.machines().len()) {
            return Err(BadPublish::Machines);
        }
        if sources.len() > MOST_PUBLISHED_SOURCES {
            return Err(BadPublish::Sources);
        }
        Ok(Self { ports, users, sources, address: None })
    }

    /// The same at a floating address, which one of the machines holds at a time; where there is none, at the machines' own.
    ///
    /// # Errors
    /// [`BadPublish`] for an address that is of no network, and for ports of machines themselves.
    pub fn at(self, address: Option<Ipv4Addr>) -> Result<Self, BadPublish> {
        let Some(address) = address else { return Ok(Self { address: None, ..self }) };
        let is_special = address.is_loopback() || address.is_link_local() || address.octets()[0] == 0;
        if is_special || address.is_multicast() || address.octets()[0] >= 240 {
            return Err(BadPublish::Address(address));
        }
        match self.users {
            PortUsers::Hosts(_) => Err(BadPublish::AddressOfHosts),
            PortUsers::Services(..) => Ok(Self { address: Some(address), ..self }),
        }
    }

    /// Ports that the rule publishes.
    #[must_use]
    pub const fn ports(&self) -> &BTreeSet<UplinkPort> {
        &self.ports
    }

    /// Users of the ports, who answer there.
    #[must_use]
    pub const fn users(&self) -> &PortUsers {
        &self.users
    }

    /// Prefixes from which the ports are reached; any address where none is named.
    #[must_use]
    pub const fn sources(&self) -> &BTreeSet<Ipv4Prefix> {
        &self.sources
    }

    /// Floating address at which services are reached; none where it is at the machines' own.
    #[must_use]
    pub const fn address(&self) -> Option<Ipv4Addr> {
        self.address
    }

    /// Port that both publish on one machine, if there is one. Two floating addresses of a machine have ports of their own.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> Option<UplinkPort> {
        let are_apart = self.address.zip(other.address).is_some_and(|(one, two)| one != two);
        let meets = !are_apart && self.users.meets(&other.users);
        self.ports.intersection(&other.ports).next().copied().filter(|_| meets)
    }
}

impl PortUsers {
    /// Machines by their ids; none where all workers are meant.
    #[must_use]
    pub const fn machines(&self) -> &BTreeSet<MachineId> {
        match self {
            Self::Hosts(machines) | Self::Services(_, machines) => machines,
        }
    }

    /// Namespace whose services alone answer; none where whatever listens does.
    #[must_use]
    pub const fn namespace(&self) -> Option<&NamespaceName> {
        match self {
            Self::Hosts(_) => None,
            Self::Services(namespace, _) => Some(namespace),
        }
    }

    /// Users by their parts, as they are written.
    #[must_use]
    pub fn of(namespace: Option<NamespaceName>, machines: BTreeSet<MachineId>) -> Self {
        match namespace {
            None => Self::Hosts(machines),
            Some(namespace) => Self::Services(namespace, machines),
        }
    }

    /// Whether this worker is among the machines.
    #[must_use]
    pub fn are_on(&self, worker: &MachineId) -> bool {
        match self {
            Self::Services(_, machines) if machines.is_empty() => true,
            Self::Hosts(machines) | Self::Services(_, machines) => machines.contains(worker),
        }
    }

    fn meets(&self, other: &Self) -> bool {
        let (one, two) = (self.machines(), other.machines());
        one.is_empty() || two.is_empty() || !one.is_disjoint(two)
    }
}

impl PublishRecord {
    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { id, terms } = self;
        PublishWire {
            version: VERSION,
            id: id.0,
            ports: terms.ports.iter().map(ToString::to_string).collect(),
            machines: terms.users.machines().iter().map(|machine| machine.0.to_vec()).collect(),
            sources: terms.sources.iter().map(ToString::to_string).collect(),
            namespace: terms.users.namespace().map(ToString::to_string),
            address: terms.address.map(|address| address.to_string()),
        }
        .encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: PublishWire = decode(bytes, &PUBLISH)?;
        let machine = |bytes: &Vec<u8>| Ok::<_, BadRecord>(MachineId(sized("machine id", bytes)?));
        let machines: Vec<_> = wire.machines.iter().map(machine).collect::<Result<_, _>>()?;
        let (ports, sources) = (texts("ports", &wire.ports)?, texts("sources", &wire.sources)?);
        let namespace = wire.namespace.map(|name| name.parse().map_err(|_| BadPublish::Field("namespace")));
        let users = PortUsers::of(namespace.transpose()?, in_order(machines)?);
        let address = texts("address", wire.address.as_slice())?.first().copied();
        let terms = PublishTerms::new(in_order(ports)?, users, in_order(sources)?)?.at(address)?;
        Ok(Self { id: PublishId(wire.id), terms })
    }
}

/// Values of texts, each in its one spelling.
pub(crate) fn texts<T: std::str::FromStr + ToString>(
    field: &'static str,
    texts: &[String],
) -> Result<Vec<T>, BadPublish> {
    let read = |text: &String| text.parse::<T>().ok().filter(|read| read.to_string() == *text);
    texts.iter().map(read).collect::<Option<_>>().ok_or(BadPublish::Field(field))
}

/// Set of values that stand in their order, each once.
pub(crate) fn in_order<T: Ord>(values: Vec<T>) -> Result<BTreeSet<T>, BadRecord> {
    if values.is_sorted_by(|one, other| one < other) {
        Ok(values.into_iter().collect())
    } else {
        Err(BadRecord::Contradiction("what it lists is in its order, each once"))
    }
}

formats::strict_message! {
    struct PublishWire, PUBLISH = "Publish" {
        1 required u32 version;
        2 required u64 id;
        3 repeated text ports;
        4 repeated bytes machines;
        5 repeated text sources;
        6 optional text namespace;
        7 optional text address;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> BTreeSet<UplinkPort> {
        UplinkPort::read_all(text).expect("ports").into_iter().collect()
    }

    fn on(machines: &[u8]) -> BTreeSet<MachineId> {
        machines.iter().map(|n| MachineId([*n; 16])).collect()
    }

    fn host(text: &str, machines: &[u8]) -> Result<PublishTerms, BadPublish> {
        PublishTerms::new(ports(text), PortUsers::Hosts(on(machines)), BTreeSet::new())
    }

    fn web(text: &str, machines: &[u8]) -> Result<PublishTerms, BadPublish> {
        let web = "web".parse().expect("a namespace");
        PublishTerms::new(ports(text), PortUsers::Services(web, on(machines)), BTreeSet::new())
    }

    /// Proves: A7
    #[test]
    fn what_cannot_be_published_is_refused_by_its_name() {
        for reserved in ["7836/tcp", "7838/udp"] {
            let port = reserved.parse().expect("a port");
            assert_eq!(host(&format!("80/tcp,{reserved}"), &[1]), Err(BadPublish::Reserved(port)));
        }
        assert!(host("7836/udp,7838/tcp", &[1]).is_ok(), "nobody listens there");
        assert_eq!(host("80/tcp", &[]), Err(BadPublish::Machines));
        assert!(web("80/tcp", &[]).is_ok(), "on all workers");
        let many = |count: usize| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join(",") + "/tcp";
        assert!(host(&many(MOST_PUBLISHED_PORTS), &[1]).is_ok());
        assert_eq!(host(&many(MOST_PUBLISHED_PORTS + 1), &[1]), Err(BadPublish::Ports));
        let empty = PublishTerms::new(BTreeSet::new(), PortUsers::Hosts(on(&[1])), BTreeSet::new());
        assert_eq!(empty, Err(BadPublish::Ports));
        let machines = (0..=MOST_PUBLISHING_MACHINES).map(|n| {
            let mut id = [0; 16];
            id[..2].copy_from_slice(&u16::try_from(n).expect("few").to_be_bytes());
            MachineId(id)
        });
        let too_many = PublishTerms::new(ports("80/tcp"), PortUsers::Hosts(machines.collect()), BTreeSet::new());
        assert_eq!(too_many, Err(BadPublish::Machines));
        let sources = 0..=u32::try_from(MOST_PUBLISHED_SOURCES).expect("few");
        let sources = sources.map(|n| Ipv4Prefix::new(n.into(), 32).expect("a prefix")).collect();
        let too_many = PublishTerms::new(ports("80/tcp"), PortUsers::Hosts(on(&[1])), sources);
        assert_eq!(too_many, Err(BadPublish::Sources));
    }

    /// Proves: A7
    #[test]
    fn rules_overlap_where_they_share_a_port_of_a_machine() {
        let of = |text: &str, machines: &[u8]| host(text, machines).expect("a rule");
        assert_eq!(of("80,443/tcp", &[1, 2]).overlap(&of("443/tcp", &[2, 3])), "443/tcp".parse().ok());
        assert_eq!(of("443/tcp", &[1]).overlap(&of("443/tcp", &[2])), None);
        assert_eq!(of("443/tcp", &[1]).overlap(&of("443/udp,80/tcp", &[1])), None);
        let web = |machines| web("443/tcp", machines).expect("a rule");
        assert_eq!(web(&[]).overlap(&of("443/tcp", &[7])), "443/tcp".parse().ok(), "all workers");
        assert_eq!(of("443/tcp", &[7]).overlap(&web(&[])), "443/tcp".parse().ok());
        assert_eq!(web(&[1]).overlap(&web(&[2])), None);
    }

    /// Proves: W8
    #[test]
    fn a_rule_is_of_the_machines_that_it_names() {
        let (one, two) = (MachineId([1; 16]), MachineId([2; 16]));
        let on =
            |terms: Result<PublishTerms, _>| [one, two].map(|id| terms.as_ref().expect("a rule").users().are_on(&id));
        assert_eq!(on(host("80/tcp", &[1])), [true, false]);
        assert_eq!(on(web("80/tcp", &[1])), [true, false]);
        assert_eq!(on(web("80/tcp", &[])), [true, true]);
    }

    /// Proves: A7
    #[test]
    fn a_rule_is_read_in_its_one_spelling() {
        let good = || PublishWire {
            version: VERSION,
            id: 7,
            ports: vec!["80/tcp".to_owned(), "443/tcp".to_owned()],
            machines: vec![vec![1; 16], vec![2; 16]],
            sources: vec!["10.0.0.0/8".to_owned()],
            namespace: Some("web".to_owned()),
            address: Some("192.0.2.50".to_owned()),
        };
        let read = |edit: fn(&mut PublishWire)| {
            let mut wire = good();
            edit(&mut wire);
            PublishRecord::decode(&wire.encode_to_vec())
        };
        assert_eq!(read(|_| ()).expect("a rule").encode(), good().encode_to_vec());
        let no_address = |text: fn(&mut PublishWire)| matches!(read(text), Err(BadRecord::Publish(_)));
        assert!(no_address(|it| it.address = Some("192.0.2.050".to_owned())));
        assert!(no_address(|it| it.address = Some("127.0.0.1".to_owned())));
        assert!(no_address(|it| it.namespace = None), "for services alone");
        let disordered = Err(BadRecord::Contradiction("what it lists is in its order, each once"));
        assert_eq!(read(|it| it.ports.reverse()), disordered);
        assert_eq!(read(|it| it.ports[1] = it.ports[0].clone()), disordered);
        assert_eq!(read(|it| it.machines.reverse()), disordered);
        let bad = |field| Err(BadRecord::Publish(BadPublish::Field(field)));
        assert_eq!(read(|it| it.ports[0] = "80/sctp".to_owned()), bad("ports"));
        assert_eq!(read(|it| it.ports[0] = "80,81/tcp".to_owned()), bad("ports"));
        assert_eq!(read(|it| it.sources[0] = "10.0.0.0/08".to_owned()), bad("sources"));
        assert_eq!(read(|it| it.namespace = Some("Web".to_owned())), bad("namespace"));
        assert!(read(|it| it.machines.clear()).is_ok(), "all workers");
        let nowhere = read(|it| (it.namespace, it.machines) = (None, vec![]));
        assert_eq!(nowhere, Err(BadRecord::Publish(BadPublish::Machines)));
        assert!(matches!(read(|it| it.machines[0].truncate(15)), Err(BadRecord::Size { .. })));
        assert_eq!(read(|it| it.ports.clear()), Err(BadRecord::Publish(BadPublish::Ports)));
    }
}
