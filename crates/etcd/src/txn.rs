//! A transaction of the cluster's decisions as etcd takes it.

use cluster::key::Key;
use cluster::txn::{KeyCondition, Outcome, Txn};

use crate::wire::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::wire::etcdserverpb::request_op::Request;
use crate::wire::etcdserverpb::response_op::Response;
use crate::wire::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use crate::{BadAnswer, number, revision};

/// Request to etcd for a transaction. When something does not compare, the answer names the revision that wrote the
/// version last.
///
/// That question is also what has etcd ask its other members before it answers: a transaction of comparisons alone would be
/// answered from whatever this member has (`IsTxnSerializable` in its `server/etcdserver/txn/txn.go`).
#[must_use]
pub fn transaction(txn: &Txn) -> TxnRequest {
    let compare = txn.compares.iter().map(|it| compare(&it.key, it.condition)).collect();
    let puts = txn.puts.iter().map(|(key, value)| {
        let value = value.clone();
        Request::RequestPut(PutRequest { key: key.bytes(), value })
    });
    let deletes = txn.deletes.iter().map(|key| {
        let range_end = vec![]; // this key alone
        Request::RequestDeleteRange(DeleteRangeRequest { key: key.bytes(), range_end })
    });
    let version = Request::RequestRange(RangeRequest { key: Key::Version.bytes(), ..RangeRequest::default() });
    TxnRequest { compare, success: puts.chain(deletes).map(op).collect(), failure: vec![op(version)] }
}

/// Outcome of a transaction, by etcd's answer.
///
/// # Errors
/// [`BadAnswer`] for what no etcd answers: whether it was committed is not known then.
pub fn outcome(answer: &TxnResponse) -> Result<Outcome, BadAnswer> {
    if answer.succeeded {
        return Ok(Outcome::Committed);
    }
    match answer.responses.as_slice() {
        [first] => match &first.response {
            Some(Response::ResponseRange(range)) => {
                let version = range.kvs.first().map_or(Ok(0), |pair| revision(pair.mod_revision))?;
                Ok(Outcome::Differs { version })
            }
            Some(Response::ResponsePut(_) | Response::ResponseDeleteRange(_)) | None => {
                Err(BadAnswer::Missing("version"))
            }
        },
        _ => Err(BadAnswer::Missing("version")), // none, or more than were asked for
    }
}

fn compare(key: &Key, condition: KeyCondition) -> Compare {
    let (target, target_union) = match condition {
        KeyCondition::Absent => (CompareTarget::Create, TargetUnion::CreateRevision(0)),
        KeyCondition::ModifiedIn(revision) => (CompareTarget::Mod, TargetUnion::ModRevision(number(revision))),
    };
    Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key.bytes(),
        target_union: Some(target_union),
    }
}

const fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

#[cfg(test)]
mod tests {
    use cluster::state::State;
    use cluster::txn::{self, Grant};
    use prost::Message as _;

    use super::*;
    use crate::wire::etcdserverpb::{RangeResponse, ResponseOp};
    use crate::wire::mvccpb::KeyValue;

    /// Field by field as etcd's `rpc.proto` numbers them.
    #[test]
    fn a_transaction_is_these_bytes() {
        let txn = Txn {
            compares: vec![
                txn::Compare { key: Key::Version, condition: KeyCondition::ModifiedIn(5) },
                txn::Compare { key: Key::Cluster, condition: KeyCondition::Absent },
            ],
            puts: vec![(Key::Version, vec![7])],
            deletes: vec![Key::Cluster],
            granted: Grant::Done,
        };
        let (version, cluster) = (b"/cairn/v1/version", b"/cairn/v1/cluster");
        let field = |number: u8, bytes: &[u8]| {
            let length = u8::try_from(bytes.len()).expect("short");
            [&[number << 3 | 2, length], bytes].concat()
        };
        let compared = |target: u8, key: &[u8], union: [u8; 2]| {
            field(1, &[&[2 << 3, target][..], &field(3, key), &union].concat())
        };
        let expected = [
            compared(2, version, [6 << 3, 5]),
            compared(1, cluster, [5 << 3, 0]),
            field(2, &field(2, &[field(1, version), field(2, &[7])].concat())),
            field(2, &field(3, &field(1, cluster))),
            field(3, &field(1, &field(1, version))),
        ];
        assert_eq!(transaction(&txn).encode_to_vec(), expected.concat());
    }

    /// A transaction that only looks is asked of all members as well.
    #[test]
    fn nothing_is_answered_from_one_members_copy() {
        let asked = transaction(&Txn::unchanged(&State::default()));
        assert!(asked.success.is_empty());
        let [RequestOp { request: Some(Request::RequestRange(range)) }] = asked.failure.as_slice() else {
            panic!("{asked:?}")
        };
        assert!(!range.serializable);
    }

    #[test]
    fn an_outcome_says_who_was_first() {
        let range = |kvs| ResponseOp {
            response: Some(Response::ResponseRange(RangeResponse { kvs, ..RangeResponse::default() })),
        };
        let differs = |responses| outcome(&TxnResponse { header: None, succeeded: false, responses });
        let pair = |mod_revision| KeyValue { mod_revision, ..KeyValue::default() };
        assert_eq!(differs(vec![range(vec![pair(9)])]), Ok(Outcome::Differs { version: 9 }));
        assert_eq!(differs(vec![range(vec![])]), Ok(Outcome::Differs { version: 0 }));
        assert_eq!(differs(vec![range(vec![pair(-1)])]), Err(BadAnswer::Revision));
        assert_eq!(differs(vec![]), Err(BadAnswer::Missing("version")));
        assert_eq!(differs(vec![ResponseOp { response: None }]), Err(BadAnswer::Missing("version")));
        assert_eq!(outcome(&TxnResponse { succeeded: true, ..TxnResponse::default() }), Ok(Outcome::Committed));
    }
}
