//! Errors in messages, field by field, and the small readers every conversion uses.

/// A message whose field cannot be read. Unknown *fields* are ignored, as protobuf means it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}` {problem}")]
pub struct FieldError {
    /// The field's name in the `.proto` file.
    pub field: &'static str,
    /// Problem with the field.
    pub problem: Problem,
}

/// Problem with a field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A field that has to be there is not.
    #[error("is missing")]
    Missing,
    /// Bytes of another length than the field's.
    #[error("has {found} bytes instead of {expected}")]
    Length {
        /// As the `.proto` file says.
        expected: usize,
        found: usize,
    },
    /// An enum's zero value, or a number of a newer version.
    #[error("has a value this version does not know")]
    Unknown,
    /// A number beyond what the field's meaning allows.
    #[error("is out of range")]
    Range,
    /// A text that is not of the form that it has to have.
    #[error("cannot be used")]
    Unusable,
    /// A message that may only come first came later, or the other way round.
    #[error("does not belong here in the stream")]
    OutOfOrder,
}

impl FieldError {
    pub(crate) const fn new(field: &'static str, problem: Problem) -> Self {
        Self { field, problem }
    }
}

impl From<FieldError> for tonic::Status {
    /// For servers: the request was wrong, nothing was done.
    fn from(malformed: FieldError) -> Self {
        Self::invalid_argument(format!("{malformed}; nothing was done"))
    }
}

/// Bytes of a fixed length.
pub(crate) fn fixed<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], FieldError> {
    bytes.try_into().map_err(|_| FieldError::new(field, Problem::Length { expected: N, found: bytes.len() }))
}

/// An enum value that this version knows.
pub(crate) fn known<T>(field: &'static str, word: Option<T>) -> Result<T, FieldError> {
    word.ok_or(FieldError::new(field, Problem::Unknown))
}

/// A field that has to be there.
pub(crate) fn present<T>(field: &'static str, value: Option<T>) -> Result<T, FieldError> {
    value.ok_or(FieldError::new(field, Problem::Missing))
}
