//! The directory that the records make: who coordinates the cluster, and where. Signs nothing, and says nothing of the
//! machines that do not coordinate.
//!
//! ```text
//!   State ─ directory ─► Directory, as of its peers' version: any coordinator makes the same of the same records
//! ```

use keys::directory::{Coordinator, Directory};
use model::PUBLIC_API_PORT;

use crate::state::{State, StateVersion};

/// How many bits of a directory's version count revisions. Above them stand recoveries, behind which revisions count anew.
const REVISION_BITS: u32 = 48;

impl State {
    /// Where the cluster's coordinators are; nothing before there is a cluster.
    #[must_use]
    pub fn directory(&self) -> Option<Directory> {
        let cluster = self.cluster()?.id;
        let coordinators = self.machines().filter(|(_, machine)| machine.coordinates());
        let coordinators = coordinators.map(|(id, machine)| Coordinator {
            machine: *id,
            endpoints: machine.endpoints.reported.iter().map(|it| it.with_port(PUBLIC_API_PORT).to_string()).collect(),
        });
        Some(Directory { cluster, version: version(self.state_version()), coordinators: coordinators.collect() })
    }
}

/// Whether no cluster goes from one version of its directory to the other while a machine is away. Whoever once held the CA's key signs
/// any version.
#[must_use]
pub const fn is_jump(from: u64, to: u64) -> bool {
    of_version(to).jumps_from(of_version(from))
}

/// Version of the state that a directory's version stands for.
#[must_use]
pub const fn of_version(version: u64) -> StateVersion {
    StateVersion { recoveries: version >> REVISION_BITS, revision: version & ((1 << REVISION_BITS) - 1) }
}

/// As one number that only rises.
fn version(StateVersion { recoveries, revision }: StateVersion) -> u64 {
    let most = (1 << REVISION_BITS) - 1;
    recoveries.saturating_mul(1 << REVISION_BITS).saturating_add(revision.min(most))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture;
    use crate::key::Key;
    use crate::record::{Cluster, Standing, UnixSeconds};
    use crate::state::{Change, KeyValue};
    use model::ClusterRole;

    /// Content that a machine's record is given.
    #[derive(Debug, Clone, Copy)]
    struct Written {
        machine: u8,
        role: ClusterRole,
        standing: Standing,
        host: u8,
    }

    fn written() -> impl Strategy<Value = Written> {
        let standings = vec![Standing::Admitted, Standing::Member, Standing::Draining, Standing::Removed];
        let roles = vec![ClusterRole::Coordinator, ClusterRole::Node];
        (1_u8..6, prop::sample::select(roles), prop::sample::select(standings), 1_u8..4)
            .prop_map(|(machine, role, standing, host)| Written { machine, role, standing, host })
    }

    fn put(key: &Key, value: Vec<u8>, mod_revision: u64) -> Change {
        Change::Put(KeyValue { key: key.bytes(), value, mod_revision })
    }

    fn apply(state: &mut State, written: Written, revision: u64) {
        let Written { machine, role, standing, host } = written;
        let mut machine = fixture::machine(machine);
        machine.role = role;
        machine.kubernetes.clear();
        machine.pods = None;
        machine.standing = standing;
        machine.times.member = (standing != Standing::Admitted).then_some(fixture::NOW);
        machine.times.removed = (standing == Standing::Removed).then_some(UnixSeconds(fixture::NOW.0 + 1));
        let endpoint = format!("192.0.2.{host}:7838");
        machine.endpoints.reported = vec![keys::endpoint::Endpoint::read(&endpoint).expect("an endpoint")];
        state.apply([put(&Key::Machine(machine.id()), machine.encode(), revision)]).expect("our own");
    }

    fn state(recoveries: u64, revision: u64) -> State {
        let mut state = State::default();
        let cluster = Cluster { recoveries, ..fixture::cluster() };
        state.apply([put(&Key::Cluster, cluster.encode(), revision)]).expect("our own");
        state
    }

    proptest! {
        /// The higher version of two directories is the later one, whoever made them: where the content of a cluster's
        /// directory changed, its version rose; and the same records make the same, in whatever order they were read.
        ///
        /// Proves: D11
        #[test]
        fn a_directory_names_present_coordinators_and_rises_with_them(
            all in prop::collection::vec(written(), 1..40),
        ) {
            let mut now = state(1, 1);
            let mut before = now.directory().expect("there is a cluster");
            for (revision, written) in (2..).zip(all) {
                apply(&mut now, written, revision);
                let directory = now.directory().expect("there is a cluster");
                let named: Vec<_> = directory.coordinators.iter().map(|it| it.machine).collect();
                let coordinate: Vec<_> =
                    now.machines().filter(|(_, it)| it.coordinates()).map(|(id, _)| *id).collect();
                prop_assert_eq!(named, coordinate);
                for coordinator in &directory.coordinators {
                    let reported = &now.machine(&coordinator.machine).expect("it is one").endpoints.reported;
                    prop_assert_eq!(&coordinator.endpoints, &vec![reported[0].with_port(7836).to_string()]);
                }
                prop_assert!(directory.version >= before.version);
                if directory.coordinators != before.coordinators {
                    prop_assert!(directory.version > before.version);
                }
                before = directory;
            }
            let mut again = state(1, 1);
            let records = now.machines().map(|(id, machine)| (Key::Machine(*id), machine.encode()));
            let newest = before.version - version(StateVersion { recoveries: 1, revision: 0 });
            let changes: Vec<_> = records.map(|(key, value)| put(&key, value, newest)).collect();
            again.apply(changes).expect("our own");
            prop_assert_eq!(again.directory(), Some(before));
        }
    }

    /// Proves: D11
    #[test]
    fn a_directory_of_after_a_recovery_is_newer_than_any_of_before() {
        assert_eq!(State::default().directory(), None);
        let before = state(0, (1 << 48) + 5).directory().expect("there is a cluster");
        let after = state(1, 1).directory().expect("there is a cluster");
        assert!(before.version < after.version, "{before:?} {after:?}");
        assert_eq!(state(0, 7).directory().map(|it| it.version), Some(7));
    }

    /// Proves: D11
    #[test]
    fn a_jump_is_two_recoveries_or_more_than_is_ever_written() {
        let of = |recoveries, revision| version(StateVersion { recoveries, revision });
        for (from, to) in [
            (of(0, 7), of(0, 7)),
            (of(0, 9), of(0, 7)),
            (of(0, 7), of(0, 6 + (1 << 32))),
            (of(3, 7), of(4, 1)),
            (of(3, (1 << 40) + 7), of(4, (1 << 40) + 9)),
            (of(4, 1), of(1, 7)),
        ] {
            assert!(!is_jump(from, to), "{from:x} {to:x}");
        }
        for (from, to) in [
            (of(0, 7), of(0, 7 + (1 << 32))),
            (of(3, 7), of(5, 7)),
            (of(3, 7), of(4, 7 + (1 << 32))),
            (of(0, 7), u64::MAX),
        ] {
            assert!(is_jump(from, to), "{from:x} {to:x}");
        }
    }
}
