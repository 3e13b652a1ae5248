//! Metadata of objects of the Kubernetes API (`ObjectMeta` of `meta/v1`).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Metadata of an object, as far as it is used here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Name, unique among objects of the kind in the namespace.
    pub name: String,
    /// Namespace; empty for objects of the cluster.
    #[serde(default)]
    pub namespace: String,
    /// Identifier of this very object: another one of the same name has another.
    #[serde(default)]
    pub uid: String,
    /// Version of the object, to be compared for equality alone.
    #[serde(default)]
    pub resource_version: String,
    /// Labels, by which objects are selected.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Parties that the object's deletion waits for.
    #[serde(default)]
    pub finalizers: Vec<String>,
    /// Objects that this one belongs to.
    #[serde(default)]
    pub owner_references: Vec<OwnerReference>,
    /// Time at which the object was made, as RFC 3339 writes it in UTC: later ones sort behind earlier ones.
    #[serde(default)]
    pub creation_timestamp: String,
    /// Time since which the object is being deleted; absent while it is not.
    pub deletion_timestamp: Option<String>,
}

/// Object that another one belongs to (`OwnerReference` of `meta/v1`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OwnerReference {
    /// Kind of the owner.
    pub kind: String,
    /// Whether the owner makes the object again when it is gone.
    #[serde(default)]
    pub controller: bool,
}

/// Reads metadata by which objects are named, selected and put in order, and lets go of all else: whoever holds every object of a kind
/// holds no annotations, and a change of them is none.
///
/// # Errors
/// Errors of the deserializer.
pub fn brief<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let ObjectMeta { name, namespace, uid, labels, creation_timestamp, .. } = ObjectMeta::deserialize(from)?;
    Ok(ObjectMeta { name, namespace, uid, labels, creation_timestamp, ..ObjectMeta::default() })
}

impl ObjectMeta {
    /// Whether the object is being deleted, and waits for its finalizers.
    #[must_use]
    pub const fn is_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}
