//! Lengths of time as people write them: `90s`, `10m`, `1h30m`, `2d`.

use std::time::Duration;

/// A text that is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no length of time: write it like 90s, 10m, 1h30m or 2d")]
pub(crate) struct BadLength;

/// Reads a length of time: numbers with a unit each, the larger units first.
pub(crate) fn parse(text: &str) -> Result<Duration, BadLength> {
    let mut rest = text;
    let mut seconds: u64 = 0;
    for (unit, worth) in [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((number, behind)) = rest.split_once(unit) {
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(BadLength);
            }
            let number: u64 = number.parse().map_err(|_| BadLength)?;
            seconds = number.checked_mul(worth).and_then(|part| seconds.checked_add(part)).ok_or(BadLength)?;
            rest = behind;
        }
    }
    if rest.is_empty() && !text.is_empty() { Ok(Duration::from_secs(seconds)) } else { Err(BadLength) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_strictly() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("1d1h1m1s", 90_061)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "s", "10", "1m1h", "1h1h", "-1s", "1.5h", "1 h", "99999999999999999999s", "999999999999999d"] {
            assert_eq!(parse(bad), Err(BadLength), "{bad}");
        }
    }
}
