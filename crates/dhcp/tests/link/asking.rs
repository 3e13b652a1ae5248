//! The client's questions by hand: what they say, how often they come, and which answers are to one that was asked.

use super::*;

impl Desk {
    /// The lease is over, and nobody has renewed it.
    fn outlives(&mut self) -> Vec<Effect> {
        self.now += Duration::from_secs(LEASE.into());
        let mut out = Vec::new();
        self.client.handle(Event::Tick, self.now, &mut out);
        assert_eq!(out[..2], [Effect::Report(Report::Expired), Effect::Deconfigure]);
        out
    }
}

/// A client whose request was just refused.
fn refused() -> Desk {
    let (mut desk, out) = Desk::open();
    let request = desk.answer(&mut server(), &out);
    assert_eq!(desk.receive(&nak(&request, SERVER)), [Effect::Report(Report::Refused)]);
    desk
}

#[test]
fn every_question_says_how_large_its_answer_may_be() {
    let (mut desk, out) = Desk::open();
    let mut server = server();
    let request = desk.answer(&mut server, &out);
    desk.answer(&mut server, &request);
    let confirmation = desk.carrier();
    desk.answer(&mut server, &confirmation);
    let renewal = desk.wait_for("renewal time");
    desk.now += Duration::from_secs(25);
    let mut rebinding = Vec::new();
    desk.client.handle(Event::Tick, desk.now, &mut rebinding);
    let sizes = [out, request, confirmation, renewal, rebinding].map(|out| message(&out).max_size);
    assert_eq!(sizes, [Some(1500); 5]);
}

#[test]
fn a_question_that_is_repeated_says_for_how_long_it_was_asked() {
    let (mut desk, out) = Desk::open();
    assert_eq!(message(&out).secs, 0);
    for _ in 0..4 {
        let out = desk.wait_for("discover");
        assert_eq!(u64::from(message(&out).secs), desk.elapsed().as_secs());
    }
    assert!(desk.elapsed() > Duration::from_secs(10), "{:?}", desk.elapsed());
}

/// RFC 2131 §4.4.5: half of what is left until T2, then until the end, but a minute at least.
#[test]
fn a_question_is_repeated_after_a_minute_at_least() {
    let (mut desk, out) = Desk::open();
    let day = Config { lease_seconds: 86_400, ..config() };
    let mut server = Server::new(day).expect("a pool in its network");
    let request = desk.answer(&mut server, &out);
    desk.answer(&mut server, &request);
    let mut asked = Vec::new();
    while desk.client.lease().is_some() {
        desk.now = desk.client.poll_timeout().expect("a deadline").0;
        let mut out = Vec::new();
        desk.client.handle(Event::Tick, desk.now, &mut out);
        if desk.client.lease().is_some() && !out.is_empty() {
            asked.push(desk.elapsed().as_secs());
        }
        assert!(asked.len() < 100, "no tight loop");
    }
    let renewing = [43_200, 59_400, 67_500, 71_550, 73_575, 74_587, 75_093, 75_346, 75_473, 75_536, 75_596];
    let rebinding = [75_600, 81_000, 83_700, 85_050, 85_725, 86_062, 86_231, 86_315, 86_375];
    assert_eq!(asked, [&renewing[..], &rebinding[..]].concat());
}

#[test]
fn an_answer_that_comes_before_its_question_is_left() {
    // A client of the same seed asks the same, so its question tells what this one will ask.
    let (mut desk, mut twin) = (refused(), refused());
    let question = twin.wait_for("discover");
    let offer = server().handle(&sent(&question).1, twin.now).expect("an offer").bytes;
    assert_eq!(desk.receive(&offer), ignored(IgnoreReason::NotOurs));
    assert_eq!(message(&twin.receive(&offer)).message_type, MessageType::Request);
}

#[test]
fn an_address_that_was_refused_is_not_wished_for_again() {
    let (mut desk, mut server, lease) = Desk::bound();
    let discover = desk.outlives();
    assert_eq!(message(&discover).requested_ip, Some(lease.address));
    let request = desk.answer(&mut server, &discover);
    assert_eq!(desk.receive(&nak(&request, SERVER)), [Effect::Report(Report::Refused)]);
    assert_eq!(message(&desk.wait_for("discover")).requested_ip, None, "refused when it was asked for");

    let (mut desk, mut server, _) = Desk::bound();
    let discover = desk.outlives();
    let request = desk.answer(&mut server, &discover);
    desk.answer(&mut server, &request);
    let renewal = desk.wait_for("renewal time");
    let out = desk.receive(&nak(&renewal, SERVER));
    assert_eq!(message(&out).requested_ip, None, "refused when it was renewed");
}

#[test]
fn a_client_whose_address_is_anothers_now_is_refused() {
    let (mut desk, _, lease) = Desk::bound();
    let renewal = desk.wait_for("renewal time");
    let mut server = server();
    server.remember(lease.address, mac(2), desk.now);
    let out = desk.answer(&mut server, &renewal);
    assert_eq!(out[..2], [Effect::Report(Report::Refused), Effect::Deconfigure]);
}
