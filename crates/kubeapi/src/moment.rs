//! Moments as Kubernetes writes them: `Time` of `meta/v1`, RFC 3339.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Moment at that Unix time, in whole seconds of UTC; none past the year 9999.
#[must_use]
pub fn rfc3339(unix: Duration) -> Option<String> {
    let seconds = i64::try_from(unix.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|at| at.format(&Rfc3339).ok())
}
