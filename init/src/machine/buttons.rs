//! What a person at the machine can press: the power button and Ctrl-Alt-Del. It hears what is asked for; how a boot
//! ends is `serve`'s matter.

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

/// Heard from when it was made: a press is kept until somebody asks for it.
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
        let keys = rustix::system::reboot(RebootCommand::CadOff).map_err(io::Error::from);
        let keys = keys.and_then(|()| signal(SignalKind::interrupt()));
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
