//! Callers of an API, as rules and bounds tell them apart. How their kind was proved is the connection's matter.

/// Kind of caller. Each has its rows of permissions, its places and its bounds; a caller of no kind is a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caller {
    /// Has proven nothing.
    Stranger,
    /// Has proven to hold some key, as machines do: no more than a stranger, but whoever a ticket lets in is this key's.
    Machine,
    /// Has proven to be a machine that the cluster let in once; whether it belongs still is said by its record.
    Member,
    /// Holds a key of a user of the cluster's Kubernetes, by the records of now.
    User,
    /// Holds the key of an owner.
    Owner,
}
