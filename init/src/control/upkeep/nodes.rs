//! Node objects, kept as the records have their machines. Decides nothing.

use std::convert::Infallible;
use std::sync::Mutex;

use kubeapi::Reflector;
use tokio::sync::Notify;
use upkeep::{NodeObject, nodes};

use super::{Upkeep, UpkeepError, workers};
use crate::control::apiserver::Apiserver;
use crate::runtime::lock;

impl Upkeep {
    /// Keeps nodes; a task for good.
    ///
    /// # Errors
    /// [`UpkeepError`].
    pub(in crate::control) async fn keep_nodes(self) -> Result<(), UpkeepError> {
        let (nodes, news, apiserver) = (Mutex::new(Reflector::of(nodes::NODES)), Notify::new(), self.apiserver());
        let ended: Result<Infallible, UpkeepError> = tokio::select! {
            ended = apiserver.follow(&nodes, &news) => ended.map_err(Into::into),
            ended = self.write_nodes(&nodes, &news, &apiserver) => ended,
        };
        ended.map(|never| match never {})
    }

    async fn write_nodes(
        &self,
        followed: &Mutex<Reflector<NodeObject>>,
        news: &Notify,
        apiserver: &Apiserver,
    ) -> Result<Infallible, UpkeepError> {
        let (mut api, mut changes) = (apiserver.session()?, self.records.changes());
        loop {
            let listed = lock::even_if_poisoned(followed).objects().cloned();
            // Behind the list: whoever registered a node that it shows was a worker before.
            let workers = self.recorded(workers).await?;
            for write in listed.iter().flat_map(|listed| nodes::changes(listed, &workers)) {
                api.write(write).await?;
            }
            tokio::select! {
                () = news.notified() => {}
                () = changes.next() => {}
            }
        }
    }
}
