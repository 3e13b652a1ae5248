//! Quantities, as Kubernetes writes amounts of bytes: a decimal number and a suffix (`resource.Quantity` of apimachinery).

/// Suffixes with their factor: powers of two, then of ten.
const SUFFIXES: [(&str, u128); 13] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("", 1),
];
/// Parts of a unit, of which bytes have none: they are rounded up.
const PARTS: [(&str, u128); 3] = [("n", 1_000_000_000), ("u", 1_000_000), ("m", 1_000)];
/// Digits that are read of a number; apimachinery itself keeps fewer.
const MOST_DIGITS: usize = 30;

/// Bytes of a quantity, rounded up; none where it is no quantity, is negative, or is more than 2⁶⁴−1.
#[must_use]
pub fn quantity(text: &str) -> Option<u64> {
    let number_ends = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '+')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(number_ends);
    let number = number.strip_prefix('+').unwrap_or(number);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{part}");
    if digits.is_empty() || digits.len() > MOST_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits: u128 = digits.parse().ok()?;
    let mut divisor = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let factor = if let Some((_, factor)) = SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        *factor
    } else if let Some((_, parts)) = PARTS.iter().find(|(known, _)| *known == suffix) {
        divisor = divisor.checked_mul(*parts)?;
        1
    } else {
        let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        let power = 10_u128.checked_pow(exponent.unsigned_abs())?;
        if exponent < 0 {
            divisor = divisor.checked_mul(power)?;
        }
        if exponent < 0 { 1 } else { power }
    };
    u64::try_from(digits.checked_mul(factor)?.div_ceil(divisor)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_writes_them() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("10Mi", Some(10 << 20)),
            ("1.5Gi", Some(3 << 29)),
            ("500M", Some(500_000_000)),
            ("1e3", Some(1_000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("12e-1", Some(2)),
            ("100m", Some(1)),
            ("1500m", Some(2)),
            ("+5k", Some(5_000)),
            ("15Ei", Some(15 << 60)),
            ("16Ei", None),
            ("-1", None),
            ("", None),
            (".", None),
            ("Gi", None),
            ("1GiB", None),
            ("1 Gi", None),
            ("1.2.3", None),
            ("1+2", None),
            ("1e", None),
            ("1e99", None),
            ("9999999999999999999999999999999", None),
        ] {
            assert_eq!(quantity(text), bytes, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn bytes_are_read_back_in_any_unit(mebibytes in 0_u64..1 << 40) {
            prop_assert_eq!(quantity(&format!("{mebibytes}Mi")), Some(mebibytes << 20));
            prop_assert_eq!(quantity(&(mebibytes << 20).to_string()), Some(mebibytes << 20));
        }

        #[test]
        fn no_text_ends_the_reader(text in "\\PC*") {
            let _any = quantity(&text);
        }
    }
}
