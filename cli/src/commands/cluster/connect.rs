//! `cluster connect`: a person who was made an owner of a cluster has this host know it, by the text that the other owner was told. What
//! the text says is pinned once a coordinator that it names has proved to be that machine, and has let this host's owner in.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use keys::introduction::{BadIntroduction, ClusterPlace, CoordinatorPlace};
use model::{Chain, NodeName};
use pki::SpkiPin;
use tokio::time::timeout;

use crate::context::{Context, OpenError};
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::machine::{Address, Session, ask_certificate};
use crate::screen;
use crate::store::{CallsAs, ClusterName, ClusterRecord, OtherMachine, Owner, Pins};

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  cairnctl cluster connect cairn-place-… --name office
  cairnctl cluster connect --user cairn-place-…

The text is no secret. It is what `cairnctl owner add` printed for the owner who
added you. A coordinator that it names has to prove that it is of the cluster
that the text names, and to know you, before anything is kept.")]
pub(crate) struct Arguments {
    /// The text that names the cluster
    #[arg(value_name = "TEXT")]
    text: String,
    /// The cluster's name on this host [default: that of --cluster, else connected]
    #[arg(long, value_name = "NAME")]
    name: Option<ClusterName>,
    /// The text is one that `cairnctl user add` printed: you use the cluster's
    /// Kubernetes, and do not own it
    #[arg(long)]
    user: bool,
}

impl Arguments {
    pub(super) const fn name(&self) -> Option<&ClusterName> {
        self.name.as_ref()
    }
}

/// Longest wait for one place; there may be several, and one may lead nowhere.
const ANSWER: Duration = Duration::from_secs(10);

/// Why the cluster is not known afterwards.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// Not what `owner add` prints.
    #[error("understand the cluster's text")]
    Text(#[source] BadIntroduction),
    /// Another name of the same.
    #[error("this host knows the cluster already, as `{0}`")]
    Known(ClusterName),
    /// No coordinator that is named lets this owner, or user, in.
    #[error("no coordinator that the text names lets this {} in{}", word(*.0), each(.1))]
    Nobody(CallsAs, Vec<(NodeName, Address, OpenError)>),
}

impl Advice for ConnectError {
    fn code(&self) -> Code {
        match self {
            Self::Text(_) | Self::Known(_) => Code::Usage,
            Self::Nobody(_, why) if why.iter().any(|(.., error)| error.code() == Code::Refused) => Code::Refused,
            Self::Nobody(..) => Code::Unreachable,
        }
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Text(_) => "have the text sent again, in one piece".to_owned(),
            Self::Known(name) => format!("cairnctl -c {name} machine list"),
            Self::Nobody(CallsAs::User, _) => {
                "have an owner of the cluster add you by what this prints: cairnctl user key; then take the text that they get"
                    .to_owned()
            }
            Self::Nobody(CallsAs::Owner, _) => {
                "have an owner of the cluster add you by what this prints: cairnctl owner show; then take the text that they get"
                    .to_owned()
            }
        })
    }
}

const fn word(calls: CallsAs) -> &'static str {
    match calls {
        CallsAs::Owner => "owner",
        CallsAs::User => "user",
    }
}

fn each(why: &[(NodeName, Address, OpenError)]) -> String {
    why.iter().map(|(machine, at, error)| format!("; {machine} at {at}: {}", Chain(error))).collect()
}

pub(super) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let place = ClusterPlace::from_text(&arguments.text).map_err(ConnectError::Text)?;
    let (store, name) = (&context.store, context.new_name("connected")?);
    let lock = store.lock(&name)?;
    store.free(&name, &lock)?;
    for known in store.clusters()? {
        if store.load(&known)?.cluster_id() == Some(place.cluster) {
            return Err(ConnectError::Known(known).into());
        }
    }
    let calls = if arguments.user { CallsAs::User } else { CallsAs::Owner };
    let met = meet(&place, &store.owner()?.calling_as(calls), calls).await?;
    let others = place.coordinators.iter().filter(|other| other.machine != met.pins.machine).map(listed);
    let mut record = ClusterRecord::of_coordinator(name.clone(), met.name.clone(), met.pins);
    record.machines_mut()[0].address = Some(met.at.to_string());
    record.hear(others);
    record.calls = calls;
    store.begin(&name, &lock)?;
    store.save(&record, &lock)?;
    let first = match calls {
        CallsAs::Owner => "machine list",
        CallsAs::User => "kubectl get pods",
    };
    let did = format!("cluster `{name}` is known here, and lets you in\n  cairnctl -c {name} {first}");
    Ok(screen::did(context.format, out, &did)?)
}

/// A coordinator that has proved to be itself, and let the owner in.
struct Met {
    name: NodeName,
    at: Address,
    pins: Pins,
}

/// The first coordinator that lets the owner in.
async fn meet(place: &ClusterPlace, owner: &Owner, calls: CallsAs) -> Result<Met, ConnectError> {
    let mut why = Vec::new();
    for CoordinatorPlace { machine, name, endpoints } in &place.coordinators {
        let pins = Pins { machine: *machine, cluster: place.cluster, authority: SpkiPin(place.ca_spki) };
        for endpoint in endpoints {
            let at: Address = endpoint.as_str().parse().expect("an endpoint is a host and a port");
            let asked = async {
                let mut session = Session::open(&at, &pins, owner).await?;
                // In TLS 1.3 a certificate that is refused shows at the first call.
                match calls {
                    CallsAs::Owner => drop(session.status().await?),
                    CallsAs::User => drop(ask_certificate(&mut session).await?),
                }
                Ok(())
            };
            match timeout(ANSWER, asked).await.unwrap_or(Err(OpenError::Silent(ANSWER))) {
                Ok(()) => return Ok(Met { name: name.clone(), at, pins }),
                Err(error) => why.push((name.clone(), at, error)),
            }
        }
    }
    Err(ConnectError::Nobody(calls, why))
}

/// Record of a coordinator that was not asked.
fn listed(coordinator: &CoordinatorPlace) -> OtherMachine {
    let CoordinatorPlace { machine, name, endpoints } = coordinator;
    OtherMachine {
        name: name.clone(),
        machine: *machine,
        addresses: endpoints.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests;
