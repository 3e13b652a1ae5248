//! Running other programs: with their output in a log, of which the end is shown when they fail, or with their output as
//! the answer. It must never run anything through a shell.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// How many lines of a failed program's log are shown; the rest is in the file.
const TAIL: usize = 30;

/// Runs a program with both its outputs appended to `log`.
///
/// # Errors
/// The program cannot be started, or fails: then with the end of its log.
pub fn logged(command: &mut Command, log: &Path) -> Result<()> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create `{}`", folder.display()))?;
    }
    let file = fs::OpenOptions::new().create(true).append(true).open(log);
    let file = file.with_context(|| format!("open `{}`", log.display()))?;
    let twin = file.try_clone().context("share the log between both outputs")?;
    let status = command.stdin(Stdio::null()).stdout(file).stderr(twin).status();
    let status = status.with_context(|| format!("start {}", name(command)))?;
    if !status.success() {
        let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        bail!("{} ended with {status}; the end of `{}`:\n{tail}", name(command), log.display());
    }
    Ok(())
}

/// Runs a program and returns what it printed, without the last line's end. Its errors go to the terminal.
///
/// # Errors
/// The program cannot be started, fails, or prints something that is not UTF-8.
pub fn answer(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("start {}", name(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", name(command), output.status);
    }
    let text = String::from_utf8(output.stdout).with_context(|| format!("read the answer of {}", name(command)))?;
    Ok(text.trim_end().to_owned())
}

/// Runs a program on this terminal.
///
/// # Errors
/// The program cannot be started, or fails.
pub fn shown(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {}", name(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", name(command));
    }
    Ok(())
}

fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).take(6).collect();
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_end_of_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("logs/ls");
        let error = logged(Command::new("ls").arg("/nonexistent-entry"), &log).expect_err("ls fails");
        assert!(error.to_string().contains("nonexistent-entry"), "{error:#}");
    }

    #[test]
    fn an_answer_comes_without_its_line_end() {
        assert_eq!(answer(Command::new("echo").arg("five")).expect("echo answers"), "five");
    }
}
