//! Pods by what selectors ask for, so that a policy looks at few of them. Knows no policy.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

use kubeapi::ObjectMeta;
use model::Ipv4Prefix;

use crate::address::Protocol;
use crate::notice::{NoticeReason, PolicyNotice};
use crate::object::{Labels, PolicyNamespace, PolicyPod, Selector};

/// Prefixes that machines have for their pods, by the names of their nodes.
pub type NodePrefixes = BTreeMap<String, Ipv4Prefix>;

/// Pod that has addresses of its own, which its machine may have given it.
#[derive(Debug)]
pub(crate) struct IndexedPod<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) node: &'a str,
    pub(crate) addresses: Vec<u32>,
    /// Numbers of the ports that have a name; the first of a name counts.
    pub(crate) ports: BTreeMap<(&'a str, Protocol), u16>,
    labels: &'a Labels,
}

/// Namespaces in which pods are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scope<'a> {
    One(&'a str),
    Selected(&'a Selector),
}

/// Pods of a cluster, by number.
#[derive(Debug)]
pub(crate) struct PodIndex<'a> {
    pods: Vec<IndexedPod<'a>>,
    by_namespace: BTreeMap<&'a str, Vec<usize>>,
    by_label: HashMap<(&'a str, &'a str), Vec<usize>>,
    /// Addresses and numbers of each named port.
    by_port: HashMap<(&'a str, Protocol), Vec<(u32, u16)>>,
    namespaces: BTreeMap<&'a str, &'a Labels>,
}

impl<'a> PodIndex<'a> {
    /// Index of the pods on these nodes, and what of pods does not count.
    pub(crate) fn of(
        pods: &[&'a PolicyPod],
        namespaces: &[&'a PolicyNamespace],
        nodes: &NodePrefixes,
    ) -> (Self, Vec<PolicyNotice>) {
        let mut foreign = Vec::new();
        let mut pods: Vec<IndexedPod<'a>> =
            pods.iter().filter_map(|pod| IndexedPod::of(pod, nodes, &mut foreign)).collect();
        foreign.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        pods.sort_by(|one, other| (one.namespace, one.name).cmp(&(other.namespace, other.name)));
        let (mut by_namespace, mut by_label) = (BTreeMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        let mut by_port = HashMap::<_, Vec<_>>::new();
        for (number, pod) in pods.iter().enumerate() {
            by_namespace.entry(pod.namespace).or_default().push(number);
            for (key, value) in pod.labels {
                by_label.entry((key.as_str(), value.as_str())).or_default().push(number);
            }
            for (name, port) in &pod.ports {
                by_port.entry(*name).or_default().extend(pod.addresses.iter().map(|address| (*address, *port)));
            }
        }
        let namespaces = namespaces.iter().map(|it| (it.metadata.name.as_str(), &it.metadata.labels)).collect();
        (Self { pods, by_namespace, by_label, by_port, namespaces }, foreign)
    }

    pub(crate) fn pods(&self) -> &[IndexedPod<'a>] {
        &self.pods
    }

    /// Addresses of all pods that have a port of this name, with its number.
    pub(crate) fn ports<'s>(&'s self, name: &'s str, protocol: Protocol) -> &'s [(u32, u16)] {
        self.by_port.get(&(name, protocol)).map_or(&[], Vec::as_slice)
    }

    /// Numbers of the pods that are selected, in order.
    pub(crate) fn select(&self, scope: Scope<'_>, selector: &Selector) -> Vec<usize> {
        let namespaces: BTreeSet<&str> = match scope {
            Scope::One(namespace) => [namespace].into(),
            Scope::Selected(by) => {
                self.namespaces.iter().filter(|(_, labels)| by.selects(labels)).map(|(name, _)| *name).collect()
            }
        };
        let lists: Vec<&[usize]> = namespaces.iter().map(|it| list(self.by_namespace.get(it))).collect();
        let labelled = selector.match_labels.iter().map(|(key, value)| list(self.by_label.get(&(key.as_str(), value))));
        let fewest = labelled.min_by_key(|numbers| numbers.len());
        let all: usize = lists.iter().map(|numbers| numbers.len()).sum();
        let is_selected = |number: &usize| selector.selects(self.pods[*number].labels);
        match fewest.filter(|numbers| numbers.len() < all) {
            Some(numbers) => {
                let is_there = |number: &usize| namespaces.contains(self.pods[*number].namespace);
                numbers.iter().copied().filter(|number| is_there(number) && is_selected(number)).collect()
            }
            None => lists.into_iter().flatten().copied().filter(is_selected).collect(),
        }
    }
}

fn list(numbers: Option<&Vec<usize>>) -> &[usize] {
    numbers.map_or(&[], Vec::as_slice)
}

impl<'a> IndexedPod<'a> {
    /// A worker writes the state of its pods itself, so an address counts within the prefix that the cluster gave that worker.
    fn of(pod: &'a PolicyPod, nodes: &NodePrefixes, foreign: &mut Vec<PolicyNotice>) -> Option<Self> {
        let own = nodes.get(&pod.spec.node_name)?;
        let (inside, outside): (Vec<Ipv4Addr>, Vec<Ipv4Addr>) =
            pod.addresses().into_iter().partition(|address| own.contains(*address));
        foreign.extend(outside.into_iter().map(|address| PolicyNotice {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            reason: NoticeReason::ForeignAddress(address),
        }));
        let addresses: Vec<u32> = inside.into_iter().map(Ipv4Addr::to_bits).collect();
        let mut ports = BTreeMap::new();
        for (name, protocol, number) in pod.named_ports() {
            ports.entry((name, protocol)).or_insert(number);
        }
        let ObjectMeta { name, namespace, labels, .. } = &pod.metadata;
        let node = pod.spec.node_name.as_str();
        (!addresses.is_empty()).then_some(Self { namespace, name, node, addresses, ports, labels })
    }
}
