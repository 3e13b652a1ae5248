//! Container images into containerd's store, through its API: those that the root carries, and those that an owner gives.
//!
//! ```text
//!   source ──pieces──► blobs, layers first ──► configuration ──► manifest ──► name, pinned
//!                      └──────────── held by a lease until the name holds them ─────────┘
//! ```
//! Blobs that are there already are not stored again, so every import may be repeated. A failed import names nothing, and containerd
//! throws away what it had stored (containerd `docs/garbage-collection.md`). Nobody calls this for two imports at a time.

mod carried;
mod error;
mod store;

pub use carried::{Error, import};
pub use error::ImportError;
pub use store::{ImageToStore, RemoveError, Source, Store, StoredImage};
