//! Completion as a shell meets it: the script is read by a real bash, which then asks the program.

use std::path::Path;
use std::process::{Command, Stdio};

const CAIRNCTL: &str = env!("CARGO_BIN_EXE_cairnctl");

fn output(command: &mut Command, data: &Path) -> String {
    let output = command.env("XDG_DATA_HOME", data).stdin(Stdio::null()).output().expect("the program runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("what is printed is UTF-8")
}

fn with_clusters(names: &[&str]) -> tempfile::TempDir {
    let data = tempfile::tempdir().expect("make a directory");
    for name in names {
        let file = data.path().join(name);
        let arguments = ["enrol", "config", "--name", name, "--out", file.to_str().expect("it has a name in UTF-8")];
        output(Command::new(CAIRNCTL).args(arguments), data.path());
    }
    data
}

/// Whether this host has the shell: bash is part of every Debian, the others are not.
#[expect(clippy::print_stderr, reason = "what a person reads")]
fn at_hand(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("there is no {shell} here: its script is printed, and not read");
    }
    found
}

/// Proves: Q6
#[test]
fn bash_completes_commands_options_and_names_of_clusters() {
    let data = with_clusters(&["home", "house", "office"]);
    // What bash does when Tab is pressed behind the last of these words (bash(1), Programmable Completion).
    let tab = |words: &[&str]| {
        let script = "source <(\"$1\" completion bash); shift
            spec=$(complete -p cairnctl); [[ $spec =~ -F\\ ([^ ]+) ]] || exit 1
            COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
            \"${BASH_REMATCH[1]}\" cairnctl \"${@: -1}\" \"${@: -2:1}\"
            printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-c", script, "bash", CAIRNCTL]).args(words);
        output(&mut bash, data.path()).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(tab(&["cairnctl", "cluster", "des"]), ["destroy"]);
    for command in ["destroy", "start", "stop", "status"] {
        assert_eq!(tab(&["cairnctl", "cluster", command, "ho"]), ["home", "house"], "{command}");
    }
    assert_eq!(tab(&["cairnctl", "-c", "o"]), ["office"]);
    assert_eq!(tab(&["cairnctl", "machine", "status", "--cluster", ""]), ["home", "house", "office"]);
    assert_eq!(tab(&["cairnctl", "cluster", "create", "--level", "e"]), ["encrypted"]);
    assert_eq!(tab(&["cairnctl", "condition", "wait", "Node"]), ["NodeReady"]);
    assert_eq!(tab(&["cairnctl", "cluster", "destroy", "nothing"]), [""]);
    // Nobody knows where these machines are: no error, no wait, only what is sure.
    assert_eq!(tab(&["cairnctl", "-c", "home", "machine", "logs", "a"]), ["audit"]);
}

/// Proves: Q6
#[test]
fn zsh_and_fish_get_a_script_that_asks_for_the_same_names() {
    let data = with_clusters(&["home"]);
    for shell in ["zsh", "fish"] {
        let script = output(Command::new(CAIRNCTL).args(["completion", shell]), data.path());
        assert!(script.contains("CAIRN_COMPLETE") && script.contains(CAIRNCTL), "{script}");
        let mut asked = Command::new(CAIRNCTL);
        asked.env("CAIRN_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_IFS", "\n");
        let names = output(asked.args(["--", "cairnctl", "cluster", "stop", "h"]), data.path());
        assert_eq!(names.trim(), "home", "{shell}");
        if at_hand(shell) {
            let file = data.path().join(shell);
            std::fs::write(&file, script).unwrap();
            output(Command::new(shell).arg("-n").arg(file), data.path());
        }
    }
    let unknown = Command::new(CAIRNCTL).args(["completion", "tcsh"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}
