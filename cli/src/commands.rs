//! The commands, one file each, and what their lists have in common.

mod blank;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod condition;
mod confirm;
pub(crate) mod enrol;
pub(crate) mod etcd;
pub(crate) mod image;
pub(crate) mod kubeconfig;
pub(crate) mod kubectl;
mod kubectl_program;
pub(crate) mod machine;
pub(crate) mod network;
mod out_file;
pub(crate) mod owner;
pub(crate) mod publish;
pub(crate) mod recover;
pub(crate) mod registry;
mod secret_input;
pub(crate) mod ticket;
pub(crate) mod user;
pub(crate) mod volume;

use std::collections::BTreeSet;
use std::io::{self, Write};

use api::UnixMillis;
use model::KubernetesRole;

use crate::screen;

/// Kubernetes roles in one cell of a table.
fn roles(roles: &BTreeSet<KubernetesRole>) -> String {
    let words: Vec<_> = roles.iter().map(|role| role.word()).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

/// Says under a list that it may be old.
fn old(since: Option<UnixMillis>, now: UnixMillis, out: &mut dyn Write) -> io::Result<()> {
    match since {
        Some(since) => {
            let ago = screen::span(now.since(since));
            writeln!(out, "\nas of {ago} ago: since then the machine sees no changes of the cluster's records")
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_may_be_old_says_how_old() {
        let said = |since| {
            let mut out = Vec::new();
            old(since, UnixMillis(95_000), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(said(None), "");
        let at = "\nas of 1m30s ago: since then the machine sees no changes of the cluster's records\n";
        assert_eq!(said(Some(UnixMillis(5_000))), at);
    }
}
