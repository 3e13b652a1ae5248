//! Meaning of a refused or failed call, in the words of this program.

use tonic::{Code as Grpc, Status};

use crate::failure::{Advice, Code};

/// Why a call has no answer. `message` is what the machine said, or the last that was seen of the connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The machine read the call and refuses it.
    #[error("the machine refuses `{method}`: {message}")]
    Refused { method: &'static str, message: String },
    /// The machine ended the TLS session: in TLS 1.3 a client's certificate is looked at after the client has finished,
    /// so the word comes with the first call. Nothing of the call was read.
    #[error("the machine does not accept this owner's key for `{method}`")]
    NotOwner { method: &'static str, source: rustls::Error },
    /// The machine is not in a state to do it.
    #[error("the machine cannot `{method}` now: {message}")]
    NotNow { method: &'static str, message: String },
    /// The machine knows nothing of that name.
    #[error("the machine knows no such thing (`{method}`): {message}")]
    NotFound { method: &'static str, message: String },
    /// The connection ended.
    #[error("the connection ended during `{method}`: {message}")]
    Gone { method: &'static str, message: String },
    /// The machine took too long to answer.
    #[error("`{method}` took too long")]
    Late { method: &'static str },
    /// The machine does not know itself what became of it.
    #[error("the machine does not know whether `{method}` was done: {message}")]
    Unknown { method: &'static str, message: String },
    /// The machine failed.
    #[error("the machine fails at `{method}`: {message}")]
    Failed { method: &'static str, message: String },
    /// The answer makes no sense to this version.
    #[error("read the answer to `{method}`")]
    Answer { method: &'static str, source: api::FieldError },
}

impl CallError {
    /// For `map_err` on a call of `method`.
    pub(crate) fn of(method: &'static str) -> impl Fn(Status) -> Self {
        move |status| {
            if let Some(refused) = tls_refusal(&status) {
                return Self::NotOwner { method, source: refused };
            }
            let message = status.message().to_owned();
            match status.code() {
                Grpc::PermissionDenied | Grpc::Unauthenticated | Grpc::InvalidArgument => {
                    Self::Refused { method, message }
                }
                Grpc::FailedPrecondition | Grpc::ResourceExhausted | api::NOT_YET => Self::NotNow { method, message },
                Grpc::NotFound => Self::NotFound { method, message },
                Grpc::Unavailable | Grpc::Cancelled => Self::Gone { method, message },
                Grpc::DeadlineExceeded => Self::Late { method },
                // A connection that breaks under HTTP/2 is reported as unknown by the library, with a cause.
                Grpc::Unknown if std::error::Error::source(&status).is_some() => Self::Gone { method, message },
                Grpc::Unknown => Self::Unknown { method, message },
                Grpc::Ok
                | Grpc::AlreadyExists
                | Grpc::OutOfRange
                | Grpc::Unimplemented
                | Grpc::Internal
                | Grpc::DataLoss => Self::Failed { method, message },
            }
        }
    }

    /// For `map_err` on reading the answer to `method`.
    pub(crate) fn answer(method: &'static str) -> impl Fn(api::FieldError) -> Self {
        move |source| Self::Answer { method, source }
    }

    /// Whether asking again later can help.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::NotNow { .. } | Self::Gone { .. } | Self::Late { .. } | Self::Unknown { .. } => true,
            Self::Refused { .. }
            | Self::NotOwner { .. }
            | Self::NotFound { .. }
            | Self::Failed { .. }
            | Self::Answer { .. } => false,
        }
    }
}

impl Advice for CallError {
    fn code(&self) -> Code {
        match self {
            Self::Refused { .. } | Self::NotOwner { .. } | Self::NotNow { .. } => Code::Refused,
            Self::NotFound { .. } => Code::NotFound,
            Self::Gone { .. } => Code::Unreachable,
            Self::Late { .. } | Self::Unknown { .. } => Code::Timeout,
            Self::Failed { .. } | Self::Answer { .. } => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Refused { .. } | Self::NotOwner { .. } | Self::NotNow { .. } | Self::NotFound { .. } => {
                "the machine is as it was"
            }
            Self::Gone { .. }
            | Self::Late { .. }
            | Self::Unknown { .. }
            | Self::Failed { .. }
            | Self::Answer { .. } => "whether the machine did it is unknown",
        }
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Refused { .. } | Self::NotOwner { .. } => {
                "call as the owner that made the machine's config".to_owned()
            }
            Self::NotNow { .. } => "see what it waits for: cairnctl machine status".to_owned(),
            Self::NotFound { .. } => "cairnctl machine services; cairnctl condition list".to_owned(),
            Self::Gone { .. } | Self::Late { .. } => {
                "see whether it is still there: cairnctl machine status".to_owned()
            }
            Self::Unknown { .. } => {
                "see whether the coordinators answer: cairnctl machine list; then repeat the command".to_owned()
            }
            Self::Failed { .. } => "see its log: cairnctl machine logs --tail 50".to_owned(),
            Self::Answer { .. } => "use a cairnctl of the machine's version".to_owned(),
        })
    }
}

/// The alert by which the machine ended the session, if that is why the call failed.
fn tls_refusal(status: &Status) -> Option<rustls::Error> {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        // An I/O error does not count its own content among its sources.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(alert @ rustls::Error::AlertReceived(_)) = inner.and_then(|inner| inner.downcast_ref()) {
            return Some(alert.clone());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_told_from_records_that_are_not_read_yet() {
        let of = CallError::of("ListMachines");
        let not_yet = of(api::not_yet("the cluster's records are not read yet"));
        assert!(matches!(not_yet, CallError::NotNow { .. }) && not_yet.may_pass(), "{not_yet}");
        assert_eq!((not_yet.code(), not_yet.unchanged()), (Code::Refused, "the machine is as it was"));
        let lost = of(Status::unavailable("tcp connect error"));
        assert!(matches!(lost, CallError::Gone { .. }), "{lost}");
        assert_eq!(lost.code(), Code::Unreachable);
    }
}
