//! Defragmentation of etcd's backends by themselves: a duty of the coordinator whose etcd leads, one member after the other, itself last.
//!
//! ```text
//!   leads for LONGEST ─► a look: all healthy, half of one's backend free ─► that one ─► looked at again
//!                                                 failed, or others do ─► nobody for LONGEST
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cluster::backends::{Backends, LONGEST};
use model::MachineId;

/// Time between two defragmentations of a member: what frees half of a backend within it does so again.
const DEFRAGMENTED: Duration = Duration::from_secs(3600);

/// Turns of the members, as far as this machine's etcd leads them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DefragmentDuty {
    /// Backends by a look that has just ended.
    backends: Option<Backends>,
    /// From when on members may be defragmented; none while another one's etcd leads. Whom a leader before had do so is ready by then, and
    /// so is whoever did not answer.
    from: Option<Instant>,
    /// Members that had their turn, and when.
    past: BTreeMap<MachineId, Instant>,
}

impl DefragmentDuty {
    /// Takes a look: backends where this machine's etcd leads, none where it does not, or nobody knows.
    pub(crate) fn look(&mut self, backends: Option<Backends>, now: Instant) {
        self.from = backends.as_ref().and(self.from.or(Some(now + LONGEST)));
        self.backends = backends;
    }

    /// Member whose turn it is behind the last look. What that saw is asked about once.
    pub(crate) fn next(&mut self, now: Instant) -> Option<MachineId> {
        let backends = self.backends.take()?;
        self.from.filter(|from| now >= *from)?;
        self.past.retain(|_, at| now < *at + DEFRAGMENTED);
        let due = backends.due(|machine| !self.past.contains_key(machine))?;
        self.past.insert(due, now);
        Some(due)
    }

    /// Takes that a turn failed, which may go on unseen.
    pub(crate) fn fail(&mut self, now: Instant) {
        self.from = self.from.and(Some(now + LONGEST));
    }

    /// Takes that a member did not have its turn: an owner has members defragmented.
    pub(crate) fn refuse(&mut self, machine: &MachineId, now: Instant) {
        self.past.remove(machine);
        self.fail(now);
    }
}

#[cfg(test)]
mod tests {
    use cluster::backends::{Backend, MemberBackend, MemberPart};
    use model::NodeName;

    use super::*;

    const MEMBERS: [u8; 3] = [1, 2, 3];

    fn id(n: u8) -> MachineId {
        MachineId([n; 16])
    }

    /// Three members, of which 1 leads; these have 100 MiB, of which 10 are in use, and the others 10 of 20.
    fn free(of: &[u8]) -> Backends {
        let member = |n: u8| {
            let part = if n == 1 { MemberPart::Leader } else { MemberPart::Voter };
            let size = if of.contains(&n) { 100 << 20 } else { 20 << 20 };
            let backend = Some(Backend { size, in_use: 10 << 20, quota: 2 << 30 });
            (id(n), MemberBackend { name: NodeName::stored(&format!("m{n}")).expect("a name"), part, backend })
        };
        Backends { members: MEMBERS.map(member).into(), ..Backends::default() }
    }

    /// Turns within so many seconds of looks each five, as long as `backends` are seen; each takes effect at once if `shrinks`.
    fn turns(
        duty: &mut DefragmentDuty,
        now: &mut Instant,
        seconds: u64,
        (of, shrinks): (&[u8], bool),
    ) -> Vec<(u64, u8)> {
        let (mut turns, mut of) = (Vec::new(), of.to_vec());
        for second in (0..seconds).step_by(5) {
            duty.look(Some(free(&of)), *now);
            if let Some(machine) = duty.next(*now) {
                turns.push((second, machine.0[0]));
                of.retain(|n| !shrinks || id(*n) != machine);
            }
            *now += Duration::from_secs(5);
        }
        turns
    }

    /// Proves: Q4
    #[test]
    fn members_have_their_turns_the_leader_last() {
        let (mut duty, mut now) = (DefragmentDuty::default(), testkit::origin());
        assert_eq!(turns(&mut duty, &mut now, 7200, (&MEMBERS, true)), [(600, 2), (605, 3), (610, 1)]);
        assert_eq!(turns(&mut duty, &mut now, 60, (&[1, 3], true)), [(0, 3), (5, 1)], "an hour later");
    }

    /// Proves: Q4
    #[test]
    fn a_member_has_no_second_turn_within_an_hour() {
        let (mut duty, mut now) = (DefragmentDuty::default(), testkit::origin());
        let seen = turns(&mut duty, &mut now, 9000, (&[2], false));
        assert_eq!(seen, [(600, 2), (4200, 2), (7800, 2)], "half of it is free each time");
    }

    /// Proves: Q4
    #[test]
    fn nobody_has_a_turn_soon_after_a_failure_or_another_lead() {
        let (mut duty, mut now) = (DefragmentDuty::default(), testkit::origin());
        assert_eq!(turns(&mut duty, &mut now, 605, (&[2, 3], true)), [(600, 2)]);
        duty.fail(now);
        assert_eq!(turns(&mut duty, &mut now, 605, (&[3], true)), [(600, 3)], "it may go on unseen");
        duty.look(None, now);
        assert_eq!(duty.next(now), None);
        assert_eq!(turns(&mut duty, &mut now, 605, (&[1], true)), [(600, 1)], "another one led meanwhile");
    }

    /// Proves: Q4
    #[test]
    fn a_turn_that_an_owner_has_taken_is_taken_later() {
        let (mut duty, mut now) = (DefragmentDuty::default(), testkit::origin());
        assert_eq!(turns(&mut duty, &mut now, 605, (&[2], true)), [(600, 2)]);
        duty.refuse(&id(2), now);
        assert_eq!(turns(&mut duty, &mut now, 605, (&[2], true)), [(600, 2)]);
    }

    /// Proves: Q4
    #[test]
    fn what_a_look_saw_is_asked_about_once() {
        let (mut duty, mut now) = (DefragmentDuty::default(), testkit::origin());
        assert_eq!(turns(&mut duty, &mut now, 600, (&MEMBERS, true)), []);
        duty.look(Some(free(&MEMBERS)), now);
        assert_eq!((duty.next(now), duty.next(now)), (Some(id(2)), None));
    }
}
