//! The first machine of a new cluster: draws what is random, makes authorities, keys and certificates. What comes of them
//! is `enrol`'s matter. Writes nothing.

use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use enrol::create::{CreateError, Creation, CreationMaterial, NewAuthorities, Signer};
use enrol::making::{IssuedCertificates, PrepareError};
use enrol::member::Membership;
use enrol::plan::Plan;
use keys::coordinator::AuthorityKeys;
use keys::identity::{cluster_id, machine_id};
use model::ClusterRole;
use pki::{Authority, AuthorityKind, CertificateProfile, PrivateKey, PublicKey, UnixTime};
use zeroize::Zeroizing;

use crate::machine::tpm::{self, Tpm};

/// Why a cluster could not be made ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MakeError {
    /// The kernel gives no random bytes.
    #[error("draw random bytes")]
    Random(#[source] std::io::Error),
    /// An authority or certificate could not be made.
    #[error("issue the cluster's certificates")]
    Issue(#[from] pki::IssueError),
    /// A key could not be made.
    #[error("make a key")]
    Key(#[from] pki::KeyError),
    /// The directory could not be signed.
    #[error("sign the directory")]
    Sign,
    /// The new cluster's secrets could not be kept.
    #[error(transparent)]
    Prepare(#[from] PrepareError<tpm::Error>),
}

/// Draws and issues. `endpoints` are where other machines will find this one, `now` is Unix time.
///
/// # Errors
/// [`MakeError`] names the step; nothing was written.
pub(super) fn make(
    creation: Creation,
    tpm: Option<&mut Tpm>,
    endpoints: Vec<String>,
    now: Duration,
) -> Result<(Plan, Membership), MakeError> {
    let time = UnixTime::since_unix_epoch(now);
    let material = CreationMaterial::draw(random).map_err(MakeError::Random)?;
    let cairn = Authority::create(AuthorityKind::Cairn, time)?;
    let public = material.identity.public();
    let ca_spki = cairn.public().spki();
    let (machine, cluster) = (machine_id(&public), cluster_id(&ca_spki));
    // Whoever creates a cluster coordinates it, whatever else it does.
    let profile = CertificateProfile::Machine { machine, cluster, role: ClusterRole::Coordinator };
    let certificate = cairn.issue(&profile, &PublicKey::from_ed25519(public), time)?;
    let issued = IssuedCertificates {
        ca_spki,
        ca_certificate: cairn.certificate().to_vec(),
        machine_certificate: certificate.to_vec(),
    };
    let keys = |authority: &Authority| {
        let key = Zeroizing::new(authority.export_key()?.expose().to_vec());
        Ok::<_, pki::KeyError>(AuthorityKeys { certificate: authority.certificate().to_vec(), key })
    };
    let authorities = NewAuthorities {
        issued,
        etcd: keys(&Authority::create(AuthorityKind::Etcd, time)?)?,
        kubernetes: keys(&Authority::create(AuthorityKind::Kubernetes, time)?)?,
        front: keys(&Authority::create(AuthorityKind::Front, time)?)?,
        service_accounts: Zeroizing::new(PrivateKey::generate()?.to_pkcs8()?.expose().to_vec()),
        cairn: keys(&cairn)?,
    };
    let planned = creation.draft(material, authorities, endpoints).plan(tpm, &Ca(&cairn), now.as_secs());
    planned.map_err(|error| match error {
        CreateError::Prepare(error) => error.into(),
        CreateError::Sign(error) => error,
    })
}

/// Signer of the cluster's first directory.
struct Ca<'a>(&'a Authority);

impl Signer for Ca<'_> {
    type Error = MakeError;

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, MakeError> {
        sign(self.0, message)
    }
}

/// The CA's signature over the directory: ECDSA P-256, DER.
pub(crate) fn sign(authority: &Authority, message: &[u8]) -> Result<Vec<u8>, MakeError> {
    let key = authority.export_key()?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.expose()).map_err(|_| MakeError::Sign)?;
    let signature = pair.sign(&SystemRandom::new(), message).map_err(|_| MakeError::Sign)?;
    Ok(signature.as_ref().to_vec())
}

/// From the kernel's pool, into which the TPM's bytes were mixed (getrandom(2)).
pub(super) fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(got) => filled += got,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use enrol::asking::GivenAnswers;
    use enrol::config::{Create, EnrolmentConfig, Intent, WithoutTpm};
    use enrol::files::Files;
    use enrol::found::{BootDecision, Findings, Inputs, decide};
    use enrol::opening::OpenableDisk;
    use enrol::plan::Performer;
    use enrol::step::{Effect, HeaderCopy, Step};
    use keys::header::{Copies, HEADER_BYTES};
    use keys::identity::SigningKey;
    use keys::recovery::RecoveryPubKey;
    use keys::two_slot::{File, SLOT_BYTES, Slots};
    use model::{
        BootClass, ColdStart, FirstContact, KubernetesRole, Level, NetworkConfig, NodeName, Secret, VPN_PREFIX,
    };

    use super::super::perform::milestone;
    use super::*;

    /// ESP and data header in memory: what a machine without a TPM finds and writes.
    pub(in super::super) struct Machine {
        pub(in super::super) files: Files,
        header: [Vec<u8>; 2],
        performed: Vec<Step>,
    }

    impl Performer for Machine {
        type Error = std::io::Error;
        type Open = ();

        fn perform(&mut self, effect: Effect) -> std::io::Result<()> {
            self.performed.push(effect.step());
            match effect {
                Effect::WriteHeader { copy, bytes, .. } => {
                    self.header[usize::from(copy == HeaderCopy::Second)] = bytes.to_vec();
                }
                Effect::WriteEsp { file, slot, bytes } => self.files.slots(file).0[slot] = bytes,
                Effect::WriteAttempt { slot, bytes } => self.files.slots(File::Seal).0[slot] = bytes,
                Effect::EraseAttempt { slot } => self.files.slots(File::Seal).0[slot].fill(0),
                Effect::MendTable
                | Effect::GrowData
                | Effect::MapVolume { .. }
                | Effect::MakeFilesystem
                | Effect::Mount
                | Effect::PopulateData(_)
                | Effect::RaiseMinimum { .. }
                | Effect::RemoveConfig
                | Effect::LoadKeys
                | Effect::Cap(_) => {} // neither ESP nor header
            }
            Ok(())
        }

        fn refused_by(_: &std::io::Error) -> Option<enrol::plan::Refusal> {
            None
        }

        fn close(&mut self) -> Result<(), ()> {
            Ok(())
        }
    }

    impl Machine {
        pub(in super::super) fn new(node: Option<NodeName>, level: Level) -> Self {
            let secret = |byte| Secret::take(&mut [byte; 32]);
            let owner = SigningKey::from_seed(secret(1));
            let config = EnrolmentConfig {
                node,
                first_contact: FirstContact(secret(2)),
                network: NetworkConfig::Dhcp,
                intent: Intent::Create(Create {
                    owner_pub_key: owner.public(),
                    owner_recovery: RecoveryPubKey::of(&secret(3)),
                    level,
                    cold_start: ColdStart::Automatic,
                    without_tpm: WithoutTpm::Unprotected,
                    prefixes: model::Prefixes::of(VPN_PREFIX),
                    kubernetes_roles: [KubernetesRole::Worker].into(),
                }),
            };
            let blank = || Slots([vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]].map(Zeroizing::new));
            let files = Files {
                unreadable: Vec::new(),
                seal: blank(),
                share: blank(),
                directory: blank(),
                record: blank(),
                config: Some(config.sign(&owner).expect("a machine takes it")),
                fw_cfg: None,
            };
            Self { files, header: [vec![0; HEADER_BYTES], vec![0; HEADER_BYTES]], performed: Vec::new() }
        }

        pub(in super::super) fn found(&self) -> Findings {
            let header = &Copies::read(&self.header[0], &self.header[1]);
            let given = GivenAnswers::default();
            decide::<Tpm>(Inputs { files: &self.files, header, boot_class: BootClass::Direct, given }, Ok(None))
        }

        /// Creates a cluster on it.
        pub(in super::super) fn create(&mut self) -> Membership {
            let found = self.found();
            let BootDecision::Create(creation) = found.decision else { panic!("a config and a blank disk: {found:?}") };
            let (plan, membership) = make(*creation, None, vec![], Duration::from_secs(1_800_000_000)).expect("made");
            let _capped = plan.perform(self).expect("in memory nothing fails");
            membership
        }

        fn opening(&self) -> OpenableDisk {
            let found = self.found();
            let BootDecision::Open(opening) = found.decision else { panic!("sealed and committed: {found:?}") };
            *opening
        }
    }

    /// Proves: D2 D4 S7 S11
    #[test]
    fn a_created_disk_opens_at_the_next_boot_as_the_same_machine() {
        for level in Level::ALL {
            let mut machine = Machine::new(None, *level);
            let created = machine.create();
            assert!(machine.opening().finishes_create(), "what create does last, the config's removal, is not done");
            machine.files.config = None;
            let opening = machine.opening();
            assert!(!opening.finishes_create(), "a member that reopens enrols no more");
            let (_, again) = opening.plan(random).expect("opens");
            assert_eq!(again.identity.holder, created.identity.holder);
            assert_eq!(again.identity.key.public(), created.identity.key.public());
            let shown = |it: &Membership| (it.identity.name.clone(), it.identity.certificate.clone());
            assert_eq!(shown(&again), shown(&created));
            assert_eq!((again.owner_pub_key, again.config), (created.owner_pub_key, created.config));
        }
    }

    /// Proves: S6
    #[test]
    fn a_name_from_the_config_is_kept_at_the_next_boot() {
        let chosen = NodeName::chosen("one").expect("a name");
        let mut machine = Machine::new(Some(chosen.clone()), Level::Insecure);
        assert_eq!(machine.create().identity.name, chosen);
        assert_eq!(machine.opening().plan(random).expect("opens").1.identity.name, chosen);
    }

    #[test]
    fn the_timeline_names_each_step_of_create_once_and_in_its_order() {
        let mut machine = Machine::new(None, Level::Encrypted);
        machine.create();
        let reached: Vec<_> = machine.performed.iter().copied().filter_map(milestone).collect();
        let expected = "grow-data header layers mkfs mount keys share record directory seal commit remove-config cap";
        assert_eq!(reached.join(" "), expected);
    }
}
