//! Rules about the text of one Rust file: its head, its length, its name, and words that must not be in its code. Comments
//! and strings are not code, nor are other people's names: identifiers are judged only where they are declared.

use super::{
    finding::Finding,
    source::{lines, without_tests},
};

/// A file is read in one go; past this it hides two things.
const LINES: usize = 800;
/// File names that say nothing about what is in the file.
const EMPTY_NAMES: &[&str] = &["common", "util", "utils", "helper", "helpers", "types", "manager", "misc"];
/// Text that may not stand in code, and why.
const BANNED: &[(&str, &str)] = &[
    ("#[ignore", "a test runs, or says at run time why it is skipped"),
    ("todo!", "no stubs"),
    ("unimplemented!", "no stubs"),
    ("#[allow(", "use expect with a reason: it fails when it is no longer needed"),
    ("#![allow(", "use expect with a reason: it fails when it is no longer needed"),
];
/// Parts of declared names that the naming rule forbids, and what to write instead.
const PARTS: &[(&str, &str)] = &[
    ("pubkey", "pub_key"),
    ("privkey", "priv_key"),
    ("ip_addr", "ip (numeric), host (ip or name) or endpoint (host and port)"),
    ("public_coordinator", "coordinator_public: entity, interface, kind"),
    ("public_node", "node_public: entity, interface, kind"),
    ("public_peer", "peer_public: entity, interface, kind"),
    ("vpn_coordinator", "coordinator_vpn: entity, interface, kind"),
    ("vpn_node", "node_vpn: entity, interface, kind"),
    ("vpn_peer", "peer_vpn: entity, interface, kind"),
];
/// Names that others gave, and that ours follow.
const FOREIGN: &[(&str, &str)] = &[
    ("get_state", "GetState is a method of the public API"),
    ("get_random", "TPM2_GetRandom is a command of the TPM"),
    ("get_info", "GetInfo is a method of kubelet's registration of plugins"),
    ("get_plugin_", "GetPluginInfo and GetPluginCapabilities are methods of CSI"),
];
/// Words that one file may not name, for what it promises to come before.
const APART: &[(&str, &[&str], &str)] = &[(
    "init/src/stage0.rs",
    &["tpm", "attest"],
    "what was not measured is refused here, before anything can use the TPM",
)];
/// Words that stand before the name in a declaration.
const DECLARING: &[&str] = &["fn", "let", "mut", "const", "static", "mod"];

/// Every broken rule of one file.
pub(super) fn findings(file: &str, source: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line: usize, rule: String| findings.push(Finding { place: format!("{file}:{line}"), rule });
    if !source.starts_with("//!") {
        report(1, "does not open with `//!` and what it owns".to_owned());
    }
    let length = source.lines().count();
    if length > LINES {
        report(length, format!("has {length} lines; split it before {LINES}"));
    }
    let stem = file.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or(file);
    if EMPTY_NAMES.contains(&stem) {
        report(1, format!("`{stem}` names no purpose"));
    }
    for (index, code) in lines(source).into_iter().map(|line| line.code).enumerate() {
        for (banned, because) in BANNED.iter().filter(|(banned, _)| code.contains(banned)) {
            report(index + 1, format!("`{banned}`: {because}"));
        }
        for (_, words, because) in APART.iter().filter(|(apart, ..)| *apart == file) {
            for word in words.iter().filter(|word| code.contains(*word)) {
                report(index + 1, format!("`{word}`: {because}"));
            }
        }
        for name in declared(&code) {
            let foreign = FOREIGN.iter().any(|(foreign, _)| name.starts_with(foreign));
            if name.starts_with("get_") && !foreign {
                report(index + 1, format!("`{name}`: a getter is named for what it returns"));
            }
            for (part, instead) in PARTS.iter().filter(|(part, _)| name.contains(part)) {
                report(index + 1, format!("`{name}` has `{part}`: write {instead}"));
            }
        }
    }
    findings.extend(beside(file, source));
    findings
}

/// Paths that may not stand in the code of a pure crate: they reach for the world.
const WORLD: &[&str] = &[
    "std::fs",
    "std::process",
    "std::thread",
    "std::env",
    "std::net::Tcp",
    "std::net::Udp",
    "std::os::unix::net",
    "Instant::now",
    "SystemTime::now",
];

/// Every place where one file of a pure crate reaches for the world. Tests may: they read golden files.
pub(super) fn world(file: &str, source: &str) -> Vec<Finding> {
    // A file of tests alone says so in the one that declares it.
    let tests_alone = !source.contains("#[cfg(test)]") && source.contains("#[test]");
    let judged = if tests_alone { Vec::new() } else { without_tests(lines(source)) };
    let mut findings = Vec::new();
    for (index, code) in judged.into_iter().map(|line| line.code).enumerate() {
        for word in WORLD.iter().filter(|word| code.contains(*word)) {
            let rule = format!("`{word}` in a pure crate: what it needs comes in as an argument");
            findings.push(Finding { place: format!("{file}:{}", index + 1), rule });
        }
    }
    findings
}

/// Words that PID 1 may name in one place only (a file, or a folder's prefix), and why. Tests may anywhere.
const ONE_PLACE: &[(&str, &[&str], &str)] = &[
    (
        "crates/enrol/src/",
        &[
            "seal::read",
            "SealFiles",
            "share::read",
            "TwoSlotFile::read",
            "Binding::",
            "data_key::open",
            "ClusterHalf",
            "latest_first",
        ],
        "what lies between bytes and effects is decided in `crates/enrol`, once",
    ),
    (
        "init/src/enrolment/perform.rs",
        &[
            "storage::write_header",
            "Mapped::new",
            ".write_slot(",
            ".remove_config(",
            ".grow_data(",
            ".mend_table(",
            "end(EndOf::Serving",
        ],
        "nothing is written and no TPM is capped but as a plan of `enrol` asks for",
    ),
];

/// Every place where a file of PID 1 decides or acts beside the one enrolment path.
fn beside(file: &str, source: &str) -> Vec<Finding> {
    let judged = without_tests(lines(source));
    let mut findings = Vec::new();
    for (place, words, because) in ONE_PLACE.iter().filter(|(place, ..)| !file.starts_with(place)) {
        for (index, line) in judged.iter().enumerate().filter(|_| file.starts_with("init/src/")) {
            for word in words.iter().filter(|word| line.code.contains(*word)) {
                let rule = format!("`{word}` beside `{place}`: {because}");
                findings.push(Finding { place: format!("{file}:{}", index + 1), rule });
            }
        }
    }
    findings
}

/// Names that a line declares.
fn declared(code: &str) -> Vec<&str> {
    let words: Vec<&str> = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    words.windows(2).filter(|pair| DECLARING.contains(&pair[0])).map(|pair| pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(file: &str, body: &str) -> Vec<String> {
        findings(file, &format!("//! Owns x.\n{body}")).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_good_file_is_good() {
        let body = "// todo! in a comment\nfn node_vpn_ip() { say(\"#[ignore] get_x\"); rcgen.get_pubkey(); }\nfn get_state() {}\n";
        assert_eq!(rules("a/b.rs", body), Vec::<String>::new());
    }

    #[test]
    fn every_banned_word_is_found() {
        for (banned, because) in BANNED {
            assert_eq!(rules("a/b.rs", &format!("{banned}x)]\n")), [format!("`{banned}`: {because}")]);
        }
    }

    /// Proves: O15
    #[test]
    fn stage_0_has_no_way_to_the_tpm() {
        let (file, words, because) = APART[0];
        for word in words {
            let body = format!("use crate::{word}::Tpm;\n");
            assert_eq!(rules(file, &body), [format!("`{word}`: {because}")]);
            assert_eq!(rules("init/src/enrolment.rs", &body), Vec::<String>::new(), "others may");
        }
        assert_eq!(rules(file, "// before the tpm\nfn refuse() {}\n"), Vec::<String>::new());
    }

    /// Proves: D4 D14
    #[test]
    fn pid_1_does_nothing_beside_the_one_enrolment_path() {
        for (place, words, because) in ONE_PLACE {
            for word in *words {
                let body = format!("fn act() {{ {word}x) }}\n");
                assert_eq!(rules("init/src/boot.rs", &body), [format!("`{word}` beside `{place}`: {because}")]);
                assert_eq!(rules("crates/enrol/src/found.rs", &body), Vec::<String>::new(), "enrol decides");
                let there = rules(&format!("{place}x.rs"), &body);
                assert!(there.iter().all(|rule| !rule.contains(because)), "{there:?}");
                assert_eq!(rules("init/src/boot.rs", &format!("#[cfg(test)]\n{body}")), Vec::<String>::new());
            }
        }
    }

    #[test]
    fn names_are_judged_where_they_are_declared() {
        for body in ["fn get_ip() {}", "let node_pubkey = 1;", "let mut vpn_node_ip = 1;"] {
            assert_eq!(rules("a/b.rs", body).len(), 1, "{body}");
        }
    }

    #[test]
    fn pure_code_does_not_reach_for_the_world_but_its_tests_may() {
        let reaches = "fn read() { std::fs::read(path) }\n";
        assert_eq!(world("a.rs", reaches).len(), 1);
        assert_eq!(world("a.rs", &format!("#[cfg(test)]\nmod tests {{\n{reaches}}}\n")), []);
        assert_eq!(world("a.rs", &format!("#[test]\n{reaches}")), []);
    }

    #[test]
    fn heads_names_and_lengths_are_judged() {
        assert_eq!(findings("a.rs", "fn main() {}\n").len(), 1);
        assert_eq!(rules("a/util.rs", "").len(), 1);
        assert_eq!(rules("a/b.rs", &"\n".repeat(LINES)).len(), 1);
    }
}
