//! Amounts of memory and disk as people write them: `512M`, `3G`, `1T`; binary units.

/// A text that is no amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no amount of bytes: write it like 512M, 3G or 1T")]
pub(crate) struct BadQuantity;

/// Reads an amount, in bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, BadQuantity> {
    let (number, shift) = [("M", 20), ("G", 30), ("T", 40)]
        .into_iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|number| (number, shift)))
        .ok_or(BadQuantity)?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadQuantity);
    }
    let number: u64 = number.parse().map_err(|_| BadQuantity)?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or(BadQuantity)
}

/// Reads an amount of memory, in MiB.
pub(crate) fn mebibytes(text: &str) -> Result<u32, BadQuantity> {
    u32::try_from(bytes(text)? >> 20).map_err(|_| BadQuantity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_strictly() {
        assert_eq!((bytes("8G"), mebibytes("3G"), mebibytes("512M")), (Ok(8 << 30), Ok(3072), Ok(512)));
        for bad in ["", "G", "8", "8g", "-8G", "0G", "8GiB", "1.5G", "99999999999T"] {
            assert_eq!(bytes(bad), Err(BadQuantity), "{bad}");
        }
        assert_eq!(mebibytes("8192T"), Err(BadQuantity));
    }
}
