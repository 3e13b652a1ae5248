//! Which crate may name which. It reads the dependency graph only; build and test dependencies are not part of a crate's
//! promise.
//!
//! ```text
//! model ◄── pure crates ◄── api, init, cli, qemu
//! ```

use cargo_metadata::{DependencyKind, Metadata, Package};

use super::Finding;

/// Protocols, policies and formats: no I/O, no clock, no async.
pub(super) const PURE: &[&str] = &["model", "formats", "keys", "enrol", "supervise", "dhcp", "attest", "pki", "kube"];
/// What moves bytes: none of it may be below a pure crate, at any depth.
const TRANSPORT: &[&str] = &[
    "tokio",
    "tonic",
    "hyper",
    "h2",
    "tower",
    "mio",
    "socket2",
    "rtnetlink",
    "tokio-rustls",
    "smoltcp",
    "nix",
    "rustix",
];
/// Who must never name whom, and why.
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    ("init", &["image", "qemu", "cli", "xtask", "tests"], "the machine knows nothing of what builds and runs it"),
    ("cli", &["sys", "init", "xtask"], "the owner's tool runs without the machine's privileges"),
    ("tests", &["init"], "the machine is a black box"),
    ("qemu", &["init", "sys"], "the machine is a black box"),
];

/// Every broken direction of the graph.
pub(super) fn findings(metadata: &Metadata) -> Vec<Finding> {
    let members = metadata.workspace_packages();
    let ours = |name: &str| members.iter().any(|member| member.name == name);
    let mut findings = Vec::new();
    for member in &members {
        let mut report = |rule: String| findings.push(Finding { place: member.name.to_string(), rule });
        let direct: Vec<&str> = normal(member).collect();
        for (_, names, because) in FORBIDDEN.iter().filter(|(name, ..)| member.name == *name) {
            for name in names.iter().filter(|name| direct.contains(name)) {
                report(format!("names {name}: {because}"));
            }
        }
        if PURE.contains(&member.name.as_str()) {
            for name in direct.iter().filter(|name| ours(name) && !PURE.contains(name)) {
                report(format!("is pure but names {name}, which is not"));
            }
            for name in below(metadata, member).into_iter().filter(|name| TRANSPORT.contains(&name.as_str())) {
                report(format!("is pure but has the transport crate {name} below it"));
            }
        }
        if member.name == "model" {
            for name in direct.iter().filter(|name| ours(name)) {
                report(format!("is the vocabulary of all others but names {name}"));
            }
        }
    }
    findings
}

/// The names a package's ordinary dependencies have in the registry or the workspace.
fn normal(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter(|on| on.kind == DependencyKind::Normal).map(|on| on.name.as_str())
}

/// All packages that are linked when this one is, itself included.
fn below(metadata: &Metadata, package: &Package) -> Vec<String> {
    let nodes = metadata.resolve.as_ref().map(|resolve| resolve.nodes.as_slice()).unwrap_or_default();
    let mut found = vec![package.id.clone()];
    let mut next = 0;
    while let Some(id) = found.get(next).cloned() {
        next += 1;
        for dependency in nodes.iter().filter(|node| node.id == id).flat_map(|node| &node.deps) {
            let normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if normal && !found.contains(&dependency.pkg) {
                found.push(dependency.pkg.clone());
            }
        }
    }
    found.iter().map(|id| metadata[id].name.to_string()).collect()
}
