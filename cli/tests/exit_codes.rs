//! The program as a person or a script runs it: exit codes, what is printed where, what is left behind.

use std::convert::Infallible;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use keys::activation::Code;

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
    assert_eq!(code(&["image", "inspect", "--licences", "/nonexistent"]), Some(6));
    assert_eq!(code(&["image", "inspect", "--licences", "/dev/null"]), Some(1));
    assert_eq!(code(&["cluster", "create", "--image", "/nonexistent"]), Some(6));
}

/// Proves: Q6 S13
#[test]
fn a_saved_cluster_that_is_absent_or_given_options_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let code = |line: &[&str]| code(data.path(), line);
    assert_eq!(code(&["cluster", "saved"]), Some(0));
    assert_eq!(code(&["cluster", "save", "absent"]), Some(6));
    assert_eq!(code(&["cluster", "forget", "absent", "--yes"]), Some(6));
    assert_eq!(code(&["cluster", "create", "--from", "absent"]), Some(6));
    assert_eq!(code(&["cluster", "create", "--from", "./absent"]), Some(6));
    for brought in [&["--machines", "3"][..], &["--level", "encrypted"], &["--no-kubernetes"], &["--cpus", "1"]] {
        assert_eq!(code(&[&["cluster", "create", "--from", "absent"], brought].concat()), Some(2), "{brought:?}");
    }
    assert_eq!(code(&["cluster", "create", "--from", "Not a name"]), Some(2));
    let left: Vec<_> = fs::read_dir(data.path().join("cairn/clusters")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
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
fn secrets_are_read_from_standard_input() {
    let data = tempfile::tempdir().unwrap();
    let said = |more: &[&str], input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cairnctl"));
        command.args(["machine", "activate", "127.0.0.1:1", "--unprotected"]).args(more);
        command.env("XDG_DATA_HOME", data.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program under test runs");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let Ok(code) = Code::draw(|bytes| {
        bytes.fill(9);
        Ok::<(), Infallible>(())
    });
    let both = ["--code-file", "-", "--ticket", "-"];
    let (ended, why) = said(&both, &format!("{}\nno ticket\n", *code.to_text()));
    assert_eq!((ended, why.contains("understand the ticket in -")), (Some(2), true), "{why}");
    let (ended, why) = said(&both, "abcd\n");
    assert_eq!((ended, why.contains("understand the code in -")), (Some(2), true), "{why}");
    let (ended, why) = said(&[], "");
    assert_eq!((ended, why.contains("no terminal to ask on") && why.contains("--code-file")), (Some(2), true), "{why}");
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

/// Proves: Q6
#[test]
fn senseless_memory_is_refused_before_anything_is_made() {
    let data = tempfile::tempdir().unwrap();
    for (memory, more, wanted) in [
        ("64M", &[][..], "error: a machine with Kubernetes needs 2.0 GiB of memory, and 64 MiB is less"),
        (
            "64M",
            &["--no-kubernetes"],
            "error: a machine without Kubernetes needs 128 MiB of memory, and 64 MiB is less",
        ),
        ("2048T", &[], "error: this host has "),
    ] {
        let line = [&["cluster", "create", "small", "--memory", memory], more].concat();
        let refused = cairnctl(data.path(), &line);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{line:?}: {said}");
        assert!(said.starts_with(wanted) && said.contains("\n  nothing was changed\n"), "{said}");
        assert!(!data.path().join("cairn/clusters/small").exists());
    }
    // Each of them would fit.
    let half = format!("{}M", qemu::host::memory_mib().unwrap() / 2);
    let line = ["cluster", "create", "small", "--machines", "9", "--no-kubernetes", "--memory", &half];
    let refused = cairnctl(data.path(), &line);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_ne!(refused.status.code(), Some(0), "{said}");
    assert!(said.starts_with("error: 9 machines of ") && said.contains(" would fit"), "{said}");
    assert!(!data.path().join("cairn/clusters/small").exists());
}

/// Proves: Q6
#[test]
fn an_impossible_cluster_is_refused_before_anything_is_made() {
    let data = tempfile::tempdir().unwrap();
    for (more, wanted, next) in [
        (
            &["--coordinators", "2"][..],
            "error: of 2 coordinators one has no vote, and a Kubernetes control plane needs one\n",
            "ask for one less or one more: --coordinators 3; or leave Kubernetes out: --no-kubernetes\n",
        ),
        (&["--node-name", "one"], "error: one --node-name cannot be that of 3 machines\n", "leave it out: "),
    ] {
        let refused = cairnctl(data.path(), &[&["cluster", "create", "lab", "--machines", "3"], more].concat());
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.starts_with(&format!("{wanted}  nothing was changed\n  next: {next}")), "{said}");
        assert!(!data.path().join("cairn/clusters/lab").exists());
    }
}

/// Proves: Q6
#[test]
fn a_cluster_is_named_behind_the_command_or_before_it() {
    let data = tempfile::tempdir().unwrap();
    let said = |line: &[&str]| {
        let output = cairnctl(data.path(), line);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for name in ["home", "office"] {
        let file = data.path().join(name);
        assert_eq!(said(&["enrol", "config", "--name", name, "--out", file.to_str().unwrap()]).0, Some(0));
    }
    for command in ["start", "stop"] {
        let no_virtual_machine = "error: cluster `office` has no virtual machine: it is hardware\n  nothing was changed\n  \
                                  next: steer the machine itself: cairnctl -c office machine --help\n";
        for line in [
            &["cluster", command, "office"][..],
            &["-c", "office", "cluster", command],
            &["cluster", command, "-c", "office", "office"],
        ] {
            assert_eq!(said(line), (Some(2), no_virtual_machine.to_owned()), "{line:?}");
        }
        assert_eq!(said(&["cluster", command, "absent"]).0, Some(6), "{command}");
        assert!(said(&["cluster", command]).1.contains("several clusters (home, office)"), "{command}");
    }
    let status = "error: where the machine of `office` is, is not known\n";
    for line in [&["cluster", "status", "office"][..], &["-c", "office", "cluster", "status"]] {
        assert!(said(line).1.starts_with(status), "{line:?}");
    }
    // What is about all of a cluster takes no machine, and what is about virtual ones takes no hardware.
    let one = said(&["-m", "m1", "cluster", "destroy", "office", "--yes"]);
    assert_eq!(one.0, Some(2));
    assert!(one.1.starts_with("error: machine `m1` is named, and this is about a cluster as a whole\n"), "{}", one.1);
    for line in [&["-c", "office", "cluster", "link"][..], &["cluster", "add", "office"]] {
        let hardware = said(line);
        assert_eq!((hardware.0, hardware.1.contains("it is hardware")), (Some(2), true), "{line:?}: {}", hardware.1);
    }
    let absent = said(&["-c", "office", "-m", "m2", "machine", "status"]);
    assert_eq!(absent.0, Some(6));
    assert!(absent.1.starts_with("error: cluster `office` has no machine `m2`: it has m1\n"), "{}", absent.1);
    let two = said(&["-c", "home", "cluster", "destroy", "office", "--yes"]);
    assert_eq!((two.0, two.1.lines().next()), (Some(2), Some("error: both `office` and `home` are named")));
    // The last one is not meant by no name: what is gone is gone.
    assert_eq!(said(&["-c", "home", "cluster", "destroy", "--yes"]).0, Some(0));
    let unnamed = said(&["cluster", "destroy", "--yes"]);
    assert_eq!((unnamed.0, unnamed.1.lines().next()), (Some(2), Some("error: no cluster is named")));
    assert_eq!(said(&["cluster", "destroy", "office", "--yes"]).0, Some(0));
}

/// Proves: Q6
#[test]
fn an_error_says_what_was_left() {
    let data = tempfile::tempdir().unwrap();
    let home = data.path().join("home");
    let clusters = data.path().join("cairn/clusters");
    let config = |name: &str, more: &[&str]| {
        let line = [&["enrol", "config", "--name", name, "--out", home.to_str().unwrap(), "--force"], more].concat();
        let output = cairnctl(data.path(), &line);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    // What was begun for a config that cannot be is taken back.
    let (code, said) = config("home", &["--static-address", "nowhere"]);
    assert_eq!((code, said.contains("\n  no config was written\n")), (Some(2), true), "{said}");
    assert!(!clusters.join("home").exists());
    // One that is taken is left as it is.
    assert_eq!(config("home", &[]).0, Some(0));
    let (code, said) = config("home", &[]);
    assert_eq!((code, said.contains("\n  nothing was changed\n")), (Some(2), true), "{said}");
    assert!(clusters.join("home/machines/m1/first-contact").exists());

    // Whether a machine runs there cannot be found out: so nothing is removed.
    fs::create_dir_all(clusters.join("home/machines/m1/run.json")).unwrap();
    let failed = cairnctl(data.path(), &["cluster", "destroy", "home", "--yes"]);
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(said.contains("\n  nothing of the cluster was removed\n"), "{said}");
    assert!(clusters.join("home/machines/m1/first-contact").exists());
    fs::remove_dir(clusters.join("home/machines/m1/run.json")).unwrap();

    // The answer is lost, what was asked for is not.
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairnctl"));
    command.args(["cluster", "destroy", "home", "--yes"]).env("XDG_DATA_HOME", data.path()).stdin(Stdio::null());
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let lost = command.stdout(full).output().unwrap();
    let said = String::from_utf8(lost.stderr).unwrap();
    assert!(said.contains("what was asked for is done") && !said.contains("nothing was changed"), "{said}");
    assert!(!clusters.join("home").exists());
}

/// A creation that fails half-way leaves no cluster behind. Proves: Q6
#[test]
fn a_cluster_that_cannot_be_made_is_taken_back() {
    let data = tempfile::tempdir().unwrap();
    let image = data.path().join("image");
    fs::create_dir(&image).unwrap();
    // All that is looked at before the first file is made; there is no kernel beside it.
    let manifest = r#"{
        "version": "0", "profile": "release", "kernel": {"version": "0", "source_sha256": ""}, "cmdline": "",
        "verity": {"root_hash": "", "hash_offset": 0, "data_blocks": 0}, "pcr11": "",
        "components": {}, "artefacts": {}, "initramfs": {}, "esp": {}, "root": {}
    }"#;
    fs::write(image.join("manifest.json"), manifest).unwrap();
    let image = image.to_str().unwrap();
    let line = [
        "cluster",
        "create",
        "broken",
        "--image",
        image,
        "--no-tpm",
        "--unprotected",
        "--no-kubernetes",
        "--memory",
        "512M",
    ];
    let failed = cairnctl(data.path(), &line);
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(said.contains("bzImage") && said.contains("\n  no cluster was made\n"), "{said}");
    assert!(!data.path().join("cairn/clusters/broken").exists(), "{said}");
    let list = cairnctl(data.path(), &["cluster", "list", "-o", "json"]);
    assert_eq!(list.stdout, b"[]\n");
}
