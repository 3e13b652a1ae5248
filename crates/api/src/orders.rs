//! Orders on their way from a coordinator to a machine: the parts that it understands, and each that it is to go by.

use cluster::Knowledge;
use cluster::floating::decode_floating;
use cluster::orders::{KnownPart, KnownParts, Order, PartName};
use cluster::part::{MOST_PART_BYTES, PartHash, decode_registries};
use cluster::published::decode_published;
use netpolicy::PolicyPart;

use crate::field_error::{fixed, present};
use crate::{FieldError, Problem, wire};

const _: () = assert!(netpolicy::MOST_BYTES <= MOST_PART_BYTES);

impl From<Knowledge> for wire::PeersRequest {
    fn from(Knowledge { peers, parts }: Knowledge) -> Self {
        let part = |(name, known): (PartName, KnownPart)| wire::KnownPart {
            name: wire::PartName::from(name).into(),
            version: known.version.map(Into::into),
            hash: known.hash.map(|PartHash(hash)| hash.to_vec()),
        };
        Self { known: peers.map(Into::into), parts: parts.into_iter().map(part).collect() }
    }
}

impl TryFrom<wire::PeersRequest> for Knowledge {
    type Error = FieldError;

    /// Parts that this version does not know are passed over: the caller may be newer, and hears nothing of them here.
    fn try_from(request: wire::PeersRequest) -> Result<Self, FieldError> {
        let mut parts = KnownParts::new();
        for part in request.parts {
            let Some(name) = read_name(part.name()) else { continue };
            let hash = part.hash.as_deref().map(|hash| fixed("hash", hash).map(PartHash)).transpose()?;
            let known = KnownPart { version: part.version.map(Into::into), hash };
            if parts.insert(name, known).is_some() {
                return Err(FieldError::new("parts", Problem::Range));
            }
        }
        Ok(Self { peers: request.known.map(Into::into), parts })
    }
}

impl From<PartName> for wire::PartName {
    fn from(name: PartName) -> Self {
        match name {
            PartName::Registries => Self::Registries,
            PartName::Policies => Self::Policies,
            PartName::Published => Self::Published,
            PartName::Floating => Self::Floating,
        }
    }
}

/// Part of this name; none where this version knows no such part.
const fn read_name(name: wire::PartName) -> Option<PartName> {
    match name {
        wire::PartName::Unspecified => None,
        wire::PartName::Registries => Some(PartName::Registries),
        wire::PartName::Policies => Some(PartName::Policies),
        wire::PartName::Published => Some(PartName::Published),
        wire::PartName::Floating => Some(PartName::Floating),
    }
}

impl From<Order> for wire::OrderedPart {
    fn from(Order { name, version, contents }: Order) -> Self {
        Self { name: wire::PartName::from(name).into(), version: Some(version.into()), contents }
    }
}

impl TryFrom<wire::OrderedPart> for Order {
    type Error = FieldError;

    fn try_from(order: wire::OrderedPart) -> Result<Self, FieldError> {
        let name = read_name(order.name()).ok_or_else(|| FieldError::new("name", Problem::Unknown))?;
        if order.contents.as_ref().is_some_and(|contents| contents.len() > MOST_PART_BYTES) {
            return Err(FieldError::new("contents", Problem::Range));
        }
        if let Some(contents) = &order.contents {
            let is_read = match name {
                PartName::Registries => decode_registries(contents).is_ok(),
                PartName::Published => decode_published(contents).is_ok(),
                PartName::Floating => decode_floating(contents).is_ok(),
                PartName::Policies => PolicyPart::read(contents).is_ok(),
            };
            if !is_read {
                return Err(FieldError::new("contents", Problem::Unusable));
            }
        }
        Ok(Self { name, version: present("version", order.version)?.into(), contents: order.contents })
    }
}

#[cfg(test)]
mod tests {
    use cluster::orders::OrderBook;
    use cluster::state::{State, StateVersion};
    use netpolicy::{NodePrefixes, PolicyInputs, compile};

    use super::*;

    const VERSION: StateVersion = StateVersion { recoveries: 1, revision: 9 };

    fn known() -> KnownParts {
        [(PartName::Registries, KnownPart { version: Some(VERSION), hash: Some(PartHash([7; 32])) })].into()
    }

    /// Contents that a coordinator made.
    fn contents() -> Vec<u8> {
        use cluster::key::Key;
        use cluster::record::ChangeCount;
        use cluster::state::KeyValue;
        let (machine, registry) = (sim::cast::creation(model::VPN_PREFIX).machine, sim::cast::registry(1, 1));
        let pair = |key: Key, value| KeyValue { key: key.bytes(), value, mod_revision: 9 };
        let state = State::read([
            pair(Key::Version, ChangeCount(1).encode()),
            pair(Key::Machine(machine.id()), machine.encode()),
            pair(Key::Registry(registry.host()), registry.encode()),
        ]);
        let order = state.expect("our own").order(&machine.id(), &mut OrderBook::default().known());
        order.expect("it works").contents.expect("a registry")
    }

    /// Proves: W5
    #[test]
    fn what_a_machine_knows_crosses_the_wire() {
        for peers in [None, Some(VERSION)] {
            for parts in [KnownParts::new(), OrderBook::default().known(), known()] {
                let knowledge = Knowledge { peers, parts };
                assert_eq!(wire::PeersRequest::from(knowledge.clone()).try_into(), Ok(knowledge));
            }
        }
        let request = wire::PeersRequest::from(Knowledge { peers: None, parts: known() });
        let twice = wire::PeersRequest { parts: [request.parts.clone(), request.parts.clone()].concat(), known: None };
        assert_eq!(Knowledge::try_from(twice).expect_err("twice").field, "parts");
        let mut short = request.clone();
        short.parts[0].hash = Some(vec![1; 31]);
        assert_eq!(Knowledge::try_from(short).expect_err("short").field, "hash");
        let mut newer = request;
        newer.parts.push(wire::KnownPart { name: 77, version: None, hash: None });
        assert_eq!(Knowledge::try_from(newer).map(|known| known.parts), Ok(known()), "of a newer machine");
    }

    /// Proves: W5
    #[test]
    fn an_order_crosses_the_wire_and_is_read_with_care() {
        for contents in [None, Some(contents())] {
            let order = Order { name: PartName::Registries, version: VERSION, contents };
            assert_eq!(wire::OrderedPart::from(order.clone()).try_into(), Ok(order));
        }
        let open = compile(&PolicyInputs::default(), &NodePrefixes::new()).part("m1").bytes.clone();
        for contents in [None, Some(open)] {
            let order = Order { name: PartName::Policies, version: VERSION, contents };
            assert_eq!(wire::OrderedPart::from(order.clone()).try_into(), Ok(order));
        }
        let good = wire::OrderedPart::from(Order { name: PartName::Registries, version: VERSION, contents: None });
        let refused = |order: wire::OrderedPart| Order::try_from(order).expect_err("malformed").to_string();
        assert_eq!(
            refused(wire::OrderedPart { name: 77, ..good.clone() }),
            "field `name` has a value this version does not know"
        );
        assert_eq!(refused(wire::OrderedPart { version: None, ..good.clone() }), "field `version` is missing");
        let of = |contents| wire::OrderedPart { contents: Some(contents), ..good.clone() };
        assert_eq!(refused(of(vec![1])), "field `contents` cannot be used");
        let policies = wire::OrderedPart { name: wire::PartName::Policies.into(), ..of(b"{}".to_vec()) };
        assert_eq!(refused(policies), "field `contents` cannot be used");
        assert_eq!(refused(of(vec![1; MOST_PART_BYTES + 1])), "field `contents` is out of range");
    }
}
