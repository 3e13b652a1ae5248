//! The one place of PID 1 that asks a clock. Everything below takes what it returns.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::UnixMillis;

/// Now, for deadlines.
#[expect(clippy::disallowed_methods, reason = "the shell's one place that asks the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Now, for people and certificates; may be years off before a time source corrects it.
#[expect(clippy::disallowed_methods, reason = "the shell's one place that asks the clock")]
pub(crate) fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// A clock without a battery may be years behind; it is not earlier than when the seal was written, which only an opened
/// seal says. An effect like the others: deciding never changes the machine.
pub(crate) fn not_before(sealed_at: u64) {
    let Ok(seconds) = i64::try_from(sealed_at) else { return };
    if unix().as_secs() >= sealed_at {
        return;
    }
    let time = rustix::time::Timespec { tv_sec: seconds, tv_nsec: 0 };
    match rustix::time::clock_settime(rustix::time::ClockId::Realtime, time) {
        Ok(()) => tracing::info!(sealed_at, "the clock was before the last seal: set to that"),
        Err(error) => tracing::warn!(%error, "the clock is before the last seal and cannot be set"),
    }
}

/// [`unix`] as the API counts it.
pub(crate) fn unix_millis() -> UnixMillis {
    UnixMillis(u64::try_from(unix().as_millis()).unwrap_or(u64::MAX))
}

/// When `then` was, as the API counts it.
pub(crate) fn unix_millis_at(then: Instant) -> UnixMillis {
    let ago = u64::try_from(now().saturating_duration_since(then).as_millis()).unwrap_or(u64::MAX);
    UnixMillis(unix_millis().0.saturating_sub(ago))
}

/// Time since the kernel started, by the clock that also counts suspension.
pub(crate) fn uptime() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
