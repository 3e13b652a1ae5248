//! The image: root, initramfs, UKI, ESP, GPT disk and manifest, from files. No root, no loop device.
//!
//! ```text
//!   programs ─┐
//!   OCI images├─► root (tree) ─► erofs ─► + verity tree ─► root.img ───────────────┐
//!   licences ─┘                              │ root hash                           ├─► disk.img
//!   init ───────────────────────────► initramfs ─┬─► cairn.efi (UKI) ─► esp ───────┘
//!   kernel ───────────────────────────────────────┘      └─ PCR 11 ─► manifest.json
//! ```
//! The same inputs give the same bytes, wherever and whenever: nothing here may ask for the time, a random number, the
//! order of a directory on disk, or who is asking. It builds no program itself; finished files come in.
//!
//! # Invariants
//! - The same inputs give the same image: `image/tests/image.rs`, `workshop/src/reproducible.rs`
//! - A release's PID 1 cannot inject faults: `a_release_whose_init_can_inject_faults_is_refused`
//! - An image is no heavier than promised; nothing in its root is setuid or executable beyond the table:
//!   `image/src/limits.rs`

mod build;
pub mod cmdline;
pub mod disk;
pub mod esp;
mod files;
mod initrd;
mod inputs;
pub mod inspect;
mod inspect_text;
pub mod licences;
mod limits;
mod manifest;
pub mod names;
pub mod oci;
mod root;
mod roots;

pub use build::{BuildError, build};
pub use disk::{DiskError, instantiate};
pub use esp::put_enrolment;
pub use files::FileError;
pub use inputs::{
    DEBIAN_BOOT_LOADER, DEBIAN_STUB, ImageInputs, InitProgram, InputError, KernelInput, Licence, RootProgram,
    SizeLimits,
};
pub use limits::{OverLimit, Weight, weigh};
pub use manifest::{ImageExtension, ImageProfile, KernelOrigin, Manifest, ManifestEntry, Mode, VerityPlace};
pub use root::{RootContent, RootError, RootOf, RootRow, TABLE, plain_root, rows};
