//! Names of the artefacts in an image's directory.

/// The kernel.
pub const KERNEL: &str = "bzImage";
/// The initramfs.
pub const INITRAMFS: &str = "initramfs.cpio.zst";
/// erofs followed by its verity tree.
pub const ROOT: &str = "root.img";
/// The unified kernel image.
pub const UKI: &str = "cairn.efi";
/// The GPT disk, sparse.
pub const DISK: &str = "disk.img";
/// List of all artefacts, with their sizes and hashes.
pub const MANIFEST: &str = "manifest.json";
