//! The one place of PID 1 that asks a clock. Everything below takes what it returns.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::UnixMillis;

/// Now, for deadlines: by the clock of those who wait for them, which tests may hold still.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Now, for people and certificates; may be years off before a time source corrects it.
#[expect(clippy::disallowed_methods, reason = "the shell's one place that asks the clock")]
pub(crate) fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// When the newest of what the image carries was released: Kubernetes v1.36.3, 2026-07-22T18:07:38Z. It stands for the
/// time the image was built, which would make every build another one.
const IMAGE: u64 = 1784743658;

/// Seconds by which the clock may differ from the cluster's before it is set.
const NEAR: u64 = 60;

/// Source and value of a known time; all in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Time of the image's release: now is later.
    Image,
    /// Time at which the seal was written: now is later. Only an opened seal says so: in clear anyone could write a
    /// date.
    Seal(u64),
    /// Time that a coordinator tells. Only before `wg0` is up: WireGuard's peers refuse one whose clock goes back.
    Cluster(u64),
}

impl Known {
    /// Time to which a clock that shows `now` has to be set; none where it is right.
    fn correction(self, now: Duration) -> Option<rustix::time::Timespec> {
        let now = now.as_secs();
        let (time, wrong) = match self {
            Self::Image => (IMAGE, now < IMAGE),
            Self::Seal(at) => (at, now < at),
            Self::Cluster(at) => (at, now.abs_diff(at) > NEAR),
        };
        let tv_sec = i64::try_from(time).ok()?;
        wrong.then_some(rustix::time::Timespec { tv_sec, tv_nsec: 0 })
    }
}

/// Sets a clock that does not fit what is `known`: without a battery it may be years behind, and nobody may have set it
/// right. An effect like the others: deciding never changes the machine.
pub(crate) fn correct(known: Known) {
    let Some(time) = known.correction(unix()) else { return };
    match rustix::time::clock_settime(rustix::time::ClockId::Realtime, time) {
        Ok(()) => tracing::info!(?known, "the clock was wrong: set"),
        Err(error) => tracing::warn!(?known, %error, "the clock is wrong and cannot be set"),
    }
}

/// Puts the machine's clock forward by what it missed, whatever it shows.
///
/// # Errors
/// When there is no such time, or the kernel does not take it.
pub(crate) fn put_forward(by: Duration) -> io::Result<()> {
    let time = behind(unix(), by).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::time::clock_settime(rustix::time::ClockId::Realtime, time)?)
}

fn behind(now: Duration, by: Duration) -> Option<rustix::time::Timespec> {
    let time = now.checked_add(by)?;
    let tv_sec = i64::try_from(time.as_secs()).ok()?;
    Some(rustix::time::Timespec { tv_sec, tv_nsec: time.subsec_nanos().into() })
}

/// Moment of [`now`] at which [`uptime`] will be so much; now, where it is more.
pub(crate) fn at_uptime(uptime_then: Duration) -> Instant {
    now() + uptime_then.saturating_sub(uptime())
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
    duration(rustix::time::ClockId::Boottime)
}

/// Processor time of this process and all of its threads.
pub(crate) fn cpu() -> Duration {
    duration(rustix::time::ClockId::ProcessCPUTime)
}

/// Time of a clock that begins with zero.
fn duration(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_after_image_and_seal_and_near_the_clusters() {
        let set = |known: Known, now| known.correction(Duration::from_secs(now)).map(|time| time.tv_sec);
        assert_eq!(set(Known::Seal(2_000_000_000), 0), Some(2_000_000_000));
        assert_eq!(set(Known::Seal(2_000_000_000), 1_999_999_999), Some(2_000_000_000));
        assert_eq!(set(Known::Seal(2_000_000_000), 2_000_000_000), None);
        assert_eq!(set(Known::Seal(2_000_000_000), 2_100_000_000), None, "it was written long ago");
        assert_eq!(set(Known::Seal(u64::MAX), 0), None, "no date");
        assert_eq!(set(Known::Image, 1_000_000_000), Some(1784743658));
        let cluster = Known::Cluster(2_000_000_000);
        assert_eq!((set(cluster, 1_999_999_940), set(cluster, 2_000_000_060)), (None, None));
        assert_eq!(set(cluster, 1_999_999_939), Some(2_000_000_000));
        assert_eq!(set(cluster, 2_031_536_000), Some(2_000_000_000), "a year ahead");
    }

    /// A correction by the cluster is kept.
    #[test]
    fn a_clock_is_put_forward_from_what_it_shows() {
        let put = |now, by| behind(now, by).map(|time| (time.tv_sec, time.tv_nsec));
        let (now, by) = (Duration::new(2_000_000_000, 900_000_000), Duration::from_millis(70_200));
        assert_eq!(put(now, by), Some((2_000_000_071, 100_000_000)));
        assert_eq!(put(now, Duration::ZERO), Some((2_000_000_000, 900_000_000)));
        assert_eq!((put(now, Duration::MAX), put(now, Duration::from_secs(u64::MAX / 2))), (None, None));
    }

    /// Another version was released at another time.
    #[test]
    fn the_image_is_as_old_as_the_kubernetes_it_carries() {
        assert!(include_str!("../../../components/kube/go.mod").contains("k8s.io/kubernetes v1.36.3\n"));
    }
}
