//! Ways between a cluster's virtual network and the host's: what machines reach outside, and what of theirs a port of the host's
//! loopback leads to. There is none that is not asked for.

use std::collections::BTreeSet;

use clap::Args;
use qemu::network::control::PortForward;

use crate::failure::{Advice, Code, NOTHING};
use crate::store::VirtualNetwork;

/// Ways that are asked for.
#[derive(Debug, Args)]
pub(super) struct Reach {
    /// Let the machines and their pods reach what this host reaches, by TCP and
    /// UDP, and its resolver's names; never the host itself
    #[arg(long)]
    outside: bool,
    /// Lead a port of this host's loopback to a port of whichever machine answers
    /// there, as `publish add` opens it; for several say it again
    #[arg(long = "port", value_name = "HOST:MACHINE", value_parser = forward)]
    ports: Vec<PortForward>,
}

/// Why no network has such ways.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReachError {
    /// A port leads to one place.
    #[error("port {0} of the loopback is asked for twice")]
    Twice(u16),
}

impl Advice for ReachError {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }
}

impl Reach {
    /// A network with these ways and no others.
    pub(super) fn network(&self, seed: u64) -> Result<VirtualNetwork, ReachError> {
        let mut hosts = BTreeSet::new();
        match self.ports.iter().find(|port| !hosts.insert(port.host)) {
            Some(PortForward { host, .. }) => Err(ReachError::Twice(*host)),
            None => Ok(VirtualNetwork { seed, outside: self.outside, ports: self.ports.clone() }),
        }
    }
}

/// Ways of a network, each in a sentence.
pub(super) fn in_words(outside: bool, ports: &[PortForward]) -> impl Iterator<Item = String> {
    let ports = ports.iter().map(|PortForward { host, machine }| {
        format!("127.0.0.1:{host} leads to port {machine} of its machines, where it is published")
    });
    ports.chain(outside.then(|| "its machines and pods reach what this host reaches".to_owned()))
}

/// Reads a pair of ports, like `8080:80`.
fn forward(text: &str) -> Result<PortForward, String> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let ports = text.split_once(':').and_then(|(host, machine)| Some((port(host)?, port(machine)?)));
    let (host, machine) = ports.ok_or("give both ports: one of this host and one of the machines, like 8080:80")?;
    Ok(PortForward { host, machine })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        reach: Reach,
    }

    fn network(line: &[&str]) -> Result<VirtualNetwork, String> {
        let line = Line::try_parse_from([&["x"], line].concat()).map_err(|error| error.to_string())?;
        line.reach.network(7).map_err(|error| error.to_string())
    }

    /// Proves: S9
    #[test]
    fn a_network_has_the_ways_that_are_asked_for() {
        assert_eq!(network(&[]), Ok(VirtualNetwork { seed: 7, outside: false, ports: vec![] }));
        let ports = vec![PortForward { host: 8080, machine: 80 }, PortForward { host: 8443, machine: 443 }];
        let asked = network(&["--outside", "--port", "8080:80", "--port", "8443:443"]);
        assert_eq!(asked, Ok(VirtualNetwork { seed: 7, outside: true, ports }));
        let twice = network(&["--port", "8080:80", "--port", "8080:81"]);
        assert_eq!(twice, Err("port 8080 of the loopback is asked for twice".to_owned()));
        for wrong in ["8080", "0:80", "80:0", "8080:80:1", "a:80", "8080:65536"] {
            let refused = network(&["--port", wrong]).unwrap_err();
            assert!(refused.contains("like 8080:80"), "{refused}");
        }
    }
}
