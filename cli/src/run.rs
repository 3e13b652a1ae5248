//! Runs the command that a command line names, to its end. What a command does is in `commands/`.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::commands::{
    cluster, completion, condition, enrol, etcd, image, kubeconfig, kubectl, machine, network, owner, publish, recover,
    registry, ticket, user, volume,
};
use crate::failure::{Code, Failure, StartError};

/// Runs one command to its end.
pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { global, command } = cli;
    let mut out = io::stdout().lock();
    let out: &mut dyn Write = &mut out;
    match command {
        // Needs neither keys nor a machine, so no data directory is made for it.
        Command::Image(image::Command::Inspect(arguments)) => image::inspect(&arguments, global.output, out).map(done),
        Command::Image(image::Command::Containers(command)) => {
            wait(image::run(&command, &global.context()?, out)).map(done)
        }
        Command::Completion(arguments) => completion::run(&arguments, out).map(done),
        Command::Network(arguments) => network::run(&arguments),
        Command::Enrol(command) => enrol::run(&command, global.context()?, out).map(done),
        Command::Cluster(command) => wait(cluster::run(&command, global.context()?, out)).map(done),
        Command::Machine(command) => wait(machine::run(&command, &global.context()?, out)).map(done),
        Command::Ticket(command) => wait(ticket::run(&command, &global.context()?, out)).map(done),
        Command::Owner(command) => wait(owner::run(&command, &global.context()?, out)).map(done),
        Command::Registry(command) => wait(registry::run(&command, &global.context()?, out)).map(done),
        Command::Etcd(command) => wait(etcd::run(&command, &global.context()?, out)).map(done),
        Command::Volume(command) => wait(volume::run(&command, &global.context()?, out)).map(done),
        Command::User(command) => wait(user::run(&command, &global.context()?, out)).map(done),
        Command::Publish(command) => wait(publish::run(&command, &global.context()?, out)).map(done),
        Command::Goldenticket(issue) => {
            wait(ticket::run(&ticket::Command::Issue(issue), &global.context()?, out)).map(done)
        }
        Command::Recover(arguments) => wait(recover::run(&arguments, &global.context()?, out)).map(done),
        Command::Condition(command) => wait(condition::run(&command, &global.context()?, out)).map(done),
        Command::Kubeconfig(arguments) => wait(kubeconfig::run(&arguments, &global.context()?, out)).map(done),
        Command::Kubectl(arguments) => wait(kubectl::run(&arguments, &global.context()?)),
    }
}

/// Runs a command to its end, on one thread: a command waits for one machine at a time.
fn wait<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError)?.block_on(command)
}

fn done((): ()) -> ExitCode {
    ExitCode::from(Code::Done as u8)
}
