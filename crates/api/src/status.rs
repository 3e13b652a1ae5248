//! Everything known about one machine, as `Status` answers it to the owner.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use model::{
    BootClass, ClusterId, ClusterRole, ColdStart, KubernetesRole, Level, MachineId, MachineState, Protection, RootHash,
};

use crate::field_error::{fixed, known};
use crate::records::{kubernetes_roles, role_numbers};
use crate::{Condition, FieldError, Problem, UnixMillis, wire};

/// Which root file system the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// The profile that users run.
    Release,
    /// With fault injection and test services.
    Debug,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Release => "release",
            Self::Debug => "debug",
        })
    }
}

/// How the data on the disk is protected right now. Data is never called authenticated while a part of it is not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LevelInForce {
    /// Neither encrypted nor authenticated.
    Insecure,
    /// Encrypted, not authenticated.
    Encrypted,
    /// Encrypted; blocks written so far are authenticated, and this share of the disk has its tags.
    Tagging {
        /// 0 to 99, rounded down.
        percent: u8,
    },
    /// Encrypted, and every block has its tag.
    Authenticated,
}

impl LevelInForce {
    /// The policy it belongs to.
    #[must_use]
    pub const fn level(self) -> Level {
        match self {
            Self::Insecure => Level::Insecure,
            Self::Encrypted => Level::Encrypted,
            Self::Tagging { .. } | Self::Authenticated => Level::Authenticated,
        }
    }

    fn read(level: Level, tagged_percent: Option<u32>) -> Result<Self, FieldError> {
        let out_of_range = FieldError::new("tagged_percent", Problem::Range);
        match (level, tagged_percent) {
            (Level::Insecure, None) => Ok(Self::Insecure),
            (Level::Encrypted, None) => Ok(Self::Encrypted),
            (Level::Authenticated, None) => Ok(Self::Authenticated),
            (Level::Authenticated, Some(percent @ 0..100)) => {
                Ok(Self::Tagging { percent: u8::try_from(percent).map_err(|_| out_of_range)? })
            }
            (Level::Insecure | Level::Encrypted | Level::Authenticated, Some(_)) => Err(out_of_range),
        }
    }

    fn tagged_percent(self) -> Option<u32> {
        match self {
            Self::Tagging { percent } => Some(percent.min(99).into()),
            Self::Insecure | Self::Encrypted | Self::Authenticated => None,
        }
    }
}

impl fmt::Display for LevelInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tagging { percent } => write!(f, "authenticated ({percent} % tagged)"),
            Self::Insecure | Self::Encrypted | Self::Authenticated => self.level().fmt(f),
        }
    }
}

/// The answer to `Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineStatus {
    /// Host name and Kubernetes node name.
    pub name: String,
    /// Derived from the machine's key.
    pub machine_id: MachineId,
    /// The cluster it is a member of, if it is one.
    pub cluster_id: Option<ClusterId>,
    /// Version of Cairn: `0.1.0`.
    pub version: String,
    /// Which root it runs.
    pub profile: Profile,
    /// Root hash of the verified root it runs: names the image.
    pub root_hash: RootHash,
    /// The kernel's random id of this boot.
    pub boot_id: String,
    /// The machine's clock at the time of the answer.
    pub now: UnixMillis,
    /// Since the kernel started.
    pub uptime: Duration,
    /// The coarse state.
    pub state: MachineState,
    /// The step within it; may be empty.
    pub step: String,
    /// Why it is so; may be empty.
    pub reason: String,
    /// Since when it is in that state, by its clock.
    pub state_since: UnixMillis,
    /// None while the data partition is not open.
    pub level: Option<LevelInForce>,
    /// Protection of the data against a thief.
    pub protection: Protection,
    /// How it was started.
    pub boot_class: BootClass,
    /// A coordinator as long as anything of one is left on it; none on a machine that is in no cluster.
    pub role: Option<ClusterRole>,
    /// Roles in Kubernetes of which anything runs on it.
    pub kubernetes: BTreeSet<KubernetesRole>,
    /// None on a machine that is in no cluster.
    pub cold_start: Option<ColdStart>,
    /// Addresses of its links: `192.0.2.10/24 (eth0)`.
    pub public_addresses: Vec<String>,
    /// Addresses in the VPN: `10.118.0.1/16`.
    pub vpn_addresses: Vec<String>,
    /// Every condition it reports, whether it holds or not.
    pub conditions: Vec<Condition>,
    /// Things that the machine waits for, one phrase each.
    pub waits_for: Vec<String>,
    /// The last error of this boot; empty when there was none.
    pub last_error: String,
    /// Which cluster key a coordinator's disk takes at the next start, by its generation; none on others, and while its share does
    /// not carry the newest that it is given.
    pub takes_key_generation: Option<u32>,
}

impl From<MachineStatus> for wire::StatusResponse {
    fn from(status: MachineStatus) -> Self {
        Self {
            name: status.name,
            machine_id: status.machine_id.0.to_vec(),
            cluster_id: status.cluster_id.map(|id| id.0.to_vec()),
            version: status.version,
            profile: wire::Profile::from(status.profile).into(),
            root_hash: status.root_hash.0.to_vec(),
            boot_id: status.boot_id,
            now_unix_ms: status.now.0,
            uptime_ms: u64::try_from(status.uptime.as_millis()).unwrap_or(u64::MAX),
            state: wire::MachineState::from(status.state).into(),
            step: status.step,
            reason: status.reason,
            state_since_unix_ms: status.state_since.0,
            level: status.level.map(|level| wire::Level::from(level.level()).into()),
            tagged_percent: status.level.and_then(LevelInForce::tagged_percent),
            protection: wire::Protection::from(status.protection).into(),
            boot_class: wire::BootClass::from(status.boot_class).into(),
            role: status.role.map(|role| wire::ClusterRole::from(role).into()),
            kubernetes_roles: role_numbers(&status.kubernetes),
            cold_start: status.cold_start.map(|cold_start| wire::ColdStart::from(cold_start).into()),
            public_addresses: status.public_addresses,
            vpn_addresses: status.vpn_addresses,
            conditions: status.conditions.into_iter().map(Into::into).collect(),
            waits_for: status.waits_for,
            last_error: status.last_error,
            takes_key_generation: status.takes_key_generation,
        }
    }
}

impl TryFrom<wire::StatusResponse> for MachineStatus {
    type Error = FieldError;

    fn try_from(answer: wire::StatusResponse) -> Result<Self, FieldError> {
        let level = answer.level.map(|_| known("level", answer.level().known())).transpose()?;
        Ok(Self {
            machine_id: MachineId(fixed("machine_id", &answer.machine_id)?),
            cluster_id: answer.cluster_id.as_deref().map(|id| fixed("cluster_id", id)).transpose()?.map(ClusterId),
            profile: known("profile", answer.profile().known())?,
            root_hash: RootHash(fixed("root_hash", &answer.root_hash)?),
            now: UnixMillis(answer.now_unix_ms),
            uptime: Duration::from_millis(answer.uptime_ms),
            state: known("state", answer.state().known())?,
            state_since: UnixMillis(answer.state_since_unix_ms),
            level: level.map(|level| LevelInForce::read(level, answer.tagged_percent)).transpose()?,
            protection: known("protection", answer.protection().known())?,
            boot_class: known("boot_class", answer.boot_class().known())?,
            role: answer.role.map(|_| known("role", answer.role().known())).transpose()?,
            kubernetes: kubernetes_roles(&answer.kubernetes_roles)?,
            cold_start: answer.cold_start.map(|_| known("cold_start", answer.cold_start().known())).transpose()?,
            name: answer.name,
            version: answer.version,
            boot_id: answer.boot_id,
            step: answer.step,
            reason: answer.reason,
            public_addresses: answer.public_addresses,
            vpn_addresses: answer.vpn_addresses,
            conditions: answer.conditions.into_iter().map(Condition::try_from).collect::<Result<_, _>>()?,
            waits_for: answer.waits_for,
            last_error: answer.last_error,
            takes_key_generation: answer.takes_key_generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(level: Option<LevelInForce>) -> MachineStatus {
        MachineStatus {
            name: "m-010101010101".to_owned(),
            machine_id: MachineId([1; 16]),
            cluster_id: Some(ClusterId([2; 16])),
            version: "0.1.0".to_owned(),
            profile: Profile::Release,
            root_hash: RootHash([3; 32]),
            boot_id: "b".to_owned(),
            now: UnixMillis(1_700_000_000_000),
            uptime: Duration::from_millis(1234),
            state: MachineState::Running,
            step: "control".to_owned(),
            reason: String::new(),
            state_since: UnixMillis(4),
            level,
            protection: Protection::Tpm,
            boot_class: BootClass::Direct,
            role: Some(ClusterRole::Coordinator),
            kubernetes: [KubernetesRole::Worker].into(),
            cold_start: Some(ColdStart::Automatic),
            public_addresses: vec!["10.0.2.15/24".to_owned()],
            vpn_addresses: vec!["10.118.0.1/16".to_owned()],
            conditions: Vec::new(),
            waits_for: vec!["NodeReady".to_owned()],
            last_error: String::new(),
            takes_key_generation: Some(2),
        }
    }

    /// Proves: D1
    #[test]
    fn a_status_crosses_the_wire_with_every_level() {
        let levels = [
            None,
            Some(LevelInForce::Insecure),
            Some(LevelInForce::Encrypted),
            Some(LevelInForce::Tagging { percent: 0 }),
            Some(LevelInForce::Tagging { percent: 99 }),
            Some(LevelInForce::Authenticated),
        ];
        for level in levels {
            let sent = status(level);
            assert_eq!(MachineStatus::try_from(wire::StatusResponse::from(sent.clone())), Ok(sent));
        }
    }

    /// Proves: D10
    #[test]
    fn a_disk_with_incomplete_tags_is_never_called_authenticated() {
        assert_eq!(LevelInForce::Tagging { percent: 37 }.to_string(), "authenticated (37 % tagged)");
        assert_eq!(LevelInForce::Authenticated.to_string(), "authenticated");
        let full = wire::StatusResponse::from(status(Some(LevelInForce::Tagging { percent: 100 })));
        assert_eq!(full.tagged_percent, Some(99));
        for percent in [100, 101, u32::MAX] {
            let mut answer = wire::StatusResponse::from(status(Some(LevelInForce::Authenticated)));
            answer.tagged_percent = Some(percent);
            assert_eq!(MachineStatus::try_from(answer), Err(FieldError::new("tagged_percent", Problem::Range)));
        }
    }

    #[test]
    fn profiles_are_shown_in_words() {
        assert_eq!([Profile::Release, Profile::Debug].map(|profile| profile.to_string()), ["release", "debug"]);
    }

    /// Every field at a value that nothing else has, so that none is lost, nor taken for another.
    #[test]
    fn a_status_crosses_the_wire_whole() {
        let sent = MachineStatus {
            reason: "the TPM is gone".to_owned(),
            step: "open".to_owned(),
            profile: Profile::Debug,
            state: MachineState::NeedsOwner,
            protection: Protection::None,
            boot_class: BootClass::Uefi,
            conditions: vec![Condition {
                name: "NodeReady".to_owned(),
                truth: crate::Truth::False,
                reason: "no node".to_owned(),
                since: UnixMillis(7),
            }],
            last_error: "etcd ended".to_owned(),
            ..status(Some(LevelInForce::Tagging { percent: 37 }))
        };
        assert_eq!(MachineStatus::try_from(wire::StatusResponse::from(sent.clone())), Ok(sent));
        let alone = MachineStatus { cluster_id: None, cold_start: None, ..status(None) };
        assert_eq!(MachineStatus::try_from(wire::StatusResponse::from(alone.clone())), Ok(alone));
    }

    #[test]
    fn a_field_of_the_wrong_length_is_named() {
        let mut answer = wire::StatusResponse::from(status(None));
        answer.cluster_id = Some(vec![0; 3]);
        let short = Problem::Length { expected: 16, found: 3 };
        assert_eq!(MachineStatus::try_from(answer), Err(FieldError::new("cluster_id", short)));
    }
}
