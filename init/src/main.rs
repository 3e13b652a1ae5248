//! PID 1. This file decides which of its names it was called by, and what happens when nothing else can: the panic
//! hook and the end by a fatal error. What a boot does is `boot`.

mod applet;
mod boot;
mod consensus;
mod control;
mod enrolment;
mod facts;
mod machine;
mod member;
mod network;
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
