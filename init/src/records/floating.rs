//! Floating addresses for who is to hold them, by what a quorum has.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use model::MachineId;

use super::{GrantError, Records};
use crate::runtime::{clock, lock};

impl Records {
    /// Addresses of these that a machine may hold from when it asked.
    ///
    /// # Errors
    /// [`GrantError`] where there is no quorum; then nobody was told that it may hold anything.
    pub(crate) async fn hold(
        &self,
        machine: MachineId,
        asked: &BTreeSet<Ipv4Addr>,
    ) -> Result<BTreeSet<Ipv4Addr>, GrantError> {
        let is_named = self.read(|view, _| {
            asked
                .iter()
                .any(|address| view.state().floating().get(address).is_some_and(|(holder, _)| *holder == machine))
        })?;
        // Whoever is named for nothing costs etcd nothing.
        if !is_named {
            return Ok(BTreeSet::new());
        }
        self.catch_up().await?;
        let mut grants = lock::even_if_poisoned(&self.floating);
        Ok(self.read(|view, _| grants.grant(view.state(), (&machine, asked), clock::now()))?)
    }
}
