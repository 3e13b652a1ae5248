//! What is kept of one cluster: `cluster.json` in its directory. No secrets; those have files of their own.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use model::{ClusterId, ConfigDigest, MachineId};
use pki::SpkiPin;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::failure::{Advice, Code, NOTHING};

/// Later formats have a higher number and are left alone.
const VERSION: u32 = 2;

/// A cluster's name on this host: the same grammar as a node's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(crate) struct ClusterName(String);

/// A text that is no cluster's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no cluster name: 1 to 63 of a-z, 0-9 and inner hyphens")]
pub(crate) struct BadClusterName(String);

impl Advice for BadClusterName {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn code(&self) -> Code {
        Code::Usage
    }
}

impl FromStr for ClusterName {
    type Err = BadClusterName;

    fn from_str(text: &str) -> Result<Self, BadClusterName> {
        match model::NodeName::stored(text) {
            Ok(name) => Ok(Self(name.as_str().to_owned())),
            Err(_) => Err(BadClusterName(text.to_owned())),
        }
    }
}

impl<'de> Deserialize<'de> for ClusterName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<std::path::Path> for ClusterName {
    /// One path component: the grammar has neither dots nor slashes.
    fn as_ref(&self) -> &std::path::Path {
        self.0.as_ref()
    }
}

/// All that is kept of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterRecord {
    version: u32,
    /// Its name on this host.
    pub name: ClusterName,
    /// SHA-256 of its enrolment config as it was written.
    #[serde(with = "hex")]
    pub config: ConfigDigest,
    /// How far its owner knows it.
    contact: Contact,
    /// Its machines, at least one; the first is the one that made it.
    #[serde(deserialize_with = "one_or_more")]
    machines: Vec<MachineRecord>,
}

/// What is kept of one of a cluster's machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineRecord {
    /// Made of the key of its certificate, which is checked against it; none before it proved itself.
    id: Option<Id>,
    /// Where its public API was seen last: `host:port`.
    pub address: Option<String>,
    /// How it is built, where it is a virtual machine of this host; none for hardware.
    pub virtual_machine: Option<VirtualMachine>,
}

/// A machine's id as hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Id(#[serde(with = "hex")] MachineId);

/// How far a cluster's owner knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Contact {
    /// The config is out; nobody has proven to have read it. The secret is in a file beside.
    Awaiting,
    /// A machine proved itself; from here on the cluster is known by these.
    Pinned {
        /// Its id.
        #[serde(with = "hex")]
        cluster: ClusterId,
        /// The key of its CA.
        #[serde(with = "hex")]
        authority: SpkiPin,
    },
}

/// What a machine proved at first contact, and has to show ever after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pins {
    /// The machine.
    pub machine: MachineId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The key of the cluster's CA.
    pub authority: SpkiPin,
}

impl Pins {
    /// The name its certificate has to be for.
    pub(crate) fn tls_name(&self) -> String {
        pki::machine_tls_name(self.machine, self.cluster)
    }
}

/// How the cluster's virtual machine is built, so that it can be started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VirtualMachine {
    /// Board and loader.
    pub boot: BootWay,
    /// Virtual processors.
    pub cpus: u32,
    /// In MiB.
    pub memory_mib: u32,
    /// Whether it has a TPM.
    pub tpm: bool,
    /// The kernel's command line, for the two ways that need it.
    pub cmdline: String,
}

/// Board and way of loading the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BootWay {
    /// q35; QEMU loads the kernel (fast; nothing is measured).
    Direct,
    /// q35 with UEFI from the disk, as hardware does.
    Uefi,
    /// microvm; QEMU loads the kernel.
    Microvm,
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// Not the JSON this version writes.
    #[error("the record of cluster `{name}` is damaged")]
    Damaged { name: ClusterName, source: serde_json::Error },
    /// A later format.
    #[error("the record of cluster `{name}` was written by a newer cairnctl (format {version})")]
    Newer { name: ClusterName, version: u32 },
    /// A format that only earlier versions wrote.
    #[error("the record of cluster `{name}` was written by an older cairnctl (format {version})")]
    Older { name: ClusterName, version: u32 },
    /// It names another cluster than its directory does.
    #[error("the record in the directory of cluster `{name}` is that of `{found}`")]
    Misplaced { name: ClusterName, found: ClusterName },
}

impl Advice for RecordError {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Damaged { .. } | Self::Misplaced { .. } => {
                Some("put `cluster.json` back from a copy, or remove the cluster's directory by hand".to_owned())
            }
            Self::Newer { .. } | Self::Older { .. } => Some("use the cairnctl that wrote it".to_owned()),
        }
    }
}

impl ClusterRecord {
    /// A cluster whose config was just made.
    pub(crate) fn new(name: ClusterName, config: ConfigDigest) -> Self {
        Self { version: VERSION, name, config, contact: Contact::Awaiting, machines: vec![MachineRecord::default()] }
    }

    /// The machine that commands are about: the one that made the cluster.
    pub(crate) fn machine(&self) -> &MachineRecord {
        self.machines.first().expect("a record has at least one machine")
    }

    /// The same, to be changed.
    pub(crate) fn machine_mut(&mut self) -> &mut MachineRecord {
        self.machines.first_mut().expect("a record has at least one machine")
    }

    /// What its machine proved; none before first contact.
    pub(crate) fn pins(&self) -> Option<Pins> {
        match (&self.contact, self.machine().id) {
            (&Contact::Pinned { cluster, authority }, Some(Id(machine))) => Some(Pins { machine, cluster, authority }),
            (Contact::Pinned { .. }, None) | (Contact::Awaiting, _) => None,
        }
    }

    /// First contact was made: from here on cluster and machine are known by these.
    pub(crate) fn pin(&mut self, pins: Pins) {
        let Pins { machine, cluster, authority } = pins;
        self.contact = Contact::Pinned { cluster, authority };
        self.machine_mut().id = Some(Id(machine));
    }

    /// Reads the record in the directory of `name`.
    pub(crate) fn read(name: &ClusterName, bytes: &[u8]) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let damaged = |source| RecordError::Damaged { name: name.clone(), source };
        // The version first: a later format may well look damaged.
        let Version { version } = serde_json::from_slice(bytes).map_err(damaged)?;
        if version > VERSION {
            return Err(RecordError::Newer { name: name.clone(), version });
        }
        if version < VERSION {
            return Err(RecordError::Older { name: name.clone(), version });
        }
        let record: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        if record.name == *name {
            Ok(record)
        } else {
            Err(RecordError::Misplaced { name: name.clone(), found: record.name })
        }
    }

    /// The bytes of the file.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("strings, numbers and enums of them are always JSON");
        text.push(b'\n');
        text
    }
}

fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<MachineRecord>, D::Error> {
    let machines = Vec::deserialize(from)?;
    if machines.is_empty() { Err(D::Error::custom("a cluster without a machine")) } else { Ok(machines) }
}

/// Fixed-size ids and digests as hex digits.
mod hex {
    use super::*;

    pub(super) fn serialize<S: Serializer>(value: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: TryFrom<Raw>>(from: D) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(D::Error::custom)?;
        T::try_from(Raw(bytes)).map_err(|_| D::Error::custom("another number of hex digits than it has"))
    }

    /// Bytes that may become an id.
    pub(super) struct Raw(Vec<u8>);

    macro_rules! from_raw {
        ($($id:ident)*) => {$(
            impl TryFrom<Raw> for $id {
                type Error = Vec<u8>;

                fn try_from(raw: Raw) -> Result<Self, Vec<u8>> {
                    raw.0.try_into().map(Self)
                }
            }
        )*};
    }

    from_raw! { MachineId ClusterId ConfigDigest SpkiPin }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ClusterRecord {
        let name: ClusterName = "home".parse().unwrap();
        let pins = Pins { machine: MachineId([1; 16]), cluster: ClusterId([2; 16]), authority: SpkiPin([3; 32]) };
        let mut record = ClusterRecord::new(name, ConfigDigest([5; 32]));
        record.pin(pins);
        let machine = record.machine_mut();
        machine.address = Some("127.0.0.1:40001".to_owned());
        machine.virtual_machine = Some(VirtualMachine {
            boot: BootWay::Direct,
            cpus: 2,
            memory_mib: 3072,
            tpm: true,
            cmdline: "console=ttyS0".to_owned(),
        });
        assert_eq!(record.pins(), Some(pins));
        record
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let name = record().name;
        for record in [record(), ClusterRecord::new(name.clone(), ConfigDigest([6; 32]))] {
            assert_eq!(ClusterRecord::read(&name, &record.write()).unwrap(), record);
        }
    }

    #[test]
    fn damage_newer_formats_and_foreign_records_are_told_apart() {
        let (name, record) = (record().name, record());
        let text = String::from_utf8(record.write()).unwrap();
        let read = |text: &str| ClusterRecord::read(&name, text.as_bytes());
        for length in 0..text.len() - 2 {
            assert!(matches!(read(&text[..length]), Err(RecordError::Damaged { .. })), "{length}");
        }
        for (from, to) in [("\"name\"", "\"nam\""), ("0101", "01"), ("0202", "02zz"), ("\"home\"", "\"../x\"")] {
            let damaged = text.replace(from, to);
            assert!(matches!(read(&damaged), Err(RecordError::Damaged { .. })), "{damaged}");
        }
        let without_machines = ClusterRecord { machines: Vec::new(), ..record };
        assert!(matches!(ClusterRecord::read(&name, &without_machines.write()), Err(RecordError::Damaged { .. })));
        let newer = text.replace("\"version\": 2", "\"later\": 0, \"version\": 3");
        assert!(matches!(read(&newer), Err(RecordError::Newer { version: 3, .. })));
        let older = text.replace("\"version\": 2", "\"version\": 1");
        assert!(matches!(read(&older), Err(RecordError::Older { version: 1, .. })));
        let other: ClusterName = "away".parse().unwrap();
        assert!(matches!(ClusterRecord::read(&other, text.as_bytes()), Err(RecordError::Misplaced { .. })));
    }

    #[test]
    fn a_cluster_name_is_one_path_component() {
        for bad in ["", ".", "..", "a/b", "A", "-a", "a_b", "a.b", &"x".repeat(64)] {
            assert_eq!(bad.parse::<ClusterName>(), Err(BadClusterName(bad.to_owned())));
        }
        assert!("home-1".parse::<ClusterName>().is_ok());
    }
}
