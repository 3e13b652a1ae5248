//! PID 1's own tasks, as units of its own tree: a task that panics is a service that failed, seen and started again. The
//! tree begins with the first of them, takes the others as the boot comes to them, and ends last.
//!
//! It must never hold what can be told apart by role: that is `control`'s tree.

use std::time::Duration;

use cluster::orders::OrderBook;
use supervise::{Critical, Spec};
use tokio::sync::watch;

use crate::control::{self, Absence};
use crate::enrolment::Renewing;
use crate::enrolment::contribute::Exchange;
use crate::facts::Facts;
use crate::machine::board_clock;
use crate::network::mesh::Mesh;
use crate::network::mesh::peers::{self, Told};
use crate::network::uplink::{Uplink, published};
use crate::runtime::child::Children;
use crate::runtime::memory;
use crate::runtime::services::{Ends, Run, Services, Unit};
use crate::shown::board::Board;
use crate::shown::{kmsg, last_words};
use crate::storage::{self, Mounted};

/// Units that run before anything else; `console` shows the board.
pub(crate) fn from_the_start(console: Run, children: &Children, facts: &Facts) -> Vec<Unit> {
    let (children, standstills) = (children.clone(), facts.standstills().clone());
    let reaper = Unit::task("reaper", Ends::Never, Run::task(move || children.clone().reaped()));
    // Without it no end of a service is seen. What ended meanwhile is reaped by the next one. Three failures
    // within a minute: restarting will not help.
    let critical = Some(Critical { failures: 3, within: Duration::from_secs(60) });
    vec![
        Unit { spec: Spec { critical, ..reaper.spec }, ..reaper },
        Unit::task("console", Ends::Never, console),
        Unit::task("kernel-log", Ends::Never, Run::task(kmsg::copy)),
        Unit::task("board-clock", Ends::WellOrAgain, Run::steady(move || board_clock::follow(standstills.clone()))),
    ]
}

/// Units of a member that serves. They end by themselves when `services` have ended and `data` is closed. People are told of an `absence`.
pub(super) fn of_a_member(
    board: &Board,
    services: &Services,
    data: &Mounted,
    absence: &watch::Receiver<Absence>,
) -> Vec<Unit> {
    let (reported, changed) = ((board.clone(), services.clone(), absence.clone()), services.clone());
    let measured = (board.clone(), data.clone(), services.clone());
    let task = |name, run| Unit::task(name, Ends::WellOrAgain, run);
    vec![
        task(
            "conditions",
            Run::steady(move || control::report(reported.0.clone(), reported.1.clone(), reported.2.clone())),
        ),
        task("memory", Run::steady(move || memory::keep_small(changed.clone()))),
        task("last-words", Run::steady(last_words::collect)),
        task(
            "protection",
            Run::steady(move || storage::report(measured.0.clone(), measured.1.clone(), measured.2.clone())),
        ),
    ]
}

/// Keeps the kernel's peers those that were told.
pub(super) fn mesh(mesh: &Mesh, told: &Told, exchange: &Exchange, facts: &Facts) -> Unit {
    let (mesh, told, standstills) = (mesh.clone(), told.clone(), facts.standstills().clone());
    let sighted = exchange.whereabouts();
    let keep = move || peers::keep(mesh.clone(), told.clone(), sighted.clone(), standstills.watch());
    Unit::task("mesh", Ends::Never, Run::task(keep))
}

/// Keeps open on the uplinks what owners have published.
pub(super) fn published(uplink: &Uplink, orders: &watch::Receiver<OrderBook>) -> Unit {
    let (uplink, orders) = (uplink.clone(), orders.clone());
    Unit::task("published", Ends::Never, Run::task(move || published::follow(uplink.clone(), orders.clone())))
}

/// Keeps the newest directory that is heard of on the ESP.
pub(super) fn directory(renewing: &Renewing) -> Unit {
    let renewing = renewing.clone();
    Unit::task("directory", Ends::Never, Run::task(move || renewing.clone().keep()))
}
