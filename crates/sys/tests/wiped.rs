//! Proof that no freed memory holds a secret: an allocator looks into every block that is given back. It lives here
//! because an allocator is unsafe code, and is let loose on all that keep secrets.
//!
//! A secret is made of one byte that nothing else repeats so often. A vector that grows gives its old block back like
//! any other, so copies that were left behind on the way are seen, too; what lies on a stack is not.

#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use api::{OwnerHalf, ReleasedKey, wire};
use cluster::record::UnixSeconds;
use enrol::config::{self, Create, EnrolmentConfig, Intent, WithoutTpm};
use keys::attempt::{self, Attempt};
use keys::binding::{Binding, TpmObject};
use keys::data_key::{ClusterHalf, DataKey, HeaderExpectation, HeaderFields, Holder, Volume, open};
use keys::first_contact::{Transcript, prove};
use keys::header::{Copies, HeaderState, Suite};
use keys::identity::{self, SigningKey, cluster_key, machine_id};
use keys::recovery::RecoveryPubKey;
use keys::seal::{self, Body, Candidate, Clear, SealFiles};
use keys::two_slot::SLOT_BYTES;
use model::{
    BootClass, ClusterId, ClusterKey, ColdStart, ConfigDigest, DiskUuid, FirstContact, Level, LocalKey, MachineId,
    MasterSecret, NetworkConfig, NodeName, PcrSelection, Prefixes, SealRoot, Secret, Uuid, VPN_PREFIX, VolumeKey,
    VpnPrivKey,
};
use pki::client_auth::{Owners, owner_certificate, server_config};
use pki::{PrivateKey, TlsIdentity};
use prost::Message;
use zeroize::Zeroizing;

/// Byte that every secret here is made of, and how much of it in a row is one.
const BYTE: u8 = 0xc5;
const IN_A_ROW: usize = 12;

struct Watching;

#[global_allocator]
static WATCHING: Watching = Watching;

thread_local! {
    /// Blocks with a secret in them that this thread gave back.
    static SEEN: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes on to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Zeroed, so that what nobody wrote can be looked at, and an old secret is not found twice.
        // SAFETY: the caller keeps the contract of `alloc`, which `alloc_zeroed` shares.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is the caller's until it is given back below, it has this size, and was zeroed when it was made.
        let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
        let mut row = 0;
        if bytes.iter().any(|byte| {
            row = if *byte == BYTE { row + 1 } else { 0 };
            row == IN_A_ROW
        }) {
            // A thread that is ending has nowhere to count; nothing here starts one.
            let _ending = SEEN.try_with(|seen| seen.set(seen.get() + 1));
        }
        // SAFETY: the caller keeps the contract of `dealloc`, and the block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

/// How many blocks with a secret in them `work` gives back.
fn left_behind(work: impl FnOnce()) -> usize {
    let before = SEEN.get();
    work();
    SEEN.get() - before
}

fn secret<const N: usize>() -> Secret<N> {
    let made: Result<_, ()> = Secret::fill(|bytes: &mut [u8; N]| {
        bytes.fill(BYTE);
        Ok(())
    });
    made.expect("nothing fails")
}

const DISK: DiskUuid = DiskUuid(Uuid([1; 16]));
const CLUSTER: ClusterId = ClusterId([2; 16]);

fn owner() -> SigningKey {
    SigningKey::from_seed(Secret::take(&mut [7; 32]))
}

/// The control: this is what is looked for.
#[test]
fn what_is_not_wiped_is_seen() {
    assert_eq!(left_behind(|| drop(vec![BYTE; 32])), 1);
    assert_eq!(left_behind(|| drop(vec![BYTE; IN_A_ROW - 1])), 0);
    assert_eq!(
        left_behind(|| {
            let mut grown = Zeroizing::new(vec![BYTE; 32]);
            grown.reserve_exact(64);
        }),
        1,
        "a copy that growing leaves"
    );
}

/// Proves: D8
#[test]
fn a_secret_is_wiped_whatever_becomes_of_it() {
    assert_eq!(left_behind(|| drop(secret::<32>())), 0);
    assert_eq!(left_behind(|| drop((secret::<64>().duplicate(), LocalKey(secret())))), 0);
    assert_eq!(left_behind(|| drop(Secret::take(&mut [BYTE; 32]))), 0);
    let cut = || {
        let failed: Result<Secret<32>, ()> = Secret::fill(|bytes| {
            bytes.fill(BYTE);
            Err(())
        });
        assert!(failed.is_err());
    };
    assert_eq!(left_behind(cut), 0, "filled by half");
}

/// Proves: D8
#[test]
fn the_keys_of_a_disk_leave_nothing_behind() {
    let holder = Holder { cluster: CLUSTER, machine: MachineId([3; 16]) };
    let wrapping = HeaderFields {
        state: HeaderState::Committed,
        generation: 2,
        disk: DISK,
        suite: Suite::Authenticated,
        key_generation: 1,
        salt: [4; 32],
        owner: None,
    };
    let left = left_behind(|| {
        let (local, cluster) = (LocalKey(secret()), ClusterKey(secret()));
        let key = DataKey::fresh(VolumeKey(secret()));
        let bytes = key.wrap(&wrapping, &local, &cluster, &holder).to_bytes();
        drop((key.xts(), key.integrity(), key.journal()));
        let half = ClusterHalf { key: cluster, disk: DISK, generation: 1, next: None };
        let expected = HeaderExpectation { holder, disk: DISK, level: Level::Authenticated, minimum: 1 };
        let opened = open(&Copies::read(&bytes[..], &bytes[..]), &local, Some(&half), &expected).expect("opens");
        let Volume::Authenticated(again) = &opened.volume else { panic!("authenticated") };
        assert_eq!(again.for_owner().expose(), &[BYTE; 32]);
        drop(cluster_key(&MasterSecret(secret()), CLUSTER, DISK, 1));
    });
    assert_eq!(left, 0);
}

fn binding() -> Binding {
    let storage_key_name = std::array::from_fn(|at| if at == 1 { 0x0b } else { 0 });
    Binding::Tpm(TpmObject {
        pcrs: PcrSelection::of(&[11]),
        storage_key_name,
        public: vec![1; 80],
        private: vec![2; 160],
    })
}

/// Proves: D8
#[test]
fn an_attempt_that_is_written_and_opened_leaves_nothing_behind() {
    let left = left_behind(|| {
        let asks = Attempt {
            identity: SigningKey::from_seed(secret()),
            local_key: LocalKey(secret()),
            vpn_key: VpnPrivKey(secret()),
            disk: DISK,
            config: ConfigDigest([9; 32]),
        };
        let clear = attempt::AttemptClear { binding: binding(), boot_class: BootClass::Direct, salt: [5; 32] };
        let root = SealRoot(secret());
        let bytes = attempt::emit(1, &clear, &asks, &root, [6; 12]).expect("fits");
        let SealFiles::Candidates(seals) = seal::read([&bytes, &vec![0; SLOT_BYTES]]).0 else { panic!("a seal") };
        let [Candidate::Attempt(sealed)] = &seals[..] else { panic!("an attempt's") };
        let opened = sealed.open(&root).expect("opens");
        assert_eq!(opened.local_key.expose(), &[BYTE; 32]);
        assert_eq!(opened.vpn_key.expose(), &[BYTE; 32]);
    });
    assert_eq!(left, 0);
}

/// Buffers that tonic and hyper receive into are theirs, and not looked at here.
///
/// Proves: D8 K9
#[test]
fn a_cluster_key_in_a_message_leaves_nothing_behind() {
    let key = || ClusterKey(secret());
    let released = left_behind(|| {
        let released = ReleasedKey { time: UnixSeconds(1), key: key(), next: Some(key()), directory: vec![] };
        let message = wire::ReleaseKeyResponse::from(released);
        drop(Zeroizing::new(message.encode_to_vec()));
        let got = ReleasedKey::try_from(message).expect("well-formed");
        assert_eq!((got.key.expose(), got.next.expect("it was sent").expose()), (&[BYTE; 32], &[BYTE; 32]));
    });
    assert_eq!(released, 0);
    let given = left_behind(|| {
        let given = OwnerHalf { disk: DISK, generation: 1, key: key() };
        let message = wire::GiveClusterKeyRequest::from(given);
        drop(Zeroizing::new(message.encode_to_vec()));
        assert_eq!(OwnerHalf::try_from(message).expect("well-formed").key.expose(), &[BYTE; 32]);
    });
    assert_eq!(given, 0);
}

/// Proves: D8
#[test]
fn a_seal_that_is_written_and_opened_leaves_nothing_behind() {
    let left = left_behind(|| {
        let key = SigningKey::from_seed(secret());
        let holder = Holder { cluster: CLUSTER, machine: machine_id(&key.public()) };
        let node_name = NodeName::derived(holder.machine);
        let identity = identity::Identity {
            key: key.into(),
            holder,
            name: node_name.clone(),
            certificate: vec![1; 700],
            ca_certificate: vec![2; 700],
        };
        let body = Body {
            local_key: LocalKey(secret()),
            identity: Arc::new(identity),
            owner_pub_key: owner().public(),
            owner_recovery: RecoveryPubKey::of(&Secret::take(&mut [8; 32])),
            level: Level::Encrypted,
            cold_start: ColdStart::Automatic,
            minimum_header: 1,
            minimum_directory: 1,
            config: ConfigDigest([9; 32]),
            disk: DISK,
            key_generation: 1,
        };
        let clear = Clear {
            binding: binding(),
            boot_class: BootClass::Direct,
            salt: [5; 32],
            network: NetworkConfig::Dhcp,
            prefixes: Prefixes::of(VPN_PREFIX),
            node_name,
            sealed_at: 1_800_000_000,
        };
        let root = SealRoot(secret());
        let bytes = seal::emit(1, &clear, &body, &root, [6; 12]).expect("fits");
        let SealFiles::Candidates(seals) = seal::read([&bytes, &vec![0; SLOT_BYTES]]).0 else { panic!("a seal") };
        let [Candidate::Member(sealed)] = &seals[..] else { panic!("a member's") };
        let opened = sealed.open(&root).expect("opens");
        assert_eq!(opened.local_key.expose(), &[BYTE; 32]);
        assert_eq!(opened.identity.key.seed().expose(), &[BYTE; 32]);
    });
    assert_eq!(left, 0);
}

/// Proves: D8
#[test]
fn the_first_contact_secret_of_a_config_leaves_nothing_behind() {
    let written = || EnrolmentConfig {
        node: None,
        first_contact: FirstContact(secret()),
        network: NetworkConfig::Dhcp,
        intent: Intent::Create(Create {
            owner_pub_key: owner().public(),
            owner_recovery: RecoveryPubKey::of(&Secret::take(&mut [8; 32])),
            level: Level::Encrypted,
            cold_start: ColdStart::Automatic,
            without_tpm: WithoutTpm::Refuse,
            prefixes: Prefixes::of(VPN_PREFIX),
            kubernetes_roles: [].into(),
        }),
    };
    let left = left_behind(|| {
        let bytes = written().sign(&owner()).expect("a machine takes it");
        let read = config::read(&bytes).expect("reads").config;
        assert_eq!(read.first_contact.expose(), &[BYTE; 32]);
        let transcript = Transcript {
            exporter: [1; 32],
            leaf_spki: [2; 32],
            ca_spki: [3; 32],
            machine: MachineId([3; 16]),
            config: ConfigDigest([9; 32]),
        };
        assert_ne!(prove(&read.first_contact, &transcript), [0; 32]);
    });
    assert_eq!(left, 0);
}

/// Proves: D8
#[test]
fn an_identity_in_the_tls_library_leaves_nothing_behind() {
    let key = PrivateKey::ed25519(&secret()).expect("a key");
    assert_eq!(left_behind(|| drop(key.to_pkcs8().expect("exports"))), 0);
    let again = || {
        let exported = key.to_pkcs8().expect("exports");
        assert!(exported.expose().windows(32).any(|part| part == [BYTE; 32]), "what is looked for is in it");
        drop(PrivateKey::from_pkcs8(exported.expose()).expect("loads"));
    };
    assert_eq!(left_behind(again), 0);
    let served = || {
        let chain = vec![owner_certificate(&key).expect("a certificate")];
        let time = Arc::new(rustls::time_provider::DefaultTimeProvider);
        drop(server_config(TlsIdentity { chain, key: &key }, None, Owners::default(), time).expect("configured"));
    };
    assert_eq!(left_behind(served), 0);
}

/// PKCS#8 of the P-256 key whose private scalar is made of [`BYTE`]s (RFC 5915, section 3; without the public half).
fn p256() -> Zeroizing<Vec<u8>> {
    let before = [
        0x30, 0x41, 2, 1, 0, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d,
        3, 1, 7, 4, 0x27, 0x30, 0x25, 2, 1, 1, 4, 0x20,
    ];
    Zeroizing::new([&before[..], secret::<32>().expose()].concat())
}

/// Proves: D8
#[test]
fn the_key_of_an_authority_leaves_nothing_behind() {
    let left = left_behind(|| {
        let key = PrivateKey::from_pkcs8(&p256()).expect("a key");
        let exported = key.to_pkcs8().expect("exports");
        assert!(exported.expose().windows(32).any(|part| part == [BYTE; 32]), "what is looked for is in it");
        let chain = vec![owner_certificate(&key).expect("a certificate")];
        let time = Arc::new(rustls::time_provider::DefaultTimeProvider);
        drop(server_config(TlsIdentity { chain, key: &key }, None, Owners::default(), time).expect("configured"));
    });
    assert_eq!(left, 0);
}
