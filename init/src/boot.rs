//! The boot, as a list of values: a step takes what the step before it returned, so none can be skipped.
//!
//! ```text
//!   kernel ─ disk ─ found ─ uplink ─ public API ─ enrol ─ mesh ─ control ─ serve
//!                                       │           └ or waits to be given something, and reads again
//!                                       └ answers from here on, whatever happens below: what cannot be handled is told, and stays
//! ```

use std::convert::Infallible;

use api::MilestoneKind;
use enrol::asking::GivenAnswers;
use enrol::found::Findings;
use model::PowerOn;

use crate::enrolment::{Enrolment, Outcome};
use crate::facts::Facts;
use crate::machine::buttons::Buttons;
use crate::machine::disk::Disk;
use crate::machine::kernel::{self, Kernel};
use crate::network::mesh::Mesh;
use crate::network::uplink::Uplink;
use crate::rpc::public::PublicApi;
use crate::runtime::child::Children;
use crate::runtime::clock::{self, Known};
use crate::runtime::console;
use crate::runtime::log;
use crate::runtime::services::{Run, Services};
use crate::runtime::tasks;
use crate::serve::{self, Machine, own};
use crate::shown::board::Board;
use crate::shown::fatal::Fatal;
use crate::shown::sheet;

/// Runs the whole boot, then serves; returns only what nothing below it could handle.
pub(crate) fn run() -> Result<Infallible, Fatal> {
    tasks::runtime()?.block_on(boot())
}

async fn boot() -> Result<Infallible, Fatal> {
    log::install(console::open_all());
    let kernel = Kernel::mount()?;
    clock::correct(Known::Image);
    let (facts, power_on) = Facts::new(kernel.boot);
    let (board, reader) = Board::new(facts.clone());
    let children = Children::default();
    let shown = reader.clone();
    let console = Run::steady(move || sheet::show(shown.clone()));
    let tree = Services::start(&children, own::from_the_start(console, &children, &facts))?;
    // From the first moment on: somebody may press one before anything is up.
    let buttons = Buttons::listen();
    kernel::stage0_began().inspect(|began| board.reached_at("stage 0", MilestoneKind::Kernel, *began));
    board.reached("kernel", MilestoneKind::Step);
    let disk = Disk::find(facts.boot().root_hash.partition_uuid(), |disk, refused| {
        tracing::warn!(disk = %disk.display(), reason = %refused, "disk skipped and left alone");
    })?;
    let mut enrolment = Enrolment::begin(disk, &board, &children).await?;
    let found = enrolment.read(GivenAnswers::default()).await?;
    board.reached("found", MilestoneKind::Step);
    let uplink = Uplink::up(&board, (&tree, &children), &found.network, found.prefixes).await?;
    board.reached("uplink", MilestoneKind::Step);
    let api = PublicApi::open(reader, &children, &tree, &found, enrolment.ways()).await?;
    board.reached("public api", MilestoneKind::Step);
    let mut machine = Machine::new(board, children, api, buttons);
    let Err(fatal) = serves(&mut machine, enrolment, (found, power_on), &uplink).await;
    serve::halted(&mut machine, fatal).await
}

/// Boots on from the moment when people can be told: enrols the machine, then serves until the end.
async fn serves(
    machine: &mut Machine,
    mut enrolment: Enrolment,
    (mut found, mut power_on): (Findings, PowerOn),
    uplink: &Uplink,
) -> Result<Infallible, Fatal> {
    let (mut member, underway, capped) = loop {
        let (waiting, wait, seal) = match machine.beside(enrolment.act(found.decision, power_on)).await?? {
            Outcome::Member(member, underway, capped) => break (member, underway, capped),
            Outcome::Waits(waiting, wait, seal) => (waiting, wait, seal),
        };
        machine.board.waiting(&waiting, &wait.message());
        let given = serve::waiting(machine, enrolment.given(&wait, seal.as_deref())).await?;
        power_on = waiting.resumes();
        found = enrolment.read(given).await?;
        machine.api.know(&found)?;
    };
    kernel::name(&member.identity.name, member.identity.holder.machine)?;
    uplink.belong(member.desired.prefixes, &member.desired.assignment).await?;
    machine.api.admit(&mut member, &capped)?;
    let (vpn_ip, prefixes) = (member.desired.assignment.vpn_ip(), member.desired.prefixes);
    let mesh = Mesh::up(&uplink.network, &member.vpn_key, vpn_ip, prefixes).await?;
    machine.board.reached("mesh", MilestoneKind::Step);
    serve::member(machine, (*member, underway), (uplink, mesh), capped).await
}
