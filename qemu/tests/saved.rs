//! Real QEMU, with firmware for a guest: machines are saved and come back, and what does not fit is refused by name. What a
//! guest sees of it is shown by the cases on machines.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use qemu::machine::{
    Boot, Cache, Clock, Content, Disk, EmulatedTpm, Firmware, FwCfg, Link, Mac, Machine, Nic, OnReset, Watchdog,
};
use qemu::run::{Memory, Paused, Tie};
use qemu::saved::{Care, CopyPlace, RestoreError, SaveError, SaveRequest, SaveStep, SavedFleet, Then, save};
use qemu::{Deadline, Vm};
use serde_json::Value;

const IMAGE: &str = "0707";

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// A place for a test: a machine with all that can be saved runs in `root/m1`, and is ended with it.
struct Bench {
    root: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::of(|_| {})
    }

    fn of(change: impl FnOnce(&mut Machine)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let bench = Self { root };
        let dir = bench.at("m1");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("config"), "a config").unwrap();
        fs::write(dir.join("disk.img"), [3; 1 << 20]).unwrap();
        fs::write(dir.join("serial.log"), "of the boot before\n").unwrap();
        let mut machine = Machine { nics: vec![bench.card("cable")], ..machine(&dir) };
        change(&mut machine);
        drop(Vm::launch(&machine, &dir, Tie::Detached).unwrap());
        bench
    }

    fn card(&self, cable: &str) -> Nic {
        Nic { mac: Mac::numbered(1), link: Link::Stream(self.at(cable)) }
    }

    fn at(&self, name: &str) -> PathBuf {
        // As the machine is named by its record.
        fs::canonicalize(self.root.path()).unwrap().join(name)
    }

    fn vm(&self) -> Vm {
        Vm::attach(&self.at("m1")).unwrap().expect("it runs")
    }

    fn save(&self, care: Care, then: Then, tell: &dyn Fn(SaveStep)) -> Result<(), SaveError> {
        save(&self.at("fleet"), &mut [("m1", &mut self.vm())], saving(care, then), tell)
    }

    fn saved(&self) -> Result<SavedFleet<String>, RestoreError> {
        SavedFleet::open(&self.at("fleet"))
    }

    fn restore(&self, copy: &str) -> Result<Paused, RestoreError> {
        Ok(self.saved()?.restore(&[self.place(copy)], Tie::Launcher)?.remove(0))
    }

    /// Plugs a copy's cable in, as a network does, and lets it go on. QEMU 7.2 crashes over the frame by which a restored machine announces
    /// itself (`net_stream_receive`, net/stream.c) where it does not listen at the cable yet.
    fn go_on(&self, copy: &str, mut paused: Paused) -> Vm {
        let cable = self.at(&format!("{copy}.cable"));
        let _plug = paused.until(soon(), || UnixStream::connect(&cable).ok()).unwrap();
        let deadline = soon();
        while !paused.qmp().human("info network", deadline).unwrap().contains(cable.to_str().unwrap()) {
            assert!(deadline.left().is_some(), "nobody listens at {}", cable.display());
        }
        paused.go_on().unwrap()
    }

    fn place(&self, copy: &str) -> CopyPlace {
        CopyPlace {
            name: "m1".to_owned(),
            title: copy.to_owned(),
            dir: self.at(copy),
            links: vec![self.card(&format!("{copy}.cable")).link],
            clock: None,
        }
    }

    fn folders(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.path()).unwrap().map(Result::unwrap);
        let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
        let mut names: Vec<_> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Restores, and returns why that was refused: nothing is left behind.
    fn refused(&self) -> String {
        let why = self.restore("copy").map(drop).unwrap_err();
        assert!(!self.at("copy").exists(), "{why}");
        assert_eq!(programs_of(&self.at("copy")), 0, "{why}");
        chain(&why)
    }

    /// Changes a saved file, has that refused, and puts it back.
    fn refused_with(&self, file: &str, change: impl FnOnce(&Path)) -> String {
        let (path, kept) = (self.at("fleet").join(file), self.at("kept"));
        fs::copy(&path, &kept).unwrap();
        change(&path);
        let why = self.refused();
        fs::remove_file(&path).or_else(|_| path.try_exists().map(drop)).unwrap();
        fs::copy(&kept, &path).unwrap();
        why
    }

    /// The same of a field of `fleet.json`.
    fn refused_where(&self, change: impl FnOnce(&mut Value)) -> String {
        self.refused_with("fleet.json", |path| {
            let mut manifest = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            change(&mut manifest);
            fs::write(path, manifest.to_string()).unwrap();
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ended = Vm::end_detached(&self.at("m1"));
    }
}

fn saving(care: Care, then: Then) -> SaveRequest<'static, String> {
    SaveRequest { image: IMAGE, made_by: "a test", care, then, more: "more".to_owned() }
}

fn machine(dir: &Path) -> Machine {
    Machine {
        name: "m1".to_owned(),
        boot: Boot::Uefi(Firmware::debian(dir.join("vars.fd"))),
        cpus: 1,
        memory_mib: 64,
        disks: vec![Disk { content: Content::Raw(dir.join("disk.img")), serial: "d".to_owned(), cache: Cache::Unsafe }],
        tpm: Some(EmulatedTpm { state: dir.join("tpm") }),
        nics: vec![],
        fw_cfg: vec![FwCfg { name: "opt/config".to_owned(), path: dir.join("config") }],
        watchdog: Watchdog::Absent,
        on_reset: OnReset::Restart,
        clock: Clock::OfHost,
    }
}

/// How many programs of this host are told of `dir` on their command line.
fn programs_of(dir: &Path) -> usize {
    let dir = dir.to_str().expect("a temporary directory has a name in UTF-8");
    let processes = fs::read_dir("/proc").expect("Linux has it").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(dir)).count()
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

fn registers(qmp: &mut qemu::qmp::Qmp) -> String {
    qmp.human("info registers", soon()).unwrap()
}

fn status(vm: &mut Vm) -> String {
    vm.qmp().status(soon()).unwrap()
}

/// Proves: S13
#[test]
fn a_saved_machine_comes_back_as_it_was_again_and_again() {
    let bench = Bench::new();
    let mut vm = bench.vm();
    save(&bench.at("fleet"), &mut [("m1", &mut vm)], saving(Care::ThisRun, Then::Stand), &|_| {}).unwrap();
    let before = registers(vm.qmp());
    for copy in ["one", "two"] {
        let mut paused = bench.restore(copy).unwrap();
        assert_eq!(registers(paused.qmp()), before);
        let mut vm = bench.go_on(copy, paused);
        assert_eq!(status(&mut vm), "running");
        // What the machine writes is its own; the saved disk is one file for all, below an overlay.
        let same = |file: &str| inode(&bench.at(copy).join(file)) == inode(&bench.at("fleet/m1").join(file));
        let own = ["tpm/tpm2-00.permall", "vars.fd", "serial.log"];
        assert!(own.iter().all(|file| !same(file)) && same("disk.img") && same("config"));
        let disk = bench.at(copy).join("disk0.1.qcow2");
        assert!(disk.exists() && fs::read(bench.at(copy).join("disk.img")).unwrap() == [3; 1 << 20]);
    }
}

/// Proves: S13
#[test]
fn a_machine_goes_on_after_a_save_and_its_copy_is_saved_in_turn() {
    let bench = Bench::new();
    bench.save(Care::ThisRun, Then::GoOn, &|_| {}).unwrap();
    assert_eq!(status(&mut bench.vm()), "running");
    let mut copy = bench.go_on("copy", bench.restore("copy").unwrap());
    save(&bench.at("again"), &mut [("m1", &mut copy)], saving(Care::Lasting, Then::Stand), &|_| {}).unwrap();
    copy.kill();
    // What it came from may go: a copy shares files, and needs no folder.
    fs::remove_dir_all(bench.at("fleet")).unwrap();
    fs::remove_dir_all(bench.at("copy")).unwrap();
    let again = SavedFleet::<String>::open(&bench.at("again")).unwrap();
    let third = again.restore(&[bench.place("third")], Tie::Launcher).unwrap().remove(0);
    let mut vm = bench.go_on("third", third);
    assert_eq!(status(&mut vm), "running");
    assert!(bench.at("third").join("disk0.2.qcow2").exists());
}

#[test]
fn a_restored_console_has_its_text_and_waits_begin_there() {
    let bench = Bench::new();
    let log = |dir: &str, text: &str| {
        use std::io::Write;
        let mut file = fs::File::options().append(true).open(bench.at(dir).join("serial.log")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    log("m1", "ready\n");
    bench.save(Care::ThisRun, Then::GoOn, &|_| {}).unwrap();
    let vm = bench.go_on("copy", bench.restore("copy").unwrap());
    log("copy", "ready again\n");
    assert_eq!(vm.wait_for(vm.started(), "ready", soon()).unwrap().text, "ready again");
    let said: Vec<String> = vm.said().into_iter().map(|line| line.text).collect();
    assert!(said.contains(&"ready".to_owned()) && !said.contains(&"of the boot before".to_owned()), "{said:?}");
}

/// Proves: S13
#[test]
fn a_saved_fleet_that_does_not_fit_is_refused_by_name() {
    let bench = Bench::new();
    bench.save(Care::Lasting, Then::GoOn, &|_| {}).unwrap();
    let saved = bench.saved().unwrap();
    assert!(saved.is_of(IMAGE).is_ok());
    let other = saved.is_of("0808").unwrap_err().to_string();
    assert!(other.contains("0707") && other.contains("0808"), "{other}");
    assert_eq!((saved.more().as_str(), saved.made().by.as_str()), ("more", "a test"));

    for (said, why) in [
        ("has format 2", bench.refused_where(|it| it["format"] = 2.into())),
        ("is damaged", bench.refused_where(|it| it["nonsense"] = 2.into())),
        ("is damaged", bench.refused_with("fleet.json", |path| fs::write(path, "{").unwrap())),
        ("no saved fleet", bench.refused_with("fleet.json", |path| fs::remove_file(path).unwrap())),
        ("names `../m1`", bench.refused_where(|it| it["machines"][0]["name"] = "../m1".into())),
        ("saved with swtpm 9", bench.refused_where(|it| it["host"]["packages"]["swtpm"] = "9".into())),
        ("with UEFI firmware 00", bench.refused_where(|it| it["host"]["firmware"] = "00".into())),
        ("counter of 1 kHz", bench.refused_where(|it| it["host"]["tsc_khz"] = 1.into())),
        ("with `pc`, where", bench.refused_where(|it| it["machines"][0]["board"][8] = "pc".into())),
        ("MiB of memory", bench.refused_where(greedy)),
        ("memory` is missing", bench.refused_with("m1/memory", |path| fs::remove_file(path).unwrap())),
        ("had 1048576", bench.refused_with("m1/disk.img", |path| fs::write(path, "short").unwrap())),
        ("its hash differs", bench.refused_with("m1/memory", flip)),
        ("its hash differs", bench.refused_with("m1/disk.img", flip)),
        ("its hash differs", bench.refused_with("m1/tpm/tpm2-00.permall", flip)),
    ] {
        assert!(why.contains(said), "{said}: {why}");
    }
    let open = |mode| fs::set_permissions(bench.at("fleet"), fs::Permissions::from_mode(mode)).unwrap();
    open(0o750);
    assert!(bench.refused().contains("others may enter"));
    open(0o700);
    drop(bench.restore("copy").expect("all of it is as it was"));
}

/// More memory than any host has.
fn greedy(manifest: &mut Value) {
    const MIB: u32 = 1 << 30;
    let machine = &mut manifest["machines"][0];
    machine["machine"]["memory_mib"] = MIB.into();
    let board = machine["board"].as_array_mut().unwrap();
    *board.iter_mut().find(|argument| **argument == "64M").unwrap() = format!("{MIB}M").into();
}

/// Changes one bit in the middle of a file, in a copy of its own.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Where the test below tells itself, run once more as a process of its own, whose machine to save and where to stand still.
const BENCH: &str = "CAIRN_TEST_BENCH";
const STEP: &str = "CAIRN_TEST_STEP";
/// Words of that process once it is there.
const THERE: &str = "it stands still";

/// Proves: S13
#[test]
fn a_save_that_is_killed_at_any_point_costs_nothing() {
    if let Some(root) = env::var_os(BENCH) {
        return stands_still(Path::new(&root), &env::var(STEP).unwrap());
    }
    for at in [SaveStep::Stopped, SaveStep::Copied, SaveStep::Syncing] {
        let bench = Bench::new();
        killed(&bench, at);
        assert!(bench.saved().is_err(), "{at:?}: it is taken for a saved fleet");
        assert_eq!(Vm::wake_detached(&bench.at("m1")).unwrap(), at == SaveStep::Stopped, "{at:?}");
        assert_eq!(status(&mut bench.vm()), "running");
        bench.save(Care::Lasting, Then::GoOn, &|_| {}).unwrap();
        drop(bench.restore("copy").unwrap());
        assert_eq!(bench.folders(), ["copy", "fleet", "m1"]);
    }
}

/// Has a process of its own save the bench's machine, and kills it at a step.
fn killed(bench: &Bench, at: SaveStep) {
    let mut itself = Command::new(env::current_exe().unwrap());
    itself.args(["--exact", "a_save_that_is_killed_at_any_point_costs_nothing"]);
    itself.env(BENCH, bench.root.path()).env(STEP, format!("{at:?}"));
    let mut saves = itself.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(saves.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_there = lines.any(|line| line.ends_with(THERE));
    saves.kill().unwrap();
    saves.wait().unwrap();
    assert!(is_there, "it ended before {at:?}");
}

fn stands_still(root: &Path, at: &str) {
    let mut vm = Vm::attach(&root.join("m1")).unwrap().unwrap();
    let tell = |step: SaveStep| {
        if format!("{step:?}") == at {
            io::stdout().write_all(format!("{THERE}\n").as_bytes()).unwrap();
            loop {
                thread::park();
            }
        }
    };
    save(&root.join("fleet"), &mut [("m1", &mut vm)], saving(Care::Lasting, Then::GoOn), &tell).unwrap();
}

#[test]
fn a_save_that_fails_leaves_the_machine_running_and_no_folder() {
    let bench = Bench::new();
    let disk = bench.at("m1").join("disk.img");
    fs::rename(&disk, bench.at("elsewhere")).unwrap();
    let why = bench.save(Care::ThisRun, Then::GoOn, &|_| {}).unwrap_err();
    assert!(chain(&why).contains("disk.img"), "{why}");
    assert_eq!(status(&mut bench.vm()), "running");
    assert_eq!(bench.folders(), ["m1"]);
    fs::rename(bench.at("elsewhere"), disk).unwrap();
    bench.save(Care::ThisRun, Then::GoOn, &|_| {}).unwrap();
    assert!(matches!(bench.save(Care::ThisRun, Then::GoOn, &|_| {}), Err(SaveError::Exists(_))));
}

#[test]
fn a_disk_whose_writes_are_logged_is_refused() {
    let bench = Bench::of(|machine| {
        let disk = &mut machine.disks[0].content;
        let Content::Raw(file) = disk else { unreachable!("the machine above") };
        let log = file.with_extension("log");
        fs::write(&log, []).unwrap();
        *disk = Content::Logged { content: Box::new(Content::Raw(file.clone())), log };
    });
    let why = bench.save(Care::ThisRun, Then::GoOn, &|_| {}).unwrap_err().to_string();
    assert!(why.contains("every write to a disk of machine `m1` is logged"), "{why}");
    assert_eq!((status(&mut bench.vm()).as_str(), bench.folders()), ("running", vec!["m1".to_owned()]));
}

/// Proves: S13
#[test]
fn a_killed_restores_rest_is_ended_with_the_machine() {
    let bench = Bench::new();
    bench.save(Care::ThisRun, Then::GoOn, &|_| {}).unwrap();
    std::mem::forget(bench.restore("copy").unwrap());
    assert!(programs_of(&bench.at("copy")) > 0);
    Vm::end_detached(&bench.at("copy")).unwrap();
    assert_eq!(programs_of(&bench.at("copy")), 0);
}

#[test]
fn a_directory_that_has_files_is_left_alone() {
    let bench = Bench::new();
    bench.save(Care::ThisRun, Then::GoOn, &|_| {}).unwrap();
    fs::create_dir(bench.at("copy")).unwrap();
    fs::write(bench.at("copy/disk.img"), "mine").unwrap();
    let why = bench.restore("copy").map(drop).unwrap_err().to_string();
    assert!(why.contains("/copy` is not empty"), "{why}");
    assert_eq!(fs::read(bench.at("copy/disk.img")).unwrap(), b"mine");
}

/// Proves: S13
#[test]
fn a_second_machine_at_one_cable_is_refused_by_name() {
    let bench = Bench::new();
    bench.save(Care::ThisRun, Then::GoOn, &|_| {}).unwrap();
    let at_the_same = || {
        let place = CopyPlace { links: vec![bench.card("cable").link], ..bench.place("copy") };
        bench.saved().unwrap().restore(&[place], Tie::Launcher)
    };
    let why = at_the_same().map(drop).unwrap_err().to_string();
    assert!(why.contains("another machine is at the cable") && why.contains("/cable`"), "{why}");
    assert_eq!(status(&mut bench.vm()), "running");
    Vm::end_detached(&bench.at("m1")).unwrap();
    assert_eq!(at_the_same().unwrap().len(), 1, "nobody is there any more");
}

#[test]
fn memory_that_is_none_ends_in_qemus_own_words() {
    let bench = Bench::new();
    let (dir, file) = (bench.at("copy"), bench.at("nonsense"));
    fs::create_dir(&dir).unwrap();
    for name in ["config", "disk.img"] {
        fs::copy(bench.at("m1").join(name), dir.join(name)).unwrap();
    }
    fs::write(&file, [1; 4096]).unwrap();
    let memory = Memory { file: &file, serial_from: 0 };
    let why = Paused::restore(&machine(&dir), &dir, Tie::Launcher, memory).map(drop).unwrap_err();
    assert!(chain(&why).contains("migration"), "{}", chain(&why));
    assert_eq!(programs_of(&dir), 0);
}
