//! `owner …`: the people who own a cluster: list, add, remove; and the text by which this host's person is added. What two owners hand
//! each other is public: see `keys::introduction`.
//!
//! ```text
//!   new owner: owner show ─► cairn-owner-… ─► an owner: owner add ─► cairn-place-… ─► new owner: cluster connect
//! ```

use std::io::{self, Write};
use std::path::Path;

use api::{ListPage, ListedMachine, ListedOwner};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use cluster::record;
use keys::endpoint::Endpoint;
use keys::introduction::{BadIntroduction, ClusterPlace, CoordinatorPlace, MOST_PLACES, OwnerKeys};
use model::{ClusterRole, NodeName, OwnerPubKey};
use serde::Serialize;

use super::confirm::confirm;
use super::secret_input;
use crate::complete;
use crate::context::{Context, Meant};
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::machine::{Address, CallError};
use crate::screen::{self, Format, Table};
use crate::store::Owner;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The owners of the cluster, and for whom `cairnctl recover` works
    ///
    /// A machine's recovery record is for one owner: the one of its config. The
    /// last column says whether that of the machine that answers is for this one.
    List,
    /// Print the text by which an owner of a cluster adds you
    ///
    /// The text holds your two public keys and is no secret. Your keys are made
    /// where there are none yet.
    Show,
    /// Let one more person own the cluster
    Add(Add),
    /// Take the cluster from one of its owners
    Remove(Remove),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl owner show                     on the host of the new owner
  cairnctl owner add cairn-owner-…        on the host of an owner of the cluster
  cairnctl cluster connect cairn-place-…  on the new owner's again

An owner may do all that you may, and remove you. Be sure whose text it is: it
proves nothing. Every machine whose data is open lets the new owner in within
two seconds. `cairnctl recover` works for the owner of a machine's config alone.")]
pub(crate) struct Add {
    /// Text that `cairnctl owner show` printed for the person, or - for standard
    /// input
    #[arg(value_name = "TEXT")]
    text: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Every machine whose data is open ends the connections of an owner that was
removed, within two seconds. What such a person keeps: a kubeconfig until it
ends (24 hours at most); machines that wait for their key, which go by the owner
in their seal; recovery records of machines that were enrolled by a config of
theirs, which their recovery key still opens.")]
pub(crate) struct Remove {
    /// The owner's public key as `cairnctl owner list` shows it, or its first
    /// digits
    #[arg(value_name = "KEY", add = ArgValueCandidates::new(complete::owners))]
    key: String,
    /// Remove your own key: this host steers the cluster no more
    #[arg(long)]
    myself: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Fewer digits of a key are more likely a slip than a name.
const FEWEST_DIGITS: usize = 4;
/// Digits of a key that are typed to confirm that it is meant.
const TYPED_DIGITS: usize = 8;
/// How many places of a coordinator are told: the one that this host uses, and two by its cluster.
const PLACES: usize = 3;

/// Why owners stay as they are.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnerChangeError {
    /// The standard input could not be read.
    #[error("read the owner's text on standard input")]
    Read(#[source] io::Error),
    /// Not what `owner show` prints.
    #[error("understand the owner's text")]
    Text(#[source] BadIntroduction),
    /// Not the beginning of any key.
    #[error("`{0}` is neither an owner's key nor its beginning: {FEWEST_DIGITS} to 64 of 0-9 and a-f")]
    Digits(String),
    /// No owner has such a key.
    #[error("the cluster has no owner whose key begins with `{0}`")]
    Unknown(String),
    /// Several have.
    #[error("the keys of {count} owners begin with `{digits}`")]
    Ambiguous { digits: String, count: usize },
    /// The key is this host's.
    #[error("this is your own key: without it this host steers nothing of the cluster any more")]
    Myself,
    /// The key is not this host's.
    #[error("this is not your own key")]
    NotMyself,
    /// The new owner could not be told where to go.
    #[error("the cluster does not know an address of a coordinator")]
    Nowhere,
}

impl Advice for OwnerChangeError {
    fn code(&self) -> Code {
        match self {
            Self::Read(_) | Self::Nowhere => Code::Failed,
            Self::Unknown(_) => Code::NotFound,
            Self::Text(_) | Self::Digits(_) | Self::Ambiguous { .. } | Self::Myself | Self::NotMyself => Code::Usage,
        }
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Read(_) => return None,
            Self::Text(_) => "have the new owner print it again: cairnctl owner show".to_owned(),
            Self::Digits(_) | Self::Unknown(_) => "see which there are: cairnctl owner list".to_owned(),
            Self::Ambiguous { .. } => "give more digits; see them: cairnctl owner list".to_owned(),
            Self::Myself => "if that is meant: --myself".to_owned(),
            Self::NotMyself => "leave out --myself".to_owned(),
            Self::Nowhere => "see its addresses: cairnctl machine list; then try again".to_owned(),
        })
    }
}

#[derive(Debug, Serialize)]
struct OwnerOut {
    public_key: String,
    recovery_public_key: String,
    /// Whether it is this host's.
    you: bool,
    /// Whether the recovery record of `machine` is for this owner.
    recovers: bool,
}

#[derive(Debug, Serialize)]
struct OwnersOut {
    /// Absent: it is of now.
    old_since_unix_ms: Option<u64>,
    /// Name of the machine that answered.
    machine: String,
    owners: Vec<OwnerOut>,
}

#[derive(Debug, Serialize)]
struct ShownOut<'a> {
    public_key: String,
    recovery_public_key: String,
    text: &'a str,
}

#[derive(Debug, Serialize)]
struct AddedOut<'a> {
    did: &'a str,
    public_key: String,
    /// Text for `cairnctl cluster connect` on the host of the new owner.
    place: &'a str,
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::List => list(context, out).await,
        Command::Show => show(context, out),
        Command::Add(arguments) => add(&arguments.keys()?, context, out).await,
        Command::Remove(arguments) => arguments.run(context, out).await,
    }
}

async fn list(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, meant) = context.open_coordinator().await?;
    let (listed, own) = (session.owners().await?, keys_of(&context.store.owner()?).key);
    match context.format {
        Format::Json => {
            let row = |row: &ListedOwner| OwnerOut {
                public_key: row.owner.key.to_string(),
                recovery_public_key: digits(row.owner.recovery.bytes()),
                you: row.owner.key == own,
                recovers: row.recovers,
            };
            let owners = listed.rows.iter().map(row).collect();
            let old_since_unix_ms = listed.old_since.map(|at| at.0);
            screen::json(out, &OwnersOut { old_since_unix_ms, machine: meant.name().to_string(), owners })?;
        }
        Format::Table => {
            let now = session.status().await?.now;
            table(&listed, own, meant.name()).print(out)?;
            super::old(listed.old_since, now, out)?;
        }
    }
    Ok(())
}

fn table(listed: &ListPage<ListedOwner>, own: OwnerPubKey, machine: &NodeName) -> Table<3> {
    let mut table = Table::new(["OWNER", "YOU", "RECOVERS"]);
    for row in &listed.rows {
        let word = |holds: bool, word: &str| if holds { word.to_owned() } else { "-".to_owned() };
        table.row([row.owner.key.to_string(), word(row.owner.key == own, "you"), word(row.recovers, machine.as_str())]);
    }
    table
}

fn show(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let keys = keys_of(&context.store.owner_or_new()?);
    let text = keys.to_text();
    match context.format {
        Format::Table => writeln!(out, "{text}")?,
        Format::Json => {
            let recovery_public_key = digits(keys.recovery.bytes());
            screen::json(out, &ShownOut { public_key: keys.key.to_string(), recovery_public_key, text: &text })?;
        }
    }
    Ok(())
}

impl Add {
    fn keys(&self) -> Result<OwnerKeys, OwnerChangeError> {
        let text = match self.text.as_str() {
            "-" => secret_input::read(Path::new("-"), "the owner's text").map_err(OwnerChangeError::Read)?,
            text => text.to_owned().into(),
        };
        OwnerKeys::from_text(&text).map_err(OwnerChangeError::Text)
    }
}

async fn add(keys: &OwnerKeys, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, meant) = context.open_coordinator().await?;
    // First: a new owner has to be told where to go.
    let place = place(&meant, &session.machines().await?.rows).ok_or(OwnerChangeError::Nowhere)?;
    let OwnerKeys { key, recovery } = *keys;
    let added = session.add_owner(record::OwnerRecord { key, recovery }).await;
    added.map_err(|error| Failure::from(error).going_on("see who owns the cluster: cairnctl owner list"))?;
    let did = format!("owner {key} owns `{}`, too", meant.record.name);
    let place = place.to_text();
    match context.format {
        Format::Table => writeln!(out, "{did}; on that owner's host:\n  cairnctl cluster connect {place}")?,
        Format::Json => screen::json(out, &AddedOut { did: &did, public_key: key.to_string(), place: &place })?,
    }
    Ok(())
}

impl Remove {
    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let (mut session, meant) = context.open_coordinator().await?;
        let key = self.meant(&session.owners().await?.rows)?;
        let cluster = &meant.record.name;
        match (key == keys_of(&context.store.owner()?).key, self.myself) {
            (true, false) => return Err(OwnerChangeError::Myself.into()),
            (false, true) => return Err(OwnerChangeError::NotMyself.into()),
            (true, true) | (false, false) => {}
        }
        if !self.yes {
            let typed: String = key.to_string().chars().take(TYPED_DIGITS).collect();
            confirm(&format!("what owner {key} may do with cluster `{cluster}`"), &typed, out)?;
        }
        session.remove_owner(key).await.map_err(|error| {
            // Whoever removes themselves may be let out before they hear it.
            let gone = self.myself && matches!(error, CallError::Gone { .. });
            let failure = Failure::from(error);
            let next = "see who owns the cluster: cairnctl owner list";
            if gone {
                failure.going_on(format!("{next}; you do not where it lets you in no more"))
            } else {
                failure.going_on(next)
            }
        })?;
        Ok(screen::did(context.format, out, &format!("owner {key} owns `{cluster}` no more"))?)
    }

    /// The owner that is meant.
    fn meant(&self, listed: &[ListedOwner]) -> Result<OwnerPubKey, OwnerChangeError> {
        let digits = self.key.clone();
        let are_digits = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if !are_digits || !(FEWEST_DIGITS..=64).contains(&digits.len()) {
            return Err(OwnerChangeError::Digits(digits));
        }
        let keys: Vec<_> =
            listed.iter().map(|row| row.owner.key).filter(|key| key.to_string().starts_with(&digits)).collect();
        match keys[..] {
            [key] => Ok(key),
            [] => Err(OwnerChangeError::Unknown(digits)),
            [_, _, ..] => Err(OwnerChangeError::Ambiguous { digits, count: keys.len() }),
        }
    }
}

/// Public keys of a person.
fn keys_of(owner: &Owner) -> OwnerKeys {
    OwnerKeys { key: OwnerPubKey(owner.signing_key().public()), recovery: owner.recovery_pub_key() }
}

fn digits(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// Where the cluster is: its coordinators, first the one that answered. None where nobody knows a place of any.
pub(super) fn place(meant: &Meant, listed: &[ListedMachine]) -> Option<ClusterPlace> {
    let pins = meant.pins().expect("a session is opened with a machine that is pinned");
    let coordinates = |row: &&ListedMachine| row.role == ClusterRole::Coordinator && row.belongs();
    let mut rows: Vec<_> = listed.iter().filter(coordinates).collect();
    rows.sort_by_key(|row| row.id != pins.machine);
    let of = |row: &ListedMachine| {
        let here = meant.record.name_here(row.id);
        let kept = meant.record.machines().iter().find(|machine| Some(&machine.name) == here);
        let kept = kept.and_then(|machine| machine.address.as_ref());
        let read = |text: &String| Endpoint::read(&text.parse::<Address>().ok()?.to_string()).ok();
        let mut endpoints: Vec<_> = Vec::new();
        for endpoint in kept.into_iter().chain(&row.addresses).filter_map(read) {
            if endpoints.len() < PLACES && !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        let name = NodeName::stored(&row.name).ok()?;
        (!endpoints.is_empty()).then_some(CoordinatorPlace { machine: row.id, name, endpoints })
    };
    let coordinators: Vec<_> = rows.into_iter().filter_map(of).take(MOST_PLACES).collect();
    let place = ClusterPlace { cluster: pins.cluster, ca_spki: pins.authority.0, coordinators };
    (!place.coordinators.is_empty()).then_some(place)
}

#[cfg(test)]
mod tests;
