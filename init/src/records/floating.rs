//! Floating addresses for who is to hold them, by what a quorum has.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use model::MachineId;

use super::{GrantError, Records, Unread};
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
        Ok(self.granted(machine, asked)?)
    }

    /// The same by this coordinator's copy. Locked inside of the copy, as whoever changes that locks it.
    fn granted(&self, machine: MachineId, asked: &BTreeSet<Ipv4Addr>) -> Result<BTreeSet<Ipv4Addr>, Unread> {
        self.read(|view, _| {
            let mut grants = lock::even_if_poisoned(&self.floating);
            grants.grant(view.state(), (&machine, asked), clock::now())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::super::fixture::{facts, records};
    use super::*;

    /// Records change while machines ask; neither waits for the other for good. Proves: W8
    #[tokio::test]
    async fn who_asks_and_what_changes_do_not_lock_each_other_out() {
        let records = records(&facts(), &[], None);
        let (done, both) = mpsc::channel();
        let (changed, end) = (records.clone(), done.clone());
        thread::spawn(move || {
            (0..20_000).for_each(|_| changed.shows(|_| ()).expect("shown"));
            end.send(()).expect("somebody waits");
        });
        thread::spawn(move || {
            let asked = [Ipv4Addr::new(192, 0, 2, 50)].into();
            (0..20_000).for_each(|_| drop(records.granted(MachineId([1; 16]), &asked)));
            done.send(()).expect("somebody waits");
        });
        for _ in 0..2 {
            both.recv_timeout(Duration::from_secs(60)).expect("neither is locked out");
        }
    }
}
