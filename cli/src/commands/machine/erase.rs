//! `machine role erase`: a machine erases what it has kept of the coordinator role, because its owner says so at the machine itself.

use std::io::Write;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use model::NodeName;

use crate::commands::confirm::confirm;
use crate::complete;
use crate::context::{Context, machine_name};
use crate::failure::Failure;
use crate::screen;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl machine role erase m2          asks before anything is erased
  cairnctl machine role erase m2 --yes

A coordinator that hears from one other alone that it is a node, as after
`cairnctl cluster recover`, works as a node and keeps what it has: keys, shares
of the cold-start key, and its copy of the cluster's records. Whoever recovered
the wrong copy goes back to this one. Once it is erased that is over. A machine
that becomes a coordinator again needs no erasing: what it has makes way.")]
pub(crate) struct Erase {
    /// The machine's name on this host
    #[arg(value_name = "MACHINE", value_parser = machine_name, add = ArgValueCandidates::new(complete::machines))]
    called: NodeName,
    /// Ask nothing
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(arguments: &Erase, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let Erase { called, yes } = arguments;
    let context = &Context { address: context.address.clone(), ..context.about(&context.cluster()?.name, called) };
    if !yes {
        confirm(&format!("what `{called}` has kept of a coordinator"), called.as_str(), out)?;
    }
    let (mut session, meant) = context.open().await?;
    session.erase_role().await?;
    Ok(screen::did(context.format, out, &format!("{} erases what it has kept of a coordinator", meant.called()))?)
}

#[cfg(test)]
mod tests {
    use model::ConfigDigest;

    use super::*;
    use crate::context::home;
    use crate::machine::fake::{Answer, Fake, Lie};
    use crate::store::ClusterRecord;

    /// Proves: K6
    #[tokio::test]
    async fn nothing_is_erased_before_somebody_says_so() {
        let (_root, context, owner) = home::begun();
        let config = ConfigDigest([5; 32]);
        let fake = Fake::start(1, owner, Answer::Proven { secret: context.awaits(), config, lie: Lie::None }).await;
        let mut record = ClusterRecord::of_config(home::name(), config);
        record.machines_mut()[0].address = Some(fake.address.to_string());
        context.keep(&record);
        let mut said = Vec::new();
        let mut erase = async |yes| {
            run(&Erase { called: ClusterRecord::first_name(), yes }, &context, &mut said).await.map_err(|_| ())
        };
        assert_eq!((erase(false).await, fake.calls()), (Err(()), vec![]), "a test has no terminal to be asked at");
        assert_eq!((erase(true).await, fake.calls()), (Ok(()), vec!["Claim", "Status", "EraseRole"]));
        assert!(String::from_utf8(said).unwrap().contains("erases what it has kept of a coordinator"));
    }
}
