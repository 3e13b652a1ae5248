//! Ports of its uplinks that a machine is to open, as a part of orders. Decides what is open; who opens it is the machine's filter.
//!
//! ```text
//! message Published { uint32 version = 1; repeated OpenPort ports = 2; }
//! message OpenPort { string port = 1; repeated string sources = 2; bool services = 3; optional string address = 4; }
//! ```

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use model::{Ipv4Prefix, MachineId, UplinkPort};
use prost::Message as _;

use crate::part::{MOST_PART_BYTES, OrderPart};
use crate::record::{self, BadRecord, MOST_PUBLISHED, MOST_PUBLISHED_PORTS, MOST_PUBLISHED_SOURCES, in_order, texts};
use crate::state::State;

const VERSION: u32 = 1;
/// Most ports of one machine: no port is of two rules there.
const MOST_OPEN: usize = MOST_PUBLISHED * MOST_PUBLISHED_PORTS;

// A prefix has at most 18 bytes, an address 15, a port 9; each two more in front, and a port's message four.
const _: () = assert!(MOST_OPEN * (MOST_PUBLISHED_SOURCES * 20 + 52) < MOST_PART_BYTES);

/// Port that is open on a machine's uplinks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenPort {
    /// Which port.
    pub port: UplinkPort,
    /// Floating address at which alone it is open; any of the uplinks' where there is none.
    pub address: Option<Ipv4Addr>,
    /// Prefixes from which it is reached; any address where there is none.
    pub sources: BTreeSet<Ipv4Prefix>,
    /// Whether services alone answer there: what listens on the machine itself does not.
    pub services: bool,
}

impl State {
    /// Ports that are open on a machine, in their order: those of the rules that name it.
    pub(crate) fn open_ports(&self, machine: &MachineId) -> Vec<OpenPort> {
        let rules = self.published().values().map(|rule| &rule.terms);
        let rules = rules.filter(|terms| terms.users().are_on(machine));
        let ports = rules.flat_map(|terms| {
            let services = terms.users().namespace().is_some();
            let open = move |port: &UplinkPort| OpenPort {
                port: *port,
                address: terms.address(),
                sources: terms.sources().clone(),
                services,
            };
            terms.ports().iter().map(open)
        });
        let mut ports: Vec<_> = ports.collect();
        ports.sort_unstable();
        ports
    }

    /// The same as a part of a worker's orders; none where no port is open, or the machine runs no pods.
    pub(crate) fn published_part(&self, machine: &MachineId) -> Option<OrderPart> {
        if self.published().is_empty() || self.worker(machine).is_none() {
            return None;
        }
        let ports = self.open_ports(machine);
        let wire = |open: OpenPort| OpenPortWire {
            port: open.port.to_string(),
            sources: open.sources.iter().map(ToString::to_string).collect(),
            services: open.services,
            address: open.address.map(|address| address.to_string()),
        };
        let is_there = !ports.is_empty();
        let ports = ports.into_iter().map(wire).collect();
        is_there.then(|| OrderPart::of(PublishedWire { version: VERSION, ports }.encode_to_vec()))
    }
}

/// Reads the part that names all open ports.
///
/// # Errors
/// [`BadRecord`] names what makes no sense.
pub fn decode_published(contents: &[u8]) -> Result<Vec<OpenPort>, BadRecord> {
    let wire: PublishedWire = record::decode_within(MOST_PART_BYTES, contents, &PUBLISHED)?;
    let open = |wire: OpenPortWire| {
        let port = texts("ports", &[wire.port])?[0];
        let sources = in_order(texts("sources", &wire.sources)?)?;
        let address = texts("address", wire.address.as_slice())?.first().copied();
        Ok::<_, BadRecord>(OpenPort { port, address, sources, services: wire.services })
    };
    let ports = wire.ports.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let in_order = ports.is_sorted_by(|one, other| (one.port, one.address) < (other.port, other.address));
    if !in_order || !(1..=MOST_OPEN).contains(&ports.len()) {
        return Err(BadRecord::Contradiction("it names 1 to 2048 ports in their order, each once"));
    }
    Ok(ports)
}

formats::strict_message! {
    struct PublishedWire, PUBLISHED = "Published" {
        1 required u32 version;
        2 repeated message(OpenPortWire, OPEN_PORT) ports;
    }
}

formats::strict_message! {
    struct OpenPortWire, OPEN_PORT = "OpenPort" {
        1 required text port;
        2 repeated text sources;
        3 required bool services;
        4 optional text address;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::key::Key;
    use crate::record::{PortUsers, PublishRecord, PublishTerms};
    use crate::state::KeyValue;

    fn ports(text: &str) -> BTreeSet<UplinkPort> {
        UplinkPort::read_all(text).expect("ports").into_iter().collect()
    }

    /// State of worker 1 and of machine 2, which is none, with rules for each.
    fn state() -> State {
        let mut other = fixture::machine(2);
        (other.pods, other.kubernetes) = (None, [].into());
        let from = BTreeSet::from(["192.0.2.0/24".parse().expect("a prefix")]);
        let rule = |id: u64, text, users, sources| {
            let terms = PublishTerms::new(ports(text), users, sources);
            let id = model::PublishId(id);
            (Key::Publish(id), PublishRecord { id, terms: terms.expect("a rule") }.encode())
        };
        let (one, two) = (fixture::machine(1).id(), other.id());
        let host = |id| PortUsers::Hosts([id].into());
        let everywhere = PortUsers::Services("web".parse().expect("a namespace"), BTreeSet::new());
        let pairs = [
            (Key::Machine(one), fixture::machine(1).encode()),
            (Key::Machine(two), other.encode()),
            rule(7, "443/tcp,53/udp", host(one), from),
            rule(8, "80/tcp", host(one), BTreeSet::new()),
            rule(9, "80/tcp", host(two), BTreeSet::new()),
            rule(10, "8443/tcp", everywhere, BTreeSet::new()),
        ];
        let pair = |(key, value): (Key, Vec<u8>)| KeyValue { key: key.bytes(), value, mod_revision: 1 };
        State::read(pairs.map(pair)).expect("our own")
    }

    /// Proves: A7
    #[test]
    fn a_worker_opens_the_ports_of_its_own_rules_alone() {
        let state = state();
        let part = state.published_part(&fixture::machine(1).id()).expect("four ports");
        let opened = decode_published(part.contents()).expect("our own");
        let shown: Vec<_> =
            opened.iter().map(|open| (open.port.to_string(), open.sources.len(), open.services)).collect();
        let expected = [("53/udp", 1, false), ("80/tcp", 0, false), ("443/tcp", 1, false), ("8443/tcp", 0, true)];
        assert_eq!(shown, expected.map(|(port, sources, services)| (port.to_owned(), sources, services)));
        assert_eq!(state.published_part(&fixture::machine(2).id()), None, "it runs no pods");
        assert_eq!(state.published_part(&fixture::machine(3).id()), None);
    }

    /// Proves: A7
    #[test]
    fn a_part_of_ports_is_read_in_order_alone() {
        let open = |port: &str| {
            let sources = vec!["10.0.0.0/8".to_owned()];
            OpenPortWire { port: port.to_owned(), sources, services: false, address: None }
        };
        let of = |ports| decode_published(&PublishedWire { version: VERSION, ports }.encode_to_vec());
        assert!(of(vec![open("80/tcp"), open("80/udp"), open("443/tcp")]).is_ok());
        for ports in [vec![], vec![open("80/udp"), open("80/tcp")], vec![open("80/tcp"), open("80/tcp")]] {
            assert!(matches!(of(ports), Err(BadRecord::Contradiction(_))));
        }
        assert!(matches!(of(vec![open("80")]), Err(BadRecord::Publish(_))));
        let many = |count| (1..=count).map(|n: usize| open(&format!("{n}/tcp"))).collect();
        assert!(of(many(MOST_OPEN)).is_ok());
        assert!(matches!(of(many(MOST_OPEN + 1)), Err(BadRecord::Contradiction(_))));
    }
}
