//! Answers to the Tab key: a shell starts this program anew for each press and shows what it prints.
//!
//! ```text
//!   shell ──CAIRN_COMPLETE=bash cairnctl -- WORDS──► answer ──► commands and options (clap knows them)
//!                                                           ├─► clusters, machines, conditions
//!                                                           └─► services, owners: asked of the machine, if it is pinned
//! ```
//! Whoever presses Tab wants no error and no wait: what cannot be found out is left out. First contact is never made here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use api::ConditionName;
use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{Bash, Fish, Shells, Zsh};
use model::NodeName;
use tokio::time::timeout;

use crate::context::Context;
use crate::failure::Code;
use crate::machine::Session;
use crate::screen::Format;
use crate::store::{ClusterName, Store};

/// Set by the scripts that `cairnctl completion` prints, and by nobody else.
pub(crate) const VARIABLE: &str = "CAIRN_COMPLETE";

/// The shells whose scripts are printed.
pub(crate) const SHELLS: Shells<'_> = Shells(&[&Bash, &Zsh, &Fish]);

/// A machine that takes longer is left out; one under emulation answers within a second.
const PATIENCE: Duration = Duration::from_secs(3);

/// Logs of the machine itself: no services, but `machine logs` shows them.
const OWN_LOGS: [&str; 4] = ["audit", "init", "kernel", "last-words"];

/// Answers a shell, if that is why this program was started, by the command line that `factory` describes.
pub(crate) fn answer(factory: fn() -> clap::Command) -> Option<ExitCode> {
    let complete = CompleteEnv::with_factory(factory).var(VARIABLE).shells(SHELLS);
    match complete.try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::from(Code::Done as u8)),
        Err(error) => {
            // If it cannot be written nobody is there.
            let _written = error.print();
            Some(ExitCode::from(Code::Failed as u8))
        }
    }
}

/// The clusters this host knows.
pub(crate) fn clusters() -> Vec<CompletionCandidate> {
    let names = context(std::env::args_os()).and_then(|context| context.store.clusters().ok());
    names.unwrap_or_default().into_iter().map(|name| CompletionCandidate::new(name.to_string())).collect()
}

/// Names of all saved clusters.
pub(crate) fn saved() -> Vec<CompletionCandidate> {
    let names = context(std::env::args_os()).and_then(|context| context.store.saved().ok());
    names.unwrap_or_default().into_iter().map(|name| CompletionCandidate::new(name.to_string())).collect()
}

/// The machines of the cluster that the command line means.
pub(crate) fn machines() -> Vec<CompletionCandidate> {
    let record = context(std::env::args_os()).and_then(|context| context.cluster().ok());
    let machines = record.iter().flat_map(|record| record.machines());
    machines.map(|machine| CompletionCandidate::new(machine.name.to_string())).collect()
}

/// The conditions there are.
pub(crate) fn conditions() -> Vec<CompletionCandidate> {
    ConditionName::ALL.into_iter().map(|name| CompletionCandidate::new(name.word())).collect()
}

/// The services of the machine that the command line means.
pub(crate) fn services() -> Vec<CompletionCandidate> {
    asked(services_of).into_iter().map(CompletionCandidate::new).collect()
}

/// The same, the stems of several, and the machine's own logs.
pub(crate) fn logs() -> Vec<CompletionCandidate> {
    with_stems(asked(services_of)).into_iter().map(CompletionCandidate::new).collect()
}

/// The owners of the cluster that the command line means, by their keys.
pub(crate) fn owners() -> Vec<CompletionCandidate> {
    asked(owners_of).into_iter().map(CompletionCandidate::new).collect()
}

/// The registries that something was said of in the cluster that the command line means.
pub(crate) fn registries() -> Vec<CompletionCandidate> {
    asked(registries_of).into_iter().map(CompletionCandidate::new).collect()
}

/// The users of the cluster's Kubernetes, by name.
pub(crate) fn users() -> Vec<CompletionCandidate> {
    asked(users_of).into_iter().map(CompletionCandidate::new).collect()
}

/// The volumes that no claim has, of the cluster that the command line means.
pub(crate) fn volumes() -> Vec<CompletionCandidate> {
    asked(free_volumes_of).into_iter().map(CompletionCandidate::new).collect()
}

/// The numbers of the rules that publish ports.
pub(crate) fn published() -> Vec<CompletionCandidate> {
    asked(published_of).into_iter().map(CompletionCandidate::new).collect()
}

/// The container images of the machine that the command line means.
pub(crate) fn images() -> Vec<CompletionCandidate> {
    asked(images_of).into_iter().map(CompletionCandidate::new).collect()
}

fn asked(what: impl AsyncFnOnce(Session) -> Option<Vec<String>>) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Some(context), Ok(runtime)) = (context(std::env::args_os()), runtime) else { return Vec::new() };
    let answered = async { what(pinned(&context).await?).await };
    runtime.block_on(async { timeout(PATIENCE, answered).await.ok().flatten() }).unwrap_or_default()
}

/// A session with the machine that is meant, if it is pinned.
async fn pinned(context: &Context) -> Option<Session> {
    let meant = context.meant().ok()?;
    let pins = meant.pins()?;
    let (address, owner) = (context.address(&meant).ok()?, context.person(&meant.record).ok()?);
    Session::open(&address, &pins, &owner).await.ok()
}

async fn services_of(mut session: Session) -> Option<Vec<String>> {
    Some(session.services().await.ok()?.into_iter().map(|service| service.name).collect())
}

async fn users_of(mut session: Session) -> Option<Vec<String>> {
    Some(session.users().await.ok()?.rows.into_iter().map(|row| row.terms.name.to_string()).collect())
}

async fn owners_of(mut session: Session) -> Option<Vec<String>> {
    Some(session.owners().await.ok()?.rows.into_iter().map(|row| row.owner.key.to_string()).collect())
}

async fn registries_of(mut session: Session) -> Option<Vec<String>> {
    Some(session.registries().await.ok()?.rows.into_iter().map(|row| row.host.to_string()).collect())
}

async fn free_volumes_of(mut session: Session) -> Option<Vec<String>> {
    let held = session.volumes().await.ok()?.into_iter().flat_map(|worker| worker.held).flatten();
    Some(held.filter(|(_, holder)| holder.is_none()).map(|(volume, _)| volume.volume.to_string()).collect())
}

async fn published_of(mut session: Session) -> Option<Vec<String>> {
    Some(session.published().await.ok()?.rows.into_iter().map(|rule| rule.record.id.to_string()).collect())
}

async fn images_of(mut session: Session) -> Option<Vec<String>> {
    Some(session.images().await.ok()?.into_iter().map(|image| image.name).collect())
}

fn with_stems(services: Vec<String>) -> BTreeSet<String> {
    let stem = |service: &String| service.split_once('.').map(|(stem, _)| stem.to_owned());
    let stems: Vec<String> = services.iter().filter_map(stem).collect();
    OWN_LOGS.map(str::to_owned).into_iter().chain(stems).chain(services).collect()
}

/// The cluster and the address that the words to be completed name, as the command behind them would take them.
fn context(words: impl Iterator<Item = OsString>) -> Option<Context> {
    let store = Store::of_user(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME")).ok()?;
    let words: Vec<String> = words.skip_while(|word| word != "--").filter_map(|word| word.into_string().ok()).collect();
    let value = |long: &str, short: &str| {
        let words = || words.iter().map(String::as_str);
        let inline = || words().find_map(|word| word.strip_prefix(long)?.strip_prefix('='));
        let next = || words().zip(words().skip(1)).find(|(word, _)| *word == long || *word == short);
        inline().or_else(|| next().map(|(_, value)| value))
    };
    let cluster = value("--cluster", "-c").and_then(|name| name.parse::<ClusterName>().ok());
    let machine = value("--machine", "-m").and_then(|name| NodeName::stored(name).ok());
    let address = value("--address", "--address").and_then(|address| address.parse().ok());
    Some(Context { store, cluster, machine, through: None, address, format: Format::Table })
}

#[cfg(test)]
mod tests {
    use model::ConfigDigest;

    use super::*;
    use crate::context::home;
    use crate::machine::fake::{self, Answer, Fake, Lie};
    use crate::store::ClusterRecord;

    #[tokio::test]
    async fn services_are_asked_of_a_pinned_machine_only() {
        let (_root, context, owner) = home::begun();
        let (secret, config) = (context.awaits(), ConfigDigest([5; 32]));
        let fake = Fake::start(1, owner, Answer::Proven { secret, config, lie: Lie::None }).await;
        let mut record = ClusterRecord::of_config(home::name(), config);
        record.machines_mut()[0].address = Some(fake.address.to_string());
        context.keep(&record);

        assert!(pinned(&context).await.is_none());
        assert_eq!(fake.calls(), [""; 0], "the Tab key claims nothing");
        let wanted: Vec<String> = {
            let (mut session, _) = context.open().await.unwrap();
            session.services().await.unwrap().into_iter().map(|service| service.name).collect()
        };
        assert!(!wanted.is_empty());
        assert_eq!(services_of(pinned(&context).await.unwrap()).await, Some(wanted));
        let listed = fake::owner(3);
        fake.owners.lock().unwrap().push(listed.clone());
        let owners = owners_of(pinned(&context).await.unwrap()).await;
        assert_eq!(owners, Some(vec![listed.owner.key.to_string()]));
    }

    #[test]
    fn stems_and_the_machines_own_logs_are_logs_too() {
        let logs = with_stems(vec!["etcd".into(), "kube.apiserver".into(), "kube.kubelet".into()]);
        let wanted = ["audit", "etcd", "init", "kernel", "kube", "kube.apiserver", "kube.kubelet", "last-words"];
        assert_eq!(logs.into_iter().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn the_words_name_the_cluster() {
        let named =
            |words: &[&str]| context(words.iter().map(OsString::from)).unwrap().cluster.map(|name| name.to_string());
        let home = Some("home".to_owned());
        assert_eq!(named(&["cairnctl", "--", "cairnctl", "machine", "logs", ""]), None);
        assert_eq!(named(&["cairnctl", "--", "cairnctl", "-c", "home", "machine", "logs", ""]), home);
        assert_eq!(named(&["cairnctl", "--", "cairnctl", "machine", "logs", "--cluster", "home", ""]), home);
        assert_eq!(named(&["cairnctl", "--", "cairnctl", "--cluster=home", "machine", "logs", ""]), home);
        assert_eq!(named(&["cairnctl", "-c", "ours", "--", "cairnctl", "machine", "logs", "-c"]), None);
    }
}
