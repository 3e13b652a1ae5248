//! The part of nftables' language that Cairn and kube-proxy speak, as messages of the kernel's nf_tables (`nft(8)`;
//! include/uapi/linux/netfilter/nf_tables.h). A word that is not known here is an error before anything is sent; nothing is
//! guessed. Must never open a socket.
//!
//! ```text
//!   text ─► Transaction::parse ─► commands ─► Transaction::batch ─► messages, all of them or none
//!                                    │             ▲
//!                                    └ kernel_sets ┴ types of sets that the text names and does not declare
//!   words ─► ListingQuery::parse ─► questions ─► answers ─► ListingQuery::json
//! ```
//!
//! # Invariants
//! - A rule becomes the expressions that Debian's `nft` makes of it: `crates/nft/src/batch/tests.rs`
//! - No text panics the parser: `fuzz/tests/replay.rs`

mod attribute;
mod batch;
mod command;
mod datatype;
mod expression;
mod grammar;
mod listing;
mod message;
mod rule;
mod word;

pub use attribute::AttributeError;
pub use batch::{Batch, BatchError, KernelRefusal, KernelSets, SetError, SetKey, SetTypes, Transaction};
pub use datatype::ValueError;
pub use grammar::GrammarError;
pub use listing::{ListingError, ListingQuery};
pub use message::{Answers, AnswersProgress, Family};
pub use word::WordError;
