//! Which crate may name which. It reads the dependency graph only; build and test dependencies are not part of a crate's
//! promise.
//!
//! ```text
//!                              ┌── wire ◄────────┬──────────── host ◄── workshop ──► driver
//!  vocabulary ◄── pure ◄───────┤                 │
//!                              └── privileged ◄──┴── machine       (a container's program names none of ours,
//!                                                                     nobody names the guest)
//! ```

use cargo_metadata::{DependencyKind, Metadata, Package};

use super::finding::Finding;

/// Kind of a crate, which says whom it may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The words of all others.
    Vocabulary,
    /// Protocols, policies, formats: no I/O, no clock, no async.
    Pure,
    /// Contract that both ends of a connection agree on.
    Wire,
    /// Needs the machine's privileges: its kernel, its containerd, its services on loopback.
    Privileged,
    /// Runs as PID 1.
    Machine,
    /// Runs beside the machine: builds it, starts it, steers it.
    Host,
    /// Only a developer runs it.
    Workshop,
    /// Compiled and started by a developer's first command.
    Driver,
    /// Runs in a container.
    Container,
    /// Runs in a machine of the debug profile, against it.
    Guest,
}

/// Every crate of the workspace.
const CRATES: &[(&str, Kind)] = &[
    ("model", Kind::Vocabulary),
    ("attest", Kind::Pure),
    ("benches", Kind::Pure),
    ("cluster", Kind::Pure),
    ("dhcp", Kind::Pure),
    ("door", Kind::Pure),
    ("kubeapi", Kind::Pure),
    ("member", Kind::Pure),
    ("mesh", Kind::Pure),
    ("netpolicy", Kind::Pure),
    ("nft", Kind::Pure),
    ("oci", Kind::Pure),
    ("enrol", Kind::Pure),
    ("formats", Kind::Pure),
    ("keys", Kind::Pure),
    ("pki", Kind::Pure),
    ("services", Kind::Pure),
    ("snapshot", Kind::Pure),
    ("supervise", Kind::Pure),
    ("unlock", Kind::Pure),
    ("usage", Kind::Pure),
    ("openmetrics", Kind::Pure),
    ("upkeep", Kind::Pure),
    ("volumes", Kind::Pure),
    ("api", Kind::Wire),
    ("csi", Kind::Wire),
    ("etcd", Kind::Wire),
    ("import", Kind::Privileged),
    ("probe", Kind::Privileged),
    ("sys", Kind::Privileged),
    ("init", Kind::Machine),
    ("floor", Kind::Machine),
    ("cairnctl", Kind::Host),
    ("image", Kind::Host),
    ("initramfs", Kind::Host),
    ("kernel-config", Kind::Host),
    ("qemu", Kind::Host),
    ("fuzz", Kind::Workshop),
    ("sim", Kind::Workshop),
    ("testkit", Kind::Workshop),
    ("tests", Kind::Workshop),
    ("workshop", Kind::Workshop),
    ("xtask", Kind::Driver),
    ("guest-pause", Kind::Container),
    ("guest-web", Kind::Container),
    ("guest", Kind::Guest),
];

impl Kind {
    /// Kinds that a crate of this kind may name, and why no others.
    const fn may_name(self) -> (&'static [Self], &'static str) {
        match self {
            Self::Vocabulary => (&[], "it is the vocabulary of all others"),
            Self::Pure => (&[Self::Vocabulary, Self::Pure], "a pure crate is tested in virtual time"),
            Self::Wire => (&[Self::Vocabulary, Self::Pure], "either end of a connection links it"),
            Self::Privileged => (&[Self::Vocabulary, Self::Pure], "privileges are reviewed apart from what uses them"),
            Self::Machine => (
                &[Self::Vocabulary, Self::Pure, Self::Wire, Self::Privileged],
                "the machine knows nothing of what builds, runs and steers it",
            ),
            Self::Host => (
                &[Self::Vocabulary, Self::Pure, Self::Wire, Self::Host],
                "from outside the machine is a black box, and its privileges are not there",
            ),
            Self::Workshop => (
                &[Self::Vocabulary, Self::Pure, Self::Wire, Self::Host, Self::Workshop, Self::Driver],
                "from outside the machine is a black box, and its privileges are not there",
            ),
            Self::Driver => (&[], QUICK),
            Self::Container => (&[], "a container's program is as small as it can be"),
            Self::Guest => (
                &[Self::Vocabulary, Self::Pure, Self::Wire],
                "what breaks a machine from inside has no more of it than its formats and its wire",
            ),
        }
    }
}

/// Crates that name fewer of ours than their kind may, and why.
const NARROW: &[(&str, &[&str], &str)] = &[
    ("cluster", &["model", "keys", "formats"], "what it decides runs in the simulator as it runs on a machine"),
    ("unlock", &["model", "keys", "cluster"], "a disk is opened the same way whatever enrolled its machine"),
];

/// Why the driver names so little.
const QUICK: &str = "the driver says its first word before anything else is compiled";

/// All that the driver may take from the registry. Each compiles in a second or two, with what is below it.
const DRIVERS: &[&str] = &["anyhow", "rustix"];

/// Crates that move bytes: none of them may be below a pure crate, at any depth.
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

/// Whether a crate may not reach for the world.
pub(super) fn is_pure(name: &str) -> bool {
    matches!(kind(name), Some(Kind::Vocabulary | Kind::Pure))
}

/// Whether what a crate starts is started where a person works: also the tests of crates that never start anything else.
pub(super) fn runs_on_a_persons_machine(name: &str) -> bool {
    !matches!(kind(name), Some(Kind::Machine | Kind::Container | Kind::Guest))
}

/// Every broken direction of the graph.
pub(super) fn findings(metadata: &Metadata) -> Vec<Finding> {
    let members = metadata.workspace_packages();
    let graph: Vec<_> = members.iter().map(|member| (member.name.as_str(), normal(member).collect())).collect();
    let mut findings = broken(&graph);
    for member in members.iter().filter(|member| kind(&member.name) == Some(Kind::Driver)) {
        findings.extend(slow(&member.name, compiled(member)));
    }
    for member in members.iter().filter(|member| is_pure(&member.name)) {
        for name in below(metadata, member).into_iter().filter(|name| TRANSPORT.contains(&name.as_str())) {
            findings.push(finding(&member.name, format!("is pure but has the transport crate {name} below it")));
        }
    }
    findings
}

/// The broken directions between members, given what each names; what is not a member does not count.
fn broken(graph: &[(&str, Vec<&str>)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (member, names) in graph {
        let Some(kind_of_member) = kind(member) else {
            findings
                .push(finding(member, "is a crate that tidy's table does not know: say what kind it is".to_owned()));
            continue;
        };
        let (allowed, because) = kind_of_member.may_name();
        for name in names.iter().filter(|name| graph.iter().any(|(member, _)| member == *name)) {
            // One that the table does not know is found above.
            if kind(name).is_some_and(|kind| !allowed.contains(&kind)) {
                findings.push(finding(member, format!("names {name}: {because}")));
            } else if let Some((_, fewer, because)) = NARROW.iter().find(|(narrow, ..)| narrow == member)
                && !fewer.contains(name)
            {
                findings.push(finding(member, format!("names {name}: {because}")));
            }
        }
    }
    for (gone, _) in CRATES.iter().filter(|(row, _)| graph.iter().all(|(member, _)| member != row)) {
        findings.push(finding(gone, "is in tidy's table, but is no crate of the workspace".to_owned()));
    }
    findings
}

fn kind(name: &str) -> Option<Kind> {
    CRATES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

fn finding(place: &str, rule: String) -> Finding {
    Finding { place: place.to_owned(), rule }
}

/// Dependencies of a driver that take longer to compile than they may.
fn slow<'a>(driver: &str, names: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let names = names.filter(|name| !DRIVERS.contains(name));
    names.map(|name| finding(driver, format!("takes {name} from the registry: {QUICK}"))).collect()
}

/// Dependencies that are compiled before a package is.
fn compiled(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter(|on| on.kind != DependencyKind::Development).map(|on| on.name.as_str())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// All crates; one of them names another.
    fn when(member: &str, names: &str) -> Vec<Finding> {
        let mut graph: Vec<_> = CRATES.iter().map(|(name, _)| (*name, vec![])).collect();
        graph.iter_mut().filter(|(name, _)| *name == member).for_each(|(_, named)| named.push(names));
        broken(&graph)
    }

    #[test]
    fn a_wrong_direction_is_found() {
        let wrong = [
            ("model", "formats"),
            ("keys", "sys"),
            ("services", "api"),
            ("cluster", "pki"),
            ("cluster", "mesh"),
            ("unlock", "enrol"),
            ("cluster", "api"),
            ("api", "sys"),
            ("sys", "import"),
            ("init", "image"),
            ("init", "qemu"),
            ("floor", "cairnctl"),
            ("cairnctl", "sys"),
            ("cairnctl", "init"),
            ("cairnctl", "xtask"),
            ("qemu", "init"),
            ("qemu", "sys"),
            ("tests", "init"),
            ("workshop", "floor"),
            ("xtask", "model"),
            ("xtask", "workshop"),
            ("cairnctl", "workshop"),
            ("guest-web", "model"),
            ("guest", "init"),
            ("guest", "sys"),
            ("guest", "tests"),
            ("init", "guest"),
            ("image", "guest"),
            ("cairnctl", "guest"),
            ("workshop", "guest"),
            ("tests", "guest"),
        ];
        for (member, names) in wrong {
            let found = when(member, names);
            assert_eq!(found.len(), 1, "{member} names {names}: {found:?}");
            assert_eq!(found[0].place, member);
        }
    }

    #[test]
    fn a_right_direction_and_a_foreign_crate_are_not() {
        for (member, names) in [
            ("keys", "model"),
            ("cluster", "keys"),
            ("enrol", "unlock"),
            ("init", "sys"),
            ("cairnctl", "qemu"),
            ("tests", "image"),
            ("workshop", "xtask"),
            ("sys", "nix"),
            ("guest", "attest"),
            ("guest", "etcd"),
        ] {
            assert_eq!(when(member, names), [], "{member} names {names}");
        }
    }

    #[test]
    fn a_driver_that_takes_long_to_compile_is_found() {
        assert_eq!(slow("xtask", ["anyhow", "rustix"].into_iter()), []);
        assert_eq!(slow("xtask", ["anyhow", "aws-lc-rs"].into_iter()).len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_is_found_and_a_row_without_one() {
        let mut graph: Vec<_> = CRATES.iter().map(|(name, _)| (*name, vec![])).collect();
        graph[0] = ("newcomer", vec!["sys"]);
        let places: Vec<_> = broken(&graph).into_iter().map(|finding| finding.place).collect();
        assert_eq!(places, ["newcomer", CRATES[0].0]);
    }
}
