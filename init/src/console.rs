//! The console: stdin, stdout and stderr of PID 1, and the screen a person in front of the machine reads.

use std::fmt::Write;
use std::fs::File;

use api::{Condition, Truth};
use model::{MachineState, Role};

use crate::board::{Board, View};
use crate::log;

/// Makes /dev/console this process's standard streams, if there is one: a panic message then has a place to go.
pub(crate) fn attach() {
    if let Ok(console) = open() {
        let _as_good_as_before = rustix::stdio::dup2_stdin(&console);
        let _as_good_as_before = rustix::stdio::dup2_stdout(&console);
        let _as_good_as_before = rustix::stdio::dup2_stderr(&console);
    }
}

/// Opens the kernel's console device, the last of its consoles.
///
/// # Errors
/// When there is none.
pub(crate) fn open() -> std::io::Result<File> {
    File::options().read(true).write(true).open("/dev/console")
}

/// Opens all of the kernel's consoles: serial line and screen, so that a person finds it wherever they stand.
pub(crate) fn open_all() -> Vec<File> {
    let active = std::fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
    let device = |name: &str| File::options().write(true).open(format!("/dev/{name}")).ok();
    active.split_whitespace().filter_map(device).collect()
}

/// Shows the board whenever what a person would read on it changes. Runs for good.
pub(crate) async fn show(board: Board) {
    let mut changes = board.watch();
    let mut shown = String::new();
    loop {
        let text = screen(&board, &changes.borrow_and_update());
        if text != shown {
            log::console(&text);
            shown = text;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn screen(board: &Board, view: &View) -> String {
    let boot = board.boot();
    let mut text = String::from("\n");
    let mut line = |label: &str, value: &str| {
        if !value.is_empty() {
            writeln!(text, "  {label:<10} {value}").expect("writing to a String does not fail");
        }
    };
    line("Cairn", &format!("{} {} · image {:.12}", crate::VERSION, boot.profile, boot.root_hash.to_string()));
    line("name", &view.name);
    line("cluster", &view.cluster.map(|cluster| cluster.to_string()).unwrap_or_default());
    line("role", &view.roles.iter().map(Role::to_string).collect::<Vec<_>>().join(", "));
    let step = if view.step.is_empty() { String::new() } else { format!(" ({})", view.step) };
    let state = view.state().map_or("starting", MachineState::word);
    line("state", &format!("{state}{step}"));
    line("reason", &view.reason);
    line("address", &view.public_addresses.join(" "));
    line("vpn", &view.vpn_addresses.join(" "));
    let level = view.level.map(|level| format!("{level}, ")).unwrap_or_default();
    line("protection", &format!("{level}{} · booted {}", view.protection, boot.class));
    let holds = |condition: &&Condition| condition.truth == Truth::True;
    let held: Vec<&str> = view.conditions.iter().filter(holds).map(|condition| condition.name.as_str()).collect();
    line("holds", &held.join(" "));
    line("waits for", &view.waits_for.join(", "));
    line("last error", &view.last_error);
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use api::{ConditionName, Profile};
    use model::{BootClass, ClusterId, RootHash, Stay};

    use super::*;
    use crate::board::Boot;

    fn lines(board: &Board) -> Vec<String> {
        board.read(|view| screen(board, view)).lines().map(str::to_owned).collect()
    }

    /// Proves: O11
    #[test]
    fn a_person_reads_state_step_reason_and_what_was_wrong() {
        let (board, power_on) = Board::new(Boot {
            profile: Profile::Release,
            root_hash: RootHash([0xab; 32]),
            boot_id: String::from("b"),
            class: BootClass::Direct,
        });
        assert!(lines(&board).contains(&String::from("  state      starting (start)")), "{:?}", lines(&board));
        assert!(!lines(&board).iter().any(|line| line.starts_with("  reason")), "nothing to say, no line");
        board.settled(&power_on.stays(Stay::NeedsOwner), "the disk is blank");
        board.error("a service failed");
        board.condition(ConditionName::EtcdReady, Truth::True, "");
        board.update(|view| {
            view.name = String::from("m-1");
            view.cluster = Some(ClusterId([0xcd; 16]));
            view.roles = vec![Role::Coordinator, Role::Node];
            view.public_addresses = vec![String::from("192.0.2.1/24 (eth0)")];
            view.vpn_addresses = vec![String::from("10.118.0.1/16")];
            view.waits_for = vec![String::from("kube.apiserver (failed 3 times)")];
        });
        let shown = lines(&board);
        for line in [
            "  name       m-1",
            "  cluster    cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
            "  role       coordinator, node",
            "  state      NeedsOwner",
            "  reason     the disk is blank",
            "  address    192.0.2.1/24 (eth0)",
            "  vpn        10.118.0.1/16",
            "  protection none · booted direct",
            "  holds      EtcdReady",
            "  waits for  kube.apiserver (failed 3 times)",
            "  last error a service failed",
        ] {
            assert!(shown.contains(&line.to_owned()), "{line}: {shown:?}");
        }
    }
}
