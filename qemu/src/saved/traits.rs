//! Traits of this host that a restored machine depends on: memory and devices in a stream are those of one QEMU, one
//! TPM and one firmware.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::files::hex;
use crate::host::{Acceleration, Host};
use crate::machine::{Boot, Link, Machine};

/// The traits of one host, as far as its machines ask for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTraits {
    acceleration: Acceleration,
    /// Rate of the time stamp counter in kHz, where it is known: an emulated machine has the host's.
    tsc_khz: Option<u32>,
    /// Debian packages and their versions.
    packages: BTreeMap<String, String>,
    /// SHA-256 of the UEFI firmware's code, in hex, where a machine has one.
    firmware: Option<String>,
}

/// The host differs from the one that a fleet was saved on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it was saved with {what} {saved}, and this host has {here}")]
pub struct HostDifference {
    /// A package's name, or what else differs.
    pub what: String,
    /// As it was when the fleet was saved.
    pub saved: String,
    /// As it is now.
    pub here: String,
}

/// Why a host's traits cannot be found out.
#[derive(Debug, thiserror::Error)]
pub enum TraitsError {
    /// The package manager's database cannot be asked.
    #[error("ask dpkg-query (Debian package dpkg) for the versions of QEMU and TPM")]
    Packages(#[source] io::Error),
    /// The firmware cannot be read.
    #[error("read `{path}`")]
    Firmware { path: PathBuf, source: io::Error },
}

/// Rates measured at two starts of one host differ by less than one in this many.
const RATE_TOLERANCE: u32 = 1000;

impl HostTraits {
    pub(super) fn look<'a>(machines: impl Iterator<Item = &'a Machine>) -> Result<Self, TraitsError> {
        let (mut packages, mut code) = (vec!["qemu-system-x86"], None);
        for machine in machines {
            packages.extend(machine.tpm.iter().flat_map(|_| ["swtpm", "libtpms0"]));
            packages.extend(machine.nics.iter().any(|nic| matches!(nic.link, Link::User(_))).then_some("libslirp0"));
            if let Boot::Uefi(firmware) = &machine.boot {
                code = Some(firmware.code.clone());
            }
        }
        packages.sort_unstable();
        packages.dedup();
        let firmware = code.map(|path| match fs::read(&path) {
            Ok(bytes) => Ok(hex(digest(&SHA256, &bytes).as_ref())),
            Err(source) => Err(TraitsError::Firmware { path, source }),
        });
        let Host { acceleration, tsc_khz } = Host::look();
        Ok(Self { acceleration, tsc_khz, packages: versions(&packages)?, firmware: firmware.transpose()? })
    }

    /// The host that machines of then were started for.
    pub(super) fn as_host(&self) -> Host {
        Host { acceleration: self.acceleration, tsc_khz: self.tsc_khz }
    }

    /// The first trait in which `here` differs.
    pub(super) fn differs_from(&self, here: &Self) -> Option<HostDifference> {
        let difference =
            |what: &str, saved: String, here: String| HostDifference { what: what.to_owned(), saved, here };
        if self.acceleration != here.acceleration {
            let shown = |traits: &Self| traits.acceleration.word().to_owned();
            return Some(difference("acceleration by", shown(self), shown(here)));
        }
        // With KVM the processor's own counter is scaled to what the machine had.
        if self.acceleration == Acceleration::Tcg && !same_rate(self.tsc_khz, here.tsc_khz) {
            let shown =
                |rate: Option<u32>| rate.map_or_else(|| "of an unknown rate".to_owned(), |khz| format!("of {khz} kHz"));
            return Some(difference("a time stamp counter", shown(self.tsc_khz), shown(here.tsc_khz)));
        }
        for (package, saved) in &self.packages {
            let here = here.packages.get(package).map_or("none", String::as_str);
            if here != saved {
                return Some(difference(package, saved.clone(), here.to_owned()));
            }
        }
        if self.firmware != here.firmware {
            let shown = |hash: &Option<String>| hash.as_deref().unwrap_or("none").to_owned();
            return Some(difference("UEFI firmware", shown(&self.firmware), shown(&here.firmware)));
        }
        None
    }
}

fn same_rate(saved: Option<u32>, here: Option<u32>) -> bool {
    match (saved, here) {
        (Some(saved), Some(here)) => saved.abs_diff(here) <= saved / RATE_TOLERANCE,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Versions of those that are installed.
fn versions(packages: &[&str]) -> Result<BTreeMap<String, String>, TraitsError> {
    let mut command = Command::new("dpkg-query");
    command.args(["--show", "--showformat", "${Package} ${Version}\n"]).args(packages);
    // It fails when one is not installed, and tells of the others all the same.
    let output = command.output().map_err(TraitsError::Packages)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let row =
        |line: &str| line.trim().split_once(' ').map(|(package, version)| (package.to_owned(), version.to_owned()));
    Ok(text.lines().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits() -> HostTraits {
        HostTraits {
            acceleration: Acceleration::Tcg,
            tsc_khz: Some(2_500_000),
            packages: [("qemu-system-x86".to_owned(), "1:7.2".to_owned()), ("swtpm".to_owned(), "0.7".to_owned())]
                .into(),
            firmware: Some("aa".to_owned()),
        }
    }

    /// Proves: S13
    #[test]
    fn each_trait_that_differs_is_named() {
        assert_eq!(traits().differs_from(&traits()), None);
        let differs = |change: fn(&mut HostTraits)| {
            let mut here = traits();
            change(&mut here);
            traits().differs_from(&here).map(|difference| difference.to_string())
        };
        for (change, said) in [
            (
                (|here| here.acceleration = Acceleration::Kvm) as fn(&mut HostTraits),
                "acceleration by tcg, and this host has kvm",
            ),
            (|here| here.tsc_khz = Some(2_400_000), "of 2500000 kHz, and this host has of 2400000 kHz"),
            (|here| here.tsc_khz = None, "of an unknown rate"),
            (
                |here| drop(here.packages.insert("qemu-system-x86".into(), "1:8".into())),
                "qemu-system-x86 1:7.2, and this host has 1:8",
            ),
            (|here| drop(here.packages.remove("swtpm")), "swtpm 0.7, and this host has none"),
            (|here| here.firmware = None, "UEFI firmware aa, and this host has none"),
        ] {
            let told = differs(change).expect("it differs");
            assert!(told.contains(said), "{told}");
        }
        assert_eq!(differs(|here| here.tsc_khz = Some(2_500_900)), None, "measured anew");
    }
}
