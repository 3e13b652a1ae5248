//! From objects to parts: what each machine is told of the chains that its pods have.
//!
//! ```text
//!   objects ─► chains of all pods (`chain`) ─► machine ─► its pods, by address ─► chains and sets that they need, as far as they fit
//! ```

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

use keys::derive::sha256;

use crate::chain::{CompiledChains, chains};
pub use crate::index::NodePrefixes;
use crate::index::{IndexedPod, PodIndex};
use crate::notice::{NoticeReason, PolicyNotice};
use crate::object::{KubernetesInventory, NetworkPolicy, PolicyNamespace, PolicyPod};
use crate::part::{
    Allowed, FRAME_BYTES, JudgedPods, MOST_BYTES, POD_BYTES, Peers, PodChains, PolicyPart, chain_bytes, set_bytes,
};

/// Objects of a cluster that policies are about, in any order.
#[derive(Debug, Clone, Default)]
pub struct PolicyInputs<'a> {
    /// All pods.
    pub pods: Vec<&'a PolicyPod>,
    /// All namespaces.
    pub namespaces: Vec<&'a PolicyNamespace>,
    /// All policies.
    pub policies: Vec<&'a NetworkPolicy>,
}

/// Parts of all machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledPolicies {
    parts: BTreeMap<String, EncodedPart>,
    /// Part of every machine that has no pod.
    elsewhere: EncodedPart,
    /// Entries and pods that were left out, in the order of their names.
    pub notices: Vec<PolicyNotice>,
}

/// Part as it travels. A machine that has one of this hash has this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPart {
    /// SHA-256 of the bytes.
    pub hash: [u8; 32],
    /// Bytes for [`PolicyPart::read`], at most [`MOST_BYTES`].
    pub bytes: Vec<u8>,
}

impl<'a> From<&'a KubernetesInventory> for PolicyInputs<'a> {
    fn from(all: &'a KubernetesInventory) -> Self {
        let KubernetesInventory { pods, namespaces, policies } = all;
        Self {
            pods: pods.iter().collect(),
            namespaces: namespaces.iter().collect(),
            policies: policies.iter().collect(),
        }
    }
}

impl CompiledPolicies {
    /// Part of the machine whose node has this name.
    #[must_use]
    pub fn part(&self, node: &str) -> &EncodedPart {
        self.parts.get(node).unwrap_or(&self.elsewhere)
    }
}

impl EncodedPart {
    fn of(part: &PolicyPart) -> Self {
        let bytes = part.bytes();
        Self { hash: sha256(&[&bytes]), bytes }
    }
}

/// Compiles the policies of a cluster whose machines have these prefixes.
#[must_use]
pub fn compile(inventory: &PolicyInputs<'_>, nodes: &NodePrefixes) -> CompiledPolicies {
    within(inventory, nodes, MOST_BYTES)
}

/// Compiles parts of at most so many bytes.
fn within(inventory: &PolicyInputs<'_>, prefixes: &NodePrefixes, most: usize) -> CompiledPolicies {
    let mut policies = inventory.policies.clone();
    if policies.is_empty() {
        let elsewhere = EncodedPart::of(&PolicyPart::default());
        return CompiledPolicies { parts: BTreeMap::new(), elsewhere, notices: Vec::new() };
    }
    policies.sort_by_key(|policy| (&policy.metadata.namespace, &policy.metadata.name));
    let (index, foreign) = PodIndex::of(&inventory.pods, &inventory.namespaces, prefixes);
    let (chains, mut notices) = chains(&index, &policies);
    notices.extend(foreign);
    let mut nodes: BTreeMap<&str, BTreeMap<u32, Vec<usize>>> = BTreeMap::new();
    for (number, pod) in index.pods().iter().enumerate() {
        let addresses = nodes.entry(pod.node).or_default();
        for address in &pod.addresses {
            addresses.entry(*address).or_default().push(number);
        }
    }
    let mut parts = BTreeMap::new();
    for (node, addresses) in &nodes {
        let mut part = PartWriter::of(&chains, most);
        let mut closed = BTreeMap::new();
        for (address, pods) in addresses {
            match pods[..] {
                [pod] if part.add(*address, pod) => {}
                [pod] => drop(closed.insert(pod, NoticeReason::Size { node: (*node).to_owned() })),
                _ => closed
                    .extend(pods.iter().map(|pod| (*pod, NoticeReason::SharedAddress(Ipv4Addr::from_bits(*address))))),
            }
        }
        notices.extend(closed.into_iter().map(|(pod, reason)| {
            let IndexedPod { namespace, name, .. } = index.pods()[pod];
            PolicyNotice { namespace: namespace.to_owned(), name: name.to_owned(), reason }
        }));
        parts.insert((*node).to_owned(), EncodedPart::of(&PolicyPart { judged: Some(part.judged) }));
    }
    let elsewhere = EncodedPart::of(&PolicyPart { judged: Some(JudgedPods::default()) });
    CompiledPolicies { parts, elsewhere, notices }
}

/// Part of one machine, as it grows. Chains and sets have their numbers in order of first use, so that it is the same whatever
/// other machines have.
struct PartWriter<'a> {
    policies: &'a CompiledChains,
    most: usize,
    bytes: usize,
    judged: JudgedPods,
    chains: HashMap<u32, u32>,
    sets: HashMap<u32, u32>,
}

impl<'a> PartWriter<'a> {
    fn of(policies: &'a CompiledChains, most: usize) -> Self {
        let judged = JudgedPods::default();
        Self { policies, most, bytes: FRAME_BYTES, judged, chains: HashMap::new(), sets: HashMap::new() }
    }

    /// Adds a pod with all that it needs; whether that fits.
    fn add(&mut self, address: u32, pod: usize) -> bool {
        let PodChains { ingress, egress } = self.policies.pods[pod];
        let mut chains: Vec<u32> = [ingress, egress].into_iter().flatten().collect();
        chains.dedup();
        chains.retain(|chain| !self.chains.contains_key(chain));
        let mut sets = Vec::new();
        for allowed in chains.iter().flat_map(|chain| self.policies.chain(*chain)) {
            if let Peers::Set(set) = allowed.peers
                && !self.sets.contains_key(&set)
                && !sets.contains(&set)
            {
                sets.push(set);
            }
        }
        let needed = chains.iter().map(|chain| chain_bytes(self.policies.chain(*chain))).sum::<usize>()
            + sets.iter().map(|set| set_bytes(self.policies.set(*set))).sum::<usize>();
        if self.bytes + POD_BYTES + needed > self.most {
            return false;
        }
        self.bytes += POD_BYTES + needed;
        for set in sets {
            self.sets.insert(set, place(self.judged.sets.len()));
            self.judged.sets.push(self.policies.set(set).clone());
        }
        for chain in chains {
            self.chains.insert(chain, place(self.judged.chains.len()));
            let told = self.policies.chain(chain).iter().map(|allowed| Allowed {
                peers: match allowed.peers {
                    Peers::All => Peers::All,
                    Peers::Set(set) => Peers::Set(self.sets[&set]),
                },
                ports: allowed.ports.clone(),
            });
            self.judged.chains.push(told.collect());
        }
        let told = |chain: Option<u32>| chain.map(|chain| self.chains[&chain]);
        let chains = PodChains { ingress: told(ingress), egress: told(egress) };
        self.judged.pods.insert(Ipv4Addr::from_bits(address), chains);
        true
    }
}

fn place(length: usize) -> u32 {
    u32::try_from(length).expect("each takes bytes of a part, which are fewer")
}

#[cfg(test)]
mod tests;
