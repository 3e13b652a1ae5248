//! Record of one cluster: `cluster.json` in its directory. No secrets; those have files of their own.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use model::{ClusterId, ConfigDigest, MachineId, NodeName};
use pki::SpkiPin;
use qemu::network::control::PortForward;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::owner::CallsAs;
use crate::failure::{Advice, Code, NOTHING};

/// Later formats have a higher number and are left alone.
const VERSION: u32 = 6;
/// Records from this format on are read; what they lack is not known.
const OLDEST: u32 = 4;

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
    /// The name as one path component: the grammar has neither dots nor slashes.
    fn as_ref(&self) -> &std::path::Path {
        self.0.as_ref()
    }
}

/// All that is kept of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterRecord {
    version: u32,
    /// Name of the cluster on this host.
    pub name: ClusterName,
    /// Identity that all its machines share; none before first contact with the first of them.
    cluster: Option<Cluster>,
    /// The network of its virtual machines; none for hardware.
    pub network: Option<VirtualNetwork>,
    /// Machines of the cluster, at least one, each of another name; the first is the one that made it, or that this
    /// host came to know it by.
    #[serde(deserialize_with = "one_or_more")]
    machines: Vec<MachineRecord>,
    /// Other machines of the cluster, as its coordinators listed them last: whichever of them is left is reached.
    #[serde(default)]
    others: Vec<OtherMachine>,
    /// Role of this host's person in it.
    #[serde(default)]
    pub calls: CallsAs,
}

/// A machine that its cluster knows, and this host by its cluster's word alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OtherMachine {
    /// Name of the machine in its cluster.
    #[serde(with = "machine_name")]
    pub name: NodeName,
    /// Made of the key of its certificate, which is checked against it.
    #[serde(with = "hex")]
    pub machine: MachineId,
    /// Where its public API may be reached.
    pub addresses: Vec<String>,
}

/// Identity that the machines of a cluster share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    /// Id of the cluster.
    #[serde(with = "hex")]
    id: ClusterId,
    /// The key of its CA.
    #[serde(with = "hex")]
    authority: SpkiPin,
}

/// The network that a cluster's virtual machines are on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VirtualNetwork {
    /// Seed that decides what chance does to its frames.
    pub seed: u64,
    /// Whether it leads outside, to the host's networks.
    #[serde(default)]
    pub outside: bool,
    /// Ports of the host's loopback that lead to whichever machine answers.
    #[serde(default)]
    pub ports: Vec<PortForward>,
}

/// Record of one of a cluster's machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineRecord {
    /// Name of the machine here, and on its virtual network.
    #[serde(with = "machine_name")]
    pub name: NodeName,
    /// How far its owner knows it.
    contact: Contact,
    /// Where its public API was seen last: `host:port`.
    pub address: Option<String>,
    /// How it is built, where it is a virtual machine of this host; none for hardware.
    pub virtual_machine: Option<VirtualMachine>,
    /// Whether what it sends and receives is kept, where it is on a virtual network.
    pub capture: bool,
}

/// How far its owner knows a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Contact {
    /// The config of a cluster's first machine is out, and nobody has proven to have read it. The secret is in a file beside.
    Awaiting {
        /// SHA-256 of the config as it was written.
        #[serde(with = "hex")]
        config: ConfigDigest,
    },
    /// The machine joins by ticket: its cluster's records will name it.
    Joins,
    /// From here on it is known by its key, under its cluster's CA.
    Pinned {
        /// Made of the key of its certificate, which is checked against it.
        #[serde(with = "hex")]
        machine: MachineId,
    },
}

/// The same, with all that is needed to speak to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Not yet: it will prove to have read this config.
    Awaited(ConfigDigest),
    /// Not yet: its cluster's records will name it.
    Joins,
    /// By these.
    Pinned(Pins),
}

/// Identity that a machine has to show whenever it is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pins {
    /// The machine.
    pub machine: MachineId,
    /// The machine's cluster.
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
    /// Root hash of the image that its disk was made of, in hex; empty where an older version made it.
    #[serde(default)]
    pub image: String,
    /// How many overlays lie on its disk: one for each time that a machine was saved and restored on the way to this one.
    #[serde(default)]
    pub overlays: u32,
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
    /// The record names another cluster than its directory does.
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
    /// The cluster has no machine of that name.
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
    /// A cluster whose only machine is enrolled by this config.
    pub(crate) fn of_config(name: ClusterName, config: ConfigDigest) -> Self {
        let contact = Contact::Awaiting { config };
        let first = MachineRecord { contact, ..MachineRecord::joining(Self::first_name()) };
        Self {
            version: VERSION,
            name,
            cluster: None,
            network: None,
            machines: vec![first],
            others: Vec::new(),
            calls: CallsAs::Owner,
        }
    }

    /// A cluster that others made, and one of its machines, which is known by these.
    pub(crate) fn of_coordinator(name: ClusterName, machine: NodeName, pins: Pins) -> Self {
        let (first, Pins { cluster, authority, machine: id }) = (MachineRecord::joining(machine), pins);
        let machines = vec![MachineRecord { contact: Contact::Pinned { machine: id }, ..first }];
        let cluster = Some(Cluster { id: cluster, authority });
        Self { version: VERSION, name, cluster, network: None, machines, others: Vec::new(), calls: CallsAs::Owner }
    }

    /// Name of every cluster's first machine.
    pub(crate) fn first_name() -> NodeName {
        machine_name::of(1)
    }

    /// Machines of the cluster that have records here.
    pub(crate) fn machines(&self) -> &[MachineRecord] {
        &self.machines
    }

    /// The same, to be changed.
    pub(crate) fn machines_mut(&mut self) -> &mut [MachineRecord] {
        &mut self.machines
    }

    /// Names for further machines: those that no machine here has, nor one that `taken` tells of.
    pub(crate) fn free_names(&self, taken: impl Fn(&NodeName) -> bool) -> impl Iterator<Item = NodeName> {
        let here = |name: &NodeName| self.machines.iter().any(|machine| machine.name == *name);
        (1..).map(machine_name::of).filter(move |name| !here(name) && !taken(name))
    }

    /// The cluster's id; none before first contact.
    pub(crate) fn cluster_id(&self) -> Option<ClusterId> {
        self.cluster.map(|cluster| cluster.id)
    }

    /// How far its owner knows one of its machines.
    pub(crate) fn known(&self, machine: usize) -> Known {
        match self.machines[machine].contact {
            Contact::Awaiting { config } => Known::Awaited(config),
            Contact::Joins => Known::Joins,
            Contact::Pinned { machine } => {
                let cluster =
                    self.cluster.expect("a machine is pinned after its cluster is known, and read with it only");
                Known::Pinned(Pins { machine, cluster: cluster.id, authority: cluster.authority })
            }
        }
    }

    /// Identity that the machine at this place has to show; none while its owner does not know it.
    pub(crate) fn pins(&self, machine: usize) -> Option<Pins> {
        match self.known(machine) {
            Known::Pinned(pins) => Some(pins),
            Known::Awaited(_) | Known::Joins => None,
        }
    }

    /// Name that this host gives the machine of this id, where it is one of its own: the cluster may call it otherwise.
    pub(crate) fn name_here(&self, id: MachineId) -> Option<&NodeName> {
        let is_it = |machine: &&MachineRecord| machine.contact == Contact::Pinned { machine: id };
        self.machines.iter().find(is_it).map(|machine| &machine.name)
    }

    /// First contact was made with its first machine: from here on machine and cluster are known by these.
    pub(crate) fn meet(&mut self, pins: Pins) {
        let Pins { machine, cluster, authority } = pins;
        self.cluster = Some(Cluster { id: cluster, authority });
        self.machines[0].contact = Contact::Pinned { machine };
    }

    /// Machines that joined are known from here on, where the cluster's records say which machine has their name. Whether
    /// any was not known before.
    pub(crate) fn introduce(&mut self, named: impl Fn(&NodeName) -> Option<MachineId>) -> bool {
        let mut introduced = false;
        if self.cluster.is_none() {
            return introduced;
        }
        for machine in self.machines.iter_mut().filter(|machine| machine.contact == Contact::Joins) {
            if let Some(id) = named(&machine.name) {
                machine.contact = Contact::Pinned { machine: id };
                introduced = true;
            }
        }
        introduced
    }

    /// The machines that its coordinators list, and what is kept of those that are not this host's own. Whether that is
    /// something new.
    pub(crate) fn hear(&mut self, listed: impl IntoIterator<Item = OtherMachine>) -> bool {
        let pinned = |machine: &MachineRecord, id| machine.contact == Contact::Pinned { machine: id };
        let own = |other: &OtherMachine| {
            self.machines.iter().any(|machine| machine.name == other.name || pinned(machine, other.machine))
        };
        let heard: Vec<_> = listed.into_iter().filter(|other| self.cluster.is_some() && !own(other)).collect();
        let new = heard != self.others;
        self.others = heard;
        new
    }

    /// The machines that this host knows by its cluster's word alone.
    pub(crate) fn others(&self) -> &[OtherMachine] {
        &self.others
    }

    /// The machine of this name among the others, with what it has to show.
    pub(crate) fn other(&self, named: &NodeName) -> Option<(&OtherMachine, Pins)> {
        let other = self.others.iter().find(|other| other.name == *named)?;
        let Cluster { id, authority } = self.cluster?;
        Some((other, Pins { machine: other.machine, cluster: id, authority }))
    }

    /// Adds one more machine.
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

    /// Words by which messages call the machine at this place.
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
        if version < OLDEST {
            return Err(RecordError::Older { name: name.clone(), version });
        }
        let mut record: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        record.version = VERSION;
        let fits = |at: usize, contact: &Contact| match contact {
            Contact::Awaiting { .. } => at == 0 && record.cluster.is_none(),
            Contact::Joins => at > 0,
            Contact::Pinned { .. } => record.cluster.is_some(),
        };
        if !record.machines.iter().enumerate().all(|(at, machine)| fits(at, &machine.contact)) {
            return Err(damaged(serde_json::Error::custom("a machine is known in another way than its cluster is")));
        }
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
    /// A machine that will join its cluster.
    pub(crate) fn joining(name: NodeName) -> Self {
        Self { name, contact: Contact::Joins, address: None, virtual_machine: None, capture: false }
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
        record.network = Some(VirtualNetwork {
            seed: u64::MAX,
            outside: true,
            ports: vec![PortForward { host: 8080, machine: 80 }],
        });
        record.meet(pins);
        let machine = &mut record.machines_mut()[0];
        machine.address = Some("127.0.0.1:40001".to_owned());
        machine.virtual_machine = Some(VirtualMachine {
            boot: BootWay::Direct,
            cpus: 2,
            memory_mib: 3072,
            tpm: true,
            cmdline: "console=ttyS0".to_owned(),
            image: "ab".repeat(32),
            overlays: 1,
        });
        assert_eq!(record.pins(0), Some(pins));
        let second = record.free_names(|_| false).next().unwrap();
        record.add(MachineRecord::joining(second));
        record
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let name = record().name;
        for record in [record(), ClusterRecord::of_config(name.clone(), ConfigDigest([6; 32]))] {
            assert_eq!(ClusterRecord::read(&name, &record.write()).unwrap(), record);
        }
    }

    /// Proves: S12
    #[test]
    fn a_joined_machine_is_known_by_its_key_under_the_authority() {
        let mut record = record();
        assert_eq!(record.pins(1), None);
        let named = |known: &'static str| move |name: &NodeName| (name.as_str() == known).then_some(MachineId([9; 16]));
        assert!(!record.introduce(named("m1")) && !record.introduce(named("m3")) && record.introduce(named("m2")));
        let first = record.pins(0).unwrap();
        assert_eq!(record.pins(1), Some(Pins { machine: MachineId([9; 16]), ..first }));
        assert_eq!(first.machine, MachineId([1; 16]), "whoever was met stays who it is");
        assert!(!record.introduce(|_| Some(MachineId([7; 16]))), "once and for all");
        assert_eq!(ClusterRecord::read(&record.name, &record.write()).unwrap(), record);
    }

    /// Proves: S12
    #[test]
    fn what_is_kept_by_a_clusters_word_is_none_of_this_hosts_own() {
        let mut record = record();
        assert!(record.introduce(|_| Some(MachineId([9; 16]))));
        let listed = |name: &str, machine: u8| OtherMachine {
            name: NodeName::stored(name).unwrap(),
            machine: MachineId([machine; 16]),
            addresses: vec![format!("192.0.2.{machine}")],
        };
        let other = listed("m3", 3);
        // This host's own: by name and key, by its name here, by its key under another name.
        let all = [listed("m1", 1), listed("m2", 7), listed("renamed", 9), other.clone()];
        assert!(record.hear(all.clone()));
        assert_eq!(record.others(), [other]);
        assert!(!record.hear(all.clone()), "nothing new");
        assert!(record.hear([listed("m3", 4)]), "another machine of that name");
        // Whoever has not met a machine of the cluster knows nobody's word.
        let mut unmet = ClusterRecord::of_config(record.name.clone(), ConfigDigest([6; 32]));
        assert!(!unmet.hear(all) && unmet.others().is_empty());
    }

    #[test]
    fn further_machines_get_names_that_nobody_has() {
        let names = record().free_names(|name| name.as_str() == "m4").take(2).collect::<Vec<_>>();
        assert_eq!(names.iter().map(NodeName::as_str).collect::<Vec<_>>(), ["m3", "m5"]);
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
        let mut unknown = record.clone();
        unknown.cluster = None;
        let mut joins_first = ClusterRecord { cluster: None, ..record.clone() };
        joins_first.machines[0].contact = Contact::Joins;
        for record in [unknown, joins_first] {
            assert!(matches!(ClusterRecord::read(&name, &record.write()), Err(RecordError::Damaged { .. })));
        }
        for damaged in [text.replace("\"m2\"", "\"m1\""), text.replace("\"m2\"", "\"../m2\"")] {
            assert!(matches!(read(&damaged), Err(RecordError::Damaged { .. })), "{damaged}");
        }
        let without_machines = ClusterRecord { machines: Vec::new(), ..record };
        assert!(matches!(ClusterRecord::read(&name, &without_machines.write()), Err(RecordError::Damaged { .. })));
        let newer = text.replace("\"version\": 6", "\"later\": 0, \"version\": 7");
        assert!(matches!(read(&newer), Err(RecordError::Newer { version: 7, .. })));
        let older = text.replace("\"version\": 6", "\"version\": 3");
        assert!(matches!(read(&older), Err(RecordError::Older { version: 3, .. })));
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
