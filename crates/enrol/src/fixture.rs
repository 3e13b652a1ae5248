//! What the tests of this crate start from.

use std::net::Ipv4Addr;

use keys::identity::SigningKey;
use keys::recovery::RecoveryPubKey;
use model::{ColdStart, FirstContact, KubernetesRole, Level, NetworkConfig, NodeName, Secret, VPN_PREFIX};

use crate::config::{Create, EnrolmentConfig, WithoutTpm};

pub(crate) fn secret(byte: u8) -> Secret<32> {
    Secret::take(&mut [byte; 32])
}

pub(crate) fn owner() -> SigningKey {
    SigningKey::from_seed(secret(1))
}

pub(crate) fn network() -> NetworkConfig {
    NetworkConfig::Static {
        address: Ipv4Addr::new(192, 0, 2, 10),
        prefix_bits: 24,
        gateway: Some(Ipv4Addr::new(192, 0, 2, 1)),
        dns: vec![Ipv4Addr::new(192, 0, 2, 53)],
    }
}

pub(crate) fn config(level: Level, without_tpm: WithoutTpm) -> EnrolmentConfig {
    EnrolmentConfig {
        node: Some(NodeName::chosen("node-1").expect("a name")),
        first_contact: FirstContact(secret(3)),
        network: network(),
        create: Create {
            owner_pub_key: owner().public(),
            owner_recovery: RecoveryPubKey::of(&secret(2)),
            level,
            cold_start: ColdStart::Automatic,
            without_tpm,
            vpn_prefix: VPN_PREFIX,
            kubernetes_roles: KubernetesRole::ALL.iter().copied().collect(),
        },
    }
}
