//! Keeps the audit at its newest lines: how many there are, the oldest that are too many, and their end. Lines stand in the
//! order of time, and nothing is decided by them: they need no transaction.

use cluster::key::AUDIT;
use cluster::record::MOST_AUDIT_LINES;

use crate::wire::etcdserverpb::{DeleteRangeRequest, RangeRequest, RangeResponse};
use crate::{BadAnswer, behind, number};

/// How many are found at a time.
const AT_A_TIME: i64 = 1000;

/// How many lines there are.
#[must_use]
pub fn count() -> RangeRequest {
    RangeRequest { count_only: true, ..lines() }
}

/// Which of them to look for, if there are too many.
#[must_use]
pub fn oldest(counted: &RangeResponse) -> Option<RangeRequest> {
    let surplus = counted.count.saturating_sub(number(MOST_AUDIT_LINES));
    (surplus > 0).then(|| RangeRequest { keys_only: true, limit: surplus.min(AT_A_TIME), ..lines() })
}

/// What is to be deleted: all up to the last that was found.
///
/// # Errors
/// [`BadAnswer`] when none was.
pub fn delete(found: RangeResponse) -> Result<DeleteRangeRequest, BadAnswer> {
    let mut end = found.kvs.into_iter().last().ok_or(BadAnswer::Missing("key"))?.key;
    end.push(0);
    Ok(DeleteRangeRequest { key: AUDIT.into(), range_end: end })
}

fn lines() -> RangeRequest {
    RangeRequest { key: AUDIT.into(), range_end: behind(AUDIT), ..RangeRequest::default() }
}

#[cfg(test)]
mod tests {
    use cluster::key::{AuditId, Key};

    use super::*;
    use crate::wire::mvccpb::KeyValue;

    #[test]
    fn the_newest_lines_stay() {
        let counted = |count| RangeResponse { count: number(count), ..RangeResponse::default() };
        assert_eq!(oldest(&counted(MOST_AUDIT_LINES)), None);
        assert_eq!(oldest(&counted(MOST_AUDIT_LINES + 2)).map(|asked| asked.limit), Some(2));
        assert_eq!(oldest(&counted(MOST_AUDIT_LINES + 5000)).map(|asked| asked.limit), Some(1000));
        let line = |seconds| Key::Audit(AuditId { seconds, apart: 7 }).bytes();
        let kvs = [1, 2].map(|seconds| KeyValue { key: line(seconds), ..KeyValue::default() }).into();
        let deleted = delete(RangeResponse { kvs, ..RangeResponse::default() }).expect("two lines");
        let gone = |key: Vec<u8>| deleted.key <= key && key < deleted.range_end;
        assert_eq!(
            [line(0), line(1), line(2), line(3), Key::Cluster.bytes()].map(gone),
            [true, true, true, false, false]
        );
        assert_eq!(delete(RangeResponse::default()), Err(BadAnswer::Missing("key")));
    }
}
