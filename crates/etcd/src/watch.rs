//! Changes behind a revision, as etcd's watch tells them.

use cluster::key::PREFIX;
use cluster::state::Change;

use crate::wire::etcdserverpb::watch_request::RequestUnion;
use crate::wire::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use crate::wire::mvccpb::event::EventType;
use crate::{BadAnswer, behind, header, number, pair, revision};

/// Message of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchAnswer {
    /// The watch has begun.
    Begun,
    /// All changes up to `revision`; none when there were none.
    Changes {
        /// In their order, all of a revision together.
        changes: Vec<Change>,
        /// Up to here.
        revision: u64,
    },
    /// The watch tells nothing more: what comes next is forgotten, or etcd has ended it. Read everything, and watch
    /// from there.
    Lost {
        /// Reason that etcd gives.
        reason: String,
    },
}

/// Everything of ours that is changed behind `revision`; and, when nothing is, now and then the revision that it is.
#[must_use]
pub fn watch_from(revision: u64) -> WatchRequest {
    WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest {
            key: PREFIX.into(),
            range_end: behind(PREFIX),
            start_revision: number(revision.saturating_add(1)),
            progress_notify: true,
        })),
    }
}

/// Reads a message of a watch.
///
/// # Errors
/// [`BadAnswer`] for what no etcd tells.
pub fn watched(answer: WatchResponse) -> Result<WatchAnswer, BadAnswer> {
    if answer.canceled || answer.compact_revision != 0 {
        return Ok(WatchAnswer::Lost { reason: answer.cancel_reason });
    }
    if answer.fragment {
        return Err(BadAnswer::Missing("whole revision")); // nobody asks for parts of one
    }
    if answer.created {
        return Ok(WatchAnswer::Begun); // its revision is of now, and changes before it are still to come
    }
    let newest = header(answer.header.as_ref())?;
    let mut changes = Vec::with_capacity(answer.events.len());
    for event in answer.events {
        let kind = EventType::try_from(event.r#type).map_err(|_| BadAnswer::Change)?;
        let told = event.kv.ok_or(BadAnswer::Missing("key"))?;
        changes.push(match kind {
            EventType::Put => Change::Put(pair(told)?),
            EventType::Delete => Change::Delete { mod_revision: revision(told.mod_revision)?, key: told.key },
        });
    }
    // The header's may be newer than changes that come with the next answer.
    let revision = changes.last().map_or(newest, Change::mod_revision);
    Ok(WatchAnswer::Changes { changes, revision })
}

#[cfg(test)]
mod tests {
    use cluster::state::KeyValue;

    use super::*;
    use crate::wire;
    use crate::wire::etcdserverpb::ResponseHeader;
    use crate::wire::mvccpb::Event;

    fn event(kind: i32, mod_revision: i64) -> Event {
        let kv = wire::mvccpb::KeyValue { key: vec![1], value: vec![2], mod_revision, ..Default::default() };
        Event { r#type: kind, kv: Some(kv), prev_kv: None }
    }

    fn told(events: Vec<Event>) -> WatchResponse {
        let header = Some(ResponseHeader { revision: 20, ..ResponseHeader::default() });
        WatchResponse { header, events, ..WatchResponse::default() }
    }

    #[test]
    fn a_watch_begins_behind_what_was_seen() {
        let Some(RequestUnion::CreateRequest(create)) = watch_from(7).request_union else { panic!("no request") };
        assert_eq!(
            (create.start_revision, &*create.key, &*create.range_end),
            (8, &b"/cairn/v1/"[..], &b"/cairn/v10"[..])
        );
        assert!(create.progress_notify, "a view that hears nothing is as old as it looks");
    }

    /// A view that took the header's revision would miss what the next answer tells.
    #[test]
    fn what_is_told_reaches_to_its_last_change() {
        let put = KeyValue { key: vec![1], value: vec![2], mod_revision: 8 };
        let changes = vec![Change::Put(put), Change::Delete { key: vec![1], mod_revision: 9 }];
        assert_eq!(watched(told(vec![event(0, 8), event(1, 9)])), Ok(WatchAnswer::Changes { changes, revision: 9 }));
        assert_eq!(watched(told(vec![])), Ok(WatchAnswer::Changes { changes: vec![], revision: 20 }));
        assert_eq!(watched(WatchResponse { created: true, ..told(vec![]) }), Ok(WatchAnswer::Begun));
    }

    #[test]
    fn a_watch_that_lost_something_says_so() {
        let lost = |answer| watched(answer).is_ok_and(|told| matches!(told, WatchAnswer::Lost { .. }));
        assert!(lost(WatchResponse { compact_revision: 12, canceled: true, ..told(vec![]) }));
        assert!(lost(WatchResponse { canceled: true, created: true, ..told(vec![]) }), "refused from the start");
        assert_eq!(watched(told(vec![event(2, 8)])), Err(BadAnswer::Change));
        assert_eq!(watched(told(vec![Event { kv: None, ..event(0, 8) }])), Err(BadAnswer::Missing("key")));
        assert_eq!(watched(WatchResponse::default()), Err(BadAnswer::Missing("header")));
        let part = WatchResponse { fragment: true, ..told(vec![event(0, 8)]) };
        assert_eq!(watched(part), Err(BadAnswer::Missing("whole revision")));
    }
}
