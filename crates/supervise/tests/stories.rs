//! The tree told as stories of single services, each step by hand.
//! The random worlds of `world.rs` prove the rules; these show what a person sees.

use std::time::{Duration, Instant};

use supervise::{
    Backoff, Blocker, ChangeError, Critical, Effect, Ending, Event, Fingerprint, Instance, InvalidTree, Name, Need,
    Readiness, Report, Restart, RunExit, Spec, StopReason, Tree, UnitState,
};

const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(8), stable: Duration::from_secs(60) };

fn spec(name: &str, needs: &[Need]) -> Spec {
    Spec {
        name: name.into(),
        content: Fingerprint::TASK,
        needs: needs.to_vec(),
        group: None,
        start_deadline: Duration::from_secs(10),
        stop_deadline: Duration::from_secs(5),
        restart: Restart::Always(BACKOFF),
        ready: Readiness::OnStart,
        critical: None,
    }
}

fn run(service: &str, attempt: u64) -> Instance {
    Instance { service: service.into(), attempt }
}

/// A tree and its clock.
struct Story {
    tree: Tree,
    now: Instant,
}

impl Story {
    fn begin(specs: Vec<Spec>) -> (Self, Vec<Effect>) {
        let now = testkit::origin();
        let mut out = Vec::new();
        let tree = Tree::start(specs, now, &mut out).expect("a valid table");
        (Self { tree, now }, out)
    }

    fn tell(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.tree.handle(event, self.now, &mut out);
        out
    }

    /// Lets the time pass until the tree's next deadline, which must be for this.
    fn wait_for(&mut self, why: &str) -> Vec<Effect> {
        let (at, reason) = self.tree.poll_timeout().expect("a deadline");
        assert_eq!(reason, why);
        self.now = at;
        self.tell(Event::Tick)
    }

    fn die(&mut self, instance: Instance, exit: RunExit) -> Vec<Effect> {
        let mut out = self.tell(Event::Exited { instance: instance.clone(), exit });
        out.extend(self.tell(Event::CgroupEmpty(instance)));
        out
    }

    fn state(&self, name: &str) -> UnitState {
        self.tree.status(name).expect("a service of the tree").state
    }
}

fn not_reports(effects: &[Effect]) -> Vec<Effect> {
    effects.iter().filter(|effect| !matches!(effect, Effect::Report(_))).cloned().collect()
}

/// Proves: O2. Order by readiness or by start, each as asked.
#[test]
fn a_service_waits_for_what_it_needs_and_says_so() {
    let etcd = Spec { ready: Readiness::Probe, ..spec("etcd", &[]) };
    let specs = vec![etcd, spec("apiserver", &[Need::started("etcd")]), spec("scheduler", &[Need::ready("etcd")])];
    let (mut story, out) = Story::begin(specs);
    assert_eq!(out, [Effect::Start(run("etcd", 1))]);
    assert_eq!(story.state("apiserver"), UnitState::Waiting(vec![Blocker::Need(Need::started("etcd"))]));
    let out = story.tell(Event::Spawned(run("etcd", 1)));
    assert_eq!(out, [Effect::Probe(run("etcd", 1)), Effect::Start(run("apiserver", 1))]);
    assert_eq!(story.state("scheduler"), UnitState::Waiting(vec![Blocker::Need(Need::ready("etcd"))]));
    assert_eq!(story.tell(Event::Ready(run("etcd", 1))), [Effect::Start(run("scheduler", 1))]);
}

/// Proves: O2. A crash loop is seen, its waits grow to the cap, and only stable uptime ends it.
#[test]
fn a_crash_loop_is_visible_and_forgiven_after_stable_uptime() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    for (attempt, seconds) in (1..).zip([1, 2, 4, 8, 8]) {
        story.tell(Event::Spawned(run("etcd", attempt)));
        story.now += Duration::from_secs(59);
        let out = story.die(run("etcd", attempt), RunExit::Signal(11));
        let (failures, retry) = (u32::try_from(attempt).expect("few"), Some(Duration::from_secs(seconds)));
        let ending = Ending::Exit(RunExit::Signal(11));
        assert_eq!(out[0], Effect::Report(Report::Failed { instance: run("etcd", attempt), ending, failures, retry }));
        assert_eq!(story.tree.status("etcd").expect("there").is_crash_looping(), failures >= 3);
        let until = story.now + Duration::from_secs(seconds);
        assert_eq!(story.state("etcd"), UnitState::BackingOff { until });
        assert_eq!(story.wait_for("back-off"), [Effect::Start(run("etcd", attempt + 1))]);
    }
    let status = story.tree.status("etcd").expect("there");
    assert!(status.is_crash_looping());
    assert_eq!((status.restarts, status.failures), (5, 5));
    assert_eq!(status.last, Some(Ending::Exit(RunExit::Signal(11))));
    story.tell(Event::Spawned(run("etcd", 6)));
    assert_eq!(story.wait_for("stable uptime"), [Effect::Report(Report::Stable(run("etcd", 6)))]);
    assert!(!story.tree.status("etcd").expect("there").is_crash_looping());
    story.die(run("etcd", 6), RunExit::Code(1));
    assert_eq!(story.state("etcd"), UnitState::BackingOff { until: story.now + Duration::from_secs(1) });
}

/// Proves: O2. Not ready in time: stopped, failed, tried again.
#[test]
fn a_service_not_ready_in_time_is_stopped_and_tried_again() {
    let (mut story, _) = Story::begin(vec![Spec { ready: Readiness::Probe, ..spec("etcd", &[]) }]);
    story.tell(Event::Spawned(run("etcd", 1)));
    let begun = story.now;
    let out = story.wait_for("start deadline");
    assert_eq!(story.now - begun, Duration::from_secs(10));
    assert_eq!(not_reports(&out), [Effect::Terminate(run("etcd", 1))]);
    assert_eq!(story.state("etcd"), UnitState::Stopping);
    story.die(run("etcd", 1), RunExit::Signal(15));
    assert_eq!(story.tree.status("etcd").expect("there").last, Some(Ending::StartDeadline));
    assert_eq!(story.wait_for("back-off"), [Effect::Start(run("etcd", 2))]);
}

/// Proves: O2. SIGTERM, deadline, whole cgroup; and again for what survives.
#[test]
fn who_ignores_sigterm_is_killed_with_its_cgroup() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    story.tell(Event::Spawned(run("etcd", 1)));
    story.now += Duration::from_secs(3);
    assert_eq!(story.tell(Event::RestartRequested("etcd".into())), [Effect::Terminate(run("etcd", 1))]);
    let asked = story.now;
    assert_eq!(story.tree.status("etcd").expect("there").since, asked);
    let out = story.wait_for("stop deadline");
    assert_eq!(story.now - asked, Duration::from_secs(5));
    assert_eq!(out, [Effect::Report(Report::StopDeadline(run("etcd", 1))), Effect::Kill(run("etcd", 1))]);
    let out = story.wait_for("kill again");
    assert_eq!(story.now - asked, Duration::from_secs(7));
    let unkillable = Report::Unkillable { instance: run("etcd", 1), since: asked };
    assert_eq!(out, [Effect::Report(unkillable), Effect::Kill(run("etcd", 1))]);
    assert_eq!(story.die(run("etcd", 1), RunExit::Signal(9)), [Effect::Start(run("etcd", 2))]);
    assert_eq!(story.tree.status("etcd").expect("there").last, Some(Ending::Exit(RunExit::Signal(9))));
}

/// Proves: O2. A dead main process whose children live on still counts as running.
#[test]
fn no_new_instance_while_the_old_cgroup_has_processes() {
    let (mut story, _) = Story::begin(vec![spec("containerd", &[])]);
    story.tell(Event::Spawned(run("containerd", 1)));
    let out = story.tell(Event::Exited { instance: run("containerd", 1), exit: RunExit::Code(0) });
    assert_eq!(not_reports(&out), [Effect::Kill(run("containerd", 1))]);
    assert_eq!(story.state("containerd"), UnitState::Stopping);
    let since = story.now;
    let unkillable = Report::Unkillable { instance: run("containerd", 1), since };
    let again = [Effect::Report(unkillable), Effect::Kill(run("containerd", 1))];
    assert_eq!(story.wait_for("kill again"), again, "nobody is asked who was killed");
    story.tell(Event::CgroupEmpty(run("containerd", 1)));
    assert_eq!(story.wait_for("back-off"), [Effect::Start(run("containerd", 2))]);
}

/// Proves: O2. One of a group fails: the others stop, dependents first, and all start together when all may.
#[test]
fn a_group_is_restarted_together() {
    let member = |name, needs: &[Need]| Spec { group: Some("core".into()), ..spec(name, needs) };
    let specs = vec![
        member("etcd", &[]),
        member("apiserver", &[Need::started("etcd")]),
        member("scheduler", &[Need::started("apiserver")]),
        spec("kubelet", &[Need::started("apiserver")]),
    ];
    let (mut story, _) = Story::begin(specs);
    for name in ["etcd", "apiserver", "scheduler", "kubelet"] {
        story.tell(Event::Spawned(run(name, 1)));
    }
    let out = story.die(run("etcd", 1), RunExit::Panicked);
    assert_eq!(not_reports(&out), [Effect::Kill(run("etcd", 1)), Effect::Terminate(run("scheduler", 1))]);
    let out = story.die(run("scheduler", 1), RunExit::Signal(15));
    assert_eq!(out, [Effect::Terminate(run("apiserver", 1))]);
    assert_eq!(story.die(run("apiserver", 1), RunExit::Signal(15)), []);
    let waits = UnitState::Waiting(vec![Blocker::Need(Need::started("etcd")), Blocker::Group("etcd".into())]);
    assert_eq!(story.state("apiserver"), waits);
    assert_eq!(story.wait_for("back-off"), [Effect::Start(run("etcd", 2))]);
    assert_eq!(story.tell(Event::Spawned(run("etcd", 2))), [Effect::Start(run("apiserver", 2))]);
    assert_eq!(story.state("kubelet"), UnitState::Ready);
}

/// Proves: O2. One of a group has failed for good: the others do not go on without it, and a restart brings all back.
#[test]
fn a_group_waits_beside_a_member_that_has_failed() {
    let member = |name, critical| Spec { group: Some("core".into()), critical, ..spec(name, &[]) };
    let once = Critical { failures: 1, within: Duration::from_secs(20) };
    let (mut story, _) = Story::begin(vec![member("etcd", Some(once)), member("apiserver", None)]);
    story.tell(Event::Spawned(run("etcd", 1)));
    story.tell(Event::Spawned(run("apiserver", 1)));
    let out = story.die(run("etcd", 1), RunExit::Code(1));
    assert!(out.contains(&Effect::Terminate(run("apiserver", 1))), "{out:?}");
    assert_eq!(story.die(run("apiserver", 1), RunExit::Signal(15)), [], "it is not started alone");
    assert_eq!(story.state("etcd"), UnitState::Failed);
    assert_eq!(story.state("apiserver"), UnitState::Waiting(vec![Blocker::Group("etcd".into())]));
    assert_eq!(story.tree.poll_timeout(), None, "nothing is tried again unasked");
    // Whichever of them is asked for.
    let out = story.tell(Event::RestartRequested("apiserver".into()));
    assert_eq!(out, [Effect::Start(run("etcd", 2)), Effect::Start(run("apiserver", 2))]);
}

/// Proves: O2. Whoever asks for a restart begins anew: earlier failures neither escalate nor make it wait longer.
#[test]
fn a_restart_that_was_asked_for_forgets_earlier_failures() {
    let critical = Critical { failures: 3, within: Duration::from_secs(60) };
    let (mut story, _) = Story::begin(vec![Spec { critical: Some(critical), ..spec("etcd", &[]) }]);
    let mut attempt = 0;
    let mut fail = |story: &mut Story| {
        attempt += 1;
        not_reports(&story.tell(Event::SpawnFailed { instance: run("etcd", attempt), errno: 11 }))
    };
    for _ in 0..2 {
        assert_eq!(fail(&mut story), []);
        assert_eq!(story.tell(Event::RestartRequested("etcd".into())).len(), 1);
    }
    for seconds in [1, 2] {
        assert_eq!(fail(&mut story), [], "two failures before and two after are not three");
        let until = story.now + Duration::from_secs(seconds);
        assert_eq!(story.state("etcd"), UnitState::BackingOff { until });
        story.wait_for("back-off");
    }
    let escalation = Effect::Escalate { service: "etcd".into(), failures: 3, within: critical.within };
    assert_eq!(fail(&mut story), [escalation], "three in a row are");
}

/// Proves: O2. Whoever asks while a failed service still ends does not wait for its back-off.
#[test]
fn a_restart_asked_for_while_a_service_ends_comes_at_once() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    story.tell(Event::Spawned(run("etcd", 1)));
    story.tell(Event::Exited { instance: run("etcd", 1), exit: RunExit::Code(1) });
    assert_eq!(story.tell(Event::RestartRequested("etcd".into())), []);
    assert_eq!(story.tell(Event::CgroupEmpty(run("etcd", 1))), [Effect::Start(run("etcd", 2))]);
    // Nor is the end of a start that is not wanted any more a failure, but it is shown.
    assert_eq!(story.tell(Event::RestartRequested("etcd".into())), []);
    let out = story.tell(Event::SpawnFailed { instance: run("etcd", 2), errno: 12 });
    assert_eq!(out, [Effect::Start(run("etcd", 3))]);
    let status = story.tree.status("etcd").expect("there");
    assert_eq!((status.failures, status.last), (0, Some(Ending::SpawnFailed(12))));
}

/// Proves: O2. A member that is not ready yet is restarted with its group, too.
#[test]
fn a_member_that_still_starts_is_stopped_with_its_group() {
    let member = |name| Spec { group: Some("core".into()), ready: Readiness::Probe, ..spec(name, &[]) };
    let (mut story, _) = Story::begin(vec![member("etcd"), member("apiserver")]);
    for name in ["etcd", "apiserver"] {
        story.tell(Event::Spawned(run(name, 1)));
    }
    let out = story.die(run("etcd", 1), RunExit::Code(1));
    assert_eq!(not_reports(&out), [Effect::Kill(run("etcd", 1)), Effect::Terminate(run("apiserver", 1))]);
}

/// Words about one run come from several places, in any order: each is used.
#[test]
fn words_that_come_late_are_used() {
    let (mut story, _) = Story::begin(vec![Spec { ready: Readiness::Probe, ..spec("etcd", &[]) }]);
    story.tell(Event::Spawned(run("etcd", 1)));
    assert_eq!(story.tell(Event::CgroupEmpty(run("etcd", 1))), []);
    assert_eq!(story.tell(Event::Ready(run("etcd", 1))), []);
    assert_eq!(story.state("etcd"), UnitState::Ready);
    story.tell(Event::Exited { instance: run("etcd", 1), exit: RunExit::Code(1) });
    story.wait_for("back-off");
    // It has ended, so it was there, though nobody has told.
    let exited = Event::Exited { instance: run("etcd", 2), exit: RunExit::Code(1) };
    let out = story.tell(exited.clone());
    assert_eq!(out.last(), Some(&Effect::Report(Report::DoesNotFit { event: exited, state: "starting" })));
    assert_eq!(not_reports(&out), [Effect::Kill(run("etcd", 2))]);
    story.tell(Event::CgroupEmpty(run("etcd", 2)));
    assert_eq!(story.tree.status("etcd").expect("there").failures, 2);
}

/// Proves: O2. The failure that is one too many goes to the policy above, and nothing is tried again unasked.
#[test]
fn a_critical_service_escalates_after_failures_in_the_window() {
    let critical = Critical { failures: 3, within: Duration::from_secs(20) };
    let (mut story, _) = Story::begin(vec![Spec { critical: Some(critical), ..spec("etcd", &[]) }]);
    story.tell(Event::SpawnFailed { instance: run("etcd", 1), errno: 11 });
    story.wait_for("back-off");
    // Too long ago to count when the third one comes.
    story.now += Duration::from_secs(20);
    for attempt in 2..4 {
        let out = story.tell(Event::SpawnFailed { instance: run("etcd", attempt), errno: 11 });
        assert_eq!(not_reports(&out), [], "attempt {attempt}");
        story.wait_for("back-off");
    }
    let out = story.tell(Event::SpawnFailed { instance: run("etcd", 4), errno: 11 });
    let escalation = Effect::Escalate { service: "etcd".into(), failures: 3, within: critical.within };
    assert_eq!(not_reports(&out), [escalation]);
    assert_eq!((story.state("etcd"), story.tree.poll_timeout()), (UnitState::Failed, None));
    assert_eq!(story.tell(Event::RestartRequested("etcd".into())), [Effect::Start(run("etcd", 5))]);
}

/// Proves: O2. A failure counts for as long as the window is, and no longer.
#[test]
fn the_window_of_failures_ends_behind_its_last_moment() {
    for (late, escalations) in [(0, 1), (1, 0)] {
        let critical = Critical { failures: 2, within: Duration::from_secs(20) };
        let (mut story, _) = Story::begin(vec![Spec { critical: Some(critical), ..spec("etcd", &[]) }]);
        story.tell(Event::SpawnFailed { instance: run("etcd", 1), errno: 11 });
        story.wait_for("back-off");
        story.now += Duration::from_secs(19) + Duration::from_nanos(late);
        let out = story.tell(Event::SpawnFailed { instance: run("etcd", 2), errno: 11 });
        assert_eq!(not_reports(&out).len(), escalations, "{out:?}");
    }
}

/// Proves: O2. What needs the work of a task waits for its end, however often it is tried.
#[test]
fn who_needs_what_a_task_does_waits_for_its_end() {
    let users = Spec { restart: Restart::UntilSuccess(BACKOFF), ..spec("users", &[]) };
    let apiserver = spec("apiserver", &[Need::finished("users")]);
    let (mut story, _) = Story::begin(vec![users, spec("watcher", &[Need::ready("users")]), apiserver]);
    assert_eq!(story.tell(Event::Spawned(run("users", 1))), [Effect::Start(run("watcher", 1))]);
    assert_eq!(not_reports(&story.die(run("users", 1), RunExit::Code(1))), [Effect::Kill(run("users", 1))]);
    assert_eq!(story.state("apiserver"), UnitState::Waiting(vec![Blocker::Need(Need::finished("users"))]));
    assert_eq!(story.wait_for("back-off"), [Effect::Start(run("users", 2))]);
    assert_eq!(story.tell(Event::Spawned(run("users", 2))), []);
    let out = story.die(run("users", 2), RunExit::Code(0));
    assert_eq!(out.last(), Some(&Effect::Start(run("apiserver", 1))));
}

/// A task that may finish is finished, satisfies who waits for it, and fails for good when tried only once.
#[test]
fn a_task_may_finish() {
    let once = || Spec { restart: Restart::Never, ready: Readiness::Probe, ..spec("import", &[]) };
    let stubborn = Spec { restart: Restart::UntilSuccess(BACKOFF), ..once() };
    for (spec_of_import, after_panic) in
        [(once(), UnitState::Failed), (stubborn, UnitState::BackingOff { until: testkit::origin() })]
    {
        let (mut story, _) = Story::begin(vec![spec_of_import.clone(), spec("kubelet", &[Need::ready("import")])]);
        story.tell(Event::Spawned(run("import", 1)));
        let out = story.die(run("import", 1), RunExit::Code(0));
        assert_eq!(out.last(), Some(&Effect::Start(run("kubelet", 1))));
        assert_eq!(story.state("import"), UnitState::Finished);
        assert_eq!(story.tree.status("import").expect("there").last, Some(Ending::Exit(RunExit::Code(0))));

        let (mut story, _) = Story::begin(vec![spec_of_import]);
        story.tell(Event::Spawned(run("import", 1)));
        story.die(run("import", 1), RunExit::Panicked);
        assert_eq!(std::mem::discriminant(&story.state("import")), std::mem::discriminant(&after_panic));
    }
}

/// Proves: O12. Reverse order, then forced, then told what is left; nothing but reports afterwards.
#[test]
fn the_stop_is_ordered_then_forced_then_over() {
    let specs = vec![
        spec("etcd", &[]),
        spec("apiserver", &[Need::ready("etcd")]),
        spec("kubelet", &[Need::ready("apiserver")]),
    ];
    let (mut story, _) = Story::begin(specs);
    for name in ["etcd", "apiserver", "kubelet"] {
        story.tell(Event::Spawned(run(name, 1)));
    }
    let stop = Event::StopAll { reason: StopReason::Reboot, within: Duration::from_secs(8) };
    assert_eq!(story.tell(stop.clone()), [Effect::Terminate(run("kubelet", 1))]);
    assert_eq!(story.tell(stop.clone()), [Effect::Report(Report::DoesNotFit { event: stop, state: "stopping all" })]);
    assert_eq!(story.die(run("kubelet", 1), RunExit::Code(0)), [Effect::Terminate(run("apiserver", 1))]);
    let kills = story.wait_for("stop deadline");
    assert_eq!(not_reports(&kills), [Effect::Kill(run("apiserver", 1))]);
    let left = vec![run("etcd", 1), run("apiserver", 1)];
    let out = story.wait_for("end of the ordered stop");
    assert_eq!(out[0], Effect::Report(Report::StopForced { left }));
    assert_eq!(not_reports(&out), [Effect::Kill(run("etcd", 1)), Effect::Kill(run("apiserver", 1))]);
    assert_eq!(story.die(run("etcd", 1), RunExit::Signal(9)), []);
    story.now += Duration::from_secs(2);
    let out = story.tell(Event::Tick);
    let over = Effect::AllStopped { reason: StopReason::Reboot, left: vec![run("apiserver", 1)] };
    assert_eq!(not_reports(&out).last(), Some(&over));
    assert_eq!(story.tree.poll_timeout(), None);
    let late = Event::CgroupEmpty(run("apiserver", 1));
    let report = Report::DoesNotFit { event: late.clone(), state: "all stopped" };
    assert_eq!(story.tell(late), [Effect::Report(report)]);
}

/// Proves: O12. Of the time to stop, a quarter is kept for killing, and five seconds at most.
#[test]
fn the_end_of_the_time_to_stop_is_kept_for_killing() {
    for (within, ordered) in [(8, 6), (75, 70)] {
        let (mut story, _) = Story::begin(vec![Spec { stop_deadline: Duration::from_secs(100), ..spec("etcd", &[]) }]);
        story.tell(Event::Spawned(run("etcd", 1)));
        let begun = story.now;
        story.tell(Event::StopAll { reason: StopReason::Reboot, within: Duration::from_secs(within) });
        let out = story.wait_for("end of the ordered stop");
        assert_eq!(not_reports(&out), [Effect::Kill(run("etcd", 1))]);
        assert_eq!(story.now - begun, Duration::from_secs(ordered));
    }
}

/// Proves: O12. Whoever asks a second time may be in more of a hurry, never in less.
#[test]
fn a_second_stop_can_only_make_the_time_shorter() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    story.tell(Event::Spawned(run("etcd", 1)));
    let seconds = Duration::from_secs;
    let begun = story.now;
    let stop = |within| Event::StopAll { reason: StopReason::Reboot, within: seconds(within) };
    let refused = |within| vec![Effect::Report(Report::DoesNotFit { event: stop(within), state: "stopping all" })];
    assert_eq!(story.tell(stop(40)), [Effect::Terminate(run("etcd", 1))]);
    assert_eq!(story.tell(stop(20)), [], "shorter");
    assert_eq!((story.tell(stop(20)), story.tell(stop(30))), (refused(20), refused(30)));
    // Five seconds before the end all that is left is killed.
    story.now = begun + seconds(15);
    let out = story.tell(Event::Tick);
    assert!(out.contains(&Effect::Report(Report::StopForced { left: vec![run("etcd", 1)] })), "{out:?}");
    assert_eq!((story.tell(stop(5)), story.tell(stop(6))), (refused(5), refused(6)));
    assert_eq!(story.tell(stop(3)), [], "shorter");
    assert!(!story.tree.is_over());
    story.now = begun + seconds(18);
    let out = story.tell(Event::Tick);
    assert_eq!(out.last(), Some(&Effect::AllStopped { reason: StopReason::Reboot, left: vec![run("etcd", 1)] }));
    assert!(story.tree.is_over());
}

/// A service that has not failed has nothing to be forgiven, so nobody wakes up for it.
#[test]
fn a_healthy_tree_has_no_deadline() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    story.tell(Event::Spawned(run("etcd", 1)));
    assert_eq!((story.state("etcd"), story.tree.poll_timeout()), (UnitState::Ready, None));
}

/// The shell looks up names that people give, and lists what it shows them.
#[test]
fn services_are_found_by_name_and_listed_in_the_tables_order() {
    let (story, _) = Story::begin(vec![spec("etcd", &[]), spec("apiserver", &[Need::ready("etcd")])]);
    assert_eq!(
        ["apiserver", "etcd", "etc", ""].map(|name| story.tree.find(name)),
        [Some("apiserver".into()), Some("etcd".into()), None, None]
    );
    let names: Vec<_> = story.tree.statuses().into_iter().map(|status| status.name).collect();
    assert_eq!(names, ["etcd", "apiserver"]);
}

/// A stop that comes between the start and its answer reaches the process as soon as it exists.
#[test]
fn a_stop_overtakes_a_spawn() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    let stop = Event::StopAll { reason: StopReason::PowerOff, within: Duration::from_secs(8) };
    assert_eq!(story.tell(stop), []);
    assert_eq!(story.tell(Event::Spawned(run("etcd", 1))), [Effect::Terminate(run("etcd", 1))]);
    let out = story.die(run("etcd", 1), RunExit::Signal(15));
    assert_eq!(out, [Effect::AllStopped { reason: StopReason::PowerOff, left: vec![] }]);
}

/// Proves: O2. A process that comes into being after its stop deadline has had its time: it is killed, not asked.
#[test]
fn a_process_that_appears_after_its_stop_deadline_is_killed() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    assert_eq!(story.tell(Event::RestartRequested("etcd".into())), []);
    assert_eq!(story.wait_for("stop deadline"), [Effect::Report(Report::StopDeadline(run("etcd", 1)))]);
    assert_eq!(story.tell(Event::Spawned(run("etcd", 1))), [Effect::Kill(run("etcd", 1))]);
    assert_eq!(story.die(run("etcd", 1), RunExit::Signal(9)), [Effect::Start(run("etcd", 2))]);
}

/// Proves: O2. A process dies once: a second word of its end is told and changes nothing.
#[test]
fn a_second_exit_changes_nothing() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    story.tell(Event::Spawned(run("etcd", 1)));
    story.tell(Event::Exited { instance: run("etcd", 1), exit: RunExit::Code(3) });
    let before = story.tree.status("etcd");
    let again = Event::Exited { instance: run("etcd", 1), exit: RunExit::Signal(9) };
    let report = Report::DoesNotFit { event: again.clone(), state: "stopping" };
    assert_eq!(story.tell(again.clone()), [Effect::Report(report)]);
    assert_eq!(story.tree.status("etcd"), before);
    // Nor is it taken for the end of what is left of the run, or of a run that is over.
    assert_eq!(story.tell(Event::CgroupEmpty(run("etcd", 1))), []);
    assert_eq!(story.state("etcd"), UnitState::BackingOff { until: story.now + Duration::from_secs(1) });
    let late = Report::DoesNotFit { event: again.clone(), state: "backing off" };
    assert_eq!(story.tell(again), [Effect::Report(late)]);
    assert_eq!(story.tree.status("etcd").expect("there").failures, 1);
}

/// Events that fit nothing are told, each with its reason, and change nothing.
#[test]
fn what_does_not_fit_is_reported() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    let unknown = Event::RestartRequested("etdc".into());
    assert_eq!(story.tell(unknown.clone()), [Effect::Report(Report::UnknownService(unknown))]);
    let stale = Event::Ready(run("etcd", 7));
    assert_eq!(story.tell(stale.clone()), [Effect::Report(Report::StaleInstance(stale))]);
    let early = Event::CgroupEmpty(run("etcd", 1));
    let report = Report::DoesNotFit { event: early.clone(), state: "starting" };
    assert_eq!(story.tell(early), [Effect::Report(report)]);
    assert_eq!(story.state("etcd"), UnitState::Starting);
}

/// Requests to the tree, with what it says at once or why it refuses.
impl Story {
    fn take(&mut self, specs: Vec<Spec>) -> Result<Vec<Effect>, ChangeError> {
        let mut out = Vec::new();
        self.tree.take(specs, self.now, &mut out).map(|()| out)
    }

    fn want(&mut self, specs: &[&Spec]) -> Result<Vec<Effect>, ChangeError> {
        let mut out = Vec::new();
        let specs = specs.iter().map(|spec| (*spec).clone()).collect();
        self.tree.want(specs, self.now, &mut out).map(|_anew| out)
    }

    fn names(&self) -> Vec<String> {
        self.tree.statuses().iter().map(|status| status.name.to_string()).collect()
    }
}

fn left(name: &str) -> Effect {
    Effect::Left(name.into())
}

/// A service as [`spec`] makes it, with another program.
fn changed(name: &str, needs: &[Need]) -> Spec {
    Spec { content: Fingerprint::of(&"changed"), ..spec(name, needs) }
}

/// Proves: O2. A role comes: its services start by their needs, among those that run already.
#[test]
fn services_that_are_wanted_start_by_their_needs() {
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    let (scheduler, apiserver) =
        (spec("scheduler", &[Need::ready("apiserver")]), spec("apiserver", &[Need::ready("etcd")]));
    let out = story.want(&[&scheduler, &apiserver]).expect("they fit");
    assert_eq!(out, [], "etcd has not been spawned");
    assert_eq!(story.names(), ["etcd", "scheduler", "apiserver"]);
    assert_eq!(story.tell(Event::Spawned(run("etcd", 1))), [Effect::Start(run("apiserver", 1))]);
    assert_eq!(story.tell(Event::Spawned(run("apiserver", 1))), [Effect::Start(run("scheduler", 1))]);
    let mesh = spec("mesh", &[Need::ready("etcd")]);
    assert_eq!(story.want(&[&mesh, &scheduler, &apiserver]), Ok(vec![Effect::Start(run("mesh", 1))]));
}

/// Proves: O2. A role goes: who needs others stops first, and each leaves only when nothing in the tree needs it.
#[test]
fn what_is_not_wanted_stops_after_those_that_need_it() {
    let (import, apiserver, scheduler) = (
        Spec { restart: Restart::Never, ..spec("import", &[Need::ready("etcd")]) },
        spec("apiserver", &[Need::ready("import")]),
        spec("scheduler", &[Need::ready("apiserver")]),
    );
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    story.want(&[&import, &apiserver, &scheduler]).expect("a table");
    story.tell(Event::Spawned(run("etcd", 1)));
    story.tell(Event::Spawned(run("import", 1)));
    story.die(run("import", 1), RunExit::Code(0));
    story.tell(Event::Spawned(run("apiserver", 1)));
    story.tell(Event::SpawnFailed { instance: run("scheduler", 1), errno: 12 });
    assert_eq!(
        story.want(&[]),
        Ok(vec![left("scheduler"), Effect::Terminate(run("apiserver", 1))]),
        "what does not run is gone at once, unless what needs it is there"
    );
    assert_eq!(story.tree.leaving().map(Name::as_str).collect::<Vec<_>>(), ["import", "apiserver"]);
    assert_eq!(story.state("import"), UnitState::Stopped, "it has ended and waits for the end of apiserver");
    assert_eq!(story.wait_for("stop deadline").last(), Some(&Effect::Kill(run("apiserver", 1))));
    let out = story.tell(Event::Exited { instance: run("apiserver", 1), exit: RunExit::Signal(9) });
    assert_eq!(out, [], "children of it are left");
    let out = story.tell(Event::CgroupEmpty(run("apiserver", 1)));
    assert_eq!(out, [left("apiserver"), left("import")]);
    assert_eq!((story.names(), story.tree.status("import")), (vec!["etcd".to_owned()], None));
    assert_eq!((story.state("etcd"), story.tree.poll_timeout()), (UnitState::Ready, None));
}

/// Proves: O2. Nothing is stopped under a service that stays, and a tree's own services stay.
#[test]
fn a_set_without_what_it_needs_is_refused() {
    let (etcd, apiserver) = (spec("etcd", &[]), spec("apiserver", &[Need::started("etcd")]));
    let (mut story, _) = Story::begin(vec![spec("log", &[])]);
    story.want(&[&etcd, &apiserver]).expect("a table");
    for name in ["log", "etcd", "apiserver"] {
        story.tell(Event::Spawned(run(name, 1)));
    }
    let refused = story.want(&[&apiserver]).expect_err("etcd is needed");
    assert_eq!(refused.to_string(), "service `apiserver` needs `etcd`, which is not in the tree");
    let own = story.want(&[&spec("log", &[])]).expect_err("the tree has it");
    assert_eq!(own, InvalidTree::Duplicate("log".into()).into());
    assert_eq!(story.state("etcd"), UnitState::Ready, "all or none");
    // While apiserver leaves, etcd may follow; asked twice, both go on as they do.
    assert_eq!(story.want(&[&etcd]), Ok(vec![Effect::Terminate(run("apiserver", 1))]));
    assert_eq!(story.want(&[]), Ok(vec![]));
    assert_eq!(story.want(&[]), Ok(vec![]));
    let out = story.die(run("apiserver", 1), RunExit::Code(0));
    assert_eq!(out, [left("apiserver"), Effect::Terminate(run("etcd", 1))]);
    assert_eq!(story.die(run("etcd", 1), RunExit::Code(0)), [left("etcd")]);
    assert_eq!((story.names(), story.state("log")), (vec!["log".to_owned()], UnitState::Ready));
}

/// Proves: O2. What needs a service that is replaced goes on without it.
#[test]
fn a_service_that_differs_is_replaced_alone() {
    let (etcd, apiserver) = (spec("etcd", &[]), spec("apiserver", &[Need::started("etcd")]));
    let member = |name: &str| Spec { group: Some("core".into()), ..spec(name, &[]) };
    let (mut story, _) = Story::begin(Vec::new());
    story.want(&[&etcd, &apiserver, &member("a"), &member("b")]).expect("a table");
    for name in ["etcd", "a", "b", "apiserver"] {
        story.tell(Event::Spawned(run(name, 1)));
    }
    let others = Spec { content: Fingerprint::of(&"changed"), ..member("a") };
    let out = story.want(&[&changed("etcd", &[]), &apiserver, &others, &member("b")]);
    assert_eq!(out, Ok(vec![Effect::Terminate(run("etcd", 1)), Effect::Terminate(run("a", 1))]));
    let out = story.die(run("etcd", 1), RunExit::Code(0));
    assert_eq!(out, [left("etcd"), Effect::Start(run("etcd", 2))]);
    assert_eq!(story.die(run("a", 1), RunExit::Code(0)), [left("a"), Effect::Start(run("a", 2))]);
    assert_eq!((story.state("apiserver"), story.state("b")), (UnitState::Ready, UnitState::Ready));
    // One that does not run is replaced at once.
    story.tell(Event::SpawnFailed { instance: run("etcd", 2), errno: 12 });
    let out = story.want(&[&etcd, &apiserver]).expect("a table");
    assert!(out.starts_with(&[left("etcd")]) && out.contains(&Effect::Start(run("etcd", 3))), "{out:?}");
    assert_eq!(story.tree.status("etcd").map(|status| (status.restarts, status.failures)), Some((0, 0)));
}

/// Proves: O2. The name is free when nothing is left, not sooner; and no word about the old service meets the new one.
#[test]
fn a_name_that_returns_waits_until_it_has_left() {
    let (etcd, apiserver) = (spec("etcd", &[]), spec("apiserver", &[Need::started("etcd")]));
    let (mut story, _) = Story::begin(Vec::new());
    story.want(&[&etcd, &apiserver]).expect("a table");
    story.tell(Event::Spawned(run("etcd", 1)));
    story.tell(Event::SpawnFailed { instance: run("apiserver", 1), errno: 12 });
    story.wait_for("back-off");
    story.tell(Event::Spawned(run("apiserver", 2)));
    assert_eq!(story.want(&[]), Ok(vec![Effect::Terminate(run("apiserver", 2))]));
    let out = story.want(&[&etcd, &apiserver, &spec("mesh", &[Need::started("etcd")])]);
    assert_eq!(out, Ok(vec![]), "both go on leaving, and etcd that leaves is nobody's need");
    let out = story.die(run("apiserver", 2), RunExit::Code(0));
    assert_eq!(out, [left("apiserver"), Effect::Terminate(run("etcd", 1))]);
    assert_eq!(story.die(run("etcd", 1), RunExit::Code(0)), [left("etcd"), Effect::Start(run("etcd", 3))]);
    let out = story.tell(Event::Spawned(run("etcd", 3)));
    assert_eq!(out, [Effect::Start(run("apiserver", 3)), Effect::Start(run("mesh", 1))]);
    let status = story.tree.status("apiserver").expect("there");
    assert_eq!((status.restarts, status.failures, status.last), (0, 0, None), "nothing of the old one is left");
    let late = Event::Ready(run("apiserver", 2));
    assert_eq!(story.tell(late.clone()), [Effect::Report(Report::StaleInstance(late))]);
    story.tell(Event::SpawnFailed { instance: run("apiserver", 3), errno: 12 });
    story.wait_for("back-off");
    assert_eq!(story.tree.status("apiserver").expect("there").restarts, 1);
}

/// Proves: O2. Whoever leaves is neither started again nor waited for, by its group or anybody.
#[test]
fn a_service_that_leaves_is_in_no_group_any_more() {
    let member = |name: &str| Spec { group: Some("core".into()), ..spec(name, &[]) };
    let (mut story, _) = Story::begin(Vec::new());
    story.want(&[&member("etcd"), &member("apiserver")]).expect("a table");
    for name in ["etcd", "apiserver"] {
        story.tell(Event::Spawned(run(name, 1)));
    }
    assert_eq!(story.want(&[&member("apiserver")]), Ok(vec![Effect::Terminate(run("etcd", 1))]));
    let asked = Event::RestartRequested("etcd".into());
    let report = Report::DoesNotFit { event: asked.clone(), state: "stopping" };
    assert_eq!(story.tell(asked), [Effect::Report(report)]);
    assert_eq!(story.tell(Event::RestartRequested("apiserver".into())), [Effect::Terminate(run("apiserver", 1))]);
    let out = story.die(run("apiserver", 1), RunExit::Signal(15));
    assert_eq!(out, [Effect::Start(run("apiserver", 2))], "without waiting for etcd");
    assert_eq!(story.die(run("etcd", 1), RunExit::Signal(15)), [left("etcd")]);
    assert_eq!(story.state("apiserver"), UnitState::Starting, "a group that is smaller goes on");
}

/// Proves: O2. A boot takes services one after the other, and whatever is wanted later leaves them alone.
#[test]
fn services_that_are_taken_stay() {
    let (mut story, _) = Story::begin(vec![spec("log", &[])]);
    story.want(&[&spec("mesh", &[])]).expect("a table");
    let duplicate = story.take(vec![spec("mesh", &[])]).expect_err("it is wanted");
    assert_eq!(duplicate, InvalidTree::Duplicate("mesh".into()).into());
    let unsure = story.take(vec![spec("api", &[Need::started("mesh")])]).expect_err("mesh may leave");
    assert_eq!(unsure.to_string(), "service `api` needs `mesh`, which is not in the tree");
    assert_eq!(story.take(vec![spec("api", &[])]), Ok(vec![Effect::Start(run("api", 1))]));
    assert_eq!(story.names(), ["log", "api", "mesh"]);
    story.tell(Event::SpawnFailed { instance: run("mesh", 1), errno: 12 });
    assert_eq!(story.want(&[]), Ok(vec![left("mesh")]));
    assert_eq!(story.names(), ["log", "api"]);
}

/// Proves: O12. What leaves stops with all others, and nothing comes or goes by itself any more.
#[test]
fn a_tree_that_stops_is_changed_no_more() {
    let (apiserver, kubelet) = (spec("apiserver", &[Need::ready("etcd")]), spec("kubelet", &[Need::ready("etcd")]));
    let (mut story, _) = Story::begin(vec![spec("etcd", &[])]);
    story.want(&[&apiserver, &kubelet]).expect("a table");
    for name in ["etcd", "apiserver", "kubelet"] {
        story.tell(Event::Spawned(run(name, 1)));
    }
    story.want(&[&changed("apiserver", &[])]).expect("a table");
    assert_eq!(story.tell(Event::StopAll { reason: StopReason::Reboot, within: Duration::from_secs(8) }), []);
    assert_eq!(story.want(&[]), Err(ChangeError::Stopping));
    assert_eq!(story.take(vec![spec("mesh", &[])]), Err(ChangeError::Stopping));
    assert_eq!(story.die(run("kubelet", 1), RunExit::Signal(15)), []);
    let out = story.die(run("apiserver", 1), RunExit::Signal(15));
    assert_eq!(out, [Effect::Terminate(run("etcd", 1))]);
    assert_eq!([story.state("apiserver"), story.state("kubelet")], [UnitState::Stopped, UnitState::Stopped]);
    let out = story.die(run("etcd", 1), RunExit::Signal(15));
    assert_eq!(out, [Effect::AllStopped { reason: StopReason::Reboot, left: vec![] }]);
    assert_eq!(story.want(&[&apiserver]), Err(ChangeError::Stopping));
}

/// The table is judged before anything starts.
#[test]
fn an_invalid_table_starts_nothing() {
    let mut out = Vec::new();
    let circle = vec![spec("a", &[Need::ready("b")]), spec("b", &[Need::started("a")])];
    let refused = Tree::start(circle, testkit::origin(), &mut out).expect_err("a circle");
    assert_eq!(refused, InvalidTree::Circle(["a", "b", "a"].map(Name::from).to_vec()));
    assert!(out.is_empty());
}
