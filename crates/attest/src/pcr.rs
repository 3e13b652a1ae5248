//! PCRs of the SHA-256 bank: which are selected for a boot class, what they hold, the policy that they make, and the
//! value that the cap gives PCR 11. Talks to no TPM: everything here can be computed before or without one.

use model::{BootClass, ClusterId, MachineId, PcrSelection};

use crate::code::{CommandCode, algorithm};
use crate::kdf::sha256;
use crate::wire::Writer;

/// The PCR that holds the measured kernel image under UEFI, nothing otherwise, and that the cap closes.
pub const CAP_PCR: u8 = 11;

/// A PCR's value in the SHA-256 bank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcrDigest(pub [u8; 32]);

impl PcrDigest {
    /// Value of a PCR after reset, when nothing was measured into it.
    pub const ZERO: Self = Self([0; 32]);

    /// The value after `digest` was extended into it: SHA-256(old ‖ digest) (part 1, section 17).
    #[must_use]
    pub fn extended(self, digest: &[u8; 32]) -> Self {
        Self(sha256(&[&self.0, digest]))
    }

    /// The value of PCR 11 after the cap of this machine, if this is its value before.
    #[must_use]
    pub fn capped(self, of: CapOf) -> Self {
        self.extended(&cap_digest(of))
    }
}

/// Machine that sets a cap: a quote of PCR 11 tells this of the boot behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapOf {
    /// This machine, as its seal names it.
    Member {
        /// Cluster of the machine.
        cluster: ClusterId,
        /// Itself.
        machine: MachineId,
    },
    /// No seal opened, so nobody knows which machine it is. Ids of zeros stand for it, which no member has.
    Unknown,
}

/// Digest that the cap extends PCR 11 with. It names who set it, so that a quote of PCR 11 tells this machine, with its
/// data open, from another one behind the same TPM. Both ids have their fixed 16 bytes, so no lengths are needed.
pub(crate) fn cap_digest(of: CapOf) -> [u8; 32] {
    let (cluster, machine) = match of {
        CapOf::Member { cluster, machine } => (cluster, machine),
        CapOf::Unknown => (ClusterId([0; 16]), MachineId([0; 16])),
    };
    sha256(&[b"cairn/v1/cap", &cluster.0, &machine.0])
}

/// The boot class is reserved: nothing is sealed to it yet, and a seal that names it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("boot class uefi-sb is reserved until Secure Boot is supported")]
pub struct ReservedBootClass;

/// The PCRs that a seal of this boot class depends on.
///
/// # Errors
/// [`ReservedBootClass`] for `uefi-sb`.
pub fn sealing_pcrs(class: BootClass) -> Result<PcrSelection, ReservedBootClass> {
    match class {
        BootClass::Uefi => Ok(const { PcrSelection::of(&[0, 2, 4, 7, CAP_PCR, 12, 13]) }),
        BootClass::Direct => Ok(const { PcrSelection::of(&[CAP_PCR]) }),
        BootClass::UefiSecureBoot => Err(ReservedBootClass),
    }
}

/// `TPML_PCR_SELECTION` with one bank (part 2, section 10.9.7).
pub(crate) fn selection_wire(selection: PcrSelection) -> Vec<u8> {
    let [first, second, third, _] = selection.bits().to_le_bytes();
    Writer::new().u32(1).u16(algorithm::SHA256).u8(3).bytes(&[first, second, third]).as_slice().to_vec()
}

/// Values of the selected PCRs when they were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PcrValues {
    selection: PcrSelection,
    digests: Vec<PcrDigest>,
}

impl PcrValues {
    /// Pairs a selection with one digest per PCR, ascending; none if their numbers differ.
    pub fn new(selection: PcrSelection, digests: Vec<PcrDigest>) -> Option<Self> {
        (selection.pcrs().count() == digests.len()).then_some(Self { selection, digests })
    }

    /// Which PCRs these are.
    #[must_use]
    pub const fn selection(&self) -> PcrSelection {
        self.selection
    }

    /// The value of `pcr`, if it was selected.
    #[must_use]
    pub fn value(&self, pcr: u8) -> Option<PcrDigest> {
        self.iter().find_map(|(selected, digest)| (selected == pcr).then_some(digest))
    }

    /// Each PCR's number and value, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u8, PcrDigest)> {
        self.selection.pcrs().zip(self.digests.iter().copied())
    }

    /// The policy that is satisfied while the PCRs hold these values: TPM2_PolicyPCR on a fresh session
    /// (part 3, section 23.7).
    #[must_use]
    pub fn policy_digest(&self) -> PolicyDigest {
        let digests: Vec<&[u8]> = self.digests.iter().map(|digest| &digest.0[..]).collect();
        let fresh = [0; 32];
        let command = CommandCode::PolicyPcr.value().to_be_bytes();
        PolicyDigest(sha256(&[&fresh, &command, &selection_wire(self.selection), &sha256(&digests)]))
    }
}

/// Digest of the policy that a sealed object demands before it opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyDigest(pub [u8; 32]);

/// The firmware claims UEFI but did not measure what it must: sealing to it would protect nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the firmware is broken: it measured nothing into PCR {pcr}, so this TPM cannot tell what was booted")]
pub struct BrokenFirmware {
    /// The PCR that is still zero, or was not read.
    pub pcr: u8,
}

/// Refuses a UEFI machine whose firmware left PCR 4 (boot loader) or 7 (Secure Boot state) at zero.
/// A machine started by a hypervisor measures nothing, and its status says so.
///
/// # Errors
/// [`BrokenFirmware`] with the first such PCR.
pub fn check_firmware(class: BootClass, values: &PcrValues) -> Result<(), BrokenFirmware> {
    let measured: &[u8] = match class {
        BootClass::Uefi | BootClass::UefiSecureBoot => &[4, 7],
        BootClass::Direct => &[],
    };
    match measured.iter().find(|pcr| values.value(**pcr).is_none_or(|digest| digest == PcrDigest::ZERO)) {
        Some(pcr) => Err(BrokenFirmware { pcr: *pcr }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    fn values(class: BootClass, digest: impl Fn(u8) -> PcrDigest) -> PcrValues {
        let selection = sealing_pcrs(class).expect("not reserved");
        PcrValues::new(selection, selection.pcrs().map(digest).collect()).expect("one per PCR")
    }

    #[test]
    fn each_boot_class_has_its_pcrs_and_the_reserved_one_is_refused() {
        let of = |class| sealing_pcrs(class).map(|selection| selection.pcrs().collect::<Vec<_>>());
        assert_eq!(of(BootClass::Uefi), Ok(vec![0, 2, 4, 7, 11, 12, 13]));
        assert_eq!(of(BootClass::Direct), Ok(vec![11]));
        assert_eq!(of(BootClass::UefiSecureBoot), Err(ReservedBootClass));
    }

    /// Computed with Python from part 3, section 23.7:
    /// `sha256(bytes(32) + pack('>I', 0x17f) + selection + sha256(values))`.
    #[test]
    fn the_policy_digest_has_its_known_answers() {
        let digest = |values: PcrValues| HEXLOWER.encode(&values.policy_digest().0);
        let direct = values(BootClass::Direct, |_| PcrDigest::ZERO);
        assert_eq!(HEXLOWER.encode(&selection_wire(direct.selection())), "00000001000b03000800");
        assert_eq!(digest(direct), "fd32fa22c52cfc8e1a0c29eb38519f87084cab0b04b0d8f020a4d38b2f4e223e");
        let uefi = values(BootClass::Uefi, |pcr| PcrDigest([pcr; 32]));
        assert_eq!(HEXLOWER.encode(&selection_wire(uefi.selection())), "00000001000b03953800");
        assert_eq!(digest(uefi), "39fb35a386469bacb2363914e35d85c1b771011d8751a01651810c3e3a1a1279");
    }

    /// Computed with Python: `sha256(bytes(32) + sha256(b'cairn/v1/cap' + b'\x01' * 16 + b'\x02' * 16))`, and with zeros.
    ///
    /// Proves: O16
    #[test]
    fn the_capped_value_is_known_and_names_cluster_and_machine() {
        let member =
            |cluster, machine| CapOf::Member { cluster: ClusterId([cluster; 16]), machine: MachineId([machine; 16]) };
        let capped = |cluster, machine| PcrDigest::ZERO.capped(member(cluster, machine));
        assert_eq!(
            HEXLOWER.encode(&capped(1, 2).0),
            "3d4040d6fafd1adb4b68cf05aac800fb4fef9d87ba0fe9a1efa690117792af02"
        );
        assert_eq!(
            HEXLOWER.encode(&PcrDigest::ZERO.capped(CapOf::Unknown).0),
            "d2f9b26d55a5450475b16e1266eb597e0953f5578d4815b545d0887d2ed4bcc1"
        );
        assert!(capped(1, 2) != capped(3, 2) && capped(1, 2) != capped(1, 3) && capped(1, 2) != capped(2, 1));
    }

    /// Proves: D5
    #[test]
    fn uefi_firmware_that_measured_nothing_is_refused() {
        let silent = |zero| values(BootClass::Uefi, move |pcr| PcrDigest([u8::from(pcr != zero); 32]));
        assert_eq!(check_firmware(BootClass::Uefi, &silent(4)), Err(BrokenFirmware { pcr: 4 }));
        assert_eq!(check_firmware(BootClass::Uefi, &silent(7)), Err(BrokenFirmware { pcr: 7 }));
        assert_eq!(check_firmware(BootClass::Uefi, &silent(13)), Ok(()), "nothing has to be measured there");
        let direct = values(BootClass::Direct, |_| PcrDigest::ZERO);
        assert_eq!(check_firmware(BootClass::Direct, &direct), Ok(()));
        assert!(check_firmware(BootClass::Uefi, &direct).is_err(), "what was not read is not trusted");
    }

    #[test]
    fn values_are_as_many_as_their_selection() {
        let selection = sealing_pcrs(BootClass::Direct).expect("not reserved");
        assert_eq!(PcrValues::new(selection, vec![]), None);
        assert_eq!(PcrValues::new(selection, vec![PcrDigest::ZERO; 2]), None);
    }
}
