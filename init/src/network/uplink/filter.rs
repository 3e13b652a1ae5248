//! Filter of packets by the link that they come in by, before anybody translates their destination: table `inet cairn`. Default is to
//! drop.
//!
//! ```text
//!   prerouting, -300: what everybody may send is not tracked
//!   prerouting, -150: uplink  what is open to everybody, or published; what answers the machine  ─► marked
//!                     pod     own source, no loopback, no metadata address     ─► marked
//!                     wg0     answers, the own VPN address, the own pods       ─► marked; not their gateway; else as it is
//!   rules of `uplink`: a marked packet may be routed, all others by the table there
//!   prerouting, output, -105: the addresses of `kubernetes` and `kube-dns` lead to the machine's own balancer and resolver, our own
//!                     ports and loopback to themselves; on a control plane the apiserver's address of `cairn-metrics` leads to its own
//!                     PID 1
//!   input, forward:   ports of ours on VPN addresses, closed to pods wherever the pod is
//!   postrouting:      a pod's packet leaves by an uplink with the machine's address
//! ```
//! A packet that nf_tables translates later (kube-proxy does in prerouting, at -100) was let in by its first destination, so a port that
//! is opened by a service is no way in by an uplink. Connections that began at an uplink are judged packet by packet: a port that is
//! published no longer is closed to those that are open, too. A port that is published for services is let in, and dropped at `input`
//! where no service has led it elsewhere.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::iter;

use cluster::published::OpenPort;
use model::{
    Assignment, ETCD_CLIENT_PORT, ETCD_PEER_PORT, KUBELET_PORT, KUBERNETES_API_PORT, KubernetesRole, METRICS_PORT,
    PUBLIC_API_PORT, Prefixes, UplinkPort, VPN_API_PORT, VPN_PORT,
};

/// Bit of a packet's mark that says that it may be routed.
pub(super) const ROUTED: u32 = 1;
/// Ports of ours at VPN addresses: etcd's two, the members' API and the Kubernetes API. A pod reaches none of them.
const CLOSED_TO_PODS: [u16; 4] = [ETCD_CLIENT_PORT, ETCD_PEER_PORT, VPN_API_PORT, KUBERNETES_API_PORT];
/// Beginning of the names that the CNI plugin `ptp` gives the links of pods.
const POD_LINKS: &str = "veth*";
const MESH: &str = "wg0";
/// Port of the services `kubernetes`, which the apiserver makes for itself, and `cairn-metrics`.
const HTTPS: u16 = 443;
/// Port of the service `kube-dns`, and of the machine's own resolver.
const DNS: u16 = 53;
/// Destinations that no pod has: loopback, the addresses at which clouds tell a machine's secrets, multicast and above.
const NOT_FOR_PODS: [&str; 3] = [LOOPBACK, "169.254.0.0/16", "224.0.0.0/3"];
const LOOPBACK: &str = "127.0.0.0/8";

/// Filter as it should be on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter<'a> {
    /// Names of the links that lead outside.
    pub(super) uplinks: Vec<&'a str>,
    /// Prefixes of the machine's cluster, once it is known.
    pub(super) prefixes: Option<Prefixes>,
    /// Place of the machine in its cluster, once it is a member.
    pub(super) assignment: Option<&'a Assignment>,
    /// Ports that owners have opened on the links that lead outside.
    pub(super) published: &'a [OpenPort],
}

impl Filter<'_> {
    /// The table as a text in nftables' language, which replaces the one of before at once.
    pub(super) fn text(&self) -> String {
        let mut table = Table::anew();
        table.hook("untracked", ("filter", "prerouting", -300), "accept");
        // Whoever knocks costs no memory: what is open to everybody passes without what would be known of its connection.
        for open in [tcp_open("dport"), udp_open("dport"), "icmp type echo-request".to_owned()] {
            table.rules("untracked", self.outside(&format!("{open} notrack")));
        }
        table.hook("untracked-answers", ("filter", "output", -300), "accept");
        table.rules("untracked-answers", [tcp_open("sport"), udp_open("sport")].map(|open| format!("{open} notrack")));

        table.chain("uplink");
        table.chain("mesh");
        table.chain("pod");
        table.hook("prerouting", ("filter", "prerouting", -150), "drop");
        table.rules("prerouting", ["iifname lo accept".to_owned(), "meta nfproto ipv6 drop".to_owned()]);
        if let Some(prefixes) = self.prefixes {
            let inside = listed(&prefixes.rows().map(|(prefix, _)| prefix));
            table.rules("prerouting", self.outside(&format!("ip daddr {inside} drop")));
            table.rules("prerouting", self.outside(&format!("ip saddr {inside} drop")));
        }
        table.rules("prerouting", self.outside(&format!("ip daddr {LOOPBACK} drop")));
        table.rules("prerouting", self.outside("fib daddr type local jump uplink"));
        table.rules("prerouting", [format!("iifname {MESH} jump mesh"), format!("iifname {POD_LINKS} jump pod")]);
        table.rules(
            "uplink",
            [
                passes("ct direction reply ct state established,related"),
                passes(&tcp_open("dport")),
                passes(&udp_open("dport")),
                passes("icmp type { echo-request, destination-unreachable, time-exceeded, parameter-problem }"),
            ],
        );
        table.rules("uplink", self.published.iter().map(|open| passes(&opened(open))));
        table.rules("mesh", [passes("ct state established,related")]);
        table.hook("services", ("nat", "prerouting", -105), "accept");
        table.hook("services-own", ("nat", "output", -105), "accept");
        if let Some((prefixes, assignment)) = self.prefixes.zip(self.assignment) {
            lead(&mut table, prefixes, assignment);
        }
        table.rules("mesh", ["accept".to_owned()]);

        table.hook("input", ("filter", "input", 0), "accept");
        table.hook("forward", ("filter", "forward", 0), "accept");
        table.hook("egress", ("nat", "postrouting", 100), "accept");
        if let Some(prefixes) = self.prefixes {
            self.close(&mut table, prefixes);
        }
        table.0
    }

    /// Closes the cluster's prefixes to all but those whom they are for.
    fn close(&self, table: &mut Table, Prefixes { vpn, pods, services }: Prefixes) {
        let closed = listed(&CLOSED_TO_PODS);
        table.rules(
            "input",
            [
                format!("iifname {POD_LINKS} ip daddr {vpn} tcp dport {closed} reject"),
                format!("iifname {MESH} ip saddr {pods} tcp dport {closed} reject"),
            ],
        );
        // Where no service has it, it is still for an address of an uplink, and so is no packet that one led to a pod in our network.
        let for_services: BTreeSet<_> =
            self.published.iter().filter(|open| open.services).map(|open| open.port).collect();
        let unled = |port| self.outside(&format!("ip daddr != {vpn} ct direction original {} drop", dport(port)));
        table.rules("input", for_services.into_iter().filter_map(unled));
        // Wherever a service leads that is published.
        table.rules("input", self.outside(&format!("ip daddr {vpn} tcp dport {closed} reject")));
        if let Some(gateway) = self.assignment.and_then(Assignment::gateway) {
            table.rules("input", self.outside(&format!("ip daddr {gateway} reject")));
        }
        // Whoever it comes from: a machine passes on to another's ports what its own services translate, for pods anywhere.
        table.rules("forward", [format!("ip daddr {vpn} tcp dport {closed} reject")]);
        // The address of a service that nobody has translated is nowhere, and no uplink's business.
        table.rules("forward", [format!("ip daddr {services} reject")]);
        if !self.uplinks.is_empty() {
            table.rules("egress", [format!("ip saddr {pods} oifname {} masquerade", listed(&self.uplinks))]);
        }
    }

    /// Rule for what comes in by an uplink; none without one.
    fn outside(&self, rule: &str) -> Option<String> {
        (!self.uplinks.is_empty()).then(|| format!("iifname {} {rule}", listed(&self.uplinks)))
    }
}

/// Leads packets by the machine's place in a cluster of these prefixes: to itself, to its pods, and from these to what serves them.
fn lead(table: &mut Table, prefixes: Prefixes, assignment: &Assignment) {
    table.rules("mesh", [passes(&format!("ip daddr {}", assignment.vpn_ip()))]);
    if let Some((pods, gateway)) = assignment.pods().zip(assignment.gateway()) {
        // What serves the machine's own pods is no other machine's.
        table.rules("mesh", [format!("ip daddr {gateway} drop"), passes(&format!("ip daddr {pods}"))]);
        table.rules("pod", [format!("ip saddr != {pods} drop")]);
        table.rules("pod", [format!("ip daddr {} drop", listed(&NOT_FOR_PODS)), passes("")]);
        let (api, dns) = (prefixes.kubernetes_service(), prefixes.dns_service());
        // Decided here, so that no table behind this one leads elsewhere, whatever address or port a service or a pod claims.
        let own = [&CLOSED_TO_PODS[..], &[KUBELET_PORT]].concat();
        let stays = [
            format!("ip daddr {gateway}"),
            format!("ip daddr {} tcp dport {}", prefixes.vpn, listed(&own)),
            format!("fib daddr type local {}", tcp_open("dport")),
        ];
        // A pod may have a port of its machine's loopback, for who calls it from another address of the machine: none of ours does.
        let loopback = [("services", String::new()), ("services-own", format!("ip saddr {LOOPBACK} "))];
        for (chain, from) in loopback {
            let all = iter::once(format!("{from}ip daddr {LOOPBACK}")).chain(stays.clone());
            table.rules(chain, all.map(|what| format!("{what} dnat ip to ip daddr")));
        }
        let leads = [
            format!("ip daddr {api} tcp dport {HTTPS} dnat ip to {gateway}:{KUBERNETES_API_PORT}"),
            format!("ip daddr {dns} udp dport {DNS} dnat ip to {gateway}:{DNS}"),
            format!("ip daddr {dns} tcp dport {DNS} dnat ip to {gateway}:{DNS}"),
        ];
        table.rules("services", leads.iter().map(|leads| format!("iifname {POD_LINKS} {leads}")));
        table.rules("services-own", leads);
    }
    if assignment.kubernetes().contains(&KubernetesRole::ControlPlane) {
        // What the machine itself sends alone: no pod is led there.
        let metrics = prefixes.metrics_service();
        let leads = format!("ip daddr {metrics} tcp dport {HTTPS} dnat ip to 127.0.0.1:{METRICS_PORT}");
        table.rules("services-own", [leads]);
    }
}

/// Rule by which such packets may be routed.
fn passes(what: &str) -> String {
    format!("{what} meta mark set mark or {ROUTED} accept")
}

/// Tables of the programs that lead packets to pods: kube-proxy's and those of the CNI plugin portmap, which neither removes.
const OTHERS: [&str; 4] = ["ip kube-proxy", "ip6 kube-proxy", "ip cni_hostport", "ip6 cni_hostport"];

/// Text that removes what other programs set, if they did.
pub(super) fn without_others() -> String {
    OTHERS.map(|table| format!("destroy table {table}\n")).concat()
}

/// Text of a table, as it grows.
#[derive(Debug)]
struct Table(String);

impl Table {
    const NAME: &str = "inet cairn";

    /// A table that is empty, whatever was in it.
    fn anew() -> Self {
        Self(format!("destroy table {0}\nadd table {0}\n", Self::NAME))
    }

    fn chain(&mut self, name: &str) {
        self.line(&format!("add chain {} {name}", Self::NAME));
    }

    fn hook(&mut self, name: &str, (kind, hook, priority): (&str, &str, i16), policy: &str) {
        let properties = format!("type {kind} hook {hook} priority {priority} ; policy {policy} ;");
        self.line(&format!("add chain {} {name} {{ {properties} }}", Self::NAME));
    }

    fn rules(&mut self, chain: &str, rules: impl IntoIterator<Item = String>) {
        for rule in rules {
            self.line(&format!("add rule {} {chain} {rule}", Self::NAME));
        }
    }

    fn line(&mut self, line: &str) {
        let _never_fails = writeln!(self.0, "{line}");
    }
}

fn tcp_open(port: &str) -> String {
    format!("tcp {port} {PUBLIC_API_PORT}")
}

fn udp_open(port: &str) -> String {
    format!("udp {port} {VPN_PORT}")
}

/// Packets to a port.
fn dport(port: UplinkPort) -> String {
    format!("{} dport {}", port.protocol().word(), port.number())
}

/// Packets to a published port, from its sources.
fn opened(OpenPort { port, address, sources, .. }: &OpenPort) -> String {
    let from = (!sources.is_empty()).then(|| format!("ip saddr {}", listed(&sources.iter().collect::<Vec<_>>())));
    let at = address.map(|address| format!("ip daddr {address}"));
    from.into_iter().chain(at).chain([dport(*port)]).collect::<Vec<_>>().join(" ")
}

fn listed(all: &[impl Display]) -> String {
    format!("{{ {} }}", all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
pub(super) mod tests;
