//! Kubernetes' objects in etcd, read page by page, without those that no snapshot keeps, and replaced in transactions. etcd forgets a
//! revision after a few minutes; who reads one for longer is told so.

use std::ops::Range;

use cluster::key::Key;
use snapshot::{NOT_KEPT, REGISTRY, RegistryChange, RegistryEntry};
use tonic::{Code, Status};

use crate::pages::{Pages, PagesOf, Progress};
use crate::wire::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::wire::etcdserverpb::request_op::Request;
use crate::wire::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest,
};
use crate::{BadAnswer, behind, number};

/// Objects of a page: the largest there can be take less than [`crate::RecordsReader::MOST_BYTES`] together.
const PAGE: i64 = 16;
/// Words of etcd for a revision that it has forgotten, with the code `OUT_OF_RANGE` (`ErrGRPCCompacted`, api/v3rpc/rpctypes/error.go).
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// Why Kubernetes' objects cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("etcd has forgotten revision {revision} while it was read, as it does after four minutes")]
pub struct ForgottenRevision {
    /// Revision that was being read.
    pub revision: u64,
}

/// Reader of all objects, page by page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryReader(Pages);

impl RegistryReader {
    /// Begins to read the newest revision, at the first page.
    #[must_use]
    pub fn begin() -> Self {
        Self(Pages::of(ranges(), PAGE, PagesOf::OneRevision))
    }

    /// Begins to read where nobody writes but behind what was read: each page is of the newest revision, so that none is forgotten.
    #[must_use]
    pub fn begin_alone() -> Self {
        Self(Pages::of(ranges(), PAGE, PagesOf::Now))
    }

    /// The page to ask for. Before it answers the first one, etcd has its other members say what the newest revision is.
    #[must_use]
    pub fn page(&self) -> RangeRequest {
        self.0.page()
    }

    /// Revision that is read; none before the first page.
    #[must_use]
    pub const fn revision(&self) -> Option<u64> {
        self.0.revision()
    }

    /// Takes a page: the objects that follow those before it, in order.
    ///
    /// # Errors
    /// [`BadAnswer`]: begin anew.
    pub fn take(&mut self, answer: RangeResponse) -> Result<(Vec<RegistryEntry>, Progress), BadAnswer> {
        let progress = self.0.take(&answer)?;
        let entry = |pair: crate::wire::mvccpb::KeyValue| RegistryEntry { key: pair.key, value: pair.value };
        Ok((answer.kvs.into_iter().map(entry).collect(), progress))
    }

    /// Whether etcd refuses a page because it has forgotten the revision.
    #[must_use]
    pub fn forgotten(&self, refused: &Status) -> Option<ForgottenRevision> {
        let compacted = refused.code() == Code::OutOfRange && refused.message() == COMPACTED;
        self.revision().filter(|_| compacted).map(|revision| ForgottenRevision { revision })
    }
}

/// Transaction that changes objects, as long as the record of the restore is the one that this revision wrote.
#[must_use]
pub fn replacing(revision: u64, changes: Vec<RegistryChange>) -> TxnRequest {
    let is_restored = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: Key::Restore.bytes(),
        target_union: Some(TargetUnion::ModRevision(number(revision))),
    };
    let op = |change| match change {
        RegistryChange::Put(RegistryEntry { key, value }) => Request::RequestPut(PutRequest { key, value }),
        RegistryChange::Delete(key) => Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: vec![] }),
    };
    let success = changes.into_iter().map(|change| RequestOp { request: Some(op(change)) }).collect();
    TxnRequest { compare: vec![is_restored], success, failure: vec![] }
}

/// Keys that a snapshot keeps.
fn ranges() -> Vec<Range<Vec<u8>>> {
    let mut ranges = Vec::with_capacity(NOT_KEPT.len() + 1);
    let mut start = REGISTRY.as_bytes().to_vec();
    for left in NOT_KEPT {
        ranges.push(start..left.prefix.into());
        start = behind(left.prefix);
    }
    ranges.push(start..behind(REGISTRY));
    ranges
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use snapshot::{MOST_ENTRY_BYTES, is_kept};

    use super::*;
    use crate::wire::etcdserverpb::ResponseHeader;
    use crate::wire::mvccpb::KeyValue;

    /// Answer of an etcd that holds these keys, `limit` keys at a time.
    fn answer(keys: &BTreeMap<Vec<u8>, Vec<u8>>, asked: &RangeRequest, limit: usize, revision: i64) -> RangeResponse {
        let mut found = keys.range(asked.key.clone()..asked.range_end.clone());
        let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| KeyValue {
            key: key.clone(),
            value: value.clone(),
            ..KeyValue::default()
        };
        let kvs = found.by_ref().take(limit).map(pair).collect();
        let header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
        RangeResponse { header, kvs, more: found.next().is_some(), count: 0 }
    }

    fn keys() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
        let kinds =
            "(/cairn/v1/|/registry/(events/|eventsources/|masterleases/|peerserverleases/|pods/|a|z)?)[a-c]{0,2}";
        proptest::collection::btree_map(kinds.prop_map(String::into_bytes), any::<[u8; 2]>().prop_map(Vec::from), 0..40)
    }

    proptest! {
        /// Proves: Q4
        #[test]
        fn each_object_is_read_once_and_in_order(keys in keys(), limit in 1_usize..9) {
            let (mut reading, mut found, mut pages) = (RegistryReader::begin(), Vec::new(), 0);
            prop_assert_eq!((reading.page().revision, reading.page().serializable), (0, false), "the newest of all members");
            loop {
                let asked = reading.page();
                prop_assert!(asked.limit == PAGE && !asked.keys_only);
                let (entries, progress) = reading.take(answer(&keys, &asked, limit, 9 + pages)).expect("an etcd's");
                found.extend(entries);
                if progress == Progress::Done {
                    break;
                }
                pages += 1;
                prop_assert!(pages < 100);
                prop_assert_eq!(reading.page().revision, 9);
            }
            prop_assert_eq!(reading.revision(), Some(9));
            let kept = keys.into_iter().filter(|(key, _)| is_kept(key)).map(|(key, value)| RegistryEntry { key, value });
            prop_assert_eq!(found, kept.collect::<Vec<_>>());
        }
    }

    /// Proves: Q4
    #[test]
    fn objects_are_replaced_only_under_the_order_that_stands() {
        let entry = RegistryEntry { key: b"/registry/a".to_vec(), value: vec![7] };
        let deleted = b"/registry/b".to_vec();
        let asked = replacing(9, vec![RegistryChange::Put(entry), RegistryChange::Delete(deleted.clone())]);
        let [compare] = asked.compare.as_slice() else { panic!("{asked:?}") };
        assert_eq!((&*compare.key, compare.target()), (&b"/cairn/v1/restore"[..], CompareTarget::Mod));
        assert_eq!(compare.target_union, Some(TargetUnion::ModRevision(9)));
        let ops: Vec<_> = asked.success.into_iter().map(|op| op.request.expect("one")).collect();
        let put = PutRequest { key: b"/registry/a".to_vec(), value: vec![7] };
        let delete = DeleteRangeRequest { key: deleted, range_end: vec![] };
        assert_eq!(ops, [Request::RequestPut(put), Request::RequestDeleteRange(delete)]);
        assert!(asked.failure.is_empty());
    }

    /// Proves: Q1
    #[test]
    fn the_largest_object_is_written_again() {
        use prost::Message as _;

        let key = b"/registry/a".to_vec();
        let entry = RegistryEntry { value: vec![7; MOST_ENTRY_BYTES - 200], key };
        let bytes = replacing(u64::MAX, vec![RegistryChange::Put(entry)]).encoded_len();
        assert!(bytes <= MOST_ENTRY_BYTES, "whoever wrote it named its key three times, and its own name: {bytes}");
    }

    /// Proves: Q4
    #[test]
    fn who_reads_alone_reads_what_is_there_now() {
        let mut reading = RegistryReader::begin_alone();
        reading.take(answer(&BTreeMap::new(), &reading.page(), 1, 9)).expect("an etcd's");
        assert_eq!((reading.page().revision, reading.page().serializable), (0, false));
    }

    /// Proves: Q1
    #[test]
    fn a_page_of_the_largest_objects_is_taken() {
        let page = MOST_ENTRY_BYTES * usize::try_from(PAGE).expect("few");
        assert!(page + (1 << 20) < crate::RecordsReader::MOST_BYTES);
    }

    /// Proves: Q4
    #[test]
    fn a_forgotten_revision_is_told_from_other_refusals() {
        let mut reading = RegistryReader::begin();
        let refused = Status::out_of_range(COMPACTED);
        assert_eq!(reading.forgotten(&refused), None, "the newest is never forgotten");
        reading.take(answer(&BTreeMap::new(), &reading.page(), 1, 9)).expect("an etcd's");
        assert_eq!(reading.forgotten(&refused), Some(ForgottenRevision { revision: 9 }));
        for other in [
            Status::out_of_range("etcdserver: mvcc: required revision is a future revision"),
            Status::unavailable(COMPACTED),
        ] {
            assert_eq!(reading.forgotten(&other), None, "{other}");
        }
    }
}
