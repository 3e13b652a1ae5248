//! Runs tests through cargo and Go, shows their output as it comes, and counts what passed, failed and was skipped. It must never
//! call a run good that could not be counted.

use std::{
    fmt,
    io::{BufRead, BufReader, Write, stdout},
    ops::AddAssign,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use xtask::progress::say;

/// How many tests ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Not run, with a reason that the output shows.
    pub(crate) skipped: usize,
}

impl Counts {
    /// Counts of a step that is one test.
    pub(crate) fn of_one(good: bool) -> Self {
        Self { passed: usize::from(good), failed: usize::from(!good), skipped: 0 }
    }
}

/// Runs one `cargo test …`. A run that ends badly without a failed test (it did not compile, a test program crashed), and
/// one that ends well without any test, count as one failure.
///
/// # Errors
/// Cargo cannot be started, or its output cannot be read or shown.
pub(crate) fn of(cargo_test: &mut Command) -> Result<Counts> {
    counted(cargo_test, add, &mut stdout())
}

/// Runs one `go test -v …`. The same ends are failures.
///
/// # Errors
/// Go cannot be started, or its output cannot be read or shown.
pub(crate) fn of_go(go_test: &mut Command) -> Result<Counts> {
    counted(go_test, add_go, &mut stdout())
}

/// How lines become counts.
type Read = fn(&mut Counts, &str);

fn add(counts: &mut Counts, line: &str) {
    if let Some(more) = result_line(line) {
        *counts += more;
    }
}

/// By the line that follows each test of Go: `--- PASS: TestName (0.00s)`. Those of parts of a test are indented.
fn add_go(counts: &mut Counts, line: &str) {
    let ended = |how| usize::from(line.strip_prefix("--- ").is_some_and(|line| line.starts_with(how)));
    *counts += Counts { passed: ended("PASS: "), failed: ended("FAIL: "), skipped: ended("SKIP: ") };
}

fn counted(tests: &mut Command, read: Read, shown: &mut impl Write) -> Result<Counts> {
    let mut child = tests.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start the tests")?;
    let mut counts = Counts::default();
    for line in BufReader::new(child.stdout.take().context("the tests' output is a pipe")?).lines() {
        let line = line.context("read the tests' output")?;
        writeln!(shown, "{line}").context("show the tests' output")?;
        read(&mut counts, &line);
    }
    let status = child.wait().context("wait for the tests")?;
    Ok(judged(status.success(), counts))
}

/// Counts of a run, judged by how it ended and what it counted.
fn judged(ended_well: bool, counts: Counts) -> Counts {
    match (ended_well, counts) {
        (true, Counts { passed: 0, failed: 0, skipped: 0 }) => {
            say("✗ the tests ended well, but not one was counted: that is a failure");
            Counts { failed: 1, ..counts }
        }
        (false, Counts { failed: 0, .. }) => Counts { failed: 1, ..counts },
        (_, counts) => counts,
    }
}

/// Reads the line with which Rust's test programs end: `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
fn result_line(line: &str) -> Option<Counts> {
    let (_verdict, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number =
        |word: &str| numbers.split(';').find_map(|part| part.trim().strip_suffix(word)?.trim().parse::<usize>().ok());
    Some(Counts { passed: number("passed")?, failed: number("failed")?, skipped: number("ignored")? })
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn result_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 5 filtered out; finished in 0.1s";
        assert_eq!(result_line(line), Some(Counts { passed: 12, failed: 2, skipped: 1 }));
        assert_eq!(result_line("test result_is_kept ... ok"), None);
    }

    #[test]
    fn a_run_that_ends_badly_without_a_failed_test_is_a_failure() {
        assert_eq!(counts(add, "false"), Counts { passed: 0, failed: 1, skipped: 0 });
    }

    /// Counts what a line of shell prints, and shows it to nobody: who runs this test counts lines, too.
    fn counts(read: Read, script: &str) -> Counts {
        let mut command = Command::new("sh");
        counted(command.arg("-c").arg(script), read, &mut io::sink()).expect("ran")
    }

    #[test]
    fn a_run_that_ends_well_without_any_test_is_a_failure() {
        let failed = Counts { passed: 0, failed: 1, skipped: 0 };
        assert_eq!(counts(add, "true"), failed);
        let empty = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.1s";
        assert_eq!(counts(add, &format!("echo '{empty}'")), failed);
    }

    #[test]
    fn a_run_with_tests_is_good_though_one_program_has_none() {
        let line =
            |passed| format!("test result: ok. {passed} passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        let good = counts(add, &format!("echo '{}'; echo '{}'", line(0), line(3)));
        assert_eq!(good, Counts { passed: 3, failed: 0, skipped: 2 });
    }

    #[test]
    fn tests_of_go_are_counted_by_their_own_lines() {
        let lines = "printf '%s\\n' '=== RUN   TestA' '--- PASS: TestA (0.00s)' '    --- PASS: TestA/part (0.00s)' \
                     '--- SKIP: TestB (0.00s)' PASS 'ok  \tcairn/components/kube\t0.1s'";
        assert_eq!(counts(add_go, lines), Counts { passed: 1, failed: 0, skipped: 1 });
        let failed = Counts { passed: 0, failed: 1, skipped: 0 };
        assert_eq!(counts(add_go, "echo '--- FAIL: TestA (0.00s)'; exit 1"), failed);
        assert_eq!(counts(add_go, "echo '?   \tcairn/components/kube\t[no test files]'"), failed);
        assert_eq!(counts(add_go, "echo FAIL; exit 1"), failed, "the process of the tests has ended");
    }

    #[test]
    fn the_closing_line_has_its_form() {
        let counts = Counts { passed: 3, failed: 0, skipped: 1 };
        assert_eq!(counts.to_string(), "3 passed, 0 failed, 1 skipped");
    }
}
