//! Ranges of keys read page by page.

use std::ops::Range;

use crate::wire::etcdserverpb::{RangeRequest, RangeResponse};
use crate::{BadAnswer, header, number};

/// Whether there is more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Ask for the next page.
    More,
    /// All is read.
    Done,
}

/// Revision of the pages behind the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagesOf {
    /// Revision of the first page.
    OneRevision,
    /// Newest revision at each page.
    Now,
}

/// Pages of a few ranges, which come in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pages {
    /// Revision of the first page.
    revision: Option<u64>,
    /// Keys that are still to be read, the last range first.
    ranges: Vec<Range<Vec<u8>>>,
    limit: i64,
    of: PagesOf,
}

impl Pages {
    /// Pages of these ranges, of which there is one or more, with at most so many keys each.
    pub(crate) fn of(ranges: impl IntoIterator<Item = Range<Vec<u8>>>, limit: i64, of: PagesOf) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.reverse();
        Self { revision: None, ranges, limit, of }
    }

    /// Revision of the first page; none before it.
    pub(crate) const fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// The page to ask for. Before it answers the first one, etcd has its other members say what the newest revision is.
    pub(crate) fn page(&self) -> RangeRequest {
        let range = self.ranges.last().cloned().unwrap_or_default();
        let revision = self.revision.filter(|_| self.of == PagesOf::OneRevision);
        RangeRequest {
            key: range.start,
            range_end: range.end,
            revision: revision.map_or(0, number),
            limit: self.limit,
            ..RangeRequest::default()
        }
    }

    /// Goes on behind a page.
    ///
    /// # Errors
    /// [`BadAnswer`]: begin anew.
    pub(crate) fn take(&mut self, answer: &RangeResponse) -> Result<Progress, BadAnswer> {
        if self.revision.is_none() {
            self.revision = Some(header(answer.header.as_ref())?);
        }
        if answer.more {
            let range = self.ranges.last_mut().ok_or(BadAnswer::Page)?;
            let mut next = answer.kvs.last().ok_or(BadAnswer::Page)?.key.clone();
            next.push(0); // the first key that can be behind it
            if next <= range.start {
                return Err(BadAnswer::Page);
            }
            range.start = next;
            return Ok(Progress::More);
        }
        self.ranges.pop();
        Ok(if self.ranges.is_empty() { Progress::Done } else { Progress::More })
    }
}
