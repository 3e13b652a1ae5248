//! Results of conformance specs by their full names, kept in a file while they come in, and what people read of them. Pure but
//! for that file. It must never count a spec as passed that this version of upstream's tests no longer has.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs, io,
    path::Path,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Longest line of the text for people, in characters: that of our documents.
const LINE: usize = 160;

/// End of a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SpecOutcome {
    Passed,
    Failed,
    /// Upstream's test itself found that it cannot run here.
    Skipped,
}

/// Result of one run of a spec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecResult {
    pub(super) outcome: SpecOutcome,
    /// First line of what upstream's tests say about a spec that did not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// How long it took.
    pub(super) seconds: f64,
    /// When it ended, in seconds of Unix time.
    pub(super) ended: u64,
    /// Root hash of the machines' image.
    pub(super) image: String,
}

/// Results of specs, by full name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct SpecResults(BTreeMap<String, SpecResult>);

/// Number of specs by how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SpecCounts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// Skipped by upstream's tests, or left out by our table.
    pub(super) skipped: usize,
    /// Without a result so far.
    pub(super) missing: usize,
}

/// All specs of a version of upstream's tests, and why some are left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Specs {
    /// Full names.
    pub(super) all: BTreeSet<String>,
    /// Specs that are never run, with the reason.
    pub(super) left_out: BTreeMap<String, &'static str>,
}

impl SpecResults {
    /// The results in a file; none where there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is in another form.
    pub(super) fn read(path: &Path) -> Result<Self> {
        match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| format!("read `{}`", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("read `{}`", path.display())),
        }
    }

    /// Puts them in the place of the file's, whole or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("write the results as JSON")?;
        let fresh = path.with_extension("new");
        fs::write(&fresh, text + "\n").with_context(|| format!("write `{}`", fresh.display()))?;
        fs::rename(&fresh, path).with_context(|| format!("put `{}` in place", path.display()))
    }

    /// Takes a spec's result in the place of an earlier one.
    pub(super) fn put(&mut self, name: &str, result: SpecResult) {
        self.0.insert(name.to_owned(), result);
    }

    /// Specs that are to be run so that all have passed, in the order of their names; those that failed come last, since what they
    /// leave, such as a hundred pods, is in the way of others.
    pub(super) fn open<'a>(&'a self, specs: &'a Specs) -> impl Iterator<Item = &'a str> {
        let ended = |name: &String| self.0.get(name).map(|result| result.outcome);
        let others = specs.to_run().filter(move |name| matches!(ended(name), None | Some(SpecOutcome::Skipped)));
        others.map(String::as_str).chain(self.failed(specs))
    }

    /// Names of those that failed.
    pub(super) fn failed<'a>(&'a self, specs: &'a Specs) -> impl Iterator<Item = &'a str> {
        let failed = |name: &&String| self.0.get(*name).is_some_and(|result| result.outcome == SpecOutcome::Failed);
        specs.to_run().filter(failed).map(String::as_str)
    }

    /// How these specs ended.
    pub(super) fn counts(&self, specs: &Specs) -> SpecCounts {
        self.count(specs, specs.all.iter())
    }

    fn count<'a>(&self, specs: &Specs, names: impl Iterator<Item = &'a String>) -> SpecCounts {
        let mut counts = SpecCounts::default();
        for name in names {
            let outcome = self.0.get(name).map(|result| result.outcome);
            *match (specs.left_out.contains_key(name), outcome) {
                (true, _) | (false, Some(SpecOutcome::Skipped)) => &mut counts.skipped,
                (false, Some(SpecOutcome::Passed)) => &mut counts.passed,
                (false, Some(SpecOutcome::Failed)) => &mut counts.failed,
                (false, None) => &mut counts.missing,
            } += 1;
        }
        counts
    }

    /// How many of these specs have a result of which image, by root hash.
    fn by_image(&self, specs: &Specs) -> BTreeMap<&str, usize> {
        let mut images = BTreeMap::new();
        for result in specs.to_run().filter_map(|name| self.0.get(name)) {
            *images.entry(result.image.as_str()).or_default() += 1;
        }
        images
    }

    /// Markdown: how many of each group ended how, and by name only what did not pass, with its reason.
    pub(super) fn markdown(&self, specs: &Specs) -> String {
        let mut groups: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        for name in &specs.all {
            groups.entry(group(name)).or_default().push(name);
        }
        let mut text = "| group | passed | failed | left out | not run |\n|---|---:|---:|---:|---:|\n".to_owned();
        let mut row = |name: &str, counts: SpecCounts| {
            let SpecCounts { passed, failed, skipped, missing } = counts;
            let _cannot_fail = writeln!(text, "| {name} | {passed} | {failed} | {skipped} | {missing} |");
        };
        for (name, specs_of_it) in groups {
            row(name, self.count(specs, specs_of_it.into_iter()));
        }
        row("all", self.counts(specs));
        for (image, count) in self.by_image(specs) {
            text += &format!("\n{count} results are of the image `{image}`.\n");
        }
        for (title, outcome) in [("Failed", SpecOutcome::Failed), ("Left out", SpecOutcome::Skipped)] {
            let listed: Vec<String> = specs.all.iter().filter_map(|name| self.line(specs, name, outcome)).collect();
            if !listed.is_empty() {
                text += &format!("\n{title}:\n\n{}", listed.concat());
            }
        }
        text
    }

    /// Item of a list about a spec that ended like this, if it did.
    fn line(&self, specs: &Specs, name: &str, outcome: SpecOutcome) -> Option<String> {
        let reason = match specs.left_out.get(name) {
            Some(because) => (outcome == SpecOutcome::Skipped).then_some(*because)?,
            None => {
                let result = self.0.get(name).filter(|result| result.outcome == outcome)?;
                result.reason.as_deref().unwrap_or("no reason was given")
            }
        };
        Some(format!("{}\n{}\n", clipped(&format!("- {name}:")), clipped(&format!("  {reason}"))))
    }

    /// Lines, one for each spec, by name: how it ended, and the name.
    pub(super) fn lines(&self, specs: &Specs) -> String {
        let line = |name: &String| {
            let counts = self.count(specs, std::iter::once(name));
            let word = match counts {
                SpecCounts { passed: 1, .. } => "passed",
                SpecCounts { failed: 1, .. } => "failed",
                SpecCounts { skipped: 1, .. } => "left out",
                SpecCounts { .. } => "not run",
            };
            format!("{word:<8}  {name}\n")
        };
        specs.all.iter().map(line).collect()
    }
}

impl Specs {
    /// Specs that are run.
    pub(super) fn to_run(&self) -> impl Iterator<Item = &String> {
        self.all.iter().filter(|name| !self.left_out.contains_key(*name))
    }
}

/// Group of upstream's developers that a name begins with, such as `sig-node`.
fn group(name: &str) -> &str {
    name.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or("others", |(group, _)| group)
}

fn clipped(line: &str) -> String {
    if line.chars().count() <= LINE {
        return line.to_owned();
    }
    line.chars().take(LINE - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs() -> Specs {
        let names = ["[sig-apps] A [Conformance]", "[sig-apps] B [Conformance]", "[sig-node] C [Conformance]", "D"];
        Specs {
            all: names.map(str::to_owned).into(),
            left_out: BTreeMap::from([("[sig-node] C [Conformance]".to_owned(), "it needs a registry")]),
        }
    }

    fn result(outcome: SpecOutcome, reason: Option<&str>) -> SpecResult {
        let (reason, image) = (reason.map(str::to_owned), "ab12".to_owned());
        SpecResult { outcome, reason, seconds: 3.5, ended: 1_795_853_921, image }
    }

    fn results() -> SpecResults {
        let mut results = SpecResults::default();
        results.put("[sig-apps] A [Conformance]", result(SpecOutcome::Passed, None));
        results.put("[sig-apps] B [Conformance]", result(SpecOutcome::Failed, Some("timed out")));
        results.put("[sig-apps] gone [Conformance]", result(SpecOutcome::Passed, None));
        results
    }

    #[test]
    fn what_has_not_passed_is_run_again_and_nothing_else() {
        let (results, mut specs) = (results(), specs());
        specs.all.insert("[sig-z] E".to_owned());
        let open: Vec<_> = results.open(&specs).collect();
        assert_eq!(open, ["D", "[sig-z] E", "[sig-apps] B [Conformance]"], "what failed is last");
        assert_eq!(results.failed(&specs).collect::<Vec<_>>(), ["[sig-apps] B [Conformance]"]);
    }

    #[test]
    fn a_later_result_counts_and_a_spec_that_is_gone_does_not() {
        let (mut results, specs) = (results(), specs());
        assert_eq!(results.counts(&specs), SpecCounts { passed: 1, failed: 1, skipped: 1, missing: 1 });
        results.put("[sig-apps] B [Conformance]", result(SpecOutcome::Passed, None));
        results.put("D", result(SpecOutcome::Skipped, Some("one node only")));
        assert_eq!(results.counts(&specs), SpecCounts { passed: 2, failed: 0, skipped: 2, missing: 0 });
    }

    #[test]
    fn results_come_back_from_their_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.json");
        assert_eq!(SpecResults::read(&path).expect("none is fine"), SpecResults::default());
        results().write(&path).expect("written");
        assert_eq!(SpecResults::read(&path).expect("read"), results());
        fs::write(&path, "{").expect("torn");
        SpecResults::read(&path).expect_err("torn results are not none");
    }

    #[test]
    fn people_read_counts_and_the_names_of_what_did_not_pass() {
        let text = "\
| group | passed | failed | left out | not run |
|---|---:|---:|---:|---:|
| others | 0 | 0 | 0 | 1 |
| sig-apps | 1 | 1 | 0 | 0 |
| sig-node | 0 | 0 | 1 | 0 |
| all | 1 | 1 | 1 | 1 |

2 results are of the image `ab12`.

Failed:

- [sig-apps] B [Conformance]:
  timed out

Left out:

- [sig-node] C [Conformance]:
  it needs a registry
";
        assert_eq!(results().markdown(&specs()), text);
        let lines = "\
not run   D
passed    [sig-apps] A [Conformance]
failed    [sig-apps] B [Conformance]
left out  [sig-node] C [Conformance]
";
        assert_eq!(results().lines(&specs()), lines);
    }

    #[test]
    fn no_line_for_people_is_longer_than_documents_allow() {
        let (name, mut results) = ("n".repeat(300), SpecResults::default());
        let specs = Specs { all: BTreeSet::from([name.clone()]), left_out: BTreeMap::new() };
        results.put(&name, result(SpecOutcome::Failed, Some(&"why ".repeat(100))));
        assert!(results.markdown(&specs).lines().all(|line| line.chars().count() <= LINE));
    }
}
