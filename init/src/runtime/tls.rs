//! Time for the TLS library: certificates are checked against the machine's clock.

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use crate::runtime::clock;

/// The machine's clock as rustls asks it.
#[derive(Debug)]
pub(crate) struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(clock::unix()))
    }
}
