//! Real QEMU at a virtual network, without a guest.

use std::path::Path;
use std::time::Duration;

use qemu::machine::{Boot, Clock, Firmware, Mac, Machine, Nic, OnReset, Watchdog};
use qemu::network::{Cable, Network};
use qemu::run::Tie;
use qemu::{Deadline, Vm};

fn machine(dir: &Path, cable: &Cable) -> Machine {
    Machine {
        name: "network".to_owned(),
        boot: Boot::Uefi(Firmware::debian(dir.join("vars.fd"))),
        cpus: 1,
        memory_mib: 128,
        disks: vec![],
        tpm: None,
        nics: vec![Nic { mac: Mac::numbered(1), link: cable.link() }],
        fw_cfg: vec![],
        watchdog: Watchdog::Absent,
        on_reset: OnReset::Restart,
        clock: Clock::OfHost,
    }
}

fn is_plugged_in(vm: &Vm, cable: &Cable) {
    let long = Deadline::after(Duration::from_secs(60));
    vm.until(long, || cable.is_plugged_in().then_some(())).expect("the network finds it");
}

/// Proves: S9
#[test]
fn a_machine_outlives_its_network_and_is_found_by_the_next() {
    let (root, sockets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cable = || Network::start_in(sockets.path(), 7).unwrap().segment().cable_of("m1").unwrap();
    let first = cable();
    assert!(!first.is_plugged_in());
    let vm = Vm::launch(&machine(root.path(), &first), root.path(), Tie::Launcher).unwrap();
    is_plugged_in(&vm, &first);
    drop(first);
    let second = cable();
    is_plugged_in(&vm, &second);
    // What it leaves of its socket is no hindrance to the next one.
    vm.kill();
    let vm = Vm::launch(&machine(root.path(), &second), root.path(), Tie::Launcher).unwrap();
    is_plugged_in(&vm, &second);
}
