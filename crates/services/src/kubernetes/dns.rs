//! CoreDNS: the machine's own resolver for its pods, at the gateway's port 53. Configuration: Corefile of CoreDNS v1.15.
//!
//! The uplinks' resolvers stand in a file of their own, written by PID 1 ([`outside`]): CoreDNS looks every two seconds whether it
//! is another. A machine without any resolves the cluster's names, and refuses all others.

use std::net::Ipv4Addr;

use model::Prefixes;
use supervise::Need;

use crate::credential::{Credential, DNS_USER};
use crate::kubernetes::{kubeconfig, own_apiserver};
use crate::names;
use crate::plan::{LOCAL_API, ServicePlan};
use crate::unit::{
    Limits, ReadinessProbe, ServiceCapability, ServiceFile, ServicePage, ServicePrivileges, ServiceProgram, Unit,
};

const COREFILE: &str = "/run/cairn/dns/Corefile";
const KUBECONFIG: &str = "/run/cairn/dns/dns.kubeconfig";
const HEALTH_PORT: u16 = 10253;
const METRICS_PORT: u16 = 10252;
/// Where names outside the cluster are asked for.
pub const OUTSIDE: &str = "/run/cairn/dns/outside.conf";
/// Pattern that CoreDNS finds that file by: a file that is named itself has to be there when CoreDNS starts.
const OUTSIDE_IF_THERE: &str = "/run/cairn/dns/outside.*";

/// Name of the program.
pub(crate) const PROGRAM: &str = "coredns";

pub(crate) fn unit(plan: &ServicePlan) -> Unit {
    let client = Credential::DnsClient;
    let program = ServiceProgram {
        argv: vec![plan.program(PROGRAM), "-conf".to_owned(), COREFILE.to_owned()],
        environment: Vec::new(),
        files: vec![
            ServiceFile { path: COREFILE, contents: corefile(plan) },
            ServiceFile { path: KUBECONFIG, contents: kubeconfig::of_service(client, LOCAL_API) },
        ],
        credentials: vec![client],
        // Whether it has seen the cluster's names yet is another question: those outside it answers before.
        probe: ReadinessProbe::Page(ServicePage::on_loopback(HEALTH_PORT, "/health")),
        metrics: Some(ServicePage::on_loopback(METRICS_PORT, "/metrics")),
        limits: Limits { memory: 256 << 20, pids: 256 },
        privileges: ServicePrivileges::User { user: DNS_USER, keeps: ServiceCapability::NetBindService },
        record: None,
        data: None,
    };
    // It has nothing to say before the apiserver, and takes the processor from that one's start.
    let needs = [Need::started(names::RESOLVERS)].into_iter().chain(own_apiserver(plan));
    Unit::program(names::DNS, needs.collect(), program)
}

/// The cluster's names, and those of its addresses.
fn corefile(plan: &ServicePlan) -> String {
    let zones = format!("cluster.local {} {}", plan.prefixes.services, plan.prefixes.pods);
    let gateway = plan.assignment.gateway().unwrap_or(Ipv4Addr::LOCALHOST);
    format!(
        "{zones} {{\n    bind {gateway}\n    errors\n    health 127.0.0.1:{HEALTH_PORT}\n    prometheus 127.0.0.1:{METRICS_PORT}\n    reload 2s 1s\n    cache 30\n    \
         kubernetes {zones} {{\n        kubeconfig {KUBECONFIG}\n        pods insecure\n    }}\n}}\nimport {OUTSIDE_IF_THERE}\n"
    )
}

/// Where the resolver of the machine with this gateway asks for all other names: text for [`OUTSIDE`]. By UDP first, whatever the pod asked
/// by: some routers answer nothing else. A resolver with an address of the cluster's or of the machine itself is left out, since a question
/// to it would come back.
#[must_use]
pub fn outside(gateway: Ipv4Addr, prefixes: Prefixes, resolvers: &[Ipv4Addr]) -> String {
    let is_outside = |address: &&Ipv4Addr| {
        !address.is_loopback() && !address.is_unspecified() && prefixes.judge_resolver(**address).is_ok()
    };
    let forward = resolvers.iter().filter(is_outside).map(ToString::to_string).collect::<Vec<_>>().join(" ");
    if forward.is_empty() {
        return "# No link of the machine names a resolver: all other names are refused.\n".to_owned();
    }
    format!(
        ". {{\n    bind {gateway}\n    errors\n    prometheus 127.0.0.1:{METRICS_PORT}\n    cache 30\n    forward . {forward} {{\n        max_concurrent 1000\n        \
         prefer_udp\n    }}\n}}\n"
    )
}
