//! Fixtures of this crate's tests.

use std::net::Ipv4Addr;
use std::sync::OnceLock;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use keys::derive::sha256;
use keys::directory::UnsignedDirectory;
use keys::endpoint::Endpoint;
use keys::identity::{SigningKey, cluster_id};
use keys::recovery::RecoveryPubKey;
use keys::ticket::Ticket;
use model::{
    ColdStart, FirstContact, KubernetesRole, Level, NetworkConfig, NodeName, OwnerPubKey, Prefixes, Secret, VPN_PREFIX,
};

use crate::config::{Create, EnrolmentConfig, Intent, Redeem, WithoutTpm};

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
    config_that_starts(ColdStart::Automatic, level, without_tpm)
}

/// The same under either policy.
pub(crate) fn config_that_starts(cold_start: ColdStart, level: Level, without_tpm: WithoutTpm) -> EnrolmentConfig {
    EnrolmentConfig {
        node: Some(NodeName::chosen("node-1").expect("a name")),
        first_contact: FirstContact(secret(3)),
        network: network(),
        intent: Intent::Create(Create {
            owner_pub_key: owner().public(),
            owner_recovery: RecoveryPubKey::of(&secret(2)),
            level,
            cold_start,
            without_tpm,
            prefixes: Prefixes::of(VPN_PREFIX),
            kubernetes_roles: KubernetesRole::ALL.iter().copied().collect(),
        }),
    }
}

/// The CA of the cluster that a ticket leads to: one for all tests of a run.
#[derive(Debug)]
pub(crate) struct Ca {
    pair: EcdsaKeyPair,
    pub(crate) spki: Vec<u8>,
}

pub(crate) fn ca() -> &'static Ca {
    static CA: OnceLock<Ca> = OnceLock::new();
    CA.get_or_init(|| {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        let spki = pair.public_key().as_der().expect("encodes").as_ref().to_vec();
        Ca { pair, spki }
    })
}

impl Ca {
    pub(crate) fn sign(&self, directory: &UnsignedDirectory) -> Vec<u8> {
        let signature = self.pair.sign(&SystemRandom::new(), &directory.to_sign()).expect("signs");
        directory.signed(signature.as_ref().to_vec())
    }
}

/// A config that joins that cluster.
pub(crate) fn redeeming(level: Level, without_tpm: WithoutTpm) -> EnrolmentConfig {
    let ticket = Ticket {
        cluster: cluster_id(&ca().spki),
        ca_spki: sha256(&[&ca().spki]),
        coordinator_public_endpoints: vec![Endpoint::read("192.0.2.1:7836").expect("an endpoint")],
        key: SigningKey::from_seed(secret(7)),
        not_after: 1_900_000_000,
        machine: None,
    };
    let owner_pub_key = OwnerPubKey(owner().public());
    EnrolmentConfig {
        node: None,
        intent: Intent::Redeem(Redeem { owner_pub_key, ticket, level, without_tpm }),
        ..config(level, without_tpm)
    }
}
