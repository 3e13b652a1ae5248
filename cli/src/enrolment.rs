//! Enrolment configs: what a person asks for on the command line, signed as the owner. For virtual machines and hardware
//! alike; a config that a machine would refuse is refused here.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use aws_lc_rs::rand;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use enrol::config::{ConfigError, Create, EnrolmentConfig, Intent, Redeem, WithoutTpm};
use keys::ticket::Ticket;
use model::{
    BadNodeName, BadPrefix, ColdStart, ConfigDigest, FirstContact, Ipv4Prefix, KubernetesRole, Level, NetworkConfig,
    NodeName, OwnerPubKey, Secret, VPN_PREFIX,
};
use zeroize::Zeroizing;

use crate::failure::{Advice, Code};
use crate::store::Owner;

/// Options for any machine's config.
#[derive(Debug, Args)]
pub(crate) struct Choices {
    /// How data on the disk is protected
    #[arg(long, value_name = "LEVEL", default_value = Level::Authenticated.word(), value_parser = level())]
    level: Level,
    /// Let a machine without a TPM keep its key in clear on its disk
    ///
    /// Whoever has the disk then has the data. For tests, and for machines whose disk nobody can take.
    #[arg(long)]
    pub unprotected: bool,
}

/// Options for a cluster, chosen with its first machine.
#[derive(Debug, Args)]
pub(crate) struct Founding {
    /// How the disk is opened when nobody is up who could give its key: automatic, by the TPMs of coordinators; or
    /// manual, by the owner
    #[arg(long, value_name = "POLICY", default_value = ColdStart::Automatic.word(), value_parser = cold_start())]
    cold_start: ColdStart,
    /// Where VPN addresses come from
    #[arg(long, value_name = "PREFIX", default_value_t = VPN_PREFIX, value_parser = prefix)]
    vpn_prefix: Ipv4Prefix,
    /// Only etcd and the cluster's own API: no Kubernetes, up in seconds
    #[arg(long)]
    no_kubernetes: bool,
}

/// Content of a machine's config.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Options that were chosen for the machine.
    pub choices: &'a Choices,
    /// The machine's host and node name; made from its id where there is none.
    pub node: Option<&'a NodeName>,
    /// Static address of the machine; DHCP where there is none.
    pub network: Option<&'a StaticNetwork>,
    /// Whether the machine creates a cluster or joins one.
    pub becomes: Becomes<'a>,
}

/// A static address instead of DHCP; for hardware.
#[derive(Debug, Args)]
pub(crate) struct StaticNetwork {
    /// A static address with its prefix length, instead of DHCP
    #[arg(long, value_name = "ADDRESS/BITS")]
    static_address: Option<String>,
    /// The default route that goes with it
    #[arg(long, value_name = "ADDRESS", requires = "static_address")]
    gateway: Option<Ipv4Addr>,
    /// A resolver; may be given several times
    #[arg(long, value_name = "ADDRESS", requires = "static_address")]
    dns: Vec<Ipv4Addr>,
}

/// A signed config and its digest.
#[derive(Debug)]
pub(crate) struct SignedConfig {
    /// The file's bytes. They hold the first-contact secret.
    pub bytes: Zeroizing<Vec<u8>>,
    /// SHA-256 of the bytes: what the machine's proof of first contact names the config by.
    pub digest: ConfigDigest,
}

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnrolmentError {
    /// A machine would refuse it.
    #[error("make an enrolment config")]
    Config(#[from] ConfigError),
    /// A static address that is none.
    #[error("`{0}` is no static address: write it like 192.0.2.10/24")]
    StaticAddress(String),
    /// No random bytes.
    #[error("draw the config's secret")]
    Random,
}

impl Advice for EnrolmentError {
    fn code(&self) -> Code {
        match self {
            Self::Config(_) | Self::StaticAddress(_) => Code::Usage,
            Self::Random => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        "no config was written"
    }
}

impl StaticNetwork {
    fn read(&self) -> Result<NetworkConfig, EnrolmentError> {
        let Some(text) = &self.static_address else { return Ok(NetworkConfig::Dhcp) };
        let bad = || EnrolmentError::StaticAddress(text.clone());
        let (address, bits) = text.split_once('/').ok_or_else(bad)?;
        Ok(NetworkConfig::Static {
            address: address.parse().map_err(|_| bad())?,
            prefix_bits: bits.parse().ok().filter(|bits| *bits <= 32).ok_or_else(bad)?,
            gateway: self.gateway,
            dns: self.dns.clone(),
        })
    }
}

/// Place of a machine in its cluster: the first, or one that joins.
#[derive(Debug)]
pub(crate) enum Becomes<'a> {
    /// The first of a cluster. Its owner meets it by the secret.
    First(&'a Founding, FirstContact),
    /// A machine of the cluster that this ticket is of. The cluster's records tell its owner who it is: nobody keeps
    /// the secret in its config.
    Joins(&'a Ticket),
}

/// A config for a machine, signed by `owner`.
pub(crate) fn sign(wanted: Wanted<'_>, owner: &Owner) -> Result<SignedConfig, EnrolmentError> {
    let Wanted { choices, node, network, becomes } = wanted;
    let (first_contact, intent) = match becomes {
        Becomes::First(founding, secret) => (secret, Intent::Create(choices.create(founding, owner))),
        Becomes::Joins(ticket) => {
            let unkept = Secret::fill(|bytes| rand::fill(bytes).map_err(|_| EnrolmentError::Random))?;
            (FirstContact(unkept), Intent::Redeem(choices.redeem(owner, ticket)))
        }
    };
    let network = network.map_or(Ok(NetworkConfig::Dhcp), StaticNetwork::read)?;
    let config = EnrolmentConfig { node: node.cloned(), first_contact, network, intent };
    let bytes = config.sign(&owner.signing_key())?;
    let digest = enrol::config::digest(&bytes);
    Ok(SignedConfig { bytes, digest })
}

impl Choices {
    fn create(&self, founding: &Founding, owner: &Owner) -> Create {
        Create {
            owner_pub_key: owner.signing_key().public(),
            owner_recovery: owner.recovery_pub_key(),
            level: self.level,
            cold_start: founding.cold_start,
            without_tpm: self.without_tpm(),
            vpn_prefix: founding.vpn_prefix,
            kubernetes_roles: match founding.kubernetes() {
                true => KubernetesRole::ALL.iter().copied().collect(),
                false => BTreeSet::new(),
            },
        }
    }

    fn redeem(&self, owner: &Owner, ticket: &Ticket) -> Redeem {
        let owner_pub_key = OwnerPubKey(owner.signing_key().public());
        // Of a key there is no second copy by chance.
        let ticket = Ticket::decode(&ticket.encode()).expect("a ticket is read as it was written");
        Redeem { owner_pub_key, ticket, level: self.level, without_tpm: self.without_tpm() }
    }

    const fn without_tpm(&self) -> WithoutTpm {
        if self.unprotected { WithoutTpm::Unprotected } else { WithoutTpm::Refuse }
    }
}

impl Founding {
    /// Whether pods will run.
    pub(crate) const fn kubernetes(&self) -> bool {
        !self.no_kubernetes
    }
}

fn level() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(Level::ALL.iter().map(|level| level.word()))
        .map(|word| Level::from_word(&word).unwrap_or(Level::Authenticated))
}

fn cold_start() -> impl TypedValueParser<Value = ColdStart> {
    PossibleValuesParser::new(ColdStart::ALL.iter().map(|policy| policy.word()))
        .map(|word| ColdStart::from_word(&word).unwrap_or(ColdStart::Automatic))
}

/// A name that a person may give to a machine.
pub(crate) fn node_name(text: &str) -> Result<NodeName, BadNodeName> {
    NodeName::chosen(text)
}

fn prefix(text: &str) -> Result<Ipv4Prefix, BadPrefix> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        choices: Choices,
        #[command(flatten)]
        founding: Founding,
        #[command(flatten)]
        network: StaticNetwork,
        #[arg(long, value_parser = node_name)]
        node_name: Option<NodeName>,
    }

    impl Line {
        fn wanted<'a>(&'a self, becomes: Becomes<'a>) -> Wanted<'a> {
            let Self { choices, network, node_name, .. } = self;
            Wanted { choices, node: node_name.as_ref(), network: Some(network), becomes }
        }
    }

    fn create(config: &EnrolmentConfig) -> &Create {
        let Intent::Create(create) = &config.intent else { panic!("it creates a cluster") };
        create
    }

    fn signed(line: &[&str]) -> Result<EnrolmentConfig, EnrolmentError> {
        let line = Line::try_parse_from([&["x"], line].concat()).unwrap();
        let owner = Owner::generate().unwrap();
        let secret = FirstContact(Secret::take(&mut [7; 32]));
        let signed = sign(line.wanted(Becomes::First(&line.founding, secret)), &owner)?;
        let read = enrol::config::read(&signed.bytes)?;
        assert_eq!(read.digest, signed.digest);
        assert_eq!(create(&read.config).owner_pub_key, owner.signing_key().public());
        assert_eq!(read.config.first_contact.expose(), &[7; 32]);
        Ok(read.config)
    }

    /// Proves: S3
    #[test]
    fn a_config_that_joins_carries_its_ticket_and_what_was_chosen() {
        let ticket = Ticket {
            cluster: model::ClusterId([1; 16]),
            ca_spki: [2; 32],
            coordinator_public_endpoints: vec![keys::endpoint::Endpoint::read("192.0.2.1:7836").unwrap()],
            key: keys::identity::SigningKey::from_seed(Secret::take(&mut [3; 32])),
            not_after: 4,
            machine: None,
        };
        let owner = Owner::generate().unwrap();
        for (line, level, without_tpm) in [
            (&["x"][..], Level::Authenticated, WithoutTpm::Refuse),
            (&["x", "--level", "encrypted", "--unprotected"], Level::Encrypted, WithoutTpm::Unprotected),
        ] {
            let line = Line::try_parse_from(line).unwrap();
            let signed = sign(line.wanted(Becomes::Joins(&ticket)), &owner).unwrap();
            let read = enrol::config::read(&signed.bytes).unwrap();
            let Intent::Redeem(redeem) = read.config.intent else { panic!("it joins") };
            assert_eq!((redeem.level, redeem.without_tpm), (level, without_tpm));
            assert_eq!(redeem.owner_pub_key.0, owner.signing_key().public());
            assert_eq!(*redeem.ticket.encode(), *ticket.encode());
        }
    }

    /// Proves: S1 S11
    #[test]
    fn what_is_signed_reads_back_as_it_was_chosen() {
        let plain = signed(&[]).unwrap();
        let creates = create(&plain);
        assert_eq!((creates.level, creates.without_tpm), (Level::Authenticated, WithoutTpm::Refuse));
        assert_eq!(creates.cold_start, ColdStart::Automatic);
        assert_eq!((&plain.network, &plain.node), (&NetworkConfig::Dhcp, &None));
        assert!(KubernetesRole::ALL.iter().eq(&creates.kubernetes_roles));

        let line = "--level encrypted --cold-start manual --unprotected --node-name one --vpn-prefix 10.0.0.0/16 --no-kubernetes \
                    --static-address 192.0.2.10/24 --gateway 192.0.2.1 --dns 192.0.2.2";
        let chosen = signed(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
        let creates = create(&chosen);
        assert_eq!((creates.level, creates.without_tpm), (Level::Encrypted, WithoutTpm::Unprotected));
        assert_eq!(creates.cold_start, ColdStart::Manual);
        assert_eq!(chosen.node, Some(NodeName::chosen("one").unwrap()));
        assert_eq!(creates.vpn_prefix.to_string(), "10.0.0.0/16");
        assert!(creates.kubernetes_roles.is_empty());
        assert!(matches!(chosen.network, NetworkConfig::Static { prefix_bits: 24, gateway: Some(_), .. }));
    }

    #[test]
    fn what_a_machine_would_refuse_is_refused_here() {
        for bad in ["192.0.2.10", "192.0.2.10/33", "host/24"] {
            assert!(matches!(signed(&["--static-address", bad]), Err(EnrolmentError::StaticAddress(_))), "{bad}");
        }
        assert!(matches!(signed(&["--vpn-prefix", "10.244.0.0/16"]), Err(EnrolmentError::Config(_))));
        for line in [&["--level", "none"][..], &["--node-name", "A"], &["--vpn-prefix", "10.0.0.1/16"]] {
            assert!(Line::try_parse_from([&["x"], line].concat()).is_err(), "{line:?}");
        }
    }
}
