//! The machine on its networks: the public links, and the VPN among members.

pub(crate) mod mesh;
mod nftables;
pub(crate) mod uplink;
