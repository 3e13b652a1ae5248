//! The connection to this machine's etcd: one, over TLS, made again when it is lost; every question has a deadline.

use std::error::Error as _;
use std::net::{IpAddr, SocketAddrV4};
use std::time::Duration;

use cluster::txn::{Outcome, Txn};
use etcd::members::{Health, Member, MemberChange, MemberStatus};
use etcd::wire::etcdserverpb::{
    DefragmentRequest, RangeRequest, RangeResponse, StatusRequest, TxnRequest, TxnResponse, WatchResponse,
};
use etcd::{AuthClient, BadAnswer, ClusterClient, KvClient, MaintenanceClient, RecordsReader, WatchClient, members};
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use crate::runtime::tls;

/// Longer than etcd itself tries (5 s, and two elections): what it says is better than our guess.
const ANSWERS: Duration = Duration::from_secs(10);
/// A backend at its quota of 2 GiB is written anew at 7 MiB/s within it; `LONGEST` of `cluster::backends` is longer.
const DEFRAGMENTS: Duration = Duration::from_secs(300);
/// Under emulation on a busy host a handshake takes a second.
const CONNECTS: Duration = Duration::from_secs(5);
/// etcd takes one ping in 5 s (`--grpc-keepalive-min-time`).
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Why etcd's word is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// etcd denied the request, or could not be reached.
    #[error(transparent)]
    Refused(Box<Status>),
    /// No answer came within this time.
    #[error("nothing within {} s", .0.as_secs())]
    Silent(Duration),
    /// The answer breaks etcd's protocol.
    #[error(transparent)]
    Answer(#[from] BadAnswer),
}

impl NoAnswer {
    /// The word of etcd itself, if it is one: a status that the connection has made has a source.
    pub(super) fn of_etcd(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) if status.source().is_none() => Some(status),
            Self::Refused(_) | Self::Silent(_) | Self::Answer(_) => None,
        }
    }

    /// Whether etcd takes no writes, since a backend has reached its quota (`ErrGRPCNoSpace`, api/v3rpc/rpctypes/error.go).
    pub(super) fn is_full(&self) -> bool {
        let full = |status: &Status| {
            status.code() == Code::ResourceExhausted && status.message().contains("database space exceeded")
        };
        self.of_etcd().is_some_and(full)
    }
}

impl From<Status> for NoAnswer {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// The connection; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Link(Channel);

impl Link {
    /// To etcd at `address`; connects when it is asked something.
    pub(super) fn to(address: SocketAddrV4, client: tls::Client) -> Self {
        let endpoint = Endpoint::from_static("https://etcd.cairn.internal")
            .connect_timeout(CONNECTS)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        Self(tls::channel(&endpoint, address, ServerName::from(IpAddr::from(*address.ip())), client))
    }

    /// Commits; what became of it, and the revision that etcd then had.
    pub(super) async fn commit(&self, txn: &Txn) -> Result<(Outcome, u64), NoAnswer> {
        let answer = self.transact(etcd::transaction(txn)).await?;
        let revision = answer.header.as_ref().ok_or(BadAnswer::Missing("header"))?.revision;
        let revision = u64::try_from(revision).map_err(|_| BadAnswer::Revision)?;
        Ok((etcd::outcome(&answer)?, revision))
    }

    /// Asks for a transaction that is one already.
    pub(super) async fn transact(&self, asked: TxnRequest) -> Result<TxnResponse, NoAnswer> {
        in_time(self.keys().txn(asked)).await
    }

    /// Reads one key or a range of keys, as `asked` says.
    pub(super) async fn range(&self, asked: RangeRequest) -> Result<RangeResponse, NoAnswer> {
        in_time(self.keys().range(asked)).await
    }

    /// Watches what is changed behind `revision`, as long as this etcd has a leader.
    pub(super) async fn watch(&self, revision: u64) -> Result<Streaming<WatchResponse>, NoAnswer> {
        let mut client = WatchClient::new(self.0.clone()).max_decoding_message_size(RecordsReader::MOST_BYTES);
        // It is created by the first message; a stream without a second one stays open.
        let asked =
            tokio_stream::StreamExt::chain(tokio_stream::once(etcd::watch_from(revision)), tokio_stream::pending());
        let mut asked = Request::new(asked);
        asked.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        in_time(client.watch(asked)).await
    }

    /// How this etcd is; also a learner, and one without a leader, says so.
    pub(super) async fn status(&self) -> Result<MemberStatus, NoAnswer> {
        let mut client = MaintenanceClient::new(self.0.clone());
        Ok(members::status(&in_time(client.status(StatusRequest {})).await?)?)
    }

    /// Health alone of the same.
    pub(super) async fn health(&self) -> Result<Health, NoAnswer> {
        Ok(self.status().await?.health)
    }

    /// Has this etcd write its backend anew, without what is free in it. It answers nothing else meanwhile, and goes on if nobody waits.
    pub(super) async fn defragment(&self) -> Result<(), NoAnswer> {
        let mut client = MaintenanceClient::new(self.0.clone());
        within(DEFRAGMENTS, client.defragment(DefragmentRequest {})).await.map(drop)
    }

    /// Disarms the alarm NOSPACE of all members; whether it was raised.
    pub(super) async fn disarm_no_space(&self) -> Result<bool, NoAnswer> {
        let mut client = MaintenanceClient::new(self.0.clone());
        let asked = members::disarming(&in_time(client.alarm(members::alarms())).await?);
        let was_raised = !asked.is_empty();
        for disarm in asked {
            in_time(client.alarm(disarm)).await?;
        }
        Ok(was_raised)
    }

    /// The members of etcd.
    pub(super) async fn members(&self) -> Result<Vec<Member>, NoAnswer> {
        let mut client = ClusterClient::new(self.0.clone());
        Ok(members::listed(&in_time(client.member_list(members::list())).await?)?)
    }

    /// Changes etcd's members by one, or which of them leads.
    pub(super) async fn change(&self, change: MemberChange) -> Result<(), NoAnswer> {
        let mut client = ClusterClient::new(self.0.clone());
        match change {
            MemberChange::Add(asked) => in_time(client.member_add(asked)).await.map(drop),
            MemberChange::Promote(asked) => in_time(client.member_promote(asked)).await.map(drop),
            MemberChange::Remove(asked) => in_time(client.member_remove(asked)).await.map(drop),
            MemberChange::MoveLeader(asked) => {
                in_time(MaintenanceClient::new(self.0.clone()).move_leader(asked)).await.map(drop)
            }
        }
    }

    /// Client of etcd's users and roles.
    pub(super) fn users(&self) -> AuthClient<Channel> {
        AuthClient::new(self.0.clone())
    }

    fn keys(&self) -> KvClient<Channel> {
        KvClient::new(self.0.clone()).max_decoding_message_size(RecordsReader::MOST_BYTES)
    }
}

/// Answer of etcd, if it comes within `ANSWERS`.
pub(super) async fn in_time<T>(asked: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, NoAnswer> {
    within(ANSWERS, asked).await
}

async fn within<T>(
    time: Duration,
    asked: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, NoAnswer> {
    match timeout(time, asked).await {
        Ok(answered) => Ok(answered?.into_inner()),
        Err(_elapsed) => Err(NoAnswer::Silent(time)),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    const FULL: &str = "etcdserver: mvcc: database space exceeded";

    /// Proves: Q4
    #[test]
    fn etcds_own_word_of_its_quota_alone_means_that_it_is_full() {
        let is_full = |code, text: &str| NoAnswer::from(Status::new(code, text)).is_full();
        assert!(is_full(Code::ResourceExhausted, FULL));
        assert!(!is_full(Code::ResourceExhausted, "etcdserver: too many requests"));
        assert!(!is_full(Code::Unavailable, FULL));
        assert!(!NoAnswer::Silent(ANSWERS).is_full());
        let mut of_the_connection = Status::new(Code::ResourceExhausted, FULL);
        of_the_connection.set_source(Arc::new(io::Error::other(FULL)));
        assert!(!NoAnswer::from(of_the_connection).is_full());
    }
}
