//! Files of the data partition through the life of a member: what each start finds, behind each cut and each damaged block.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use cluster::desired::{DesiredShares, EtcdPart, KnownCoordinator};
use cluster::peers::PeerBook;
use cluster::record::{OwnerRecord, Standing};
use cluster::state::StateVersion;
use model::{KubernetesRole, MachineId, OwnerPubKey, Prefixes};
use pki::UnixTime;
use rustix::io::Errno;

use super::*;

fn keys() -> CoordinatorKeys {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let authority = |kind| {
        let authority = Authority::create(kind, now).expect("made");
        let key = authority.export_key().expect("exported").expose().to_vec();
        AuthorityKeys { certificate: authority.certificate().to_vec(), key: key.into() }
    };
    let service_accounts = PrivateKey::generate().expect("made").to_pkcs8().expect("exported");
    CoordinatorKeys {
        master_secret: MasterSecret(Secret::take(&mut [2; 32])),
        cairn: authority(AuthorityKind::Cairn),
        etcd: authority(AuthorityKind::Etcd),
        kubernetes: authority(AuthorityKind::Kubernetes),
        front: authority(AuthorityKind::Front),
        service_accounts: service_accounts.expose().to_vec().into(),
    }
}

/// Desired state of a machine that created a cluster.
fn desired() -> Desired {
    let prefixes = Prefixes::of(model::VPN_PREFIX);
    let recovery = keys::recovery::RecoveryPubKey::of(&Secret::take(&mut [4; 32]));
    Desired {
        at: None,
        look: None,
        standing: Standing::Member,
        assignment: model::Assignment::first(&prefixes, KubernetesRole::ALL.iter().copied().collect()),
        prefixes,
        coordinators: [coordinator(1)].into(),
        etcd: EtcdPart::Voter,
        shares: DesiredShares::default(),
        owners: vec![OwnerRecord { key: OwnerPubKey([5; 32]), recovery }],
        level: model::Level::Encrypted,
        cold_start: model::ColdStart::Automatic,
    }
}

fn coordinator(n: u8) -> (MachineId, KnownCoordinator) {
    let name = model::NodeName::derived(MachineId([n; 16]));
    (MachineId([n; 16]), KnownCoordinator { name, vpn_ip: [10, 118, 0, n].into(), votes: true, control_plane: true })
}

/// Desired state of the second machine, which is to be a coordinator beside the first.
fn second() -> Desired {
    let pods = Some(model::pod_prefix(1));
    let kubernetes = KubernetesRole::ALL.iter().copied().collect();
    let assignment = model::Assignment::new([10, 118, 0, 2].into(), ClusterRole::Coordinator, kubernetes, pods);
    Desired {
        at: Some(VERSION),
        assignment: assignment.expect("they fit"),
        coordinators: [1, 2].map(coordinator).into(),
        etcd: EtcdPart::Out,
        ..desired()
    }
}

const VERSION: StateVersion = StateVersion { recoveries: 0, revision: 7 };

fn joined(desired: Desired) -> NewData {
    let vpn_key = VpnPrivKey(Secret::take(&mut [1; 32]));
    NewData::Joined { desired, vpn_key, peers: PeerBook::of_answer(VERSION, vec![]) }
}

fn data(keys: CoordinatorKeys) -> NewData {
    NewData::Created {
        desired: desired(),
        vpn_key: VpnPrivKey(Secret::take(&mut [1; 32])),
        first_contact: FirstContact(Secret::take(&mut [3; 32])),
        keys,
    }
}

#[test]
fn what_is_written_at_create_is_read_at_every_start() {
    let place = tempfile::tempdir().expect("a place for files");
    let root = place.path().join("cairn");
    let root = root.to_str().expect("a plain path");
    let created = keys();
    let (etcd, service_accounts) = (created.etcd.certificate.clone(), created.service_accounts.clone());
    write(root, &data(created)).expect("writes");
    let kept = load(root).expect("loads");
    assert_eq!(kept.desired, desired());
    assert_eq!(kept.vpn.expose(), &[1; 32]);
    let authorities = kept.authorities.expect("it is a coordinator's");
    assert_eq!(authorities.etcd.certificate().as_ref(), etcd);
    assert_eq!(authorities.service_accounts.to_pkcs8().expect("exported").expose(), &service_accounts[..]);
    assert_eq!(kept.first_contact.expect("not claimed yet").expose(), &[3; 32]);
    assert_eq!(load_master_secret(root).expect("loads").expose(), &[2; 32]);
}

#[test]
fn a_node_holds_nothing_that_signs() {
    let place = tempfile::tempdir().expect("a place for files");
    let root = place.path().join("cairn");
    let root = root.to_str().expect("a plain path");
    let node = second().as_node();
    write(root, &joined(node.clone())).expect("writes");
    let kept = load(root).expect("loads");
    assert_eq!((kept.desired, kept.authorities.is_none()), (node, true));
    assert_eq!((kept.vpn.expose(), kept.first_contact.is_none()), (&[1; 32], true));
    assert!(load_master_secret(root).is_err());
    let first = PeerBook::of_answer(VERSION, vec![]);
    assert_eq!(peers::read(Path::new(root)).expect("reads"), Some(first), "the mesh begins with them");
}

/// A machine that joined becomes a coordinator, begins etcd, and becomes a node again. A cut at each step leaves a node or a
/// coordinator.
#[test]
fn what_makes_a_coordinator_comes_whole_and_goes_whole() {
    let place = tempfile::tempdir().expect("a place for files");
    let (first, root) = (place.path().join("first"), place.path().join("cairn"));
    let (first, root) = (first.to_str().expect("a plain path"), root.to_str().expect("a plain path"));
    let created = keys();
    let certificate = created.cairn.certificate.clone();
    write(first, &data(created)).expect("writes");
    let (node, coordinator) = (second().as_node(), second());
    write(root, &joined(node.clone())).expect("writes");
    keep(Path::new(root), &coordinator).expect("kept");
    let starts_as = || {
        let kept = load(root).expect("loads");
        (kept.desired, kept.authorities.is_some())
    };
    assert_eq!(starts_as(), (coordinator.clone(), false), "without keys it is a node that is to be one");

    let given = hand_over(first).expect("reads");
    assert!(matches!(take_up(root, &given, b"another CA"), Err(LoadError::OtherCluster)));
    assert!(!exists(Path::new(root), MASTER_SECRET).expect("seen"), "nothing of another cluster is kept");
    take_up(root, &given, &certificate).expect("takes");
    // Cut before etcd has begun: it would know no member, so it is a node and asks again.
    let kept = load(root).expect("loads");
    assert_eq!((kept.desired, kept.authorities.is_none()), (coordinator.clone(), true));
    take_up(root, &given, &certificate).expect("takes again");
    fs::create_dir_all(place.path().join(ETCD_BEGAN)).expect("made");
    assert_eq!(starts_as(), (coordinator.clone(), true));
    assert_eq!(load_master_secret(root).expect("loads").expose(), &[2; 32]);

    // Cut while keys were erased, and told meanwhile that it is one after all: it asks for all of them again.
    durable::remove(&Path::new(root).join("etcd.key")).expect("removed");
    assert_eq!(starts_as(), (coordinator, false));
    take_up(root, &given, &certificate).expect("takes again");

    // Cut behind the first step of the other way: a node, though keys and etcd's data are there still.
    keep(Path::new(root), &node).expect("kept");
    assert_eq!(starts_as(), (node.clone(), false));
    for _ in 0..2 {
        lay_down(root).expect("erased, or nothing left to do");
        let left: Vec<_> = fs::read_dir(root).expect("readable").map(|it| it.expect("readable").file_name()).collect();
        assert_eq!(left.len(), 3, "desired state, peers and the machine's own key: {left:?}");
    }
    assert_eq!(starts_as(), (node, false));
}

/// Proves: D14, O1
#[test]
fn a_coordinator_is_one_at_once_only_when_it_is_whole() {
    let place = tempfile::tempdir().expect("a place for files");
    let root = place.path().join("cairn");
    let text = root.to_str().expect("a plain path");
    write(text, &data(keys())).expect("writes");
    let coordinates = || load(text).expect("loads").authorities.is_some();
    assert!(coordinates(), "its etcd is its own to begin");
    keep(&root, &Desired { at: Some(VERSION), ..desired() }).expect("kept");
    assert!(!coordinates() && super::desired(text).expect("reads").1, "it has keys, and no etcd that has begun");
    keep(&root, &desired()).expect("kept");
    for name in coordinator_files() {
        let bytes = fs::read(root.join(&name)).expect("there");
        durable::remove(&root.join(&name)).expect("removed");
        assert!(!coordinates() && !super::desired(text).expect("reads").1, "{name}");
        fs::write(root.join(&name), bytes).expect("writable");
    }
    assert!(coordinates());
}

/// Proves: O1
#[test]
fn a_disk_of_an_older_cairn_is_refused_by_name() {
    let place = tempfile::tempdir().expect("a place for files");
    let root = place.path().join("cairn");
    let text = root.to_str().expect("a plain path");
    write(text, &data(keys())).expect("writes");
    let bytes = keys::assignment::encode(&desired().assignment);
    fs::write(root.join(ASSIGNMENT), &bytes).expect("writable");
    load(text).expect("what it is to be is there");
    fs::remove_file(root.join(DESIRED)).expect("there");
    let before = below(place.path());
    let error = load(text).expect_err("it is another format");
    assert!(error.to_string().starts_with("this data partition was written by an older Cairn"), "{error}");
    assert_eq!(below(place.path()), before);
    fs::remove_file(root.join(ASSIGNMENT)).expect("there");
    assert!(matches!(load(text), Err(LoadError::File(name, _)) if name == DESIRED));
}

/// Every path below `place`.
fn below(place: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(place).expect("readable") {
        let path = entry.expect("readable").path();
        if fs::metadata(&path).expect("seen").is_dir() {
            found.append(&mut below(&path));
        }
        found.insert(path);
    }
    found
}

/// Each path in turn answers as a damaged block does, on a coordinator that created its cluster and on one that joined.
/// Proves: D14, O1
#[test]
fn an_error_makes_no_other_machine_and_erases_nothing() {
    for joined in [false, true] {
        let place = tempfile::tempdir().expect("a place for files");
        let root = place.path().join("cairn");
        let root = root.to_str().expect("a plain path");
        write(root, &data(keys())).expect("writes");
        fs::create_dir_all(place.path().join(ETCD_BEGAN)).expect("made");
        let desired = if joined { second() } else { desired() };
        if joined {
            put(Path::new(root), peers::FILE, &[]).expect("written");
            keep(Path::new(root), &desired).expect("kept");
        }
        let before = below(place.path());
        assert_eq!(before.len(), 17 + usize::from(joined));
        let kept = load(root).expect("nothing is wrong");
        assert_eq!((kept.desired, kept.authorities.is_some()), (desired, true));
        let needed = before.iter().filter(|path| !path.ends_with(peers::FILE)); // peers are told again
        for (path, errno) in needed.flat_map(|path| [Errno::IO, Errno::ILSEQ].map(|errno| (path, errno))) {
            let error = durable::faults::with(path, errno, || load(root)).expect_err("it needs each of them");
            assert!(durable::is_damage(&error), "{}: {error:?}", path.display());
            assert_eq!(below(place.path()), before, "{}", path.display());
        }
    }
}

/// Proves: D8
#[test]
fn nobody_else_reads_them() {
    let place = tempfile::tempdir().expect("a place for files");
    let root = place.path().join("cairn");
    write(root.to_str().expect("a plain path"), &data(keys())).expect("writes");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&root), 0o700);
    for entry in fs::read_dir(&root).expect("readable") {
        let path = entry.expect("readable").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn the_first_contact_secret_is_forgotten_once_and_for_all() {
    let place = tempfile::tempdir().expect("a place for files");
    let root = place.path().join("cairn");
    let root = root.to_str().expect("a plain path");
    write(root, &data(keys())).expect("writes");
    forget_first_contact(root).expect("removed");
    forget_first_contact(root).expect("nothing left to do");
    assert!(load(root).expect("loads").first_contact.is_none());
}

#[test]
fn damaged_files_are_named() {
    let place = tempfile::tempdir().expect("a place for files");
    let root = place.path().join("cairn");
    let text = root.to_str().expect("a plain path");
    write(text, &data(keys())).expect("writes");
    fs::write(root.join(VPN), [0; 31]).expect("writable");
    assert!(matches!(load(text), Err(LoadError::Size(name)) if name == VPN));
    fs::write(root.join(VPN), [0; 32]).expect("writable");
    fs::copy(root.join("etcd.key"), root.join("cairn.key")).expect("writable");
    assert!(matches!(load(text), Err(LoadError::Authority(AuthorityKind::Cairn, _))));
    fs::write(root.join(DESIRED), "king").expect("writable");
    assert!(matches!(load(text), Err(LoadError::Desired(_))));
}
