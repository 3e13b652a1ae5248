//! Effects of create, by what they carry: each secret went where it belongs, and nothing random is used twice.

use std::collections::BTreeSet;
use std::convert::Infallible;

use keys::header::{Copies, Copy, Header, HeaderState};
use keys::record::Record;
use keys::recovery;
use keys::seal::{self, Body, Candidate};
use keys::two_slot::{NextSlot, Slot};
use model::{BootClass, Uuid};

use super::*;
use crate::config::{self, Intent, WithoutTpm};
use crate::files::NextWrites;
use crate::fixture;
use crate::making::FIRST_HEADER;
use crate::step::Effect;
use crate::world::{Chip, Cut, Ended, Somebody, World, authorities};

/// Random bytes that tell which draw they came from: the n-th draw is n, n, n, ….
fn numbered() -> CreationMaterial {
    let mut draw = 0;
    let material = CreationMaterial::draw(|bytes| {
        draw += 1;
        bytes.fill(draw);
        Ok::<(), Infallible>(())
    });
    let Ok(material) = material;
    material
}

/// All that a create of some level writes.
struct Written {
    provisional: Header,
    committed: Header,
    record: Record,
    seal: Body,
    holder: Holder,
    random: CreationMaterial,
}

fn written(level: Level) -> Written {
    let config = fixture::config(level, WithoutTpm::Unprotected).sign(&fixture::owner()).expect("a good config");
    let issued = IssuedCertificates {
        ca_spki: vec![0xca],
        ca_certificate: b"CA certificate".to_vec(),
        machine_certificate: b"machine certificate".to_vec(),
    };
    let first = NextSlot::FIRST;
    let config::VerifiedConfig { config, digest } = config::read(&config).expect("it verifies");
    let Intent::Create(create) = config.intent else { panic!("it creates") };
    let next = NextWrites { seal: first, share: first, directory: first, record: first };
    let (node, network, boot_class) = (config.node, config.network, BootClass::Direct);
    let site = Site { node, network, digest, boot_class, next, attempt: None };
    let creation = Creation { site, create, first_contact: config.first_contact };
    let draft = creation.draft(numbered(), authorities(issued), vec!["192.0.2.10:7836".into()]);
    let holder = draft.holder;
    let (plan, member) = draft.plan::<Chip, _>(None, &Somebody, 1_790_000_000).expect("fits");
    assert_eq!(member.identity.holder, holder);
    let effects = plan.effects();

    let random = numbered();
    let header = |wanted: HeaderState| {
        let mut copies = effects.iter().filter_map(|effect| {
            let Effect::WriteHeader { state, bytes, .. } = effect else { return None };
            (*state == wanted).then_some(bytes)
        });
        let (first, second) = (copies.next().expect("one copy"), copies.next().expect("two copies"));
        assert!(first == second && copies.next().is_none(), "both places get the same header");
        let Copy::Valid(header) = Copy::read(&first[..]) else { panic!("a header") };
        header
    };
    let file = |wanted: File| {
        let bytes = effects.iter().find_map(|effect| {
            let Effect::WriteEsp { file, bytes, .. } = effect else { return None };
            (*file == wanted).then_some(bytes)
        });
        bytes.expect("the file is written")
    };
    let record = Slot::read(File::Record, file(File::Record)).expect("a record");
    let blank = vec![0; keys::two_slot::SLOT_BYTES];
    let (seal::SealFiles::Candidates(seals), _) = seal::read([file(File::Seal), &blank]) else { panic!("a seal") };
    let [Candidate::Member(sealed)] = &seals[..] else { panic!("a member's") };
    let opened = sealed.open(&random.fresh.seal_root).expect("the root opens the seal");
    Written {
        provisional: header(HeaderState::Provisional),
        committed: header(HeaderState::Committed),
        record: Record::decode(record.clear()).expect("a record"),
        seal: opened,
        holder,
        random,
    }
}

/// Proves: D12
#[test]
fn the_owner_opens_volume_key_and_master_secret() {
    let private = fixture::secret(2);
    for level in [Level::Encrypted, Level::Authenticated] {
        let written = written(level);
        let context = |kind| SecretContext {
            kind,
            cluster: written.holder.cluster,
            machine: written.holder.machine,
            disk: written.random.disk,
            key_generation: FIRST_KEY,
        };
        for header in [&written.provisional, &written.committed] {
            let slot = header.lock.as_ref().and_then(|lock| lock.owner).expect("an owner slot, by default");
            let opened = recovery::open(&private, &context(SecretKind::VolumeKey), &slot).expect("it is the owner's");
            assert_eq!(opened.expose(), written.random.fresh.volume_key.0.expose());
        }
        assert_eq!(written.record.context, context(SecretKind::MasterSecret));
        let opened = recovery::open(&private, &written.record.context, &written.record.sealed);
        assert_eq!(opened.expect("it is the owner's").expose(), written.random.master_secret.0.expose());
    }
}

/// Proves: D3
#[test]
fn each_random_value_is_drawn_by_itself_and_used_in_its_place() {
    let drawn = numbered();
    let mut disk = [4; 16];
    (disk[6], disk[8]) = (0x44, 0x84);
    assert_eq!(drawn.disk, DiskUuid(Uuid(disk)), "a random UUID, version 4");
    let secrets = [
        *drawn.identity.seed().expose(),
        *drawn.local_key.0.expose(),
        *drawn.master_secret.0.expose(),
        *drawn.fresh.volume_key.0.expose(),
        *drawn.fresh.seal_root.0.expose(),
        drawn.fresh.provisional_salt,
        drawn.fresh.committed_salt,
        drawn.fresh.seal_salt,
    ];
    let different: BTreeSet<[u8; 32]> = secrets.into_iter().collect();
    assert_eq!(different.len(), secrets.len(), "no two from one draw");
    for value in secrets {
        assert!(value[0] != 0 && value == [value[0]; 32], "drawn to its last byte: {value:?}");
    }
    let mut vpn_key = [5; 32];
    (vpn_key[0], vpn_key[31]) = (0, 0x45);
    assert_eq!(drawn.vpn_key.expose(), &vpn_key, "clamped, as WireGuard keeps it");
    let nonce = drawn.fresh.seal_nonce;
    assert!(nonce[0] != 0 && nonce == [nonce[0]; 12]);
    assert!(different.iter().all(|value| value[0] != nonce[0]), "nor the nonce");

    let written = written(Level::Authenticated);
    let salt = |header: &Header| header.lock.as_ref().expect("locked").salt;
    assert_eq!(salt(&written.provisional), drawn.fresh.provisional_salt);
    assert_eq!(salt(&written.committed), drawn.fresh.committed_salt);
    assert_eq!(written.seal.local_key.expose(), drawn.local_key.expose());
    assert_eq!(written.seal.identity.key.seed().expose(), drawn.identity.seed().expose());
}

/// The seal does not ask for more than a cut before the commit has left.
///
/// Proves: D4
#[test]
fn the_seal_of_create_opens_the_provisional_header_too() {
    let written = written(Level::Authenticated);
    assert_eq!((written.provisional.generation, written.committed.generation), (FIRST_HEADER, FIRST_HEADER + 1));
    assert_eq!(written.seal.minimum_header, FIRST_HEADER);
}

/// Proves: D3 D4
#[test]
fn a_commit_after_a_cut_writes_both_copies() {
    for level in Level::ALL {
        let mut cuts = 0;
        for after in 0..24 {
            let mut world = World::flashed(*level, Some(Chip::default()));
            // A cut at the border of two effects, so that no copy is torn.
            let cut = world.boot(Some(Cut { after, sectors: 0 }));
            let sealed = world.slots(File::Seal).iter().any(|slot| slot.iter().any(|byte| *byte != 0));
            if cut != Ended::Cut || !sealed || world.committed() {
                continue;
            }
            cuts += 1;
            assert!(matches!(world.boot(None), Ended::Running(_)));
            let Copies([Copy::Valid(first), Copy::Valid(second)]) = Copies::read(&world.headers[0], &world.headers[1])
            else {
                panic!("two headers")
            };
            assert_eq!((first.state, &first), (HeaderState::Committed, &second));
        }
        assert_eq!(cuts, 1, "one border lies between seal and commit");
    }
}
