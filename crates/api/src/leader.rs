//! A refusal by a coordinator whose etcd has a leader: it carries where the coordinators are, as the cluster signed it, so that a
//! machine whose own directory is old does not go by that. Who reads it must verify it; that it is there says that there is a leader.

use tonic::Status;

/// Most bytes that an HTTP/2 head has room for, in base64 and beside the rest. No cluster's directory is larger.
const MOST_BYTES: usize = 8 << 10;
/// Stands for a directory that is too large or not there yet, and is none.
const NONE: &[u8] = &[0];

/// The same refusal, by whoever has a leader.
#[must_use]
pub fn by_leader(refusal: &Status, directory: Option<Vec<u8>>) -> Status {
    let directory = directory.filter(|bytes| (1..=MOST_BYTES).contains(&bytes.len()));
    let directory = directory.unwrap_or_else(|| NONE.to_vec());
    Status::with_details(refusal.code(), refusal.message(), directory.into())
}

/// Directory that a refusal carries, so that the caller finds the coordinators; none where the one that refuses may
/// have no leader.
#[must_use]
pub fn told_by_leader(refusal: &Status) -> Option<&[u8]> {
    Some(refusal.details()).filter(|details| !details.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_of_a_leader_and_where_coordinators_are() {
        let refusal = Status::failed_precondition("no");
        assert_eq!(told_by_leader(&refusal), None);
        for (directory, expected) in [
            (Some(vec![7; 3]), &[7; 3][..]),
            (Some(vec![7; MOST_BYTES]), &[7; MOST_BYTES]),
            (Some(vec![7; MOST_BYTES + 1]), NONE),
            (Some(vec![]), NONE),
            (None, NONE),
        ] {
            let told = by_leader(&refusal, directory);
            assert_eq!((told.code(), told.message()), (refusal.code(), "no"));
            assert_eq!(told_by_leader(&told), Some(expected));
        }
    }
}
