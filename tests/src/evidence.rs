//! Evidence that several cases conclude from: nothing was written, the same machine came back, it stays where it
//! should.

use anyhow::ensure;
use qemu::Vm;
use serde_json::Value;

use crate::context::Context;
use crate::owner::{Owner, wait_state};
use crate::status::Status;
use crate::stranger::Stranger;

/// Not a single write has reached the disk in this life of the machine, though it was read.
///
/// # Errors
/// When one has.
pub fn untouched(t: &Context, vm: &mut Vm) -> anyhow::Result<()> {
    let stats = vm.qmp().block_stats("disk0", t.within(1))?;
    ensure!(stats.writes == 0 && stats.reads > 0, "the disk was written: {stats:?}");
    Ok(())
}

/// The machine, which has just started, comes to `state` and stays there: it gives `reason` on its console, tells the state to anybody, and has
/// written nothing.
///
/// # Errors
/// When it does anything else.
pub fn stays(t: &Context, vm: &mut Vm, state: &str, reason: &str) -> anyhow::Result<()> {
    let shown = wait_state(vm, vm.started(), state, t.within(30))?;
    let line = vm.wait_for(shown, "  reason ", t.within(1))?.text;
    ensure!(line.contains(reason), "{line}");
    let told = Stranger::meet(vm, t.within(10))?.state()?.state;
    ensure!(told.to_string() == state, "GetState says {told}");
    untouched(t, vm)
}

/// Two statuses are of the same machine in the same cluster, protected the same way, in different boots.
///
/// # Errors
/// When they are not.
pub fn same_machine(before: &Status, after: &Status) -> anyhow::Result<()> {
    let lasts = |status: &Status| {
        let Status { name, machine_id, cluster_id, level, protection, boot_class, .. } = status.clone();
        // How much of it is tagged grows meanwhile.
        let level = level.split(" (").next().unwrap_or_default().to_owned();
        [name, machine_id, cluster_id, level, protection, boot_class]
    };
    ensure!(lasts(before) == lasts(after), "not the same machine: {before:#?} {after:#?}");
    ensure!(after.is_of_another_boot(before), "the boot is the same");
    Ok(())
}

/// Whether the kernel had to repair the data's file system when this boot mounted it, as its own log says. It need not
/// where the boot before ended in order.
///
/// # Errors
/// When the log says neither.
pub fn recovered(owner: &Owner, cluster: &str, vm: &Vm) -> anyhow::Result<bool> {
    let log = owner.logs(cluster, vm, &["kernel"])?;
    let xfs = |entry: &Value| Some(entry["line"].as_str()?.strip_prefix("XFS (dm-")?.to_owned());
    let said: Vec<String> = log.iter().filter_map(xfs).collect();
    let says = |words: &str| said.iter().any(|line| line.contains(words));
    ensure!(says("Ending clean mount") != says("Ending recovery"), "{said:?}");
    Ok(says("Ending recovery"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::member;

    #[test]
    fn a_machine_is_the_same_by_all_that_lasts_in_another_boot() {
        let with = |field: &str, text: &str| {
            let mut answer = member();
            answer["boot_id"] = "3-4".into();
            answer[field] = text.into();
            Status::read(&answer).expect("a status")
        };
        let before = Status::read(&member()).expect("a status");
        assert!(same_machine(&before, &with("last_error", "")).is_ok());
        assert!(same_machine(&before, &with("level", "encrypted (39 % tagged)")).is_ok(), "that grows");
        assert!(same_machine(&before, &before).is_err(), "the same boot");
        for field in ["name", "machine_id", "cluster_id", "level", "protection", "boot_class"] {
            assert!(same_machine(&before, &with(field, "another")).is_err(), "{field}");
        }
    }
}
