//! The network that a cluster's virtual machines are on: a process beside them, which this program starts, finds again,
//! asks and ends.

use std::path::{Path, PathBuf};
use std::process::Command;

use model::PUBLIC_API_PORT;
use qemu::network::control::client::AskError;
use qemu::network::control::detached::{DetachedError, NetworkProcess};
use qemu::network::control::{Attach, PortForward};

use crate::failure::{Advice, Code, NOTHING};
use crate::store::{ClusterName, ClusterRecord, FileError, Store, VirtualNetwork, private_directory};
use crate::virtual_machine::{self, VirtualMachineError};

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    /// The network's process cannot be run.
    #[error("run the virtual network")]
    Process(#[from] DetachedError),
    /// The network does not answer, or says no.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// This program does not know where it is itself.
    #[error("find this program, to run the virtual network")]
    Program(#[source] std::io::Error),
    /// The network's directory cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The record has more machines than a network takes.
    #[error("cluster `{name}` has {machines} machines: a virtual network takes {most}")]
    TooMany { name: ClusterName, machines: usize, most: u8 },
    /// A port of the host's loopback cannot lead to the machines.
    #[error("lead port {} of this host's loopback to port {} of the machines", forward.host, forward.machine)]
    Port { forward: PortForward, source: AskError },
    /// The network does not run.
    #[error("the process of cluster `{name}`'s virtual network has ended")]
    Ended { name: ClusterName },
    /// There is none: it is hardware.
    #[error("cluster `{name}` has no virtual network: it is hardware")]
    Hardware { name: ClusterName },
}

impl Advice for NetworkError {
    fn code(&self) -> Code {
        match self {
            Self::Process(_) | Self::Program(_) => Code::Failed,
            Self::Ask(AskError::Refused(_)) | Self::Port { .. } => Code::Refused,
            Self::Ask(AskError::Io(_) | AskError::Line(_) | AskError::Other) | Self::Ended { .. } => Code::Unreachable,
            Self::File(error) => error.code(),
            Self::TooMany { .. } | Self::Hardware { .. } => Code::Usage,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Ended { .. } | Self::Hardware { .. } => NOTHING,
            Self::Process(_)
            | Self::Ask(_)
            | Self::Program(_)
            | Self::File(_)
            | Self::TooMany { .. }
            | Self::Port { .. } => "no machine was started or ended",
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Ended { name } => Some(format!("cairnctl cluster start {name}")),
            Self::File(error) => error.next(),
            Self::Port { forward, .. } => {
                Some(format!("end what listens on 127.0.0.1:{}, or take another port", forward.host))
            }
            Self::Process(_) | Self::Ask(_) | Self::Program(_) | Self::TooMany { .. } | Self::Hardware { .. } => None,
        }
    }
}

/// A network that runs, with all machines of the cluster attached.
#[derive(Debug)]
pub(crate) struct Up {
    /// Process of the network.
    pub network: NetworkProcess,
    /// Where the socket of each machine is, in the order of the record.
    pub sockets: Vec<PathBuf>,
    /// Whether it had ended while machines ran on.
    pub was_lost: bool,
    /// Ports of the host's loopback that lead nowhere now, since somebody else listens there.
    pub taken: Vec<PortForward>,
}

/// Meaning of a port of the host's loopback that somebody else listens at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenPort {
    /// No network: it was asked for just now.
    Refused,
    /// A network all the same: the cluster was made while it was free.
    Told,
}

/// Whether the network with its files in this directory runs.
pub(crate) fn runs(directory: &Path) -> Result<bool, NetworkError> {
    Ok(NetworkProcess::find(directory)?.is_some())
}

/// Whether a machine of the cluster runs that no network leads to.
pub(crate) fn is_lost(store: &Store, record: &ClusterRecord) -> Result<bool, UpError> {
    if record.network.is_none() || runs(&store.network_directory(&record.name))? {
        return Ok(false);
    }
    for machine in record.machines() {
        if virtual_machine::runs(&store.machine_directory(&record.name, &machine.name))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The network of a cluster, to be asked.
pub(crate) fn of(store: &Store, record: &ClusterRecord) -> Result<NetworkProcess, NetworkError> {
    let name = || record.name.clone();
    if record.network.is_none() {
        return Err(NetworkError::Hardware { name: name() });
    }
    NetworkProcess::find(&store.network_directory(&record.name))?.ok_or_else(|| NetworkError::Ended { name: name() })
}

/// Whether machines have their addresses from before their network begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leases {
    /// Machines that run have; the others will ask for one.
    OfThoseThatRun,
    /// All have: they were saved with them.
    OfAll,
}

/// Finds the network or starts it, then attaches every machine of the record, whose addresses are noted in it.
pub(crate) fn up(
    store: &Store,
    record: &mut ClusterRecord,
    network: &VirtualNetwork,
    leases: Leases,
    port: TakenPort,
) -> Result<Up, UpError> {
    let directory = store.network_directory(&record.name);
    private_directory(&directory).map_err(NetworkError::from)?;
    let mut runs = Vec::new();
    for machine in record.machines() {
        let its_own = virtual_machine::runs(&store.machine_directory(&record.name, &machine.name))?;
        runs.push(leases == Leases::OfAll || its_own);
    }
    let was_lost = is_lost(store, record)?;
    let found = NetworkProcess::find(&directory).map_err(NetworkError::from)?;
    let process = match found {
        Some(process) => process,
        None => {
            let mut program = Command::new(std::env::current_exe().map_err(NetworkError::Program)?);
            program.arg("network").arg(&directory).arg("--seed").arg(network.seed.to_string());
            NetworkProcess::start(&directory, program).map_err(NetworkError::from)?
        }
    };
    let (name, machines) = (record.name.clone(), record.machines().len());
    let most = qemu::network::control::MOST_MACHINES;
    let mut sockets = Vec::new();
    for (index, (machine, runs)) in record.machines_mut().iter_mut().zip(runs).enumerate() {
        let number = u8::try_from(index + 1).ok().filter(|number| *number <= most);
        let number = number.ok_or_else(|| NetworkError::TooMany { name: name.clone(), machines, most })?;
        let host_port = machine.address.as_deref().and_then(loopback_port);
        let attach = Attach { name: machine.name.to_string(), number, port: PUBLIC_API_PORT, host_port, runs };
        let attached = process.attach(attach).map_err(NetworkError::from)?;
        machine.address = Some(attached.forward.to_string());
        sockets.push(attached.socket);
    }
    let mut taken = Vec::new();
    for forward in &network.ports {
        match (process.forward(*forward), port) {
            (Ok(()), _) => {}
            (Err(AskError::Refused(_)), TakenPort::Told) => taken.push(*forward),
            (Err(source), _) => return Err(NetworkError::Port { forward: *forward, source }.into()),
        }
    }
    if network.outside {
        process.lead_outside().map_err(NetworkError::from)?;
    }
    Ok(Up { network: process, sockets, was_lost, taken })
}

/// Has the network keep what those machines send and receive that are captured. A machine is restored before that, into a directory
/// that is empty.
pub(crate) fn capture(network: &NetworkProcess, store: &Store, record: &ClusterRecord) -> Result<(), NetworkError> {
    for machine in record.machines().iter().filter(|machine| machine.capture) {
        let file = capture_file(&store.machine_directory(&record.name, &machine.name));
        network.capture(machine.name.as_str(), Some(file))?;
    }
    Ok(())
}

/// Ends the network with its files in this directory, unless one of these machines runs.
pub(crate) fn end_if_unused(directory: &Path, machines: &[PathBuf]) -> Result<(), UpError> {
    for machine in machines {
        if virtual_machine::runs(machine)? {
            return Ok(());
        }
    }
    Ok(NetworkProcess::end(directory).map_err(NetworkError::from)?)
}

/// Where a machine's capture goes.
pub(crate) fn capture_file(machine: &Path) -> PathBuf {
    machine.join("network.pcapng")
}

/// The port that it had on the loopback, if it was there.
fn loopback_port(address: &str) -> Option<u16> {
    let address: std::net::SocketAddrV4 = address.parse().ok()?;
    address.ip().is_loopback().then(|| address.port())
}

/// A network is not up, for a reason of its own or of a machine on it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpError {
    /// The network's own reason.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Whether a machine runs cannot be found out.
    #[error(transparent)]
    Machine(#[from] VirtualMachineError),
}

impl Advice for UpError {
    fn code(&self) -> Code {
        match self {
            Self::Network(error) => error.code(),
            Self::Machine(error) => error.code(),
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Network(error) => error.unchanged(),
            Self::Machine(error) => error.unchanged(),
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Network(error) => error.next(),
            Self::Machine(error) => error.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_port_of_the_loopback_is_asked_for_again() {
        assert_eq!(loopback_port("127.0.0.1:40001"), Some(40_001));
        for elsewhere in ["192.0.2.1:7836", "host:7836", "[::1]:7836", ""] {
            assert_eq!(loopback_port(elsewhere), None, "{elsewhere}");
        }
    }
}
