//! The cluster's directory as this coordinator signs it: anew when it says something else, not when others of the records
//! change. What it says is `cluster::directory`'s.

use cluster::State;
use keys::directory::{Coordinator, Directory};
use pki::Authority;

use crate::enrolment::{self, MakeError};

/// A directory that is signed.
#[derive(Debug)]
pub(super) struct Signed {
    coordinators: Vec<Coordinator>,
    /// As it is passed on.
    pub(super) bytes: Vec<u8>,
}

#[cfg(test)]
impl Signed {
    /// Directory whose signature nobody verifies.
    pub(super) const fn of(coordinators: Vec<Coordinator>, bytes: Vec<u8>) -> Self {
        Self { coordinators, bytes }
    }
}

/// The directory of `state`, if it says something else than the one that was signed before.
///
/// # Errors
/// [`MakeError`] when the authority does not sign.
pub(super) fn renewed(
    before: Option<&Signed>,
    state: &State,
    authority: &Authority,
) -> Result<Option<Signed>, MakeError> {
    let same = |directory: &Directory| before.is_some_and(|before| before.coordinators == directory.coordinators);
    let Some(directory) = state.directory().filter(|directory| !same(directory)) else { return Ok(None) };
    let unsigned = directory.unsigned();
    let signature = enrolment::sign(authority, &unsigned.to_sign())?;
    Ok(Some(Signed { bytes: unsigned.signed(signature), coordinators: directory.coordinators }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster::key::Key;
    use cluster::record::{Cluster, MachineRecord, Standing};
    use cluster::state::{Change, KeyValue};
    use keys::endpoint::Endpoint;
    use model::ClusterRole;
    use pki::{AuthorityKind, UnixTime};

    use super::*;
    use crate::records::fixture::{cluster, machine};

    fn coordinator(n: u8, host: &str) -> MachineRecord {
        let mut machine = machine(n, Standing::Member);
        machine.role = ClusterRole::Coordinator;
        machine.times.member = Some(machine.times.admitted);
        machine.endpoints.reported = vec![Endpoint::read(&format!("{host}:7838")).expect("an endpoint")];
        machine
    }

    /// Proves: D11
    #[test]
    fn only_a_change_of_coordinators_signs_the_directory_anew() {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let authority = Authority::create(AuthorityKind::Cairn, now).expect("a CA");
        let spki = pki::public_key_of(authority.certificate()).expect("its own").spki();
        let mut state = State::default();
        assert!(renewed(None, &state, &authority).expect("nothing is signed").is_none());
        let cluster = Cluster { id: keys::identity::cluster_id(&spki), ..cluster() };
        let put = |key: Key, value, mod_revision| Change::Put(KeyValue { key: key.bytes(), value, mod_revision });
        let mut write = |machine: &MachineRecord, revision| {
            let change = put(Key::Machine(machine.id()), machine.encode(), revision);
            let cluster = put(Key::Cluster, cluster.encode(), 1);
            state.apply([cluster, change]).expect("our own");
            state.clone()
        };
        let renewed = |before, state: &State| renewed(before, state, &authority).expect("signs");
        let first = renewed(None, &write(&coordinator(1, "192.0.2.1"), 1)).expect("there is a cluster");
        let read = Directory::verify(&first.bytes, &spki, 1).expect("the cluster signed it");
        assert_eq!((read.version, read.coordinators[0].endpoints.as_slice()), (1, &["192.0.2.1:7836".to_owned()][..]));
        let node = renewed(Some(&first), &write(&machine(2, Standing::Admitted), 2));
        assert!(node.is_none(), "a node is none of it");
        let moved = renewed(Some(&first), &write(&coordinator(1, "192.0.2.9"), 3)).expect("it says something else");
        assert_eq!(Directory::verify(&moved.bytes, &spki, 3).expect("signed").coordinators, moved.coordinators);
        assert_ne!(moved.coordinators, first.coordinators);
    }
}
