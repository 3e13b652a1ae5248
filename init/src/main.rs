//! PID 1. This file decides which of its names it was called by, and what happens when nothing else can: the panic
//! hook and the power policy. What a boot does is `boot`.

mod applet;
mod board;
mod boot;
mod buttons;
mod child;
mod clock;
mod console;
mod control;
mod disk;
mod enrolment;
mod esp;
mod kernel;
mod kmsg;
mod last_words;
mod lock;
mod log;
mod memory;
mod mesh;
mod power;
mod public_api;
mod rpc;
mod serve;
mod services;
mod stage0;
mod storage;
mod tasks;
mod tls;
mod tpm;
mod uplink;

use std::process::ExitCode;

/// Semantic version of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version as the API says it: the debug profile carries its mark.
pub(crate) fn version(profile: api::Profile) -> String {
    match profile {
        api::Profile::Release => VERSION.to_owned(),
        api::Profile::Debug => format!("{VERSION}+debug"),
    }
}

fn main() -> ExitCode {
    if std::process::id() != 1 {
        return applet::run(std::env::args_os());
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        log::console(&format!("PID 1: a task panicked at {place}\n"));
        tracing::error!(place, "panic");
    }));
    // A panic that reaches here is as fatal as an error: shown, then a reboot by policy.
    let end = std::panic::catch_unwind(|| {
        if stage0::is_stage0() {
            let Err(error) = stage0::run();
            return power::Fatal::new(&error);
        }
        let Err(fatal) = boot::run();
        fatal
    });
    match end {
        Ok(fatal) => power::fatal(&fatal),
        Err(_panic) => power::fatal(&power::Fatal::panicked()),
    }
}
