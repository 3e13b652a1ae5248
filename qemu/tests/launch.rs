//! Real QEMU, without a guest: what is left when a machine does not start, and when one is ended.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use qemu::machine::{Boot, Clock, EmulatedTpm, Firmware, Kernel, Machine, OnReset, Watchdog};
use qemu::process::{Process, ProcessIdentity, WaitFailure};
use qemu::run::{RunError, Tie, crash_of};
use qemu::{Deadline, Vm};
use rustix::process::{Pid, Signal, kill_process};

fn machine(dir: &Path, boot: Boot) -> Machine {
    Machine {
        name: "launch".to_owned(),
        boot,
        cpus: 1,
        memory_mib: 128,
        disks: vec![],
        tpm: Some(EmulatedTpm { state: dir.join("tpm") }),
        nics: vec![],
        fw_cfg: vec![],
        watchdog: Watchdog::Absent,
        on_reset: OnReset::Restart,
        clock: Clock::OfHost,
    }
}

fn without_kernel(dir: &Path) -> Machine {
    let kernel = dir.join("no-such-kernel");
    machine(dir, Boot::Direct(Kernel { image: kernel.clone(), initrd: kernel, cmdline: String::new() }))
}

fn firmware_only(dir: &Path) -> Machine {
    machine(dir, Boot::Uefi(Firmware::debian(dir.join("vars.fd"))))
}

/// The programs of this host that are told of `dir` on their command line. A zombie has none.
fn programs_of(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().expect("a temporary directory has a name in UTF-8");
    let processes = fs::read_dir("/proc").expect("Linux has it").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(dir)).collect()
}

#[test]
fn a_machine_that_qemu_refuses_is_told_in_qemus_words() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let refused = Vm::launch(&without_kernel(dir), dir, Tie::Detached).unwrap_err();
    let RunError::Start { output, .. } = &refused else { panic!("{refused:?}") };
    assert!(output.contains("could not open kernel file") && output.contains("no-such-kernel"), "{output}");
    assert!(refused.to_string().ends_with(output), "{refused}");
    assert_eq!(programs_of(dir), [""; 0]);
    assert!(!Vm::runs(dir).unwrap());

    let mut greedy = firmware_only(dir);
    greedy.memory_mib = 1 << 31;
    let refused = Vm::launch(&greedy, dir, Tie::Detached).unwrap_err();
    assert!(matches!(&refused, RunError::Start { output, .. } if output.contains("emory")), "{refused:?}");
    assert_eq!(programs_of(dir), [""; 0]);
}

#[test]
fn a_file_that_cannot_be_written_leaves_no_tpm_running() {
    for file in ["argv", "qemu.log"] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        fs::create_dir(dir.join(file)).unwrap();
        let failed = Vm::launch(&firmware_only(dir), dir, Tie::Launcher).unwrap_err();
        assert!(matches!(failed, RunError::Prepare(_)), "{failed:?}");
        assert_eq!(programs_of(dir), [""; 0], "{file}");
    }
}

/// The TPM outlives QEMU by the moment in which it writes its state: a directory that is removed in that moment was the
/// reason why a cluster could not be destroyed. Here the moment lasts as long as the test wants.
#[test]
fn a_machine_ends_when_its_tpm_does_and_nothing_is_written_then() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_owned();
    drop(Vm::launch(&firmware_only(&dir), &dir, Tie::Detached).unwrap());
    let record: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("run.json")).unwrap()).unwrap();
    let process = |name: &str| {
        let identity: ProcessIdentity = serde_json::from_value(record[name].clone()).unwrap();
        (Pid::from_raw(identity.pid).unwrap(), Process::find(identity).unwrap().unwrap())
    };
    let ((_, qemu), (tpm_pid, tpm)) = (process("qemu"), process("swtpm"));
    kill_process(tpm_pid, Signal::STOP).unwrap();

    let long = Deadline::after(Duration::from_secs(60));
    let ending = {
        let dir = dir.clone();
        thread::spawn(move || Vm::end_detached(&dir))
    };
    assert!(qemu.wait(long));
    let early = tpm.until(Deadline::after(Duration::from_millis(300)), || ending.is_finished().then_some(()));
    kill_process(tpm_pid, Signal::CONT).unwrap();
    assert!(matches!(early, Err(WaitFailure::TimedOut(_))), "it did not wait for the TPM: {early:?}");
    ending.join().unwrap().unwrap();
    assert_eq!(programs_of(&dir), [""; 0]);
    assert!(!Vm::runs(&dir).unwrap());
    fs::remove_dir_all(&dir).unwrap();
}

/// A QEMU that is ended by its launcher, or by a person, has not crashed.
#[test]
fn a_crash_of_qemu_is_told_by_its_launcher() {
    let root = tempfile::tempdir().unwrap();
    let crash = |signal: Option<Signal>| {
        let dir = root.path().join(format!("{signal:?}"));
        let vm = Vm::launch(&firmware_only(root.path()), &dir, Tie::Launcher).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("run.json")).unwrap()).unwrap();
        let identity: ProcessIdentity = serde_json::from_value(record["qemu"].clone()).unwrap();
        let qemu = Process::find(identity).unwrap().unwrap();
        if let Some(signal) = signal {
            kill_process(Pid::from_raw(identity.pid).unwrap(), signal).unwrap();
            assert!(qemu.wait(Deadline::after(Duration::from_secs(60))));
        }
        drop(vm);
        crash_of(&dir)
    };
    assert_eq!(crash(Some(Signal::SEGV)).as_deref(), Some("QEMU crashed: signal 11"));
    assert_eq!([crash(None), crash(Some(Signal::TERM)), crash(Some(Signal::KILL))], [None, None, None]);
}

/// As they lie there when a launcher is killed before its machine runs: with a TPM, and with QEMU beside it.
#[test]
fn a_killed_launchers_rest_is_ended_by_the_next_start_or_end() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let launched = || drop(Vm::launch(&firmware_only(dir), dir, Tie::Detached).unwrap());
    let record = || serde_json::from_slice::<serde_json::Value>(&fs::read(dir.join("run.json")).unwrap()).unwrap();
    let abandoned = || {
        launched();
        assert!(!dir.join("launching").exists(), "it runs");
        let record = record();
        fs::write(dir.join("launching"), record["sockets"].as_str().unwrap()).unwrap();
        fs::remove_file(dir.join("run.json")).unwrap();
        assert!(!Vm::runs(dir).unwrap() && programs_of(dir).len() == 2);
        record
    };
    let before = abandoned();
    launched();
    assert!(record()["qemu"] != before["qemu"] && programs_of(dir).len() == 2, "QEMU and TPM of the new one");
    assert!(!Path::new(before["sockets"].as_str().unwrap()).exists());
    Vm::end_detached(dir).unwrap();
    abandoned();
    Vm::end_detached(dir).unwrap();
    assert_eq!(programs_of(dir), [""; 0]);
    // Killed before it had written where the sockets are.
    fs::write(dir.join("launching"), "").unwrap();
    launched();
    assert!(Vm::runs(dir).unwrap());
    Vm::end_detached(dir).unwrap();
    assert!(!dir.join("launching").exists());
}

#[test]
fn a_guest_that_does_not_hear_its_power_button_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    drop(Vm::launch(&firmware_only(dir), dir, Tie::Detached).unwrap());
    let still = Vm::stop_detached(dir, Deadline::after(Duration::from_millis(100)));
    // Firmware that has just begun does not listen.
    assert!(matches!(still, Err(RunError::StillUp { .. })), "{still:?}");
    assert!(Vm::runs(dir).unwrap());
    Vm::end_detached(dir).unwrap();
    Vm::stop_detached(dir, Deadline::after(Duration::ZERO)).unwrap();
}
