//! Container images as documents: what names one, what one is made of, and which ones an archive holds (OCI image
//! specification 1.1; Docker image specification 1.2 as far as `docker save` and `podman save` write it).
//!
//! ```text
//!   name ──► manifest ──► configuration        an archive is a tar of these by path; a machine's store has them by digest
//!                    └──► layers
//! ```
//! All of it comes from strangers' registries and files: nothing is believed before its digest or its form was checked. No
//! file is opened here: an archive is whatever can be read and sought in.
//!
//! # Invariants
//! - A name has one form, however it was typed: `a_name_has_one_form_however_it_is_typed`
//! - Nothing is taken for a blob whose bytes the archive does not have in full: `an_archive_cut_anywhere_is_refused`

pub mod archive;
mod digest;
mod manifest;
mod name;
mod origin;

pub use archive::{Archive, ArchiveError, ArchivedImage};
pub use digest::{BadDigest, BlobDigest};
pub use manifest::{Blob, ImageManifest, ImageManifestError, MANIFEST_TYPES, MOST_MANIFEST_BYTES};
pub use name::{BadImageName, ImageName};
pub use origin::ImageOrigin;
