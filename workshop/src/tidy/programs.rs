//! Which programs the sources start on a person's machine: each is brought by a package of the driver's table, is there on
//! every Debian, or comes from the person. So that a fresh machine lacks none.

use xtask::packages::{self, ALWAYS_THERE};

use super::finding::Finding;

/// Programs that the person brings: Rust and Go; and one that is asked for before it is used.
const BROUGHT: &[&str] = &["cargo", "go", "rustc", "sudo"];

/// Every program that a file starts by a name of its own and nobody is known to bring.
pub(super) fn findings(file: &str, source: &str) -> Vec<Finding> {
    let started = source.lines().enumerate().flat_map(|(line, text)| started(text).map(move |name| (line + 1, name)));
    let unknown = started.filter(|(_, name)| !is_known(name));
    unknown
        .map(|(line, name)| Finding {
            place: format!("{file}:{line}"),
            rule: format!("starts `{name}`, which no package of xtask/src/packages.rs is said to bring"),
        })
        .collect()
}

fn is_known(program: &str) -> bool {
    let brought = || packages::all().any(|package| package.programs.contains(&program));
    BROUGHT.contains(&program) || ALWAYS_THERE.contains(&program) || brought()
}

/// The names that a line starts: texts that stand as they are in the call.
fn started(line: &str) -> impl Iterator<Item = &str> {
    let calls = line.split("Command::new(\"").skip(1).filter_map(|rest| rest.split('"').next());
    // What is relative to a folder is built there, not installed.
    calls.filter(|program| !program.starts_with("./") && !program.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_nobody_brings_is_found() {
        let start = |program: &str| format!("let a = 1;\nlet x = {}(\"{program}\").arg(\"y\");\n", "Command::new");
        for known in ["gcc", "git", "mkfs.erofs", "/usr/sbin/fsck.fat", "sh", "cargo", "./configure"] {
            assert_eq!(findings("a.rs", &start(known)), [], "{known}");
        }
        let found = findings("a.rs", &start("rsync"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "a.rs:2");
        assert!(found[0].rule.contains("`rsync`"), "{found:?}");
    }
}
