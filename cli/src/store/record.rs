//! What is kept of one cluster: `cluster.json` in its directory. No secrets; those have files of their own.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use model::{ClusterId, ConfigDigest, MachineId, NodeName};
use pki::SpkiPin;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::failure::{Advice, Code, NOTHING};

/// Later formats have a higher number and are left alone.
const VERSION: u32 = 3;

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
        match NodeName::stored(text) {
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
    /// The network of its virtual machines; none for hardware.
    pub network: Option<VirtualNetwork>,
    /// Its machines, at least one, each of another name; the first is the one that made it.
    #[serde(deserialize_with = "one_or_more")]
    machines: Vec<MachineRecord>,
}

/// The network that a cluster's virtual machines are on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VirtualNetwork {
    /// What chance does to its frames follows from this.
    pub seed: u64,
}

/// What is kept of one of a cluster's machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineRecord {
    /// What it is called here, and on its virtual network.
    #[serde(with = "machine_name")]
    pub name: NodeName,
    /// SHA-256 of its enrolment config as it was written.
    #[serde(with = "hex")]
    pub config: ConfigDigest,
    /// How far its owner knows it.
    contact: Contact,
    /// Where its public API was seen last: `host:port`.
    pub address: Option<String>,
    /// How it is built, where it is a virtual machine of this host; none for hardware.
    pub virtual_machine: Option<VirtualMachine>,
    /// Whether what it sends and receives is kept, where it is on a virtual network.
    pub capture: bool,
}

/// How far its owner knows a machine. Each is enrolled by a config of its own, as a cluster of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Contact {
    /// The config is out; nobody has proven to have read it. The secret is in a file beside.
    Awaiting,
    /// It proved itself; from here on it is known by these.
    Pinned {
        /// Made of the key of its certificate, which is checked against it.
        #[serde(with = "hex")]
        machine: MachineId,
        /// Its cluster's id.
        #[serde(with = "hex")]
        cluster: ClusterId,
        /// The key of that cluster's CA.
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

/// Why there is no machine that a command is about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeantError {
    /// Nothing of that name.
    #[error("cluster `{cluster}` has no machine `{machine}`: it has {names}")]
    NoSuchMachine { cluster: ClusterName, machine: NodeName, names: String },
    /// No name was given, and there are several.
    #[error("cluster `{cluster}` has several machines ({names}) and none was named")]
    Ambiguous { cluster: ClusterName, names: String },
}

impl Advice for MeantError {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn code(&self) -> Code {
        match self {
            Self::NoSuchMachine { .. } => Code::NotFound,
            Self::Ambiguous { .. } => Code::Usage,
        }
    }

    fn next(&self) -> Option<String> {
        Some("name one: --machine NAME".to_owned())
    }
}

impl ClusterRecord {
    /// A cluster of one machine.
    pub(crate) fn new(name: ClusterName, machine: MachineRecord) -> Self {
        Self { version: VERSION, name, network: None, machines: vec![machine] }
    }

    /// One whose only machine is enrolled by this config.
    pub(crate) fn of_config(name: ClusterName, config: ConfigDigest) -> Self {
        Self::new(name, MachineRecord::new(Self::first_name(), config))
    }

    /// What every cluster's first machine is called.
    pub(crate) fn first_name() -> NodeName {
        machine_name::of(1)
    }

    /// Its machines.
    pub(crate) fn machines(&self) -> &[MachineRecord] {
        &self.machines
    }

    /// The same, to be changed.
    pub(crate) fn machines_mut(&mut self) -> &mut [MachineRecord] {
        &mut self.machines
    }

    /// The name of the next machine.
    pub(crate) fn next_name(&self) -> NodeName {
        machine_name::of(self.machines.len() + 1)
    }

    /// One more machine.
    pub(crate) fn add(&mut self, machine: MachineRecord) {
        self.machines.push(machine);
    }

    /// Takes one away again; the last stays.
    pub(crate) fn remove(&mut self, machine: &NodeName) {
        if self.machines.len() > 1 {
            self.machines.retain(|one| one.name != *machine);
        }
    }

    /// Which machine a command is about: the one that is named, else the only one.
    pub(crate) fn meant(&self, named: Option<&NodeName>) -> Result<usize, MeantError> {
        let names = || self.machines.iter().map(|machine| machine.name.as_str()).collect::<Vec<_>>().join(", ");
        match (named, self.machines.len()) {
            (None, 1) => Ok(0),
            (None, _) => Err(MeantError::Ambiguous { cluster: self.name.clone(), names: names() }),
            (Some(machine), _) => self.machines.iter().position(|one| one.name == *machine).ok_or_else(|| {
                MeantError::NoSuchMachine { cluster: self.name.clone(), machine: machine.clone(), names: names() }
            }),
        }
    }

    /// What messages call one of its machines.
    pub(crate) fn called(&self, machine: usize) -> String {
        match &self.machines[..] {
            [_] => format!("the machine of `{}`", self.name),
            machines => format!("machine `{}` of `{}`", machines[machine].name, self.name),
        }
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

impl MachineRecord {
    /// A machine that awaits its first contact.
    pub(crate) fn new(name: NodeName, config: ConfigDigest) -> Self {
        Self { name, config, contact: Contact::Awaiting, address: None, virtual_machine: None, capture: false }
    }

    /// What it proved; none before first contact.
    pub(crate) fn pins(&self) -> Option<Pins> {
        match self.contact {
            Contact::Pinned { machine, cluster, authority } => Some(Pins { machine, cluster, authority }),
            Contact::Awaiting => None,
        }
    }

    /// First contact was made: from here on it is known by these.
    pub(crate) fn pin(&mut self, pins: Pins) {
        let Pins { machine, cluster, authority } = pins;
        self.contact = Contact::Pinned { machine, cluster, authority };
    }
}

fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<MachineRecord>, D::Error> {
    let machines: Vec<MachineRecord> = Vec::deserialize(from)?;
    let names: BTreeSet<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
    match (machines.len(), names.len()) {
        (0, _) => Err(D::Error::custom("a cluster without a machine")),
        (machines, names) if machines != names => Err(D::Error::custom("two machines of one name")),
        _ => Ok(machines),
    }
}

/// Names of machines.
mod machine_name {
    use super::*;

    /// The name of the machine of this number.
    pub(super) fn of(number: usize) -> NodeName {
        NodeName::stored(&format!("m{number}")).expect("a letter and digits are a node's name")
    }

    pub(super) fn serialize<S: Serializer>(name: &NodeName, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(name.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<NodeName, D::Error> {
        NodeName::stored(&String::deserialize(from)?).map_err(D::Error::custom)
    }
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
        let mut record = ClusterRecord::of_config(name, ConfigDigest([5; 32]));
        record.network = Some(VirtualNetwork { seed: u64::MAX });
        let machine = &mut record.machines_mut()[0];
        machine.pin(pins);
        machine.address = Some("127.0.0.1:40001".to_owned());
        machine.virtual_machine = Some(VirtualMachine {
            boot: BootWay::Direct,
            cpus: 2,
            memory_mib: 3072,
            tpm: true,
            cmdline: "console=ttyS0".to_owned(),
        });
        assert_eq!(machine.pins(), Some(pins));
        let second = record.next_name();
        record.add(MachineRecord::new(second, ConfigDigest([7; 32])));
        record
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let name = record().name;
        for record in [record(), ClusterRecord::of_config(name.clone(), ConfigDigest([6; 32]))] {
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
        for damaged in [text.replace("\"m2\"", "\"m1\""), text.replace("\"m2\"", "\"../m2\"")] {
            assert!(matches!(read(&damaged), Err(RecordError::Damaged { .. })), "{damaged}");
        }
        let without_machines = ClusterRecord { machines: Vec::new(), ..record };
        assert!(matches!(ClusterRecord::read(&name, &without_machines.write()), Err(RecordError::Damaged { .. })));
        let newer = text.replace("\"version\": 3", "\"later\": 0, \"version\": 4");
        assert!(matches!(read(&newer), Err(RecordError::Newer { version: 4, .. })));
        let older = text.replace("\"version\": 3", "\"version\": 2");
        assert!(matches!(read(&older), Err(RecordError::Older { version: 2, .. })));
        let other: ClusterName = "away".parse().unwrap();
        assert!(matches!(ClusterRecord::read(&other, text.as_bytes()), Err(RecordError::Misplaced { .. })));
    }

    #[test]
    fn a_command_is_about_the_machine_that_it_names_or_the_only_one() {
        let several = record();
        let named = |text: &str| several.meant(Some(&NodeName::stored(text).unwrap()));
        assert_eq!((named("m1").unwrap(), named("m2").unwrap()), (0, 1));
        assert_eq!(several.called(1), "machine `m2` of `home`");
        let absent = named("m3").unwrap_err();
        assert_eq!(
            (absent.code(), absent.to_string().as_str()),
            (Code::NotFound, "cluster `home` has no machine `m3`: it has m1, m2")
        );
        let unnamed = several.meant(None).unwrap_err();
        assert_eq!((unnamed.code(), unnamed.next().unwrap().as_str()), (Code::Usage, "name one: --machine NAME"));
        let one = ClusterRecord::of_config("home".parse().unwrap(), ConfigDigest([6; 32]));
        assert_eq!((one.meant(None).unwrap(), one.called(0).as_str()), (0, "the machine of `home`"));
    }

    #[test]
    fn a_cluster_name_is_one_path_component() {
        for bad in ["", ".", "..", "a/b", "A", "-a", "a_b", "a.b", &"x".repeat(64)] {
            assert_eq!(bad.parse::<ClusterName>(), Err(BadClusterName(bad.to_owned())));
        }
        assert!("home-1".parse::<ClusterName>().is_ok());
    }
}
