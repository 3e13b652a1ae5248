//! Sets of PCRs: what a sealed object depends on, as it is stored beside it and named to a TPM. Says nothing of values.

/// A PC's TPM has 24 PCRs (PC Client Platform TPM Profile, section 4.6).
const PCRS: u8 = 24;

/// A set of PCRs of the SHA-256 bank; bit n is PCR n, 0 to 23.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PcrSelection(u32);

impl PcrSelection {
    /// The set of these PCRs, for constants.
    ///
    /// # Panics
    /// When one of them is beyond 23; a constant then fails to compile.
    #[must_use]
    pub const fn of(pcrs: &[u8]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < pcrs.len() {
            assert!(pcrs[index] < PCRS, "a TPM has PCRs 0 to 23");
            bits |= 1 << pcrs[index];
            index += 1;
        }
        Self(bits)
    }

    /// The set that was stored as a number; none if it is empty or names a PCR beyond 23.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits == 0 || bits >> PCRS != 0 { None } else { Some(Self(bits)) }
    }

    /// The set as a number, for storing beside a seal.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The PCRs' numbers, ascending: the order in which they are read and hashed.
    pub fn pcrs(self) -> impl Iterator<Item = u8> {
        (0..PCRS).filter(move |pcr| self.0 >> pcr & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_the_same_as_numbers_and_as_bits() {
        let set = PcrSelection::of(&[23, 0, 11]);
        assert_eq!(set.pcrs().collect::<Vec<_>>(), [0, 11, 23]);
        assert_eq!(PcrSelection::from_bits(set.bits()), Some(set));
        assert_eq!((PcrSelection::of(&[11, 11]), set.bits()), (PcrSelection(1 << 11), 1 << 23 | 1 << 11 | 1));
    }

    #[test]
    fn no_pcr_and_one_that_no_tpm_has_are_refused() {
        assert_eq!(PcrSelection::from_bits(0), None);
        assert_eq!(PcrSelection::from_bits(1 << 24 | 1), None);
    }
}
