//! Completion as a shell meets it: bash, zsh and fish read their scripts, and then ask the program.

use std::collections::BTreeSet;
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

/// Types `$2` and Tab at a zsh of its own, as a person would; prints what is seen then, and between `<` and `>` the line.
const ZSH: &str = r#"
zmodload zsh/zpty || exit 1
zpty shell zsh -f -i
zpty -w shell "PROMPT= RPROMPT= LISTMAX=0; autoload -Uz compinit; compinit -u -D; source <('$1' completion zsh)
    said() { zle -I; print -r -- \"<\$BUFFER>\" }; zle -N said; bindkey '^X' said; print REA''DY"
zpty -r -m shell out '*READY*' || exit 2
zpty -w -n shell "$2"$'\t\x18'
zpty -r -m shell out '*<*>*' || exit 3
print -r -- "$out"
"#;

/// Proves: Q6
#[test]
fn zsh_completes_commands_and_names_of_clusters() {
    let data = with_clusters(&["home", "house", "office"]);
    let tab = |line: &str| {
        let mut zsh = Command::new("zsh");
        zsh.env("TERM", "dumb").args(["-f", "-c", ZSH, "zsh", CAIRNCTL, line]);
        output(&mut zsh, data.path())
    };
    // Where several words fit they are listed, and the line stays as it is.
    for (line, fits, others) in [
        ("cairnctl cluster sta", ["start", "status"], ["stop", "destroy"]),
        ("cairnctl cluster stop ho", ["home", "house"], ["office", "status"]),
    ] {
        let seen = tab(line);
        let listed = |word: &&str| seen.lines().any(|row| row.split_whitespace().any(|listed| listed == *word));
        assert!(fits.iter().all(listed) && !others.iter().any(listed), "{line}: {seen}");
        assert!(seen.contains(&format!("<{line}>")), "{line}: {seen}");
    }
    for (line, whole) in [
        ("cairnctl cluster des", "cairnctl cluster destroy "),
        ("cairnctl cluster stop off", "cairnctl cluster stop office "),
        ("cairnctl -c o", "cairnctl -c office "),
    ] {
        let seen = tab(line);
        assert!(seen.contains(&format!("<{whole}>")), "{line}: {seen}");
    }
}

/// Proves: Q6
#[test]
fn fish_completes_commands_and_names_of_clusters() {
    let data = with_clusters(&["home", "house", "office"]);
    let tab = |line: &str| {
        let script = "$argv[1] completion fish | source; complete --do-complete $argv[2]";
        let mut fish = Command::new("fish");
        // It keeps files of its own below the home directory.
        fish.env("HOME", data.path()).args(["--no-config", "--command", script, CAIRNCTL, line]);
        let said = output(&mut fish, data.path());
        let words = said.lines().filter_map(|row| row.split('\t').next()).map(str::to_owned);
        words.collect::<BTreeSet<_>>()
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(tab("cairnctl cluster sta"), words(&["start", "status"]));
    assert_eq!(tab("cairnctl cluster stop ho"), words(&["home", "house"]));
    assert_eq!(tab("cairnctl cluster stop off"), words(&["office"]));
    assert_eq!(tab("cairnctl -c o"), words(&["office"]));
}

#[test]
fn other_shells_are_refused() {
    let unknown = Command::new(CAIRNCTL).args(["completion", "tcsh"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}
