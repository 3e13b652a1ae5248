//! The end of a boot: power-off and reboot.

use std::time::Duration;

use rustix::system::RebootCommand;

use crate::runtime::log;

/// A request that the kernel refuses is made again after this.
const AGAIN: Duration = Duration::from_secs(10);

/// How a boot is asked to end: by its owner, a button, or a service that fails too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PowerRequest {
    /// Stop everything and start again.
    Reboot,
    /// Stop everything and switch off.
    PowerOff,
}

/// Ends this boot now. What should be stopped and unmounted has been.
pub(crate) fn end(how: PowerRequest) -> ! {
    let how = match how {
        PowerRequest::Reboot => RebootCommand::Restart,
        PowerRequest::PowerOff => RebootCommand::PowerOff,
    };
    log::shown();
    rustix::fs::sync();
    loop {
        let _refused_only_without_privilege = rustix::system::reboot(how);
        wait(AGAIN);
    }
}

/// Blocks the thread for so long.
#[expect(clippy::disallowed_methods, reason = "the runtime is gone: there is no state left to wait on but time")]
pub(crate) fn wait(time: Duration) {
    std::thread::sleep(time);
}
