//! Registries as containerd reads them at each pull, as the machine's orders have them: written when they change, in force at the next
//! pull. What lies there and is not ordered goes. Decides nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use cluster::orders::OrderBook;
use cluster::record::RegistryRecord;
use services::registries::{self, AUTHORITIES, HOSTS, REGISTRIES, Registry, RegistryFiles};
use tokio::sync::watch;

use super::{Error, clients};
use crate::runtime::durable;

/// Keeps the files as they are ordered; a task for good.
pub(super) async fn follow(mut orders: watch::Receiver<OrderBook>) -> Result<(), Error> {
    loop {
        let ordered = orders.borrow_and_update().registries()?;
        let registries = ordered.iter().map(|it: &RegistryRecord| Registry {
            host: it.host(),
            mirrors: it.mirrors(),
            authorities: it.authorities(),
        });
        write(REGISTRIES, &registries::files(registries))?;
        tracing::info!(registries = ordered.len(), "images are pulled as the cluster's owners say");
        if orders.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Makes the directory hold these files and no others. No reader finds a file that names one which is not there.
fn write(root: &str, registries: &BTreeMap<String, RegistryFiles>) -> Result<(), Error> {
    for there in fs::read_dir(root).map_err(failed(root))? {
        let there = there.map_err(failed(root))?;
        if there.file_name().to_str().is_none_or(|name| !registries.contains_key(name)) {
            let path = there.path();
            durable::remove(&path).map_err(failed(&path.display().to_string()))?;
        }
    }
    for (name, RegistryFiles { hosts, authorities }) in registries {
        let directory = format!("{root}/{name}");
        let file = |name: &str| format!("{directory}/{name}");
        fs::create_dir_all(&directory).map_err(failed(&directory))?;
        if let Some(authorities) = authorities {
            clients::write(&file(AUTHORITIES), authorities.as_bytes(), 0o644)?;
        }
        clients::write(&file(HOSTS), hosts.as_bytes(), 0o644)?;
        if authorities.is_none() {
            let path = file(AUTHORITIES);
            durable::remove(Path::new(&path)).map_err(failed(&path))?;
        }
    }
    Ok(())
}

fn failed(path: &str) -> impl Fn(io::Error) -> Error + '_ {
    move |error| Error::File(path.to_owned(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(root: &Path) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for directory in fs::read_dir(root).expect("a directory") {
            for file in fs::read_dir(directory.expect("an entry").path()).expect("a directory") {
                let path = file.expect("an entry").path();
                let name = path.strip_prefix(root).expect("below it").display().to_string();
                found.insert(name, fs::read_to_string(&path).expect("text"));
            }
        }
        found
    }

    /// Proves: W5
    #[test]
    fn registries_lie_there_as_ordered_and_nothing_else() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().to_str().expect("text");
        fs::create_dir(root.path().join("old.example.org")).expect("a directory");
        fs::write(root.path().join("old.example.org/hosts.toml"), "").expect("a file");
        let files = |hosts: &str, authorities: Option<&str>| RegistryFiles {
            hosts: hosts.to_owned(),
            authorities: authorities.map(ToOwned::to_owned),
        };
        let ordered = |all: &[(&str, RegistryFiles)]| {
            write(path, &all.iter().map(|(name, files)| ((*name).to_owned(), files.clone())).collect())
        };
        ordered(&[("a.io", files("1", Some("2"))), ("b.io", files("3", None))]).expect("written");
        let expected = [("a.io/ca.pem", "2"), ("a.io/hosts.toml", "1"), ("b.io/hosts.toml", "3")];
        let text = |all: &[(&str, &str)]| {
            all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(found(root.path()), text(&expected));
        ordered(&[("a.io", files("4", None))]).expect("written");
        assert_eq!(found(root.path()), text(&[("a.io/hosts.toml", "4")]));
        ordered(&[]).expect("written");
        assert_eq!(fs::read_dir(root.path()).expect("a directory").count(), 0);
    }
}
