//! The machine on its networks: the public links, and the VPN among members.

pub(crate) mod mesh;
pub(crate) mod nftables;
pub(crate) mod policies;
pub(crate) mod uplink;
