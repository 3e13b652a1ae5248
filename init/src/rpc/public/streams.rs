//! Answers that stay open: log entries, a condition's changes, a tunnel's bytes. Each is fed by a task that ends with its
//! stream, holds a bounded number of items, and waits when its reader is slow.

use std::pin::Pin;

use api::{Condition, Target, Truth, TunnelPart, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};

use super::forward::Line;
use crate::runtime::log;
use crate::runtime::tasks;
use crate::shown::board::BoardReader;

/// A stream of answers.
pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Stream of the entries that the reader reads.
pub(super) fn logs(mut reader: log::Reader) -> Answers<wire::LogEntry> {
    // One entry is under way while the reader waits for the next.
    let (sender, entries) = mpsc::channel(1);
    let reading = tasks::spawn(async move {
        loop {
            let batch = reader.next().await;
            if batch.is_empty() {
                return;
            }
            for entry in batch {
                if sender.send(Ok(entry.into())).await.is_err() {
                    return;
                }
            }
        }
    });
    kept(entries, reading)
}

/// The condition `name` as it is, then its changes, up to the first that is true.
pub(super) fn condition(shown: BoardReader, name: String) -> Answers<wire::Condition> {
    // As above; changes that nobody reads in time are skipped, the last one is not.
    let (sender, conditions) = mpsc::channel(1);
    let watching = tasks::spawn(async move {
        let (mut changes, mut last) = (shown.changes(), None);
        let named = |condition: &&Condition| condition.name == name;
        loop {
            let now = shown.read(|_, words| words.conditions.iter().find(named).cloned());
            if now != last
                && let Some(condition) = &now
            {
                let holds = condition.truth == Truth::True;
                if sender.send(Ok(condition.clone().into())).await.is_err() || holds {
                    return;
                }
            }
            last = now;
            tokio::select! {
                changed = changes.next() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
        }
    });
    kept(conditions, watching)
}

/// Connects to the target that the first part names, then carries bytes both ways.
///
/// # Errors
/// When the first part is no opening, or nothing listens at the target.
pub(super) async fn tunnel(
    mut parts: Streaming<wire::TunnelRequest>,
    connect: impl AsyncFnOnce(Target) -> Result<Line, Status>,
) -> Result<Answers<wire::TunnelResponse>, Status> {
    let first = parts.message().await?.ok_or_else(|| Status::invalid_argument("the stream is empty"))?;
    let first = TunnelPart::try_from(first).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let TunnelPart::Open(target) = first else {
        return Err(Status::invalid_argument("the first message names the target"));
    };
    let Line { stream, place } = connect(target).await?;
    // What is carried may be a handshake, whose small pieces must not wait for each other. Optional, so not fatal.
    let _immediate = stream.set_nodelay(true);
    let (mut from_target, mut to_target) = stream.into_split();
    // One chunk is read while another is sent.
    let (sender, answers) = mpsc::channel(2);
    let carrying = tasks::spawn(async move {
        let _held_as_long_as_bytes_are_carried = place;
        let upward = async {
            while let Some(Ok(part)) = parts.next().await {
                let Ok(TunnelPart::Data(data)) = TunnelPart::try_from(part) else { return };
                if to_target.write_all(&data).await.is_err() {
                    return;
                }
            }
            let _closed_either_way = to_target.shutdown().await;
        };
        let downward = async {
            let mut chunk = vec![0; api::limits::TUNNEL_CHUNK];
            while let Ok(read @ 1..) = from_target.read(&mut chunk).await {
                if sender.send(Ok(wire::TunnelResponse { data: chunk[..read].to_vec() })).await.is_err() {
                    return;
                }
            }
            drop(sender);
        };
        tokio::join!(upward, downward);
    });
    Ok(kept(answers, carrying))
}

/// A list that is at hand, piece by piece.
pub(super) fn pieces<P, T>(pieces: Vec<P>) -> Answers<T>
where
    P: Into<T> + Send + 'static,
    T: 'static,
{
    Box::pin(tokio_stream::iter(pieces).map(|piece| Ok(piece.into())))
}

/// A stream that keeps the task that feeds it: when the caller leaves, the task ends.
pub(super) fn kept<T: Send + 'static>(
    items: mpsc::Receiver<Result<T, Status>>,
    feeding: tasks::Task<()>,
) -> Answers<T> {
    Box::pin(ReceiverStream::new(items).map(move |item| {
        let _lives_as_long_as_the_stream = &feeding;
        item
    }))
}
