//! Refusals stand in the audit, and however often somebody asks again, they fill it with no more than a line a minute.

use cluster::Decision;
use cluster::decision::Next;
use cluster::key::Key;
use cluster::record::{AuditLine, UnixSeconds};
use cluster::request::{Asks, Removal, Request};
use model::Level;
use sim::cast::{disk, id, machine_key, ticket};

use super::{Scene, announce, redeem};

impl Scene {
    /// Has the request refused as a coordinator does, and returns what that wrote.
    fn refused(&mut self, request: &Request) -> Vec<(Key, AuditLine)> {
        let before = self.state();
        let mut decision = Decision::new(request.clone());
        let proposal = decision.propose(&before, self.now);
        let txn = proposal.txn().clone();
        let outcome = self.etcd.commit(&txn).expect("a quorum");
        assert!(matches!(decision.after(proposal, outcome), Next::Answer(Err(_))), "{request:?}");
        assert!(txn.deletes.is_empty());
        txn.puts.into_iter().map(|(key, line)| (key, AuditLine::decode(&line).expect("a line"))).collect()
    }

    fn lines(&self) -> usize {
        self.etcd.pairs().filter(|pair| matches!(Key::read(&pair.key), Ok(Key::Audit(_)))).count()
    }
}

fn asks_for_its_key(n: u16, of: u16) -> Request {
    Request::ReleaseKey { machine: machine_key(n), disk: disk(of), generation: 1, level: Level::Encrypted }
}

/// Proves: Q1
#[test]
fn a_refusal_of_what_the_records_know_is_one_line_a_minute() {
    let mut scene = Scene::new();
    let minute = scene.now.0.next_multiple_of(60);
    scene.now = UnixSeconds(minute + 1);
    scene.issue(7, 1, |_| {});
    scene.yes(&redeem(2, 7));
    scene.yes(&announce(2));
    let before = scene.lines();
    let [(_, line)] = &scene.refused(&redeem(3, 7))[..] else { panic!("one line") };
    assert_eq!(line.what, "ticket refused: the ticket is used up: it has admitted 1 of 1 machines");
    assert_eq!((&line.whom, line.owner), (&ticket(7).id().to_string(), None));
    let [(_, line)] = &scene.refused(&asks_for_its_key(2, 9))[..] else { panic!("one line") };
    assert_eq!((&*line.what, &line.whom), ("key refused: this is not the machine's disk", &id(2).to_string()));
    assert_eq!(scene.lines(), before + 2);
    for second in [1, 20, 59] {
        scene.now = UnixSeconds(minute + second);
        scene.refused(&redeem(4, 7));
        scene.refused(&asks_for_its_key(2, 9));
    }
    assert_eq!(scene.lines(), before + 2, "the same minute, whichever machine asks by the ticket");
    // One that is granted in the first second of a minute is told beside one that is refused then.
    scene.now = UnixSeconds(minute + 60);
    scene.refused(&asks_for_its_key(2, 9));
    scene.yes(&asks_for_its_key(2, 2));
    scene.refused(&redeem(4, 7));
    assert_eq!(scene.lines(), before + 5, "the next minute");
    scene.asks(Asks::Remove(id(2), Removal::Lost));
    let [(_, line)] = &scene.refused(&announce(2))[..] else { panic!("one line") };
    assert_eq!(line.what, "announcement refused: the machine was removed from the cluster");
}

/// Proves: Q1
#[test]
fn what_nobody_knows_leaves_no_line() {
    let mut scene = Scene::new();
    let before = scene.lines();
    for unknown in [redeem(2, 7), asks_for_its_key(2, 2), announce(2)] {
        assert_eq!(scene.refused(&unknown), []);
    }
    let by_nobody = Request::Owner { by: sim::cast::owner(9).key, asks: Asks::RevokeTicket(ticket(7).id()) };
    assert_eq!(scene.refused(&by_nobody), []);
    assert_eq!(scene.lines(), before);
}
