//! The images a machine brings along: OCI archives in the root, imported into containerd at start.

/// The pause image's reference: what containerd starts every pod with.
pub const PAUSE: &str = "cairn.local/pause:1";

/// An image in the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedImage {
    /// Reference of the image in containerd.
    pub reference: &'static str,
    /// The path of its OCI archive (a tar of an image layout) in the root.
    pub archive: &'static str,
    /// Reason for which the root carries the image.
    pub because: &'static str,
}

/// All images of the root.
pub const IMAGES: &[CarriedImage] = &[
    CarriedImage { reference: PAUSE, archive: "/images/pause.tar", because: "holds the namespaces of each pod" },
    CarriedImage {
        reference: "cairn.local/web:1",
        archive: "/images/web.tar",
        because: "the pod that shows that pods run",
    },
];

/// A label that keeps containerd's images from being thrown away when the disk fills up.
pub const PINNED_LABEL: (&str, &str) = ("io.cri-containerd.pinned", "pinned");
