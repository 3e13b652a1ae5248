//! Output of commands: tables or JSON on the standard output, progress on the standard error.
//!
//! The standard output carries the answer and nothing else, so that it can be piped.

mod progress;
mod table;

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

pub(crate) use progress::Progress;
pub(crate) use table::Table;

/// How answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// A single JSON document, for programs; its fields are only ever added to.
    Json,
}

/// Writes `value` as JSON with a newline behind it.
pub(crate) fn json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Writes what a command did that has no other answer.
pub(crate) fn did(format: Format, out: &mut dyn Write, what: &str) -> io::Result<()> {
    #[derive(Serialize)]
    struct Did<'a> {
        did: &'a str,
    }
    match format {
        Format::Table => writeln!(out, "{what}"),
        Format::Json => json(out, &Did { did: what }),
    }
}

/// A length of time as [`span`] and JSON have it.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A length of time as people say it: `12s`, `3m05s`, `2h07m`, `4d03h`.
pub(crate) fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if days > 0 => format!("{days}d{:02}h", hours % 24),
        () if hours > 0 => format!("{hours}h{:02}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m{:02}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

/// A size in bytes with the largest binary unit that leaves digits before the point.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        1_073_741_824.. => format!("{}.{} GiB", bytes >> 30, (bytes >> 20) % 1024 * 10 / 1024),
    }
}

/// A point in time as RFC 3339 in UTC, to the millisecond; what no calendar has is shown as the number it is.
pub(crate) fn instant(unix_millis: u64) -> String {
    let seconds = i64::try_from(unix_millis / 1000).unwrap_or(i64::MAX);
    let Ok(time) = time::OffsetDateTime::from_unix_timestamp(seconds) else { return unix_millis.to_string() };
    let (date, clock) = (time.date(), time.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second(),
        unix_millis % 1000,
    )
}

/// Text from a machine, made safe for a terminal: control characters are shown, not obeyed.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let shown = if character.is_control() && character != '\t' {
                Err(character.escape_default())
            } else {
                Ok(character)
            };
            let (plain, escaped) = match shown {
                Ok(plain) => (Some(plain), None),
                Err(escaped) => (None, Some(escaped)),
            };
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_sizes_and_instants_read_well() {
        assert_eq!([999, 61_000, 7_620_000, 360_000_000].map(span), ["0s", "1m01s", "2h07m", "4d04h"]);
        assert_eq!([12, 2048, 3 << 20, 3 << 29].map(size), ["12 B", "2 KiB", "3 MiB", "1.5 GiB"]);
        assert_eq!(instant(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(instant(1_795_258_987_042), "2026-11-21T11:03:07.042Z");
        assert_eq!(instant(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn a_machine_cannot_steer_the_terminal() {
        assert_eq!(printable("a\tb\u{1b}[2Jc\rd\u{9b}e ä"), "a\tb\\u{1b}[2Jc\\rd\\u{9b}e ä");
    }
}
