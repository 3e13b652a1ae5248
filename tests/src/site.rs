//! Several machines on one network, whose one host gives each of them an address.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use qemu::machine::Mac;
use qemu::network::{Cable, Network, OwnHost, Segment, Setup};

use crate::{Context, MachinePlan};

/// How the addresses of a site's machines begin.
pub const SITE: &str = "203.0.113.";
const MOST_MACHINES: u8 = 100;

/// A network that machines are on, with the host that gives them addresses.
#[derive(Debug)]
pub struct Site {
    segment: Segment,
    host: OwnHost,
    cables: Vec<Cable>,
}

impl Site {
    /// A site without machines, on which addresses are given for good.
    ///
    /// # Errors
    /// When the network does not start.
    pub fn new() -> anyhow::Result<Self> {
        Self::with_leases(u32::MAX)
    }

    /// The same with leases of so many seconds.
    ///
    /// # Errors
    /// When the network does not start.
    pub fn with_leases(lease_seconds: u32) -> anyhow::Result<Self> {
        let segment = Network::start(0)?.segment();
        let host = segment.host(&host(lease_seconds)?)?;
        Ok(Self { segment, host, cables: Vec::new() })
    }

    /// The host that gives the addresses.
    #[must_use]
    pub fn host(&self) -> &OwnHost {
        &self.host
    }

    /// Adds a machine, with a TPM and a card of its own on the network.
    ///
    /// # Errors
    /// When the network has no cable for it.
    pub fn machine(&mut self, t: &Context, name: &str) -> anyhow::Result<MachinePlan> {
        let cable = self.segment.cable()?;
        let mac = Mac::numbered(10 + u32::try_from(self.cables.len())?);
        let plan = t.machine(name).tpm().nic_of(mac, cable.link());
        self.cables.push(cable);
        Ok(plan)
    }

    /// The same site again, with as many cables, after its machines were saved: cards have the addresses that they had.
    ///
    /// # Errors
    /// When the network does not start.
    pub fn again(lease_seconds: u32, cables: usize, held: &[(Mac, Ipv4Addr)]) -> anyhow::Result<Self> {
        let mut site = Self::with_leases(lease_seconds)?;
        for (card, address) in held {
            site.host.remember(*card, *address);
        }
        for _ in 0..cables {
            site.cables.push(site.segment.cable()?);
        }
        Ok(site)
    }

    /// How many machines it has had.
    #[must_use]
    pub fn machines(&self) -> usize {
        self.cables.len()
    }

    /// The cable of the machine that came as the `n`-th, from 0.
    #[must_use]
    pub fn cable(&self, n: usize) -> &Cable {
        &self.cables[n]
    }
}

/// Set-up of the host that gives addresses out.
fn host(lease_seconds: u32) -> anyhow::Result<Setup> {
    let address = |last| Ipv4Addr::new(203, 0, 113, last);
    let dhcp = dhcp::server::Config {
        address: address(1),
        prefix: dhcp::Prefix::new(24).context("24 bits are a prefix")?,
        first: address(10),
        last: address(10 + MOST_MACHINES),
        routers: vec![],
        dns: vec![],
        lease_seconds,
    };
    Ok(Setup { mac: Mac::numbered(200), addresses: vec![(address(1), 24)], routes: vec![], dhcp: Some(dhcp) })
}
