//! Entries of policies, and pods, that were left out, by name: for people, never for a decision.

use std::fmt;
use std::net::Ipv4Addr;

use crate::part::MOST_BYTES;

/// Entry of a policy, or a pod, that was left out. Nobody gets more for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyNotice {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object: a policy, or a pod.
    pub name: String,
    /// Why something of it was left out.
    pub reason: NoticeReason,
}

/// Why something was left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoticeReason {
    /// Prefix of IPv6, which no pod speaks.
    #[error("`{0}` is a prefix of IPv6, which pods do not have: it is ignored")]
    Ipv6(String),
    /// Prefix that does not read.
    #[error("`{0}` is no prefix: its entry allows nothing")]
    Prefix(String),
    /// Peer that is several things, or none.
    #[error("a peer is neither selectors nor an ipBlock: it allows nothing")]
    Peer,
    /// Port that cannot be.
    #[error("a port of {0} is none, or its range is: it allows nothing")]
    Port(String),
    /// Operator of a selector that is not known here.
    #[error(
        "a selector has an operator that is not known: as a peer it is nobody, as the policy's own it is every pod"
    )]
    Operator,
    /// Type of policy that is not known here.
    #[error("policy type `{0}` is not known: the policy isolates its pods in both directions")]
    PolicyType(String),
    /// Address outside the prefix of the pod's machine.
    #[error(
        "its address {0} is none of its machine's pods: it counts as nobody's, and the pod gets no new connections"
    )]
    ForeignAddress(Ipv4Addr),
    /// Pods of one machine that have one address.
    #[error("another pod of its machine has the address {0}, too: neither gets new connections")]
    SharedAddress(Ipv4Addr),
    /// Pod whose policies are larger than its machine is told.
    #[error(
        "its policies do not fit into what machine `{node}` is told, {MOST_BYTES} bytes: it gets no new connections"
    )]
    Size {
        /// Machine of the pod.
        node: String,
    },
}

impl NoticeReason {
    /// Whether it is about a pod, and not about a policy.
    #[must_use]
    pub const fn is_of_pod(&self) -> bool {
        match self {
            Self::ForeignAddress(_) | Self::SharedAddress(_) | Self::Size { .. } => true,
            Self::Ipv6(_) | Self::Prefix(_) | Self::Peer | Self::Port(_) | Self::Operator | Self::PolicyType(_) => {
                false
            }
        }
    }
}

impl fmt::Display for PolicyNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, reason } = self;
        let kind = if reason.is_of_pod() { "pod" } else { "network policy" };
        write!(f, "{kind} {namespace}/{name}: {reason}")
    }
}
