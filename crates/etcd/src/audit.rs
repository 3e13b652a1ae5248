//! Keeps the audit in its bounds: looks through all lines, and has the oldest deleted that are too many. Which is older says etcd's
//! revision of a line, and nobody's clock. Nothing is decided by lines: they need no transaction with what is.

use std::mem;

use cluster::key::{AUDIT, AuditId, Key};
use cluster::record::{MOST_AUDIT_LINES, MOST_AUDIT_LINES_OF_ONE};

use crate::wire::etcdserverpb::request_op::Request;
use crate::wire::etcdserverpb::{DeleteRangeRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest};
use crate::{BadAnswer, Progress, behind, revision};

/// Keys of a page.
const PAGE: i64 = 1000;
/// Deletions of one transaction, of which etcd takes 128.
const AT_A_TIME: usize = 100;

/// Finds the oldest lines of the audit, page by page: lines of one kind and machine come one after the other.
#[derive(Debug, Clone)]
pub struct AuditTrimmer {
    /// Where the next page begins.
    next: Vec<u8>,
    /// Machine and kind of line that `lines` belong to.
    of: Option<AuditId>,
    lines: Vec<(u64, Vec<u8>)>,
    surplus: Vec<Vec<u8>>,
}

impl AuditTrimmer {
    /// Begins to look, at the first page.
    #[must_use]
    pub fn begin() -> Self {
        Self { next: AUDIT.into(), of: None, lines: Vec::new(), surplus: Vec::new() }
    }

    /// The page to ask for.
    #[must_use]
    pub fn page(&self) -> RangeRequest {
        let range_end = behind(AUDIT);
        RangeRequest { key: self.next.clone(), range_end, keys_only: true, limit: PAGE, ..RangeRequest::default() }
    }

    /// Takes a page.
    ///
    /// # Errors
    /// [`BadAnswer`]: nothing is to be deleted.
    pub fn take(&mut self, answer: RangeResponse) -> Result<Progress, BadAnswer> {
        let last = answer.kvs.last().map(|pair| pair.key.clone());
        for pair in answer.kvs {
            // A line of another version is left alone.
            let Ok(Key::Audit(id)) = Key::read(&pair.key) else { continue };
            if self.of.is_none_or(|of| !of.is_beside(&id)) {
                self.settle();
                self.of = Some(id);
            }
            self.lines.push((revision(pair.mod_revision)?, pair.key));
        }
        if !answer.more {
            self.settle();
            return Ok(Progress::Done);
        }
        let mut next = last.ok_or(BadAnswer::Page)?;
        next.push(0); // the first key that can be behind it
        if next <= self.next {
            return Err(BadAnswer::Page);
        }
        self.next = next;
        Ok(Progress::More)
    }

    /// Judges the lines of one kind and machine, which are all there: the oldest beyond the bound are surplus.
    fn settle(&mut self) {
        let most = match self.of {
            Some(AuditId::Changed { .. }) => MOST_AUDIT_LINES,
            Some(AuditId::Asked { .. } | AuditId::Released { .. } | AuditId::Refused { .. }) => MOST_AUDIT_LINES_OF_ONE,
            None => return,
        };
        let mut lines = mem::take(&mut self.lines);
        lines.sort_unstable();
        lines.truncate(lines.len().saturating_sub(most));
        self.surplus.extend(lines.into_iter().map(|(_, key)| key));
    }

    /// Transactions that delete the surplus, after the last page.
    #[must_use]
    pub fn deletes(self) -> Vec<TxnRequest> {
        let delete = |key: &Vec<u8>| RequestOp {
            request: Some(Request::RequestDeleteRange(DeleteRangeRequest { key: key.clone(), range_end: vec![] })),
        };
        let deletes =
            |keys: &[Vec<u8>]| TxnRequest { success: keys.iter().map(delete).collect(), ..TxnRequest::default() };
        self.surplus.chunks(AT_A_TIME).map(deletes).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::MachineId;

    use super::*;
    use crate::number;
    use crate::wire::mvccpb::KeyValue;

    /// Lines with the revision of each, as etcd has them by key.
    type Lines = BTreeMap<Vec<u8>, u64>;

    fn of(lines: impl IntoIterator<Item = (AuditId, u64)>) -> Lines {
        lines.into_iter().map(|(id, revision)| (Key::Audit(id).bytes(), revision)).collect()
    }

    /// Lines that are left when these were looked through in pages of `limit`.
    fn trim(mut lines: Lines, limit: usize) -> Lines {
        let mut trimming = AuditTrimmer::begin();
        loop {
            let asked = trimming.page();
            assert!(asked.keys_only && asked.limit == PAGE, "nobody reads what the lines say");
            let mut found = lines.range(asked.key..asked.range_end);
            let pairs = found.by_ref().take(limit).map(|(key, revision)| KeyValue {
                key: key.clone(),
                mod_revision: number(*revision),
                ..KeyValue::default()
            });
            let kvs = pairs.collect();
            let answer = RangeResponse { kvs, more: found.next().is_some(), ..RangeResponse::default() };
            if trimming.take(answer).expect("an etcd's") == Progress::Done {
                break;
            }
        }
        for op in trimming.deletes().into_iter().flat_map(|txn| {
            assert!(txn.success.len() <= 128 && txn.compare.is_empty());
            txn.success
        }) {
            let Some(Request::RequestDeleteRange(delete)) = op.request else { panic!("{op:?}") };
            assert!(delete.range_end.is_empty(), "one line");
            assert!(lines.remove(&delete.key).is_some(), "each once");
        }
        lines
    }

    fn asked(n: u8, change: u64) -> AuditId {
        AuditId::Asked { machine: MachineId([n; 16]), change }
    }

    /// Proves: Q1
    #[test]
    fn a_machine_pushes_out_its_own_lines_and_nobody_elses() {
        let owners = of((1..=100).map(|change| (AuditId::Changed { change }, change)));
        let quiet = of([(asked(1, 101), 101), (asked(3, 102), 102)]);
        let loud = of((200..5200).map(|change| (asked(2, change), change)));
        let all: Lines = owners.iter().chain(&quiet).chain(&loud).map(|(key, at)| (key.clone(), *at)).collect();
        for limit in [7, 1000] {
            let mut left = trim(all.clone(), limit);
            for (key, at) in owners.iter().chain(&quiet) {
                assert_eq!(left.remove(key), Some(*at));
            }
            assert_eq!(left.len(), MOST_AUDIT_LINES_OF_ONE);
            assert_eq!(left.values().min(), Some(&(5200 - 64)), "its newest");
        }
        let many = of((1..=10_002).map(|change| (AuditId::Changed { change }, change)));
        assert_eq!(trim(many, 1000).values().min(), Some(&3));
    }

    /// A coordinator's clock is an hour ahead: the lines that it wrote first are the oldest all the same. Proves: Q1
    #[test]
    fn the_newest_lines_are_those_that_etcd_took_last() {
        let released = |seconds| AuditId::Released { machine: MachineId([1; 16]), seconds };
        let lines = of((0..100).map(|n| (released(if n < 50 { 3600 + n } else { n }), 10 + n)));
        assert_eq!(trim(lines, 1000).into_values().min(), Some(10 + 36));
    }

    #[test]
    fn what_is_within_bounds_and_what_another_version_wrote_stays() {
        let mut lines = of((0..64).map(|n| (asked(1, n), n)));
        lines.insert(format!("{AUDIT}6a5d0000").into_bytes(), 1);
        assert_eq!(trim(lines.clone(), 1000), lines);
        assert_eq!(trim(Lines::new(), 1000), Lines::new());
        let leads_nowhere = RangeResponse { more: true, ..RangeResponse::default() };
        assert_eq!(AuditTrimmer::begin().take(leads_nowhere), Err(BadAnswer::Page));
        let kvs = vec![KeyValue { key: Key::Audit(asked(1, 1)).bytes(), ..KeyValue::default() }];
        let again = RangeResponse { kvs, more: true, ..RangeResponse::default() };
        let mut trimming = AuditTrimmer::begin();
        assert_eq!(trimming.take(again.clone()), Ok(Progress::More));
        assert_eq!(trimming.take(again), Err(BadAnswer::Page), "the same page for ever");
    }
}
