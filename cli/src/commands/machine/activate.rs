//! `machine activate`: a blank machine, elsewhere, joins a cluster. Whether it is there, blank and knows its code is seen before
//! anything is made for it; where it then does not take its config, what was made is taken back.
//!
//! ```text
//!   meet ► (own ticket: name, ticket) ► meet again, hand in the config ► accepted ► the cluster's records: Member
//!                └───────── fails: revoked, forgotten ─┘                   └─ late: it goes on by itself
//! ```

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use api::ListedMachine;
use clap::Args;
use cluster::record::Standing;
use keys::activation::Code;
use keys::ticket::{TEXT_PREFIX, Ticket};
use model::{MachineState, NodeName};
use tokio::time::timeout;

use crate::clock::Deadline;
use crate::commands::blank::{OnScreen, only_by_address};
use crate::commands::cluster::joining;
use crate::commands::enrol;
use crate::commands::ticket::{Issue, Issued};
use crate::context::{Context, PATIENCE};
use crate::enrolment::{self, Becomes, Choices, StaticNetwork, Wanted};
use crate::failure::{Advice, Code as Exit, Failure};
use crate::length;
use crate::machine::{ActivationError, Address, Blank, Session, Way, public_state};
use crate::screen::{self, Progress};
use crate::store::{ClusterName, ClusterRecord, MachineRecord};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl machine activate 192.0.2.10                    asks for the code
  cairnctl machine activate 192.0.2.10 --code-file code --ticket ticket

A blank machine shows its address and its code, which is another one after each
start. The machine proves that it knows the code before anything of the config
is sent, and takes it only from who knows the code, too.

Without --ticket the cluster issues one for this machine alone. With --through
a machine of the cluster carries the bytes; TLS ends here all the same.")]
pub(crate) struct Activate {
    #[command(flatten)]
    machine: OnScreen,
    /// The ticket by which it joins: a file, - for a line of standard input, or its
    /// text, which whoever lists the processes of this host sees here
    #[arg(long, value_name = "TICKET")]
    ticket: Option<String>,
    /// The machine's host and node name [default: the next free one: m2, m3 and
    /// so on; with --ticket one that is made from its id]
    #[arg(long, value_name = "NAME", value_parser = enrolment::node_name)]
    node_name: Option<NodeName>,
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    network: StaticNetwork,
    /// How long to wait until it is a member, where the cluster issued its ticket
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = length::parse)]
    timeout: Duration,
}

/// Why the command ends where activation itself did not fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActivateError {
    /// The machine accepted its config, and stopped.
    #[error("the machine at {address} has its config, and is {state}")]
    Stopped { address: Address, state: MachineState },
    /// The machine accepted its config, and is not seen among the cluster's machines.
    #[error("machine `{name}` has its config, and is no Member of its cluster after {} s: {last}", after.as_secs())]
    NoMember { name: NodeName, after: Duration, last: String },
}

impl Advice for ActivateError {
    fn code(&self) -> Exit {
        match self {
            Self::Stopped { .. } => Exit::Failed,
            Self::NoMember { .. } => Exit::Timeout,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Stopped { .. } | Self::NoMember { .. } => {
                "the machine was activated, and goes on by itself when it can"
            }
        }
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Stopped { .. } => "its screen says why".to_owned(),
            Self::NoMember { .. } => "its screen says what it waits for; cairnctl machine list".to_owned(),
        })
    }
}

pub(crate) async fn run(arguments: &Activate, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    only_by_address(context)?;
    let code = arguments.machine.code()?;
    let through = match &context.through {
        Some(name) => Some(context.about(&context.cluster()?.name, name).open().await?.0),
        None => None,
    };
    let machine = Machine { arguments, way: through.as_ref().map_or(Way::Direct, Way::Through), code };
    let mut progress = Progress::start();
    match &arguments.ticket {
        Some(ticket) => {
            let ticket = if ticket.starts_with(TEXT_PREFIX) {
                enrol::ticket_of_text(ticket)?
            } else {
                enrol::read_ticket(Path::new(ticket))?
            };
            match machine.activate(&ticket, arguments.node_name.as_ref(), context, &mut progress).await? {
                Taken::Yes => drop(progress),
                Taken::Unknown(why) => return Err(why.into()),
            }
            let did = format!(
                "the machine at {} is activated and joins; see it come:\n  cairnctl machine list",
                arguments.machine.at
            );
            Ok(screen::did(context.format, out, &did)?)
        }
        None => {
            let cluster = context.cluster()?.name;
            let name = machine.joins(&cluster, context, &mut progress).await?;
            drop(progress);
            let did = format!(
                "machine `{name}` is a member of cluster `{cluster}`\n  cairnctl -c {cluster} -m {name} machine status"
            );
            Ok(screen::did(context.format, out, &did)?)
        }
    }
}

/// Whether a machine took its config.
enum Taken {
    /// The machine goes by it.
    Yes,
    /// The machine's answer was not heard.
    Unknown(ActivationError),
}

/// A machine that is to be activated.
struct Machine<'a> {
    arguments: &'a Activate,
    way: Way<'a>,
    code: Code,
}

impl Machine<'_> {
    async fn meet(&self) -> Result<Blank<'_>, Failure> {
        Ok(Blank::meet(&self.arguments.machine.at, &self.way, &self.code).await?)
    }

    /// Hands it a config with this ticket.
    async fn activate(
        &self,
        ticket: &Ticket,
        name: Option<&NodeName>,
        context: &Context,
        progress: &mut Progress,
    ) -> Result<Taken, Failure> {
        let Activate { choices, network, machine: OnScreen { at, .. }, .. } = self.arguments;
        let wanted = Wanted { choices, node: name, network: Some(network), at: None, becomes: Becomes::Joins(ticket) };
        let signed = enrolment::sign(wanted, &context.store.owner()?)?;
        progress.show(&format!("{at}: hand in its config"));
        match self.meet().await?.hand_in(signed.bytes).await {
            Ok(()) => {
                progress.done(&format!("{at}: took its config"));
                Ok(Taken::Yes)
            }
            Err(error) if error.is_open() => Ok(Taken::Unknown(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// Has it join `cluster` by a ticket of its own, and waits until it has; what it is called.
    async fn joins(
        &self,
        cluster: &ClusterName,
        context: &Context,
        progress: &mut Progress,
    ) -> Result<NodeName, Failure> {
        let context = &context.about_cluster(cluster);
        progress.show(&format!("{}: does it know its code?", self.arguments.machine.at));
        drop(self.meet().await?);
        progress.done(&format!("{}: blank, and knows its code", self.arguments.machine.at));
        let (mut coordinator, meant, listed) = joining::coordinator(context, progress).await?;
        let name = self.reserve(cluster, &listed, context)?;
        let lasts = self.arguments.timeout.max(TICKET_LASTS);
        let activated = async {
            let Issued { id, ticket } = Issue::of_nodes(1, lasts, Vec::new()).issue(&mut coordinator, &meant).await?;
            let activated = self.activate(&ticket, Some(&name), context, progress).await;
            if activated.is_err() {
                joining::revoke(id, context, progress).await;
            }
            activated
        };
        match activated.await {
            Ok(Taken::Yes) => {}
            // Then the cluster will tell.
            Ok(Taken::Unknown(why)) => progress.done(&format!("whether it took its config is not known yet ({why})")),
            Err(failure) => return Err(forget(cluster, &name, context, failure)),
        }
        self.until_member(&name, context, coordinator, progress).await?;
        Ok(name)
    }

    /// Keeps a name for it, which the records of this host have from now on.
    fn reserve(&self, cluster: &ClusterName, listed: &[ListedMachine], context: &Context) -> Result<NodeName, Failure> {
        let lock = context.store.lock(cluster)?;
        let mut record: ClusterRecord = context.store.load(cluster)?;
        let mut names = joining::free_names(cluster, &record, listed, self.arguments.node_name.as_ref(), 1)?;
        let name = names.remove(0);
        let mut machine = MachineRecord::joining(name.clone());
        // Behind another machine its address says nothing to this host.
        machine.address = matches!(self.way, Way::Direct).then(|| self.arguments.machine.at.to_string());
        record.add(machine);
        context.store.save(&record, &lock)?;
        Ok(name)
    }

    /// Until the cluster's records name it as Member.
    async fn until_member(
        &self,
        name: &NodeName,
        context: &Context,
        coordinator: Session,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let deadline = Deadline::after(self.arguments.timeout);
        let (mut session, mut last) = (Some(coordinator), String::new());
        let joined = deadline.until(async || {
            last = match joining::listed(&mut session, context).await {
                Ok(listed) => match listed.iter().find(|row| row.name == name.as_str()).map(|row| row.standing) {
                    Some(Standing::Member) => return Ok(Some(())),
                    Some(standing) => format!("{}: joins", standing.word()),
                    None => self.asks().await?,
                },
                Err(error) if error.may_pass() => {
                    session = None;
                    format!("wait for a coordinator: {error}")
                }
                Err(error) => return Err(Failure::from(error)),
            };
            progress.show(&format!("{name}: {last}"));
            Ok(None)
        });
        match joined.await? {
            Some(()) => {
                progress.done(&format!("{name}: Member of the cluster"));
                Ok(())
            }
            None => Err(ActivateError::NoMember { name: name.clone(), after: deadline.length(), last }.into()),
        }
    }

    /// State that the machine tells anybody while the cluster does not know it, in words.
    async fn asks(&self) -> Result<String, ActivateError> {
        let address = &self.arguments.machine.at;
        let state = match self.way {
            Way::Direct => timeout(PATIENCE, public_state(address, None)).await,
            Way::Through(_) => return Ok("asks the cluster to let it in".to_owned()),
        };
        match state.ok().and_then(Result::ok).map(|says| says.state) {
            Some(state @ (MachineState::NeedsOwner | MachineState::Failed)) => {
                Err(ActivateError::Stopped { address: address.clone(), state })
            }
            Some(state) => Ok(format!("{state}: asks the cluster to let it in")),
            None => Ok("does not answer".to_owned()),
        }
    }
}

/// The least time that a ticket of its own lives: it asks again when a coordinator is not there at once.
const TICKET_LASTS: Duration = Duration::from_secs(15 * 60);

/// Takes a machine that did not take its config out of this host's records.
fn forget(cluster: &ClusterName, name: &NodeName, context: &Context, failure: Failure) -> Failure {
    let forgotten = || -> Result<(), Failure> {
        let lock = context.store.lock(cluster)?;
        let mut record = context.store.load(cluster)?;
        record.remove(name);
        Ok(context.store.save(&record, &lock)?)
    };
    match forgotten() {
        Ok(()) => failure,
        Err(why) => failure.leaving(format!("machine `{name}` is still in this host's record of `{cluster}` ({why})")),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use ::enrol::config::{Intent, read};
    use clap::Parser;
    use keys::activation::BlankMachine;
    use keys::identity::SigningKey;
    use model::{ClusterId, ConfigDigest, Secret};
    use tokio::time::sleep;

    use super::*;
    use crate::context::home;
    use crate::machine::fake::{Answer, Fake};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        activate: Activate,
    }

    fn code(byte: u8) -> Code {
        let Ok(code) = Code::draw(|bytes| {
            bytes.fill(byte);
            Ok::<(), Infallible>(())
        });
        code
    }

    /// A person with a cluster `home`, whose first machine is `coordinator`, and a blank machine with this code on its screen.
    async fn with_a_blank_machine(byte: u8) -> (tempfile::TempDir, Context, Fake, Fake) {
        let (root, context, owner) = home::begun();
        let coordinator = Fake::start(1, owner.clone(), Answer::NotYet).await;
        let blank = Fake::start(2, owner, Answer::Blank(Mutex::new(BlankMachine::new(code(byte))))).await;
        let mut record = ClusterRecord::of_config(home::name(), ConfigDigest([5; 32]));
        record.meet(coordinator.pins());
        record.machines_mut()[0].address = Some(coordinator.address.to_string());
        context.keep(&record);
        (root, context, coordinator, blank)
    }

    fn line(at: &Address, code: &Code, more: &[&str]) -> Activate {
        let (at, code) = (at.to_string(), code.to_text());
        Line::try_parse_from([&["x", &at, "--code", &code, "--unprotected"], more].concat()).unwrap().activate
    }

    fn ticket() -> Ticket {
        Ticket {
            cluster: ClusterId([1; 16]),
            ca_spki: [2; 32],
            coordinator_public_endpoints: vec![keys::endpoint::Endpoint::read("192.0.2.1:7836").unwrap()],
            key: SigningKey::from_seed(Secret::take(&mut [3; 32])),
            not_after: 4,
            machine: None,
        }
    }

    /// Proves: N1 S2
    #[tokio::test]
    async fn a_machine_that_proves_the_code_is_handed_config_and_ticket() {
        let (_root, context, _, blank) = with_a_blank_machine(9).await;
        let activate = line(&blank.address, &code(9), &["--ticket", &ticket().to_text(), "--node-name", "two"]);
        run(&activate, &context, &mut Vec::new()).await.unwrap();
        assert_eq!(blank.calls(), ["GetState", "ProveCode", "Activate"]);
        let configs = blank.configs.lock().unwrap();
        let config = read(&configs[0]).unwrap().config;
        assert_eq!(config.node, Some(NodeName::chosen("two").unwrap()));
        assert!(matches!(config.intent, Intent::Redeem(redeem) if redeem.ticket.encode() == ticket().encode()));
    }

    /// Proves: N1 Q6
    #[tokio::test]
    async fn code_and_ticket_are_taken_from_files_as_well() {
        let (root, context, _, blank) = with_a_blank_machine(9).await;
        let kept = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (at, ticket) = (blank.address.to_string(), kept("ticket", &ticket().to_text()));
        let activate = async |code: &str| {
            let line = ["x", &at, "--code-file", code, "--unprotected", "--ticket", &ticket];
            run(&Line::try_parse_from(line).unwrap().activate, &context, &mut Vec::new()).await
        };
        for none in [kept("other", "abcd-efgh"), kept("gone", "") + ".too"] {
            assert_eq!(activate(&none).await.unwrap_err().code(), Exit::Usage, "{none}");
        }
        assert_eq!(blank.calls(), [""; 0]);
        activate(&kept("code", &format!("{}\n", *code(9).to_text()))).await.unwrap();
        assert_eq!(blank.calls(), ["GetState", "ProveCode", "Activate"]);
        assert!(Line::try_parse_from(["x", &at, "--code-file", "f", "--code", &code(9).to_text()]).is_err());
    }

    /// Proves: A5 N1
    #[tokio::test]
    async fn an_impostor_is_sent_nothing_and_no_ticket_is_issued_for_it() {
        let (_root, context, coordinator, impostor) = with_a_blank_machine(8).await;
        for more in [&["--ticket", &ticket().to_text()][..], &[]] {
            let refused = run(&line(&impostor.address, &code(9), more), &context, &mut Vec::new()).await.unwrap_err();
            assert_eq!(refused.code(), Exit::Refused, "{refused}");
        }
        assert_eq!(impostor.calls(), ["GetState", "ProveCode", "GetState", "ProveCode"]);
        assert!(!coordinator.calls().contains(&"IssueTicket"));
        assert_eq!(context.cluster().unwrap().machines().len(), 1);
        // A machine that is somebody's is not even asked for its code.
        let refused = run(&line(&coordinator.address, &code(9), &[]), &context, &mut Vec::new()).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("the machine at {} is not blank: it is Running", coordinator.address));
    }

    /// Proves: N1 S2
    #[tokio::test]
    async fn without_a_ticket_one_is_issued_and_the_machine_waited_for() {
        let (_root, context, coordinator, blank) = with_a_blank_machine(9).await;
        // One was there before and is gone: its name is no name for the next.
        let before = vec![home::member("m2", Standing::Removed)];
        (*coordinator.listed.lock().unwrap()).clone_from(&before);
        let joins = async {
            while blank.configs.lock().unwrap().is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
            *coordinator.listed.lock().unwrap() = [before, vec![home::member("m3", Standing::Member)]].concat();
        };
        let activate = line(&blank.address, &code(9), &[]);
        let mut out = Vec::new();
        let (activated, ()) = tokio::join!(run(&activate, &context, &mut out), joins);
        activated.unwrap();
        let said = String::from_utf8(out).unwrap();
        assert_eq!(said, "machine `m3` is a member of cluster `home`\n  cairnctl -c home -m m3 machine status\n");
        let machines = context.cluster().unwrap().machines().to_vec();
        assert_eq!(machines[1].address.as_deref(), Some(blank.address.to_string().as_str()));
        let config = read(&blank.configs.lock().unwrap()[0]).unwrap().config;
        assert_eq!(config.node, Some(machines[1].name.clone()));
        let taken = run(&line(&blank.address, &code(9), &["--node-name", "m3"]), &context, &mut Vec::new()).await;
        assert_eq!(taken.unwrap_err().code(), Exit::Usage, "the name is taken");
        assert!(coordinator.calls().contains(&"IssueTicket"));
    }

    /// Proves: N1
    #[tokio::test]
    async fn a_machine_that_refuses_its_config_leaves_no_ticket_or_name() {
        let (_root, context, coordinator, blank) = with_a_blank_machine(9).await;
        *coordinator.listed.lock().unwrap() = vec![home::member("m1", Standing::Member)];
        *blank.refuses.lock().unwrap() = true;
        let refused = run(&line(&blank.address, &code(9), &[]), &context, &mut Vec::new()).await.unwrap_err();
        assert_eq!(refused.code(), Exit::Refused, "{refused}");
        assert_eq!(context.cluster().unwrap().machines().len(), 1);
        assert_eq!(coordinator.calls().last(), Some(&"RevokeTicket"));
    }
}
