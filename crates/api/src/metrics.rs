//! Pages of OpenMetrics, as `Metrics` answers them in pieces.

use crate::{FieldError, Problem};

/// Line that ends a page.
const END: &[u8] = b"# EOF\n";

/// Page whose pieces have come, one after the other.
///
/// # Errors
/// [`FieldError`] where its end is missing, or it is no text: nobody would see that of a page whose lines are all right.
pub fn whole_page(pieces: Vec<u8>) -> Result<String, FieldError> {
    if !pieces.ends_with(END) {
        return Err(FieldError::new("data", Problem::Missing));
    }
    String::from_utf8(pieces).map_err(|_| FieldError::new("data", Problem::Unusable))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q3
    #[test]
    fn a_page_without_its_end_is_none() {
        assert_eq!(whole_page(b"up 1\n# EOF\n".to_vec()), Ok("up 1\n# EOF\n".to_owned()));
        assert_eq!(whole_page(b"up 1\n".to_vec()), Err(FieldError::new("data", Problem::Missing)));
        assert_eq!(whole_page(b"\xff\n# EOF\n".to_vec()), Err(FieldError::new("data", Problem::Unusable)));
    }
}
