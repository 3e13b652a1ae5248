//! Holders of volumes, by the word of Kubernetes.

/// Holder of a volume, by the objects of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeHolder {
    /// The claim that it was made for.
    Claim {
        /// Namespace of the claim.
        namespace: String,
        /// Name of the claim.
        name: String,
    },
    /// The claim has gone; this `PersistentVolume` names it still.
    Object(String),
}
