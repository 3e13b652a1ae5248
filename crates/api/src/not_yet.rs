//! The one status that says "not yet": nothing was decided, nothing was done, and who asks again soon may be answered. Says
//! nothing of a refusal, which lasts, nor of a connection, which is there.

use tonic::{Code, Status};

/// Status code of a refusal for now. gRPC has it for what is to be tried again by the caller of the call, and its
/// library never makes it of a broken connection, as it does `UNAVAILABLE`.
pub const NOT_YET: Code = Code::Aborted;

/// The status, with what it is that is not there yet.
#[must_use]
pub fn not_yet(text: impl Into<String>) -> Status {
    Status::new(NOT_YET, text)
}
