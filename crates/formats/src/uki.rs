//! Unified kernel images: systemd's stub with the kernel, its initramfs and its command line, and what the TPM will say.
//!
//! Owns the names of the sections and the order in which systemd-stub 252 measures them (`src/boot/efi/stub.c`,
//! `src/fundamental/tpm-pcr.h`); where they lie is [`crate::pe`].

use aws_lc_rs::digest::{SHA256, digest};

use crate::pe::{BadPe, CannotAppend, Pe};

/// The parts of a unified kernel image, in the stub's measuring order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uki<'a> {
    /// The kernel, a bzImage with an EFI stub.
    pub linux: &'a [u8],
    /// os-release(5): what the boot menu shows.
    pub os_release: &'a [u8],
    /// The command line, without an end mark.
    pub command_line: &'a [u8],
    /// The initramfs, compressed or not.
    pub initrd: &'a [u8],
}

impl<'a> Uki<'a> {
    /// Puts the parts behind systemd's `stub`.
    ///
    /// # Errors
    /// [`CannotBuild`] when the stub is none or has no room.
    pub fn build(&self, stub: &[u8]) -> Result<Vec<u8>, CannotBuild> {
        Ok(Pe::parse(stub)?.append(&self.sections())?)
    }

    /// The parts of an image that [`Self::build`] made.
    ///
    /// # Errors
    /// [`UkiError`] when it is no PE image or a section is missing.
    pub fn read(image: &'a [u8]) -> Result<Self, UkiError> {
        let pe = Pe::parse(image)?;
        let part = |name| pe.section(name).ok_or(UkiError::Missing(name));
        Ok(Self {
            linux: part(LINUX)?,
            os_release: part(OS_RELEASE)?,
            command_line: part(COMMAND_LINE)?,
            initrd: part(INITRD)?,
        })
    }

    /// SHA-256 PCR 11 as the stub leaves it: for each section, extended by the hash of its name with the end mark, then
    /// by the hash of its content.
    #[must_use]
    pub fn pcr11(&self) -> [u8; 32] {
        let mut pcr = [0; 32];
        for (name, content) in self.sections() {
            pcr = extend(&pcr, &sha256(&[name.as_bytes(), b"\0"].concat()));
            pcr = extend(&pcr, &sha256(content));
        }
        pcr
    }

    fn sections(&self) -> [(&'static str, &'a [u8]); 4] {
        [(LINUX, self.linux), (OS_RELEASE, self.os_release), (COMMAND_LINE, self.command_line), (INITRD, self.initrd)]
    }
}

const LINUX: &str = ".linux";
const OS_RELEASE: &str = ".osrel";
const COMMAND_LINE: &str = ".cmdline";
const INITRD: &str = ".initrd";

/// Why no image can be built on a stub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotBuild {
    /// The stub is not a PE image.
    #[error("read the boot stub")]
    Stub(#[from] BadPe),
    /// The parts do not fit behind it.
    #[error("append the kernel and its parts to the boot stub")]
    Append(#[from] CannotAppend),
}

/// Why bytes are no unified kernel image of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UkiError {
    /// Not a PE image.
    #[error("read the PE headers")]
    Pe(#[from] BadPe),
    /// A section is missing.
    #[error("no section {0}")]
    Missing(&'static str),
}

/// `TPM2_PCR_Extend` (TPM 2.0 part 1, section 17.2): the hash of the old value followed by the digest.
fn extend(pcr: &[u8; 32], measured: &[u8; 32]) -> [u8; 32] {
    sha256(&[*pcr, *measured].concat())
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("a SHA-256 digest has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: Uki<'_> =
        Uki { linux: b"kernel", os_release: b"ID=cairn\n", command_line: b"panic=10", initrd: b"initramfs" };

    /// Proves: O6
    #[test]
    fn a_unified_image_reads_back_as_its_parts() {
        let stub = crate::pe::tests::stub(b"x");
        let image = PARTS.build(&stub).expect("room");
        assert_eq!(Uki::read(&image), Ok(PARTS));
        assert_eq!(Uki::read(&stub), Err(UkiError::Missing(".linux")));
        assert_eq!(PARTS.build(b"no stub"), Err(CannotBuild::Stub(BadPe::Signature)));
    }

    #[test]
    fn pcr_11_is_the_chain_of_names_and_contents() {
        // Made with another SHA-256: for name, content in the stub's order, twice pcr = H(pcr ‖ H(measured)).
        let hex: String = PARTS.pcr11().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "1eb98257f5b80356f2247c99c2243b99c971011898d3bd2c816b9e197fb2b9c6");
    }

    /// Proves: O15
    #[test]
    fn every_part_changes_pcr_11() {
        let changed = [
            Uki { linux: b"Kernel", ..PARTS },
            Uki { os_release: b"ID=other\n", ..PARTS },
            Uki { command_line: b"panic=10 debug", ..PARTS },
            Uki { initrd: b"", ..PARTS },
        ];
        for parts in changed {
            assert_ne!(parts.pcr11(), PARTS.pcr11(), "{parts:?}");
        }
    }
}
