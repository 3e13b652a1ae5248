//! All that Cairn keeps in etcd, read page by page, all pages of one revision. The audit is left out: nothing is decided by it.

use cluster::key::{AUDIT, PREFIX};
use cluster::state::{BadState, KeyValue};
use cluster::view::View;

use crate::pages::{Pages, PagesOf, Progress};
use crate::wire::etcdserverpb::{RangeRequest, RangeResponse};
use crate::{BadAnswer, behind, pair};

/// Keys of a page, some 100 KiB; with the largest records less than [`RecordsReader::MOST_BYTES`].
const PAGE: i64 = 256;

/// Reader of all records of one revision, page by page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordsReader {
    pairs: Vec<KeyValue>,
    /// All keys but the audit's.
    pages: Pages,
}

impl RecordsReader {
    /// No page is larger.
    pub const MOST_BYTES: usize = 32 << 20;

    /// Begins to read, at the first page.
    #[must_use]
    pub fn begin() -> Self {
        let ranges = [PREFIX.into()..AUDIT.into(), behind(AUDIT)..behind(PREFIX)];
        Self { pairs: Vec::new(), pages: Pages::of(ranges, PAGE, PagesOf::OneRevision) }
    }

    /// The page to ask for. Before it answers the first one, etcd has its other members say what the newest revision is.
    #[must_use]
    pub fn page(&self) -> RangeRequest {
        self.pages.page()
    }

    /// Takes a page. After the last one it is all that there is.
    ///
    /// # Errors
    /// [`BadAnswer`]: begin anew.
    pub fn take(&mut self, answer: RangeResponse) -> Result<Progress, BadAnswer> {
        let progress = self.pages.take(&answer)?;
        for read in answer.kvs {
            self.pairs.push(pair(read)?);
        }
        Ok(progress)
    }

    /// View of the records that were read.
    ///
    /// # Errors
    /// [`BadState`] names the key that cannot be understood.
    pub fn view(self) -> Result<View, BadState> {
        View::read(self.pairs, self.pages.revision().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cluster::key::{AuditId, Key};
    use cluster::record::{ChangeCount, HolderRecord};
    use model::MachineId;
    use proptest::prelude::*;

    use super::*;
    use crate::wire;
    use crate::wire::etcdserverpb::ResponseHeader;

    /// Answer of an etcd that holds these keys at a revision, `limit` keys at a time.
    fn answer(keys: &BTreeMap<Vec<u8>, Vec<u8>>, asked: &RangeRequest, limit: usize, revision: i64) -> RangeResponse {
        let mut found = keys.range(asked.key.clone()..asked.range_end.clone());
        let kvs = found.by_ref().take(limit).map(|(key, value)| wire::mvccpb::KeyValue {
            key: key.clone(),
            value: value.clone(),
            mod_revision: 3,
            ..wire::mvccpb::KeyValue::default()
        });
        let kvs = kvs.collect();
        let header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
        RangeResponse { header, kvs, more: found.next().is_some(), count: 0 }
    }

    proptest! {
        #[test]
        fn every_key_is_read_once_in_one_revision_and_the_audit_is_not(disks in 0_u8..40, lines in 0_u64..9, limit in 1_usize..9) {
            let holder = HolderRecord(MachineId([1; 16])).encode();
            let disk = |n: u8| (Key::Disk(model::DiskUuid(model::Uuid([n; 16]))).bytes(), holder.clone());
            let mut keys: BTreeMap<_, _> = (0..disks).map(disk).collect();
            keys.extend((0..lines).map(|change| (Key::Audit(AuditId::Changed { change }).bytes(), vec![0xff])));
            keys.insert(Key::Version.bytes(), ChangeCount(5).encode());
            keys.insert(Key::Address([10, 118, 0, 1].into()).bytes(), holder.clone());
            // Not ours.
            keys.insert(b"/registry/pods".to_vec(), vec![]);
            keys.insert(b"/cairn/v2/version".to_vec(), vec![]);
            let mut reading = RecordsReader::begin();
            prop_assert_eq!(reading.page().revision, 0);
            let mut pages = 0;
            // The header tells how far etcd is by now, whichever revision it was asked about.
            while reading.take(answer(&keys, &reading.page(), limit, 9 + pages)).expect("an etcd's") == Progress::More {
                pages += 1;
                prop_assert_eq!(reading.page().revision, 9);
                prop_assert!(pages < 100);
            }
            prop_assert_eq!(reading.pairs.len(), usize::from(disks) + 2);
            let view = reading.view().expect("our own");
            prop_assert_eq!((view.revision(), view.state().version()), (9, Some((ChangeCount(5), 3))));
        }
    }

    #[test]
    fn a_page_that_leads_nowhere_is_refused() {
        let mut reading = RecordsReader::begin();
        let header = Some(ResponseHeader::default());
        assert_eq!(reading.take(RangeResponse::default()), Err(BadAnswer::Missing("header")));
        assert_eq!(
            reading.take(RangeResponse { header, more: true, ..RangeResponse::default() }),
            Err(BadAnswer::Page)
        );
        let keys = [(Key::Address([10, 118, 0, 1].into()).bytes(), vec![1])].into();
        let again = RangeResponse { more: true, ..answer(&keys, &RecordsReader::begin().page(), 1, 9) };
        let mut reading = RecordsReader::begin();
        assert_eq!(reading.take(again.clone()), Ok(Progress::More));
        assert_eq!(reading.take(again), Err(BadAnswer::Page), "the same page for ever");
    }
}
