//! Enrolment configs: what a person asks for on the command line, signed as the owner. For virtual machines and hardware
//! alike; a config that a machine would refuse is refused here.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use aws_lc_rs::rand;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use enrol::config::{ConfigError, Create, EnrolmentConfig, Intent, Redeem, WithoutTpm};
use keys::network::judge_prefixes;
use keys::ticket::Ticket;
use model::{
    BadNodeName, BadPrefix, ColdStart, ConfigDigest, FirstContact, Ipv4Prefix, KubernetesRole, Level, NetworkConfig,
    NodeName, OwnerPubKey, Prefixes, Secret, VPN_PREFIX,
};
use zeroize::Zeroizing;

use crate::failure::{Advice, Code};
use crate::networks;
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
    /// Where VPN addresses come from, 8 to 24 bits [usually 10.118.0.0/16]
    ///
    /// No network around a machine may have any of these, nor of those of pods and services. Unless they are chosen, the
    /// three are of the first of three sets of which nothing is in a network of this host's.
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    vpn_prefix: Option<Ipv4Prefix>,
    /// Where addresses of pods come from, a /24 for each worker [usually 10.244.0.0/16]
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    pod_prefix: Option<Ipv4Prefix>,
    /// Where addresses of services come from, 12 to 24 bits [usually 10.96.0.0/16]
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    service_prefix: Option<Ipv4Prefix>,
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
    /// Address at which the machine is now, where that is known.
    pub at: Option<Ipv4Addr>,
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
    let Wanted { choices, node, network, at, becomes } = wanted;
    let network = network.map_or(Ok(NetworkConfig::Dhcp), StaticNetwork::read)?;
    let (first_contact, intent) = match becomes {
        Becomes::First(founding, secret) => {
            let at = at.and_then(|at| Ipv4Prefix::around(at, 24).ok());
            let taken: Vec<_> = networks::of_this_host().into_iter().chain(near(&network)).chain(at).collect();
            (secret, Intent::Create(choices.create(founding, &taken, owner)))
        }
        Becomes::Joins(ticket) => {
            let unkept = Secret::fill(|bytes| rand::fill(bytes).map_err(|_| EnrolmentError::Random))?;
            (FirstContact(unkept), Intent::Redeem(choices.redeem(owner, ticket)))
        }
    };
    let config = EnrolmentConfig { node: node.cloned(), first_contact, network, intent };
    let bytes = config.sign(&owner.signing_key())?;
    let digest = enrol::config::digest(&bytes);
    Ok(SignedConfig { bytes, digest })
}

impl Choices {
    fn create(&self, founding: &Founding, taken: &[Ipv4Prefix], owner: &Owner) -> Create {
        Create {
            owner_pub_key: owner.signing_key().public(),
            owner_recovery: owner.recovery_pub_key(),
            level: self.level,
            cold_start: founding.cold_start,
            without_tpm: self.without_tpm(),
            prefixes: founding.prefixes(taken),
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

/// Prefixes that are tried one after another where none is chosen.
const DEFAULTS: [Prefixes; 3] =
    [Prefixes::of(VPN_PREFIX), of_16([172, 28], [172, 29], [172, 30]), of_16([100, 118], [100, 119], [100, 120])];

impl Founding {
    /// Prefixes that are chosen, and else the first default of which nothing is in a network that is taken; the first of all where each
    /// has some: the machine may be elsewhere.
    fn prefixes(&self, taken: &[Ipv4Prefix]) -> Prefixes {
        let with = |usual: Prefixes| Prefixes {
            vpn: self.vpn_prefix.unwrap_or(usual.vpn),
            pods: self.pod_prefix.unwrap_or(usual.pods),
            services: self.service_prefix.unwrap_or(usual.services),
        };
        let chosen = [self.vpn_prefix, self.pod_prefix, self.service_prefix];
        let is_free = |prefixes: &Prefixes| {
            let drawn = prefixes.rows().into_iter().zip(chosen).filter(|(_, chosen)| chosen.is_none());
            judge_prefixes(*prefixes).is_ok()
                && !drawn.into_iter().any(|((own, _), _)| taken.iter().any(|net| net.overlaps(own)))
        };
        DEFAULTS.map(with).into_iter().find(is_free).unwrap_or(with(DEFAULTS[0]))
    }

    /// Whether pods will run.
    pub(crate) const fn kubernetes(&self) -> bool {
        !self.no_kubernetes
    }
}

const fn of_16(vpn: [u8; 2], pods: [u8; 2], services: [u8; 2]) -> Prefixes {
    Prefixes { vpn: Ipv4Prefix::of_16(vpn), pods: Ipv4Prefix::of_16(pods), services: Ipv4Prefix::of_16(services) }
}

/// Network of a machine with a static address.
fn near(network: &NetworkConfig) -> Option<Ipv4Prefix> {
    match network {
        NetworkConfig::Static { address, prefix_bits, .. } => Ipv4Prefix::around(*address, *prefix_bits).ok(),
        NetworkConfig::Dhcp => None,
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
            Wanted { choices, node: node_name.as_ref(), network: Some(network), at: None, becomes }
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
        assert_eq!(creates.prefixes.vpn.to_string(), "10.0.0.0/16");
        assert!(creates.kubernetes_roles.is_empty());
        assert!(matches!(chosen.network, NetworkConfig::Static { prefix_bits: 24, gateway: Some(_), .. }));
    }

    /// Proves: H3
    #[test]
    fn prefixes_are_chosen_beside_the_networks_that_are_taken() {
        let of = |options: &[&str], taken: &[&str]| {
            let line = Line::parse_from([&["x"], options].concat());
            let taken: Vec<_> = taken.iter().map(|net| net.parse().unwrap()).collect();
            line.founding.prefixes(&taken).rows().map(|(prefix, _)| prefix.to_string())
        };
        let usual = ["10.118.0.0/16", "10.244.0.0/16", "10.96.0.0/16"];
        let second = ["172.28.0.0/16", "172.29.0.0/16", "172.30.0.0/16"];
        assert_eq!(of(&[], &[]), usual);
        assert_eq!(of(&[], &["192.168.1.0/24", "10.0.2.0/24", "172.17.0.0/16"]), usual);
        for taken in ["10.0.0.0/8", "10.244.3.0/24", "10.96.0.1/32", "10.118.0.0/15"] {
            assert_eq!(of(&[], &[taken]), second, "{taken}");
        }
        assert_eq!(of(&[], &["10.0.0.0/8", "172.16.0.0/12"])[0], "100.118.0.0/16");
        assert_eq!(of(&[], &["10.0.0.0/8", "172.16.0.0/12", "100.64.0.0/10"]), usual, "where each is taken");
        // What is chosen stays, whatever is taken, and the others go round it.
        assert_eq!(of(&["--vpn-prefix", "10.7.0.0/16"], &["10.7.0.0/16"]), ["10.7.0.0/16", usual[1], usual[2]]);
        assert_eq!(of(&["--vpn-prefix", "10.244.0.0/16"], &[]), ["10.244.0.0/16", second[1], second[2]]);
        let all = ["--vpn-prefix", "10.1.0.0/16", "--pod-prefix", "10.2.0.0/16", "--service-prefix", "10.3.0.0/20"];
        assert_eq!(of(&all, &["10.0.0.0/8"]), ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/20"]);
        let chosen = signed(&all).unwrap();
        assert_eq!(create(&chosen).prefixes.rows().map(|(prefix, _)| prefix.to_string()), of(&all, &[]));
        assert_eq!(
            near(&signed(&["--static-address", "10.244.1.2/24"]).unwrap().network),
            "10.244.1.0/24".parse().ok()
        );
        assert_eq!(
            create(&signed(&["--static-address", "10.244.1.2/24"]).unwrap()).prefixes.vpn.to_string(),
            second[0]
        );
    }

    #[test]
    fn what_a_machine_would_refuse_is_refused_here() {
        for bad in ["192.0.2.10", "192.0.2.10/33", "host/24"] {
            assert!(matches!(signed(&["--static-address", bad]), Err(EnrolmentError::StaticAddress(_))), "{bad}");
        }
        let twice = ["--vpn-prefix", "10.244.0.0/16", "--pod-prefix", "10.244.0.0/16"];
        assert!(matches!(signed(&twice), Err(EnrolmentError::Config(_))));
        for line in
            [&["--level", "none"][..], &["--node-name", "A"], &["--vpn-prefix", "10.0.0.1/16"], &["--pod-prefix", "10"]]
        {
            assert!(Line::try_parse_from([&["x"], line].concat()).is_err(), "{line:?}");
        }
    }
}
