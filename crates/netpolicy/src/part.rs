//! Part of a machine: what its own pods may say and hear. A coordinator writes it, the machine reads it, and takes nothing that a
//! coordinator would not have written.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::address::{AddressSet, PortSet};

/// Most bytes of a part: a word of the stream that tells it has room for it, and the machine keeps it.
pub const MOST_BYTES: usize = (4 << 20) - 1024;

/// Connections that the pods of one machine may have. In a cluster without policies these are all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyPart {
    /// Absent where the cluster has no policy: then every pod may say and hear everything.
    pub(crate) judged: Option<JudgedPods>,
}

/// Pods of a machine in a cluster that has policies. A pod that is missing gets no new connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JudgedPods {
    pub(crate) pods: BTreeMap<Ipv4Addr, PodChains>,
    /// Chain for each set of policies that some pod has.
    pub(crate) chains: Vec<Chain>,
    /// Addresses that chains name by their place here.
    pub(crate) sets: Vec<AddressSet>,
}

/// Chains of a pod by their places. A direction in which no policy selects the pod has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PodChains {
    pub(crate) ingress: Option<u32>,
    pub(crate) egress: Option<u32>,
}

/// Connections that pass: those that one of these allows.
pub(crate) type Chain = Vec<Allowed>;

/// Connections with some peers, to some ports.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Allowed {
    pub(crate) peers: Peers,
    pub(crate) ports: Ports,
}

/// Other ends of a connection: all, or those of a set by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Peers {
    All,
    Set(u32),
}

/// Ports at a connection's destination: all, with protocols that have none, or some.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Ports {
    All,
    Of(PortSet),
}

/// Why bytes are no part: a machine keeps the one that it has.
#[derive(Debug, thiserror::Error)]
pub enum PolicyPartError {
    /// More than a part may have.
    #[error("a policy part of {0} bytes, where {MOST_BYTES} are the most")]
    Size(usize),
    /// The bytes are no JSON of a part.
    #[error("read a policy part")]
    Unreadable(#[from] serde_json::Error),
    /// A chain or set is named that the part does not have.
    #[error("a policy part that names what it does not have")]
    Missing,
    /// The same can be said in another way, which is the right one.
    #[error("a policy part that is not in its one form")]
    Form,
}

impl PolicyPart {
    /// Part in its one form.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("its keys are texts, and it writes to memory")
    }

    /// Reads a part that a coordinator has written.
    ///
    /// # Errors
    /// [`PolicyPartError`].
    pub fn read(bytes: &[u8]) -> Result<Self, PolicyPartError> {
        if bytes.len() > MOST_BYTES {
            return Err(PolicyPartError::Size(bytes.len()));
        }
        let part: Self = serde_json::from_slice(bytes)?;
        if let Some(judged) = &part.judged {
            judged.check()?;
        }
        if part.bytes() == bytes { Ok(part) } else { Err(PolicyPartError::Form) }
    }
}

impl JudgedPods {
    fn check(&self) -> Result<(), PolicyPartError> {
        let is_there = |place: u32, length: usize| usize::try_from(place).is_ok_and(|place| place < length);
        let chains = self.pods.values().flat_map(|pod| [pod.ingress, pod.egress]).flatten();
        let allowed = || self.chains.iter().flatten();
        let sets = allowed().filter_map(|allowed| match allowed.peers {
            Peers::All => None,
            Peers::Set(place) => Some(place),
        });
        let (chain_count, set_count) = (self.chains.len(), self.sets.len());
        if !chains.into_iter().all(|place| is_there(place, chain_count))
            || !sets.into_iter().all(|place| is_there(place, set_count))
        {
            return Err(PolicyPartError::Missing);
        }
        let ports_are_in_order = allowed().all(|allowed| match &allowed.ports {
            Ports::All => true,
            Ports::Of(ports) => !ports.is_empty() && ports.is_in_order(),
        });
        let sets_are_in_order = self.sets.iter().all(|set| !set.is_empty() && !set.is_all() && set.is_in_order());
        if ports_are_in_order && sets_are_in_order { Ok(()) } else { Err(PolicyPartError::Form) }
    }
}

/// Most bytes that the beginning and end of a part take.
pub(crate) const FRAME_BYTES: usize = 64;
/// Most bytes that a pod takes.
pub(crate) const POD_BYTES: usize = 64;

/// Most bytes that a set takes in a part.
pub(crate) fn set_bytes(set: &AddressSet) -> usize {
    4 + 24 * set.ranges().len()
}

/// Most bytes that a chain takes in a part.
pub(crate) fn chain_bytes(chain: &[Allowed]) -> usize {
    let ports = |allowed: &Allowed| match &allowed.ports {
        Ports::All => 0,
        Ports::Of(ports) => ports.ranges().len(),
    };
    4 + chain.iter().map(|allowed| 56 + 24 * ports(allowed)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Protocol;

    fn part() -> PolicyPart {
        let ports = Ports::Of(PortSet::of(vec![(Protocol::Sctp, 10_000, 65_535)]));
        let chain = vec![Allowed { peers: Peers::Set(0), ports }];
        let pods = [(Ipv4Addr::new(10, 244, 1, 2), PodChains { ingress: Some(0), egress: None })];
        let sets = vec![AddressSet::of(vec![(4_000_000_000, 4_000_000_001)])];
        PolicyPart { judged: Some(JudgedPods { pods: pods.into(), chains: vec![chain], sets }) }
    }

    /// Proves: W2
    #[test]
    fn a_part_is_read_in_its_one_form_alone() {
        let bytes = part().bytes();
        let text = String::from_utf8(bytes.clone()).expect("it is text");
        assert_eq!(PolicyPart::read(&bytes).expect("it was just written"), part());
        for (from, to) in [
            ("\"ingress\":0", "\"ingress\":1"),
            ("{\"Set\":0}", "{\"Set\":1}"),
            ("[\"Sctp\",10000,65535]", ""),
            ("10000,65535", "10000,9999"),
            ("[[4000000000,4000000001]]", "[]"),
            ("[[4000000000,4000000001]]", "[[0,4294967295]]"),
            ("4000000001]", "4000000001],[4000000002,4000000003]"),
            ("\"egress\":null", "\"egress\":null,\"other\":1"),
            ("\"egress\":null", "\"egress\": null"),
            (",\"egress\":null", ""),
        ] {
            let other = text.replace(from, to);
            assert!(other != text && PolicyPart::read(other.as_bytes()).is_err(), "{other}");
        }
        let long = vec![b' '; MOST_BYTES + 1];
        assert!(matches!(PolicyPart::read(&long), Err(PolicyPartError::Size(_))));
    }

    #[test]
    fn bytes_that_a_part_is_said_to_take_are_the_most() {
        let part = part();
        let judged = part.judged.as_ref().expect("it has pods");
        let most = FRAME_BYTES + POD_BYTES + chain_bytes(&judged.chains[0]) + set_bytes(&judged.sets[0]);
        let real = part.bytes().len();
        assert!(real <= most && most < real + 100, "{real} of {most}");
    }
}
