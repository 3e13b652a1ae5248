//! PID 1. This file decides which of its names it was called by, and what happens when nothing else can: the panic
//! hook and the end by a fatal error. What a boot does is `boot`.
//!
//! # Invariants
//! - Nothing decides by what is shown: the board's writers cannot read it: `nothing_decides_by_what_is_shown`
//! - A mount, cgroup or setting that the kernel does not give is fatal by name, or its row says that it is optional:
//!   `init/src/machine/kernel.rs`
//! - A start that fails leaves no child, and a cgroup is empty only when the kernel says so: no two instances run:
//!   `where_a_child_cannot_be_listened_to_there_is_none`, `init/src/runtime/child.rs`
//! - A task that panics is started again; a reaper or supervision that cannot be kept up ends the boot:
//!   `init/src/runtime/services/tests.rs`
//! - The machine passes nothing on but a pod's packets, what answers them, and members' to pods:
//!   `every_way_through_the_machine_ends_where_it_should`
//! - No route is taken whose link has no carrier: `no_route_is_taken_whose_link_has_no_carrier`
//! - No address outlives its lease, though its DHCP client starts again:
//!   `a_link_whose_address_may_be_there_is_not_forgotten`
//! - `recalculate` is passed at formatting and never again: `dm_integrity_recalculates_when_it_formats_and_never_again`
//! - The owner is decided for each request by the owners of that moment: `init/src/rpc/access/tests.rs`
//! - A machine takes no other machine's places and calls: `init/src/rpc/vpn.rs`, `init/src/rpc/connection/tests.rs`
//! - One machine has the records changed once in 10 s, five times at once: `init/src/records/turn.rs`
//! - A cut while a machine becomes a coordinator or a node leaves one of the two; without etcd's data it is none that
//!   others count on: `what_makes_a_coordinator_comes_whole_and_goes_whole`
//! - A node holds nothing that signs: `a_node_holds_nothing_that_signs`

mod applet;
mod boot;
mod control;
mod enrolment;
mod facts;
mod machine;
mod member;
mod network;
mod records;
mod rpc;
mod runtime;
mod serve;
mod shown;
mod stage0;
mod storage;
mod version;

use std::process::ExitCode;

use runtime::log;
use shown::fatal::{self, Fatal};

fn main() -> ExitCode {
    if std::process::id() != 1 {
        return applet::run(std::env::args_os());
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        log::urgent(&format!("PID 1: a task panicked at {place}\n"));
        tracing::error!(place, "panic");
    }));
    // A panic that reaches here is as fatal as an error: shown, then a reboot by policy.
    let end = std::panic::catch_unwind(|| {
        if stage0::is_stage0() {
            let Err(error) = stage0::run();
            return Fatal::new(&error);
        }
        let Err(fatal) = boot::run();
        fatal
    });
    match end {
        Ok(fatal) => fatal::end(&fatal),
        Err(_panic) => fatal::end(&Fatal::panicked()),
    }
}
