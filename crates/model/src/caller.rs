//! Whom an API has in front of it: what rules and bounds tell apart. How that was proved is the connection's matter.

/// Who calls. Each kind has its rows of permissions, its places and its bounds; whoever is of no kind is a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caller {
    /// Has proven nothing.
    Stranger,
    /// Has proven to hold some key, as machines do: no more than a stranger, but whoever a ticket lets in is this key's.
    Machine,
    /// Has proven to be a machine that the cluster let in once; whether it belongs still is said by its record.
    Member,
    /// Holds the key of an owner.
    Owner,
}
