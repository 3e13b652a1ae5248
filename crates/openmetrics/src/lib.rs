//! Pages of numbers that a monitoring system reads, in the text of OpenMetrics 1.0.
//!
//! ```text
//!   what PID 1 counts ─────────────────► PageWriter ──┐
//!                                                     ├─► page: families, samples, `# EOF`
//!   upstream's page: Prometheus 0.0.4 ─► translate ───┘
//! ```
//! Upstream's services speak the format before OpenMetrics, in which a counter may be called anything. Pure.
//!
//! # Invariants
//! - What a strict reader of Prometheus' text takes becomes a page that one of OpenMetrics takes: `crates/openmetrics/src/translate.rs`

mod translate;
mod writer;

pub use translate::{BadPage, translate};
pub use writer::{FamilyKind, FamilyWriter, PageWriter};

/// Content type of a page.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
