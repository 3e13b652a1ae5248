//! Requests of a member whose disk is closed: for the cluster's half of its key, of a coordinator, or of its owner.

use std::fmt;

use cluster::record::UnixSeconds;
use model::{ClusterKey, DiskUuid, Level, Secret, Uuid};
use zeroize::Zeroize;

use crate::field_error::{fixed, known};
use crate::{FieldError, wire};

/// Which key a machine asks for. Who it is, its connection has proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRequest {
    /// The disk that is to be opened.
    pub disk: DiskUuid,
    /// With which of its keys it was closed.
    pub generation: u32,
    /// How it is protected.
    pub level: Level,
}

/// Answer to a machine that asks for its key.
#[derive(Debug)]
pub struct ReleasedKey {
    /// The cluster's time.
    pub time: UnixSeconds,
    /// The cluster's half of what opens the disk.
    pub key: ClusterKey,
    /// The next one, which the disk is to be locked with; none where the key is not rotated.
    pub next: Option<ClusterKey>,
    /// Where the coordinators are by now, signed: whoever takes it verifies it.
    pub directory: Vec<u8>,
}

/// Recovery record that a machine that waits for its half shows its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The disk that is to be opened.
    pub disk: DiskUuid,
    /// With which of its keys it was closed.
    pub generation: u32,
    /// Record that the owner opens; none where it is lost.
    pub record: Option<Vec<u8>>,
}

impl From<Recovery> for wire::RecoveryRecordResponse {
    fn from(recovery: Recovery) -> Self {
        let Recovery { disk, generation, record } = recovery;
        Self { disk_uuid: disk.0.0.to_vec(), key_generation: generation, record: record.unwrap_or_default() }
    }
}

impl TryFrom<wire::RecoveryRecordResponse> for Recovery {
    type Error = FieldError;

    fn try_from(response: wire::RecoveryRecordResponse) -> Result<Self, FieldError> {
        let wire::RecoveryRecordResponse { disk_uuid, key_generation, record } = response;
        let disk = DiskUuid(Uuid(fixed("disk_uuid", &disk_uuid)?));
        Ok(Self { disk, generation: key_generation, record: (!record.is_empty()).then_some(record) })
    }
}

/// The cluster's half, as the owner gives it.
#[derive(Debug)]
pub struct OwnerHalf {
    /// The disk that it opens.
    pub disk: DiskUuid,
    /// Which of its keys.
    pub generation: u32,
    /// The cluster's half itself.
    pub key: ClusterKey,
}

impl From<OwnerHalf> for wire::GiveClusterKeyRequest {
    fn from(given: OwnerHalf) -> Self {
        Self {
            disk_uuid: given.disk.0.0.to_vec(),
            key_generation: given.generation,
            cluster_key: given.key.expose().to_vec(),
        }
    }
}

impl TryFrom<wire::GiveClusterKeyRequest> for OwnerHalf {
    type Error = FieldError;

    fn try_from(request: wire::GiveClusterKeyRequest) -> Result<Self, FieldError> {
        let disk = DiskUuid(Uuid(fixed("disk_uuid", &request.disk_uuid)?));
        let key = ClusterKey(Secret::take(&mut fixed("cluster_key", &request.cluster_key)?));
        Ok(Self { disk, generation: request.key_generation, key })
    }
}

impl fmt::Debug for wire::GiveClusterKeyRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GiveClusterKeyRequest")
    }
}

impl Drop for wire::GiveClusterKeyRequest {
    fn drop(&mut self) {
        self.cluster_key.zeroize();
    }
}

impl From<KeyRequest> for wire::ReleaseKeyRequest {
    fn from(asked: KeyRequest) -> Self {
        Self {
            disk_uuid: asked.disk.0.0.to_vec(),
            key_generation: asked.generation,
            level: wire::Level::from(asked.level).into(),
        }
    }
}

impl TryFrom<wire::ReleaseKeyRequest> for KeyRequest {
    type Error = FieldError;

    fn try_from(request: wire::ReleaseKeyRequest) -> Result<Self, FieldError> {
        Ok(Self {
            disk: DiskUuid(Uuid(fixed("disk_uuid", &request.disk_uuid)?)),
            generation: request.key_generation,
            level: known("level", request.level().known())?,
        })
    }
}

impl From<ReleasedKey> for wire::ReleaseKeyResponse {
    fn from(released: ReleasedKey) -> Self {
        let ReleasedKey { time, key, next, directory } = released;
        let next_cluster_key = next.map_or_else(Vec::new, |next| next.expose().to_vec());
        Self { time_unix_s: time.0, cluster_key: key.expose().to_vec(), directory, next_cluster_key }
    }
}

impl TryFrom<wire::ReleaseKeyResponse> for ReleasedKey {
    type Error = FieldError;

    fn try_from(mut response: wire::ReleaseKeyResponse) -> Result<Self, FieldError> {
        let key = Secret::take(&mut fixed("cluster_key", &response.cluster_key)?);
        let next = match response.next_cluster_key.as_slice() {
            [] => None,
            next => Some(ClusterKey(Secret::take(&mut fixed("next_cluster_key", next)?))),
        };
        let directory = std::mem::take(&mut response.directory);
        Ok(Self { time: UnixSeconds(response.time_unix_s), key: ClusterKey(key), next, directory })
    }
}

impl fmt::Debug for wire::ReleaseKeyResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReleaseKeyResponse")
    }
}

impl Drop for wire::ReleaseKeyResponse {
    fn drop(&mut self) {
        self.cluster_key.zeroize();
        self.next_cluster_key.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_and_given_crosses_the_wire() {
        let asked = KeyRequest { disk: DiskUuid(Uuid([1; 16])), generation: 2, level: Level::Encrypted };
        assert_eq!(wire::ReleaseKeyRequest::from(asked).try_into(), Ok(asked));
        for next in [None, Some([6; 32])] {
            let key = |mut bytes: [u8; 32]| ClusterKey(Secret::take(&mut bytes));
            let released =
                ReleasedKey { time: UnixSeconds(3), key: key([4; 32]), next: next.map(key), directory: vec![5] };
            let read = ReleasedKey::try_from(wire::ReleaseKeyResponse::from(released)).expect("reads");
            assert_eq!((read.time, read.key.expose(), read.directory), (UnixSeconds(3), &[4; 32], vec![5]));
            assert_eq!(read.next.map(|next| *next.expose()), next);
        }
    }

    #[test]
    fn what_the_owner_is_shown_and_gives_crosses_the_wire() {
        let disk = DiskUuid(Uuid([1; 16]));
        for record in [None, Some(vec![5, 6])] {
            let recovery = Recovery { disk, generation: 2, record };
            assert_eq!(wire::RecoveryRecordResponse::from(recovery.clone()).try_into(), Ok(recovery));
        }
        let key = ClusterKey(Secret::take(&mut [4; 32]));
        let given = wire::GiveClusterKeyRequest::from(OwnerHalf { disk, generation: 2, key });
        assert_eq!(format!("{given:?}"), "GiveClusterKeyRequest");
        let read = OwnerHalf::try_from(given).expect("reads");
        assert_eq!((read.disk, read.generation, read.key.expose()), (disk, 2, &[4; 32]));
        let short = wire::GiveClusterKeyRequest { disk_uuid: vec![1; 16], key_generation: 2, cluster_key: vec![4; 31] };
        let refused = OwnerHalf::try_from(short).map(|_| ()).map_err(|malformed| malformed.to_string());
        assert_eq!(refused, Err("field `cluster_key` has 31 bytes instead of 32".to_owned()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let good = wire::ReleaseKeyRequest { disk_uuid: vec![1; 16], key_generation: 1, level: 2 };
        for (request, text) in [
            (
                wire::ReleaseKeyRequest { disk_uuid: vec![1; 15], ..good.clone() },
                "field `disk_uuid` has 15 bytes instead of 16",
            ),
            (
                wire::ReleaseKeyRequest { level: 0, ..good.clone() },
                "field `level` has a value this version does not know",
            ),
            (wire::ReleaseKeyRequest { level: 9, ..good }, "field `level` has a value this version does not know"),
        ] {
            assert_eq!(KeyRequest::try_from(request).map_err(|malformed| malformed.to_string()), Err(text.to_owned()));
        }
        for (key, next, field) in [(31, 0, "cluster_key"), (32, 31, "next_cluster_key")] {
            let (cluster_key, next_cluster_key) = (vec![4; key], vec![4; next]);
            let short = wire::ReleaseKeyResponse { time_unix_s: 1, cluster_key, directory: vec![], next_cluster_key };
            let refused = ReleasedKey::try_from(short).map(|_| ()).map_err(|malformed| malformed.to_string());
            assert_eq!(refused, Err(format!("field `{field}` has 31 bytes instead of 32")));
        }
    }
}
