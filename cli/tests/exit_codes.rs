//! The program as a person or a script runs it: exit codes, what is printed where, what is left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn cairnctl(data: &Path, line: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cairnctl"))
        .args(line)
        .env("XDG_DATA_HOME", data)
        .env_remove("CAIRN_IMAGE_DIR")
        .stdin(Stdio::null())
        .output()
        .expect("the program under test runs")
}

fn code(data: &Path, line: &[&str]) -> Option<i32> {
    cairnctl(data, line).status.code()
}

/// Proves: Q6
#[test]
fn every_way_to_end_has_its_code() {
    let data = tempfile::tempdir().unwrap();
    let code = |line: &[&str]| code(data.path(), line);
    assert_eq!(code(&["--help"]), Some(0));
    assert_eq!(code(&["cluster", "list"]), Some(0));
    assert_eq!(code(&["image", "inspect", "/dev/null"]), Some(1));
    assert_eq!(code(&["nonsense"]), Some(2));
    assert_eq!(code(&["cluster", "create", "--no-tpm"]), Some(2), "needs --unprotected");
    assert_eq!(code(&["machine", "status"]), Some(6), "no cluster");
    assert_eq!(code(&["-c", "absent", "machine", "status"]), Some(6));
    assert_eq!(code(&["image", "inspect", "/nonexistent"]), Some(6));
    assert_eq!(code(&["cluster", "create", "--image", "/nonexistent"]), Some(6));
}

/// Proves: Q6 S11
#[test]
fn a_config_for_hardware_is_private_and_its_machine_awaited() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("enrolment.pb");
    let out = file.to_str().unwrap();
    assert_eq!(code(data.path(), &["enrol", "config", "--name", "office", "--out", out]), Some(0));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(&data.path().join("cairn")), 0o700);
    assert_eq!(mode(&data.path().join("cairn/owner.keys")), 0o600);

    // The name is taken, nobody knows the address, nobody answers at this one, nobody can be asked.
    assert_eq!(code(data.path(), &["enrol", "config", "--name", "office", "--out", out]), Some(2));
    assert_eq!(code(data.path(), &["machine", "status"]), Some(2));
    assert_eq!(code(data.path(), &["--address", "127.0.0.1:1", "machine", "status"]), Some(3));
    assert_eq!(code(data.path(), &["cluster", "destroy", "office"]), Some(2));
    assert_eq!(code(data.path(), &["cluster", "destroy", "office", "--yes"]), Some(0));
    assert_eq!(code(data.path(), &["cluster", "destroy", "office", "--yes"]), Some(6));
    assert!(data.path().join("cairn/owner.keys").exists(), "the owner's keys outlive every cluster");
}

/// Proves: Q6
#[test]
fn a_file_is_replaced_only_if_asked() {
    let data = tempfile::tempdir().unwrap();
    let run = |line: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cairnctl"));
        command.args(line).env("XDG_DATA_HOME", data.path()).current_dir(data.path()).stdin(Stdio::null());
        command.output().expect("the program under test runs")
    };
    let mode = |name: &str| fs::metadata(data.path().join(name)).unwrap().permissions().mode() & 0o777;
    fs::write(data.path().join("mine"), "mine").unwrap();
    for line in [&["kubeconfig", "--out", "mine"][..], &["enrol", "config", "--out", "mine"]] {
        let refused = run(line);
        assert_eq!(refused.status.code(), Some(2), "{line:?}");
        let expected = "error: `mine` exists\n  nothing was changed\n  next: name another file, or replace this one with --force\n";
        assert_eq!(String::from_utf8(refused.stderr).unwrap(), expected);
        assert_eq!(fs::read_to_string(data.path().join("mine")).unwrap(), "mine");
    }
    assert_eq!(run(&["kubeconfig", "--out", "mine", "--force"]).status.code(), Some(6), "no cluster");
    assert_eq!(fs::read_to_string(data.path().join("mine")).unwrap(), "mine", "nothing to replace it with");
    // A bare name is in the current directory.
    assert_eq!(run(&["enrol", "config", "--name", "one", "--out", "one"]).status.code(), Some(0));
    assert_eq!(run(&["enrol", "config", "--name", "two", "--out", "mine", "--force"]).status.code(), Some(0));
    assert_eq!((mode("one"), mode("mine")), (0o600, 0o600));
    assert_ne!(fs::read(data.path().join("mine")).unwrap(), b"mine");
}

/// Proves: Q6
#[test]
fn answers_and_errors_go_their_own_ways() {
    let data = tempfile::tempdir().unwrap();
    let list = cairnctl(data.path(), &["cluster", "list", "-o", "json"]);
    assert_eq!((list.stdout.as_slice(), list.stderr.as_slice()), (&b"[]\n"[..], &b""[..]));
    let failed = cairnctl(data.path(), &["-c", "absent", "machine", "status"]);
    assert!(failed.stdout.is_empty());
    let expected = "error: there is no cluster `absent`\n  nothing was changed\n  next: cairnctl cluster list\n";
    assert_eq!(String::from_utf8(failed.stderr).unwrap(), expected);
}

#[test]
fn a_data_directory_that_others_can_enter_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let cairn = data.path().join("cairn");
    fs::create_dir(&cairn).unwrap();
    fs::set_permissions(&cairn, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = cairnctl(data.path(), &["cluster", "list"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("chmod go= "));
}
