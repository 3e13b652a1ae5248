//! Chains of pods: which policies select a pod, and what they allow together.
//!
//! ```text
//!   policy ─► pods that it selects ─► pod and direction: its policies ─► one chain for each set of policies
//!          └► rules: peers as one set of addresses, ports as ranges ──────┘
//! ```
//! A named port is looked up where it is heard: of ingress at the pod itself, of egress at each peer.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use crate::address::{AddressSet, NoPrefix, PortRange, PortSet, Protocol, Range, prefix};
use crate::index::{IndexedPod, PodIndex, Scope};
use crate::notice::{NoticeReason, PolicyNotice};
use crate::object::{IpBlock, NetworkPolicy, PolicyPeer, PolicyPort, PortName, Selector};
use crate::part::{Allowed, Chain, Peers, PodChains, Ports};

/// Chains of all pods. Sets are named by their place among all sets.
#[derive(Debug, Default)]
pub(crate) struct CompiledChains {
    /// Chains of each pod, by its number in the index.
    pub(crate) pods: Vec<PodChains>,
    chains: Vec<Chain>,
    sets: Vec<Rc<AddressSet>>,
}

impl CompiledChains {
    pub(crate) fn chain(&self, place: u32) -> &Chain {
        &self.chains[at(place)]
    }

    pub(crate) fn set(&self, place: u32) -> &AddressSet {
        &self.sets[at(place)]
    }
}

/// Chains of all pods under policies that are in the order of their names.
pub(crate) fn chains(index: &PodIndex<'_>, policies: &[&NetworkPolicy]) -> (CompiledChains, Vec<PolicyNotice>) {
    let mut compiler = Compiler {
        index,
        compiled: CompiledChains::default(),
        places: Places::default(),
        selected: HashMap::new(),
        policy: ("", ""),
        notices: Vec::new(),
    };
    let compiled: Vec<CompiledPolicy<'_>> = policies.iter().map(|policy| compiler.policy(policy)).collect();
    let mut of_pods = vec![(Vec::new(), Vec::new()); index.pods().len()];
    for (number, policy) in compiled.iter().enumerate() {
        for pod in &policy.pods {
            let (ingress, egress) = &mut of_pods[*pod];
            ingress.extend(policy.ingress.as_ref().map(|_| number));
            egress.extend(policy.egress.as_ref().map(|_| number));
        }
    }
    let (mut heard, mut said) = (BTreeMap::new(), BTreeMap::new());
    for (pod, (ingress, egress)) in index.pods().iter().zip(of_pods) {
        let rules = || ingress.iter().filter_map(|number| compiled[*number].ingress.as_ref()).flatten();
        let numbers: Vec<Option<u16>> = rules().flat_map(|rule| rule.numbers(pod)).collect();
        let ingress = (!ingress.is_empty()).then(|| {
            let chain = || compiler.places.chain(&mut compiler.compiled, rules().filter_map(|rule| rule.at(pod)));
            *heard.entry((ingress.clone(), numbers)).or_insert_with(chain)
        });
        let egress = (!egress.is_empty()).then(|| {
            let rules = egress.iter().filter_map(|number| compiled[*number].egress.as_ref()).flatten().cloned();
            *said.entry(egress.clone()).or_insert_with(|| compiler.places.chain(&mut compiler.compiled, rules))
        });
        compiler.compiled.pods.push(PodChains { ingress, egress });
    }
    (compiler.compiled, compiler.notices)
}

/// Policy with the pods that it selects, and its rules in the directions in which it isolates them.
struct CompiledPolicy<'a> {
    pods: Vec<usize>,
    ingress: Option<Vec<HeardRule<'a>>>,
    egress: Option<Vec<Allowed>>,
}

/// Rule of ingress before the pod's own named ports are looked up.
struct HeardRule<'a> {
    peers: Peers,
    /// Absent where the rule allows all ports.
    ports: Option<RulePorts<'a>>,
}

/// Ports of a rule: ranges, and names.
#[derive(Default)]
struct RulePorts<'a> {
    ranges: Vec<PortRange>,
    named: Vec<(&'a str, Protocol)>,
}

impl HeardRule<'_> {
    /// Numbers that the pod gives the ports that are named.
    fn numbers(&self, pod: &IndexedPod<'_>) -> impl Iterator<Item = Option<u16>> {
        self.ports.iter().flat_map(|ports| &ports.named).map(|named| pod.ports.get(named).copied())
    }

    fn at(&self, pod: &IndexedPod<'_>) -> Option<Allowed> {
        let Some(ports) = &self.ports else { return Some(Allowed { peers: self.peers, ports: Ports::All }) };
        let named = ports.named.iter().zip(self.numbers(pod));
        let named = named.filter_map(|((_, protocol), number)| Some((*protocol, number?, number?)));
        allowed(self.peers, ports.ranges.iter().copied().chain(named).collect())
    }
}

/// Connections to these ports; none where there are none.
fn allowed(peers: Peers, ports: Vec<PortRange>) -> Option<Allowed> {
    let ports = PortSet::of(ports);
    (!ports.is_empty()).then_some(Allowed { peers, ports: Ports::Of(ports) })
}

/// Chains and sets by their content.
#[derive(Default)]
struct Places {
    chains: HashMap<Chain, u32>,
    sets: HashMap<Rc<AddressSet>, u32>,
}

impl Places {
    fn chain(&mut self, compiled: &mut CompiledChains, rules: impl Iterator<Item = Allowed>) -> u32 {
        const EVERYTHING: Allowed = Allowed { peers: Peers::All, ports: Ports::All };
        let mut seen = HashSet::new();
        let mut chain: Chain = rules.filter(|rule| seen.insert(rule.clone())).collect();
        if chain.contains(&EVERYTHING) {
            chain = vec![EVERYTHING];
        }
        *self.chains.entry(chain).or_insert_with_key(|chain| {
            compiled.chains.push(chain.clone());
            number(compiled.chains.len() - 1)
        })
    }

    /// Peers that are these addresses; none where there are none.
    fn peers(&mut self, compiled: &mut CompiledChains, set: AddressSet) -> Option<Peers> {
        if set.is_empty() || set.is_all() {
            return (!set.is_empty()).then_some(Peers::All);
        }
        let place = self.sets.entry(Rc::new(set)).or_insert_with_key(|set| {
            compiled.sets.push(Rc::clone(set));
            number(compiled.sets.len() - 1)
        });
        Some(Peers::Set(*place))
    }
}

/// Policies on their way to chains.
struct Compiler<'a> {
    index: &'a PodIndex<'a>,
    compiled: CompiledChains,
    places: Places,
    /// Addresses of pods by what selects them.
    selected: HashMap<(Scope<'a>, &'a Selector), Rc<Vec<Range>>>,
    /// Namespace and name of the policy that is compiled.
    policy: (&'a str, &'a str),
    notices: Vec<PolicyNotice>,
}

/// Selector of a peer that names none: every pod of its namespaces.
static EVERY: Selector = Selector::every();

impl<'a> Compiler<'a> {
    fn notice(&mut self, reason: NoticeReason) {
        let (namespace, name) = self.policy;
        self.notices.push(PolicyNotice { namespace: namespace.to_owned(), name: name.to_owned(), reason });
    }

    /// Whether a selector is understood; one that is not is noticed.
    fn knows(&mut self, selector: &Selector) -> bool {
        let is_known = selector.is_known();
        if !is_known {
            self.notice(NoticeReason::Operator);
        }
        is_known
    }

    fn policy(&mut self, policy: &'a NetworkPolicy) -> CompiledPolicy<'a> {
        let (metadata, spec) = (&policy.metadata, &policy.spec);
        self.policy = (&metadata.namespace, &metadata.name);
        let selector = if self.knows(&spec.pod_selector) { &spec.pod_selector } else { &EVERY };
        let pods = self.index.select(Scope::One(&metadata.namespace), selector);
        let (mut hears, mut says) =
            (spec.policy_types.is_empty(), spec.policy_types.is_empty() && !spec.egress.is_empty());
        for kind in &spec.policy_types {
            match kind.as_str() {
                "Ingress" => hears = true,
                "Egress" => says = true,
                other => {
                    (hears, says) = (true, true);
                    self.notice(NoticeReason::PolicyType(other.to_owned()));
                }
            }
        }
        let mut ingress = Vec::new();
        for rule in spec.ingress.iter().filter(|_| hears) {
            let (peers, ports) = (self.peers(&rule.peers), self.ports(&rule.ports));
            ingress.extend(peers.map(|peers| HeardRule { peers, ports }));
        }
        let mut egress = Vec::new();
        for rule in spec.egress.iter().filter(|_| says) {
            let (peers, ports) = (self.peers(&rule.peers), self.ports(&rule.ports));
            if let Some(peers) = peers {
                self.said(peers, ports, &mut egress);
            }
        }
        CompiledPolicy { pods, ingress: hears.then_some(ingress), egress: says.then_some(egress) }
    }

    /// Connections that a rule of egress allows.
    fn said(&mut self, peers: Peers, ports: Option<RulePorts<'_>>, egress: &mut Vec<Allowed>) {
        let Some(RulePorts { ranges, named }) = ports else {
            egress.push(Allowed { peers, ports: Ports::All });
            return;
        };
        egress.extend(allowed(peers, ranges));
        for (name, protocol) in named {
            let is_peer = |address: u32| match peers {
                Peers::All => true,
                Peers::Set(place) => self.compiled.set(place).contains(address),
            };
            let mut by_number = BTreeMap::<u16, Vec<Range>>::new();
            for (address, number) in self.index.ports(name, protocol) {
                if is_peer(*address) {
                    by_number.entry(*number).or_default().push((*address, *address));
                }
            }
            for (number, addresses) in by_number {
                let peers = self.places.peers(&mut self.compiled, AddressSet::of(addresses));
                egress.extend(peers.and_then(|peers| allowed(peers, vec![(protocol, number, number)])));
            }
        }
    }

    /// Peers of a rule; none where they are nobody.
    fn peers(&mut self, peers: &'a [PolicyPeer]) -> Option<Peers> {
        if peers.is_empty() {
            return Some(Peers::All);
        }
        let mut ranges = Vec::new();
        for peer in peers {
            match (&peer.ip_block, &peer.namespace_selector, &peer.pod_selector) {
                (Some(block), None, None) => ranges.extend(self.block(block).ranges()),
                (None, None, Some(pods)) => ranges.extend(self.addresses(Scope::One(self.policy.0), pods).iter()),
                (None, Some(namespaces), pods) => {
                    let pods = pods.as_ref().unwrap_or(&EVERY);
                    if self.knows(namespaces) {
                        ranges.extend(self.addresses(Scope::Selected(namespaces), pods).iter());
                    }
                }
                (None, None, None) | (Some(_), _, _) => self.notice(NoticeReason::Peer),
            }
        }
        self.places.peers(&mut self.compiled, AddressSet::of(ranges))
    }

    /// Addresses of the pods that are selected.
    fn addresses(&mut self, scope: Scope<'a>, selector: &'a Selector) -> Rc<Vec<Range>> {
        if !self.knows(selector) {
            return Rc::default();
        }
        let index = self.index;
        let select = || {
            let pods = index.select(scope, selector).into_iter().map(|pod| &index.pods()[pod]);
            Rc::new(pods.flat_map(|pod| &pod.addresses).map(|address| (*address, *address)).collect())
        };
        Rc::clone(self.selected.entry((scope, selector)).or_insert_with(select))
    }

    fn block(&mut self, IpBlock { cidr, except }: &IpBlock) -> AddressSet {
        let mut read = |text: &String| {
            prefix(text).inspect_err(|error| {
                self.notice(match error {
                    NoPrefix::Ipv6 => NoticeReason::Ipv6(text.clone()),
                    NoPrefix::Unreadable => NoticeReason::Prefix(text.clone()),
                });
            })
        };
        let (all, except) = (read(cidr), except.iter().map(&mut read).collect::<Vec<_>>());
        // What is to be left out is not known, so all of it is.
        let is_known = !except.contains(&Err(NoPrefix::Unreadable));
        let except = AddressSet::of(except.into_iter().flatten().collect());
        AddressSet::of(all.into_iter().filter(|_| is_known).collect()).without(&except)
    }

    /// Ports of a rule; absent where it allows all.
    fn ports(&mut self, ports: &'a [PolicyPort]) -> Option<RulePorts<'a>> {
        if ports.is_empty() {
            return None;
        }
        let mut read = RulePorts::default();
        for PolicyPort { protocol, port, end_port } in ports {
            match (Protocol::named(protocol), port, end_port) {
                (Some(protocol), None, None) => read.ranges.push((protocol, 0, u16::MAX)),
                (Some(protocol), Some(PortName::Number(first)), last) if last.is_none_or(|last| last >= *first) => {
                    read.ranges.push((protocol, *first, last.unwrap_or(*first)));
                }
                (Some(protocol), Some(PortName::Name(name)), None) => read.named.push((name, protocol)),
                (None, ..) | (Some(_), None | Some(_), Some(_)) | (Some(_), Some(PortName::Number(_)), None) => {
                    self.notice(NoticeReason::Port(protocol.clone()));
                }
            }
        }
        Some(read)
    }
}

fn at(place: u32) -> usize {
    usize::try_from(place).expect("it is a place of memory")
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("each takes bytes of a policy, which are fewer")
}
