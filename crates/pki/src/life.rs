//! Life of the certificates of services: a day, or as fault injection has it.

use std::time::Duration;

const DAY: u64 = 24 * 3600;

#[cfg(feature = "faults")]
static LIFE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(DAY);

/// Life of a service's certificate that is issued now. Machines renew one at half of it; who is no member any more keeps one for no
/// longer.
#[must_use]
pub fn service_life() -> Duration {
    #[cfg(feature = "faults")]
    return Duration::from_secs(LIFE.load(std::sync::atomic::Ordering::Relaxed));
    #[cfg(not(feature = "faults"))]
    Duration::from_secs(DAY)
}

/// Has services' certificates last this many seconds, all that this program issues from now on.
#[cfg(feature = "faults")]
pub fn inject_service_life(seconds: u64) {
    LIFE.store(seconds, std::sync::atomic::Ordering::Relaxed);
}
