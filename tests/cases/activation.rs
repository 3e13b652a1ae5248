//! Shows that a blank machine is activated from outside by the code on its screen, by nobody else, and once.

use std::thread;

use anyhow::{Context as _, ensure};
use model::MachineState;
use qemu::Vm;
use serde_json::Value;

use crate::{
    Case, CommandRefusal, Context, MachinePlan, Owner, Prerequisite, REFUSED, Relay, SITE, Site, Starts, Stranger,
    public_api, wait_state,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a blank machine is activated by the code on its screen alone",
        proves: &["A1", "A5", "N1", "S2"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: by_its_code,
    },
    Case {
        name: "of two that activate a machine at once one is refused",
        proves: &["A5", "F2", "N1", "S2"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: once,
    },
];

const NAME: &str = "one";
const CHOICES: [&str; 3] = ["--no-kubernetes", "--level", "encrypted"];

/// Somebody without the code is told nothing of a config, and nothing happens to the machine.
fn by_its_code(t: &Context) -> anyhow::Result<()> {
    let (mut site, owner) = (Site::new()?, t.owner()?);
    let (first, second) = (site.machine(t, "first")?.start()?, site.machine(t, "second")?.start()?);
    let (first, second) = (Blank::shown(t, first)?, Blank::shown(t, second)?);
    ensure!(first.code != second.code, "each machine has its own code");
    let at = first.address()?;
    refused(init(&owner, &at, &second.code))?;
    let relay = Relay::before(&first.vm)?;
    let between = relay.address()?.to_string();
    let asked = thread::scope(|scope| {
        let passing = scope.spawn(|| relay.pass_on(t.within(10)));
        let asked = init(&owner, &between, &first.code);
        passing.join().expect("a relay does not panic").map(|()| asked)
    })?;
    refused(asked)?;
    ensure!(Stranger::meet(&first.vm, t.within(10))?.state()?.state == MachineState::Blank, "it waits on");
    let before = first.vm.mark()?;
    init(&owner, &at, &first.code).context("the right code")?;
    owner.status_when_running(NAME, &first.vm, before, t.within(40))?;
    first.code_is_in_no_log(&owner, &first.vm)
}

/// A command goes to the machine, another one through the coordinator whose ticket both have. It lets two machines in.
fn once(t: &Context) -> anyhow::Result<()> {
    let mut site = Site::new()?;
    let (first, second) = (site.machine(t, "first")?, site.machine(t, "second")?.start()?);
    let first = Coordinator::started(t, first)?;
    let second = Blank::shown(t, second)?;
    let (ticket, direct) = (first.ticket(t)?, second.address()?);
    let activate = |place: &[&str]| first.activate(&ticket, &second.code, place);
    let both = thread::scope(|scope| {
        let through = scope.spawn(|| activate(&["--through", "m1", &second.there]));
        [activate(&[&direct]), through.join().expect("a command does not panic")]
    });
    let (done, late): (Vec<_>, Vec<_>) = both.into_iter().partition(Result::is_ok);
    ensure!(done.len() == 1, "one of two activates the machine: {late:?}");
    ensure!(late.iter().all(|late| late.as_ref().is_err_and(|late| late.code == REFUSED)), "{late:?}");
    wait_state(&second.vm, second.vm.started(), "Running", t.within(60))?;
    let members = || Some(first.machines()?.iter().filter(|row| row["state"] == "Member").count());
    first.vm.until(t.within(40), || (members()? == 2).then_some(()))?;
    second.code_is_in_no_log(&first.owner, &first.vm)
}

/// A machine that waits to be activated.
struct Blank {
    vm: Vm,
    /// Address on the site.
    there: String,
    code: String,
}

impl Blank {
    /// Reads both from its screen.
    fn shown(t: &Context, vm: Vm) -> anyhow::Result<Self> {
        let (mut there, mut code) = (None, None);
        let shown = vm.console().wait_until(vm.started(), "an address and a code", t.within(40), |line| {
            let words = || line.text.split_whitespace();
            if line.text.starts_with("  address ") {
                let place = words().find(|word| word.starts_with(SITE));
                there = place.and_then(|it| it.split('/').next()).map(str::to_owned);
            }
            if line.text.starts_with("  activate ") {
                code = words().skip_while(|word| *word != "--code").nth(1).map(str::to_owned);
            }
            there.clone().zip(code.clone())
        });
        let (there, code) = shown?;
        Ok(Self { vm, there, code })
    }

    fn address(&self) -> anyhow::Result<String> {
        Ok(public_api(&self.vm)?.to_string())
    }

    fn code_is_in_no_log(&self, owner: &Owner, of: &Vm) -> anyhow::Result<()> {
        let kept = owner.logs(NAME, of, &[])?;
        ensure!(!kept.is_empty() && kept.iter().all(|entry| !entry.to_string().contains(&self.code)), "it is");
        Ok(())
    }
}

/// A cluster's first machine, which runs and has met its owner.
struct Coordinator {
    vm: Vm,
    owner: Owner,
}

impl Coordinator {
    fn started(t: &Context, plan: MachinePlan) -> anyhow::Result<Self> {
        let owner = t.owner()?;
        let vm = plan.config(&owner.config(NAME, &CHOICES)?)?.start()?;
        owner.status_when_running(NAME, &vm, vm.started(), t.within(40))?;
        Ok(Self { vm, owner })
    }

    /// Machines that it lists; none while it does not answer.
    fn machines(&self) -> Option<Vec<Value>> {
        Some(self.owner.ask(NAME, &self.vm, &["machine", "list"]).ok()?["machines"].as_array()?.clone())
    }

    /// A ticket of two uses, which names where the coordinator is on the site.
    fn ticket(&self, t: &Context) -> anyhow::Result<String> {
        self.owner.ticket_naming(NAME, &self.vm, SITE, &["--uses", "2"], t.within(40))
    }

    fn activate(&self, ticket: &str, code: &str, place: &[&str]) -> Result<String, CommandRefusal> {
        let line = ["-c", NAME, "machine", "activate", "--code", code, "--ticket", ticket, "--level", "encrypted"];
        self.owner.run(&[&line[..], place].concat())
    }
}

fn init(owner: &Owner, at: &str, code: &str) -> Result<String, CommandRefusal> {
    let line = ["cluster", "init", at, "--code", code, "--name", NAME, "--node-name", "first"];
    owner.run(&[&line[..], &CHOICES].concat())
}

fn refused(asked: Result<String, CommandRefusal>) -> anyhow::Result<()> {
    let refused = asked.err().context("it was taken")?;
    ensure!(refused.code == REFUSED && refused.text.contains("does not know this code"), "{refused}");
    Ok(())
}
