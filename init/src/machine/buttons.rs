//! Buttons that a person at the machine can press: power, and Ctrl-Alt-Del. This file hears what is asked for; how a
//! boot ends is `serve`'s matter.
//!
//! ```text
//!   kernel, stage 0 ─► listen ─► disk, network, enrolment ─► serves or waits
//!   power: lost              power: kept                     ends the boot, also for what was kept
//!   keys: reset at once      keys: kept
//! ```
//! The kernel hands an event to those who have its device open, so a press of the power button before PID 1 runs is lost.
//! A press between is acted on late and not in the midst of a step: a create that has begun is brought to its end.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::system::RebootCommand;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use super::power::PowerRequest;

/// Hears from when it was made: a press is kept until somebody asks for it.
#[derive(Debug)]
pub(crate) struct Buttons {
    /// Each ends when the power button is pressed, or when its device can say so no more.
    power: JoinSet<io::Result<()>>,
    /// Ctrl-Alt-Del; none where the kernel does not tell.
    keys: Option<Signal>,
}

impl Buttons {
    /// Listens. Ctrl-Alt-Del no longer resets the machine on the spot (reboot(2)).
    pub(crate) fn listen() -> Self {
        let devices =
            std::fs::read_dir("/dev/input").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let events =
            devices.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("event")));
        // The signal first: from then on the kernel sends it instead of resetting, and PID 1 has to have a handler.
        let keys = signal(SignalKind::interrupt());
        let keys = keys.and_then(|heard| Ok(rustix::system::reboot(RebootCommand::CadOff).map(|()| heard)?));
        if let Err(error) = &keys {
            tracing::warn!(%error, "Ctrl-Alt-Del is not heard");
        }
        // Opened here: the kernel keeps events for those who have the device open, whenever they read.
        Self { power: events.filter_map(|path| open(&path).ok()).map(pressed).collect(), keys: keys.ok() }
    }

    /// Waits for a press; for ever on a machine without buttons.
    pub(crate) async fn pressed(&mut self) -> PowerRequest {
        tokio::select! {
            () = power_button(&mut self.power) => PowerRequest::PowerOff,
            () = ctrl_alt_del(self.keys.as_mut()) => PowerRequest::Reboot,
        }
    }
}

async fn power_button(devices: &mut JoinSet<io::Result<()>>) {
    while let Some(ended) = devices.join_next().await {
        if matches!(ended, Ok(Ok(()))) {
            return;
        }
    }
    std::future::pending().await
}

async fn ctrl_alt_del(keys: Option<&mut Signal>) {
    if let Some(keys) = keys
        && keys.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

fn open(device: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let device = File::options().read(true).custom_flags(nonblocking).open(device)?;
    sys::readiness::watch(device.into(), Interest::READABLE)
}

/// Waits for KEY_POWER on one input device (evdev; `include/uapi/linux/input.h`).
async fn pressed(device: AsyncFd<OwnedFd>) -> io::Result<()> {
    const EVENT_BYTES: usize = 24;
    const EV_KEY: u16 = 1;
    const KEY_POWER: u16 = 116;
    const DOWN: u8 = 1;
    let mut event = [0; EVENT_BYTES];
    loop {
        let mut ready = device.readable().await?;
        let Ok(read) = ready.try_io(|device| Ok(rustix::io::read(device.get_ref(), &mut event)?)) else { continue };
        let word = |at: usize| u16::from_ne_bytes([event[at], event[at + 1]]);
        if read? == EVENT_BYTES && word(16) == EV_KEY && word(18) == KEY_POWER && event[20] == DOWN {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const EV_KEY: u16 = 1;
    const EV_SYN: u16 = 0;
    const KEY_POWER: u16 = 116;
    const KEY_SLEEP: u16 = 142;

    /// As evdev writes it: time, kind, code, value.
    fn event(kind: u16, code: u16, value: i32) -> Vec<u8> {
        [&[0; 16][..], &kind.to_ne_bytes(), &code.to_ne_bytes(), &value.to_ne_bytes()].concat()
    }

    /// Buttons with one device, and where its events are written.
    fn buttons() -> (Buttons, io::PipeWriter) {
        let (device, events) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&device, true).expect("a pipe that does not block");
        let device = sys::readiness::watch(device.into(), Interest::READABLE).expect("a runtime");
        (Buttons { power: [pressed(device)].into_iter().collect(), keys: None }, events)
    }

    /// The device says this, and what listens to it has read it.
    async fn told(events: &mut io::PipeWriter, (kind, code, value): (u16, u16, i32)) {
        events.write_all(&event(kind, code, value)).expect("room for an event");
        let read = async {
            while rustix::io::ioctl_fionread(&*events).expect("a pipe") > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), read).await.expect("somebody listens to the device");
    }

    /// Request that is there without waiting, if any is.
    async fn asked(buttons: &mut Buttons) -> Option<PowerRequest> {
        timeout(Duration::ZERO, buttons.pressed()).await.ok()
    }

    /// Proves: O12. What a boot does before it asks may take long; the case of a machine presses at its first screen.
    #[tokio::test]
    async fn a_press_before_anybody_asks_is_kept() {
        let (mut buttons, mut events) = buttons();
        told(&mut events, (EV_KEY, KEY_POWER, 1)).await;
        assert_eq!(asked(&mut buttons).await, Some(PowerRequest::PowerOff));
    }

    /// A machine that waits is given something and goes on: it asks, ceases to, and asks again.
    #[tokio::test]
    async fn a_press_between_two_waits_is_kept() {
        let (mut buttons, mut events) = buttons();
        assert_eq!(asked(&mut buttons).await, None);
        told(&mut events, (EV_KEY, KEY_POWER, 1)).await;
        assert_eq!(asked(&mut buttons).await, Some(PowerRequest::PowerOff));
    }

    #[tokio::test]
    async fn only_the_power_button_going_down_is_a_press() {
        let (mut buttons, mut events) = buttons();
        for other in [(EV_KEY, KEY_POWER, 0), (EV_KEY, KEY_SLEEP, 1), (EV_SYN, KEY_POWER, 1), (EV_KEY, KEY_POWER, 2)] {
            told(&mut events, other).await;
            assert_eq!(asked(&mut buttons).await, None, "{other:?}");
        }
    }
}
