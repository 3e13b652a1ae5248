//! Upstream's test program: which specs it has, one spec run by it, and what its output says. Each spec is a run of its own, so
//! that a stop in the middle loses one. It must never take a run for a result in which the spec did not begin.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::Path,
    process::Command,
};

use ::tests::specs::{CONFORMANCE, SpecProgram};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use xtask::process::{answer, logged};

use super::results::SpecOutcome;

/// Minutes that a spec may take: the longest takes about ten on machines with a processor each.
const SPEC_MINUTES: u32 = 40;

/// End of a run of one spec.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SpecEnd {
    pub(super) outcome: SpecOutcome,
    /// First line of what is said about a spec that did not pass.
    pub(super) reason: Option<String>,
    /// How long the spec itself took.
    pub(super) seconds: f64,
}

/// Names of all conformance specs that a program of upstream's has; of those that `focus` matches, if there is one.
///
/// # Errors
/// The program fails, or reports in another form.
pub(super) fn names(program: &Path, focus: Option<&str>, report: &Path, log: &Path) -> Result<BTreeSet<String>> {
    let mut command = Command::new(program);
    command.args(["-ginkgo.dry-run", "-ginkgo.silence-skips", "-ginkgo.no-color", CONFORMANCE]);
    command.args(focus.map(|focus| format!("-ginkgo.focus={focus}")));
    command.arg(format!("-ginkgo.json-report={}", report.display()));
    logged(&mut command, log)?;
    let text = fs::read(report).with_context(|| format!("read `{}`", report.display()))?;
    listed(&text)
}

/// References of all images that its specs may need.
///
/// # Errors
/// The program fails.
pub(super) fn images(program: &Path) -> Result<BTreeSet<String>> {
    let listed = answer(Command::new(program).arg("--list-images"))?;
    Ok(listed.lines().map(|line| line.trim().to_owned()).collect())
}

/// Runs one spec, with all that the program says in the place of the log's content.
///
/// # Errors
/// The program cannot be started, or the spec did not begin.
pub(super) fn run(program: &SpecProgram, name: &str, log: &Path) -> Result<SpecEnd> {
    let output = File::create(log).with_context(|| format!("make `{}`", log.display()))?;
    let mut command = program.command(&[name], SPEC_MINUTES);
    command.stdout(output.try_clone().context("share the log")?).stderr(output);
    // How it ended is in what it says: a spec that failed and a cluster that was not there end it alike.
    let _said_in_the_log = command.status().with_context(|| format!("start `{}`", program.program.display()))?;
    let text = fs::read(log).with_context(|| format!("read `{}`", log.display()))?;
    end(&String::from_utf8_lossy(&text)).with_context(|| format!("run {name}; see `{}`", log.display()))
}

/// Report of ginkgo, as far as it names specs.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Vec<SpecReport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
}

/// Full names of the specs that a dry run would have run.
fn listed(report: &[u8]) -> Result<BTreeSet<String>> {
    let reports: Vec<Report> = serde_json::from_slice(report).context("read what specs there are")?;
    let specs = reports.into_iter().flat_map(|report| report.spec_reports);
    let chosen = specs.filter(|spec| spec.leaf_node_type == "It" && spec.state == "passed");
    Ok(chosen
        .map(|spec| [spec.container_hierarchy_texts.unwrap_or_default(), vec![spec.leaf_node_text]].concat().join(" "))
        .collect())
}

/// Reads how the one spec of a run ended.
fn end(text: &str) -> Result<SpecEnd> {
    let ran = text.lines().find_map(|line| line.strip_prefix("Ran ")).and_then(|rest| rest.split(' ').next());
    let Some(ran) = ran else { bail!("the program did not come to its end") };
    let verdict = text.lines().find(|line| line.starts_with("SUCCESS!") || line.starts_with("FAIL!"));
    let verdict = verdict.context("the program says neither success nor failure")?;
    let mut after_mark = text.lines().skip_while(|line| mark(line).is_none());
    let seconds = after_mark.next().and_then(mark).unwrap_or(0.0);
    let outcome = match (ran, verdict.starts_with("SUCCESS!")) {
        ("1", true) => SpecOutcome::Passed,
        ("1", false) => SpecOutcome::Failed,
        ("0", true) if text.contains("[SKIPPED]") => SpecOutcome::Skipped,
        ("0", true) => bail!("the program has no such spec"),
        ("0", false) => bail!("the cluster was not ready for a spec"),
        _ => bail!("the program ran {ran} specs at once"),
    };
    let reason = (outcome != SpecOutcome::Passed).then(|| reason(after_mark)).flatten();
    Ok(SpecEnd { outcome, reason, seconds })
}

/// Seconds in the line that ends a spec: `• [3.134 seconds]`, `• [FAILED] [3.134 seconds]`, `S [SKIPPED] [0.300 seconds]`.
fn mark(line: &str) -> Option<f64> {
    let rest = line.strip_prefix("• [").or_else(|| line.strip_prefix("S ["))?;
    rest.strip_suffix(" seconds]")?.rsplit('[').next()?.parse().ok()
}

/// First line of what is said about a spec behind the line that ends it.
fn reason<'a>(mut lines: impl Iterator<Item = &'a str>) -> Option<String> {
    lines.find_map(|line| {
        let (word, said) = line.trim_start().strip_prefix('[')?.split_once("] ")?;
        ["FAILED", "SKIPPED", "TIMEDOUT", "PANICKED", "INTERRUPTED"].contains(&word).then(|| said.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_specs_that_would_run_are_listed() {
        let report = br#"[{"SuitePath": "x", "SpecReports": [
            {"ContainerHierarchyTexts": ["[sig-a] A", "b"], "LeafNodeType": "It", "LeafNodeText": "c", "State": "passed"},
            {"ContainerHierarchyTexts": ["[sig-a] A"], "LeafNodeType": "It", "LeafNodeText": "d", "State": "skipped"},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "passed"}
        ]}]"#;
        assert_eq!(listed(report).expect("read"), BTreeSet::from(["[sig-a] A b c".to_owned()]));
        listed(b"{}").expect_err("another form");
    }

    const PASSED: &str = "[SynchronizedBeforeSuite] PASSED [1.053 seconds]\n------\nSSSS\n[sig-a] A\n• [3.134 seconds]\n------\n\
                          Ran 1 of 7579 Specs in 4.476 seconds\nSUCCESS! -- 1 Passed | 0 Failed | 0 Pending | 7578 Skipped\nPASS\n";

    const TIMED_OUT: &str = "  [TIMEDOUT] in [It] - dns.go:54 @ 11/28/26 08:19:26.193\n• [TIMEDOUT] [22.890 seconds]\n[sig-a] A\ndns.go:54\n\n  \
                             [TIMEDOUT] A suite timeout occurred\n  In [It] at: dns.go:54\nSummarizing 1 Failure:\n\n\
                             Ran 1 of 7579 Specs in 23.812 seconds\n\
                             FAIL! - Suite Timeout Elapsed -- 0 Passed | 1 Failed | 0 Pending | 7578 Skipped\n";

    #[test]
    fn a_run_says_how_its_spec_ended() {
        let passed = SpecEnd { outcome: SpecOutcome::Passed, reason: None, seconds: 3.134 };
        assert_eq!(end(PASSED).expect("ended"), passed);
        let reason = Some("A suite timeout occurred".to_owned());
        let failed = SpecEnd { outcome: SpecOutcome::Failed, reason, seconds: 22.89 };
        assert_eq!(end(TIMED_OUT).expect("ended"), failed);
        let skipped = "S [SKIPPED] [0.300 seconds]\n[sig-a] A\n\n  [SKIPPED] one node only\n  In [It] at: x.go:1\n\n\
                       Ran 0 of 7579 Specs in 1.5 seconds\nSUCCESS! -- 0 Passed | 0 Failed | 0 Pending | 7579 Skipped\n";
        let reason = Some("one node only".to_owned());
        assert_eq!(end(skipped).expect("ended"), SpecEnd { outcome: SpecOutcome::Skipped, reason, seconds: 0.3 });
    }

    #[test]
    fn a_run_whose_spec_did_not_begin_is_no_result() {
        let said = |text: &str| end(text).expect_err("no result").to_string();
        let none = "Ran 0 of 7579 Specs in 0.329 seconds\nSUCCESS! -- 0 Passed | 0 Failed | 0 Pending | 7579 Skipped\n";
        assert_eq!(said(none), "the program has no such spec");
        let no_cluster =
            "[SynchronizedBeforeSuite] [FAILED] [0.1 seconds]\nRan 0 of 7579 Specs in 0.3 seconds\nFAIL! -- 0 Passed\n";
        assert_eq!(said(no_cluster), "the cluster was not ready for a spec");
        assert_eq!(said(&PASSED.replace("Ran 1", "Ran 2")), "the program ran 2 specs at once");
        let killed = PASSED.split("Ran ").next().expect("its beginning");
        assert_eq!(said(killed), "the program did not come to its end");
    }
}
