//! The requests of one HTTP/2 connection, as tasks that end with it.

use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;

use super::lock;

/// Requests of one connection: each is a task, and all end with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<JoinSet<()>>>);

/// Ends the requests when it is dropped: each of them holds on to the set, which therefore never ends by itself.
#[derive(Debug)]
pub(crate) struct EndsStreams(pub(crate) Streams);

impl Drop for EndsStreams {
    fn drop(&mut self) {
        lock::even_if_poisoned(&self.0.0).abort_all();
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let mut streams = lock::even_if_poisoned(&self.0);
        // A panic was told by the hook, and its caller sees the stream reset.
        while let Some(_ended) = streams.try_join_next() {}
        streams.spawn(stream);
    }
}
