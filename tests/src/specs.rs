//! Upstream's test program for conformance, run against a cluster: by the workshop spec by spec, by a case for a few at once. What the
//! program says of them is read by who runs it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Path of the program, where it was built.
const PROGRAM: &str = "CAIRN_E2E";
/// Path of kubectl, which some specs run.
const KUBECTL: &str = "CAIRN_KUBECTL";
/// Option for the specs that a conformant cluster passes.
pub const CONFORMANCE: &str = "-ginkgo.label-filter=Conformance";
/// Bound of the wait for all nodes before a spec: a node that is not Ready by then is a failure of the cluster, not of the spec.
const NODES_TIMEOUT: &str = "--node-schedulable-timeout=5m";

/// Upstream's test program, with what it needs to reach a cluster.
#[derive(Debug)]
pub struct SpecProgram {
    /// The program.
    pub program: PathBuf,
    /// kubectl, for specs that run it.
    pub kubectl: PathBuf,
    /// How it reaches the cluster.
    pub kubeconfig: PathBuf,
}

impl SpecProgram {
    /// Whether this run has it.
    #[must_use]
    pub fn is_named() -> bool {
        env::var_os(PROGRAM).is_some()
    }

    /// The program that this run has.
    ///
    /// # Errors
    /// When it has none.
    pub fn of_environment(kubeconfig: &Path) -> anyhow::Result<Self> {
        let path = |name: &str| env::var_os(name).map(PathBuf::from).with_context(|| format!("{name} is not set"));
        Ok(Self { program: path(PROGRAM)?, kubectl: path(KUBECTL)?, kubeconfig: kubeconfig.to_owned() })
    }

    /// A run of the specs whose names end so, for so many minutes at most.
    #[must_use]
    pub fn command(&self, names: &[&str], minutes: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--provider=skeleton", "-ginkgo.v", "-ginkgo.no-color", CONFORMANCE, NODES_TIMEOUT]);
        let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
        command.arg(format!("-ginkgo.focus=({})$", names.join("|")));
        command.arg(format!("-ginkgo.timeout={minutes}m"));
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        command.arg(format!("--kubectl-path={}", self.kubectl.display()));
        command.stdin(Stdio::null());
        command
    }
}

/// A text as a regular expression of Go that matches it alone.
fn quoted(text: &str) -> String {
    let special = |letter: char| letter.is_ascii_punctuation() && !matches!(letter, '-' | '_' | '\'' | '"' | '/' | ' ');
    text.chars().flat_map(|letter| special(letter).then_some('\\').into_iter().chain([letter])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_matches_itself_alone() {
        assert_eq!(quoted("[sig-a] x: y's (z.) a/b"), r"\[sig-a\] x\: y's \(z\.\) a/b");
        assert_eq!(quoted("a - b \"c\" +*?^$|{}\\"), r#"a - b "c" \+\*\?\^\$\|\{\}\\"#);
    }
}
