//! People who use a cluster's Kubernetes and own nothing of it, on copies of the machine of `kube.rs`: what they reach by a key of
//! their own, and that a removal ends it.

use std::fs;

use crate::{Case, CommandRefusal, Context, Follower, Owner, REFUSED};
use anyhow::{Context as _, ensure};
use model::PUBLIC_API_PORT;

use super::kube::{Cluster, NAME};
use super::pods;

pub(crate) const CASES: &[Case] = &[
    pods::case("a user does what a role lets them, and nothing else", &["W9"], allowed),
    pods::case("a removed user's connections end, and none begins", &["W9"], removed),
];

fn allowed(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let alice = User::added(t, &cluster)?;
    let forbidden = |what: &str| {
        let refused = alice.run(&["kubectl", "get", what]).err().context("no role lets a user get them")?;
        ensure!(refused.text.contains("Forbidden") && refused.text.contains("User \"alice\""), "{refused}");
        Ok(())
    };
    forbidden("pods")?;
    cluster.kubectl(&["create", "rolebinding", "alice", "--clusterrole=view", "--user=alice"])?;
    let pods = alice.run(&["kubectl", "get", "pods", "--no-headers"])?;
    ensure!(pods.starts_with("web "), "{pods}");
    forbidden("nodes")?;
    let refused = alice.run(&["machine", "status"]).err().context("a user was told a machine's status")?;
    ensure!(refused.code == REFUSED, "{refused}");
    Ok(())
}

/// A watch of pods ends with the connection that carries it. The first line is of a list; a change is told by the watch behind it, which
/// kubectl would begin again and again where it had not begun.
fn removed(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let alice = User::added(t, &cluster)?;
    cluster.kubectl(&["create", "rolebinding", "alice", "--clusterrole=view", "--user=alice"])?;
    let watches = alice.follow(&["kubectl", "get", "pods", "--no-headers", "--watch"])?;
    ensure!(watches.line(t.within(30))?.starts_with("web "), "the pods are listed");
    cluster.kubectl(&["label", "pod/web", "seen=yes"])?;
    ensure!(watches.line(t.within(30))?.starts_with("web "), "the pods are watched");
    cluster.run(&["user", "remove", "alice"])?;
    watches.ends(t.within(2))?;
    let refused = alice.run(&["kubectl", "get", "pods"]).err().context("a user who was removed is let in")?;
    ensure!(refused.code == REFUSED, "{refused}");
    Ok(())
}

/// A person with a host of their own, whom the cluster's owner has added as `alice`.
struct User {
    here: Owner,
    address: String,
}

impl User {
    fn added(t: &Context, cluster: &Cluster) -> anyhow::Result<Self> {
        let here = Owner::new(t.dir().join("alice"))?;
        let file = t.dir().join("alice.key");
        fs::write(&file, here.run(&["user", "key"])?).context("write the user's key")?;
        let added = cluster.ask(&["user", "add", "alice", "--key", &file.to_string_lossy()])?;
        let place = added["place"].as_str().context("a place is a text")?;
        here.run(&["cluster", "connect", "--user", place, "--name", NAME])?;
        let address = cluster.vm.forward(PUBLIC_API_PORT).context("the machine has a port")?.to_string();
        Ok(Self { here, address })
    }

    fn run(&self, command: &[&str]) -> Result<String, CommandRefusal> {
        self.here.run(&self.line(command))
    }

    fn follow(&self, command: &[&str]) -> anyhow::Result<Follower> {
        self.here.follow(&self.line(command))
    }

    fn line<'a>(&'a self, command: &[&'a str]) -> Vec<&'a str> {
        [&["-c", NAME, "--address", &self.address], command].concat()
    }
}
