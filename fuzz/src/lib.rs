//! Plain functions, one for each parser of foreign bytes, and the table of them. A function returns whether the bytes
//! meant something; it fails by panicking, which no bytes may bring about.
//!
//! `tests/replay.rs` replays `corpus/` and thousands of seeded mutations of it on every run; `main.rs` searches on by
//! hand (`cargo xtask fuzz`). To add a parser: a function, a row in [`TARGETS`], a folder `corpus/<name>/` with a seed
//! that is accepted (`good-*`) and some that are not (`bad-*`).
//!
//! # Invariants
//! - No parser of foreign bytes panics: `fuzz/tests/replay.rs`

pub mod calls;
pub mod certificates;
pub mod corpus;
pub mod images;
pub mod programs;
pub mod records;
pub mod snapshots;
pub mod table;
pub mod volumes;

use std::convert::Infallible;

use api::HandedIn;
use attest::{CommandCode, response, sealing_pcrs};
use cluster::desired::Desired;
use cluster::peers::PeerBook;
use cluster::redeem::{RedeemAnswer, RedeemBody, RedeemRequest};
use formats::strict::{self, Field, Kind, Message, Rule};
use keys::activation::{BlankMachine, Code, Connection, Tries};
use keys::coordinator::CoordinatorKeys;
use keys::header::{Copy, HEADER_BYTES};
use keys::identity::SigningKey;
use keys::introduction::{ClusterPlace, OwnerKeys, user_key};
use keys::purpose::Purpose;
use keys::ticket::Ticket;
use keys::two_slot::{self, File, SLOT_BYTES, Slot};
use model::{BootClass, MachineId, MachinePubKey, NodeName, Secret};
use qemu::network::{Decoder, Frame, Heard, Runt, Stage, TooLong, control, hear_socks};

/// A parser of foreign bytes.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Name of the parser, and of its folder in `corpus/`.
    pub name: &'static str,
    /// Parses, checks what must hold of every result, and says whether the bytes were accepted.
    pub run: fn(&[u8]) -> ParseVerdict,
    /// Origin of the bytes: who may have written them.
    pub because: &'static str,
}

/// Verdict of a parser on its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseVerdict {
    /// The bytes meant something.
    Accepted,
    /// The bytes were refused with an error.
    Refused,
}

/// All targets.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "strict", run: strict, because: "every stored protobuf goes through it first" },
    FuzzTarget { name: "enrolment", run: enrolment, because: "anyone who holds the disk can write the ESP" },
    FuzzTarget { name: "enrolment_body", run: enrolment_body, because: "a signed body may come from another version" },
    FuzzTarget { name: "header", run: header, because: "anyone who holds the disk can write the data partition" },
    FuzzTarget { name: "slot", run: slot, because: "anyone who holds the disk can write the ESP" },
    FuzzTarget { name: "seal_clear", run: seal_clear, because: "read before anything is authenticated" },
    FuzzTarget { name: "seal_body", run: seal_body, because: "a sealed body may come from another version" },
    FuzzTarget { name: "attempt_clear", run: attempt_clear, because: "read before anything is authenticated" },
    FuzzTarget { name: "attempt_body", run: attempt_body, because: "a sealed body may come from another version" },
    FuzzTarget {
        name: "assignment",
        run: assignment,
        because: "a disk that is only encrypted gives whatever was written on it",
    },
    FuzzTarget {
        name: "desired",
        run: desired,
        because: "a disk that is only encrypted gives whatever was written on it",
    },
    FuzzTarget { name: "share", run: share, because: "read before anything is authenticated" },
    FuzzTarget { name: "directory", run: directory, because: "a signed directory may come from another version" },
    FuzzTarget { name: "record", run: record, because: "the owner's tool opens records that machines show it" },
    FuzzTarget { name: "ticket", run: ticket, because: "a ticket comes by chat and by ESP" },
    FuzzTarget { name: "ticket_text", run: ticket_text, because: "people type and paste it" },
    FuzzTarget { name: "owner_text", run: owner_text, because: "people type and paste it" },
    FuzzTarget { name: "user_text", run: user_text, because: "people type and paste it" },
    FuzzTarget { name: "place_text", run: place_text, because: "people type and paste it" },
    FuzzTarget { name: "activation_code", run: activation_code, because: "people type it" },
    FuzzTarget { name: "handed_in", run: handed_in, because: "strangers send it to a blank machine's public API" },
    FuzzTarget { name: "redeem", run: redeem, because: "strangers send it to the public API" },
    FuzzTarget { name: "redeem_body", run: redeem_body, because: "whoever holds a ticket signs what they like" },
    FuzzTarget {
        name: "redeem_answer",
        run: redeem_answer,
        because: "a coordinator may run another version, or be hostile",
    },
    FuzzTarget {
        name: "contribution",
        run: contribution,
        because: "anybody with a machine's key sends it to a machine that waits",
    },
    FuzzTarget { name: "peers_news", run: peers_news, because: "a coordinator may run another version, or be hostile" },
    FuzzTarget {
        name: "coordinator_keys",
        run: coordinator_keys,
        because: "a coordinator may run another version, or be hostile",
    },
    FuzzTarget {
        name: "peers_known",
        run: peers_known,
        because: "a disk that is only encrypted gives whatever was written on it",
    },
    FuzzTarget { name: "public_state", run: calls::public_state, because: "anybody may answer at a machine's address" },
    FuzzTarget { name: "claim", run: calls::claim, because: "anybody may answer at a machine's address" },
    FuzzTarget {
        name: "proof_of_code",
        run: calls::proof_of_code,
        because: "anybody may answer at a machine's address",
    },
    FuzzTarget {
        name: "volume_publish",
        run: volumes::publish,
        because: "kubelet may be of another version, or be led by a hostile object",
    },
    FuzzTarget {
        name: "volume_unpublish",
        run: volumes::unpublish,
        because: "kubelet may be of another version, or be led by a hostile object",
    },
    FuzzTarget {
        name: "volume_expand",
        run: volumes::expand,
        because: "kubelet may be of another version, or be led by a hostile object",
    },
    FuzzTarget {
        name: "volume_folder",
        run: volumes::folder,
        because: "a disk that is only encrypted gives whatever was written on it",
    },
    FuzzTarget {
        name: "key_asked",
        run: calls::key_asked,
        because: "anybody with a machine's key sends it to the public API",
    },
    FuzzTarget {
        name: "key_released",
        run: calls::key_released,
        because: "a coordinator may run another version, or be hostile",
    },
    FuzzTarget { name: "recovery", run: calls::recovery, because: "a machine may run another version, or be hostile" },
    FuzzTarget { name: "key_given", run: calls::key_given, because: "an owner's tool may be of another version" },
    FuzzTarget {
        name: "addresses_asked",
        run: calls::addresses_asked,
        because: "a member may run another version, or be hostile",
    },
    FuzzTarget { name: "announced", run: calls::announced, because: "a member may run another version, or be hostile" },
    FuzzTarget {
        name: "handed_over",
        run: calls::handed_over,
        because: "a coordinator may run another version, or be hostile",
    },
    FuzzTarget { name: "tunnel_part", run: calls::tunnel_part, because: "an owner's tool may be of another version" },
    FuzzTarget {
        name: "machine_change",
        run: calls::machine_change,
        because: "an owner's tool may be of another version",
    },
    FuzzTarget { name: "ticket_offer", run: calls::ticket_offer, because: "an owner's tool may be of another version" },
    FuzzTarget {
        name: "ticket_revoked",
        run: calls::ticket_revoked,
        because: "an owner's tool may be of another version",
    },
    FuzzTarget {
        name: "ticket_issued",
        run: calls::ticket_issued,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget {
        name: "machine_list",
        run: calls::machine_list,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget {
        name: "ticket_list",
        run: calls::ticket_list,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget { name: "user_added", run: calls::user_added, because: "an owner's tool may be of another version" },
    FuzzTarget { name: "user_removed", run: calls::user_removed, because: "an owner's tool may be of another version" },
    FuzzTarget {
        name: "user_list",
        run: calls::user_list,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget { name: "owner_added", run: calls::owner_added, because: "an owner's tool may be of another version" },
    FuzzTarget {
        name: "owner_removed",
        run: calls::owner_removed,
        because: "an owner's tool may be of another version",
    },
    FuzzTarget {
        name: "owner_list",
        run: calls::owner_list,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget { name: "registry_set", run: calls::registry_set, because: "an owner's tool may be of another version" },
    FuzzTarget {
        name: "registry_removed",
        run: calls::registry_removed,
        because: "an owner's tool may be of another version",
    },
    FuzzTarget {
        name: "registry_list",
        run: calls::registry_list,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget {
        name: "removal_checked",
        run: calls::removal_checked,
        because: "an owner's tool may be of another version",
    },
    FuzzTarget {
        name: "volume_list",
        run: calls::volume_list,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget { name: "etcd_listed", run: calls::etcd_listed, because: "a machine may run another version" },
    FuzzTarget {
        name: "etcd_defragmented",
        run: calls::etcd_defragmented,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget {
        name: "restore_stage",
        run: calls::restore_stage,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget {
        name: "snapshot",
        run: snapshots::snapshot,
        because: "an owner's file, which anybody may have written",
    },
    FuzzTarget {
        name: "volume_removed",
        run: calls::volume_removed,
        because: "an owner's tool may be of another version",
    },
    FuzzTarget {
        name: "publish_added",
        run: calls::publish_added,
        because: "an owner's tool may be of another version",
    },
    FuzzTarget {
        name: "publish_list",
        run: calls::publish_list,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget {
        name: "published_part",
        run: published_part,
        because: "a coordinator may run another version, or be hostile",
    },
    FuzzTarget {
        name: "registries_part",
        run: registries_part,
        because: "a coordinator may run another version, or be hostile",
    },
    FuzzTarget {
        name: "peers_asked",
        run: calls::peers_asked,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget { name: "status", run: calls::status, because: "a machine may run another version, or be hostile" },
    FuzzTarget {
        name: "conditions",
        run: calls::conditions,
        because: "a machine may run another version, or be hostile",
    },
    FuzzTarget { name: "services", run: calls::services, because: "a machine may run another version, or be hostile" },
    FuzzTarget { name: "timeline", run: calls::timeline, because: "a machine may run another version, or be hostile" },
    FuzzTarget { name: "certificate", run: certificates::shown, because: "anybody shows one in a handshake" },
    FuzzTarget {
        name: "certificate_request",
        run: certificates::request,
        because: "an owner's tool may be of another version",
    },
    FuzzTarget { name: "etcd_page", run: programs::etcd_page, because: "etcd may hold what another version wrote" },
    FuzzTarget { name: "etcd_watch", run: programs::etcd_watch, because: "etcd may hold what another version wrote" },
    FuzzTarget { name: "etcd_transaction", run: programs::etcd_transaction, because: "etcd is another program" },
    FuzzTarget { name: "etcd_members", run: programs::etcd_members, because: "its members say where they are reached" },
    FuzzTarget { name: "etcd_health", run: programs::etcd_health, because: "it comes from other machines' etcd" },
    FuzzTarget { name: "kube_node", run: programs::kube_node, because: "whoever may, writes to the apiserver" },
    FuzzTarget { name: "kube_pods", run: programs::kube_pods, because: "whoever may, writes to the apiserver" },
    FuzzTarget { name: "kube_nodes", run: programs::kube_nodes, because: "whoever may, writes to the apiserver" },
    FuzzTarget { name: "kube_claims", run: programs::kube_claims, because: "whoever may, writes to the apiserver" },
    FuzzTarget { name: "kube_volumes", run: programs::kube_volumes, because: "whoever may, writes to the apiserver" },
    FuzzTarget { name: "kube_services", run: programs::kube_services, because: "whoever may, writes to the apiserver" },
    FuzzTarget { name: "kube_slices", run: programs::kube_slices, because: "whoever may, writes to the apiserver" },
    FuzzTarget { name: "kube_lease", run: programs::kube_lease, because: "whoever may, writes to the apiserver" },
    FuzzTarget {
        name: "netpolicy_objects",
        run: programs::netpolicy_objects,
        because: "whoever may, writes to the apiserver",
    },
    FuzzTarget {
        name: "netpolicy_part",
        run: programs::netpolicy_part,
        because: "a coordinator may run another version, or be hostile",
    },
    FuzzTarget { name: "kubelet_summary", run: programs::kubelet_summary, because: "a worker may be hostile" },
    FuzzTarget { name: "metrics_page", run: programs::metrics_page, because: "labels say what others have named" },
    FuzzTarget { name: "etcd_key", run: records::etcd_key, because: "etcd may hold what another version wrote" },
    FuzzTarget { name: "etcd_record", run: records::etcd_record, because: "etcd may hold what another version wrote" },
    FuzzTarget { name: "dhcp_message", run: dhcp_message, because: "any machine on the link can send one" },
    FuzzTarget { name: "dhcp_frame", run: dhcp_frame, because: "any machine on the link can send one" },
    FuzzTarget { name: "frames", run: frames, because: "a guest says what its network card sends" },
    FuzzTarget {
        name: "dns_query",
        run: dns_query,
        because: "a guest asks the virtual network's resolver what it likes",
    },
    FuzzTarget {
        name: "control_question",
        run: control_question,
        because: "any program of the same user can ask a cluster's network",
    },
    FuzzTarget {
        name: "nft_text",
        run: nft_text,
        because: "kube-proxy writes into it what anybody chooses who may make a Service",
    },
    FuzzTarget { name: "image_manifest", run: images::manifest, because: "an image is whatever its maker wrote" },
    FuzzTarget { name: "image_name", run: images::name, because: "an archive calls its images what it likes" },
    FuzzTarget { name: "image_archive", run: images::archive, because: "an owner may be handed any file as an image" },
    FuzzTarget {
        name: "socks",
        run: socks,
        because: "any program of the same host can ask the proxy into a virtual network",
    },
    FuzzTarget { name: "tpm_answer", run: tpm_answer, because: "the bus to the TPM can be tampered with" },
    FuzzTarget { name: "pe", run: pe, because: "updates and the loader's stub come from elsewhere" },
    FuzzTarget { name: "gpt", run: table::read, because: "stage 0 looks for its slot on whatever disk is plugged in" },
];

fn outcome<T, E>(result: &Result<T, E>) -> ParseVerdict {
    if result.is_ok() { ParseVerdict::Accepted } else { ParseVerdict::Refused }
}

/// The strict pass over a message that has every kind of field.
pub fn strict(bytes: &[u8]) -> ParseVerdict {
    const INNER: Message = Message {
        name: "Inner",
        fields: &[
            Field { number: 1, name: "text", kind: Kind::Text, rule: Rule::Optional },
            Field { number: 2, name: "inner", kind: Kind::Bytes, rule: Rule::Repeated },
        ],
    };
    const OUTER: Message = Message {
        name: "Outer",
        fields: &[
            Field { number: 1, name: "version", kind: Kind::U32, rule: Rule::Required },
            Field { number: 2, name: "flag", kind: Kind::Bool, rule: Rule::Optional },
            Field { number: 3, name: "list", kind: Kind::U64, rule: Rule::Repeated },
            Field { number: 4, name: "left", kind: Kind::Message(&INNER), rule: Rule::Arm("side") },
            Field { number: 5, name: "right", kind: Kind::Bytes, rule: Rule::Arm("side") },
            Field { number: 6, name: "address", kind: Kind::Fixed32, rule: Rule::Optional },
        ],
    };
    let checked = strict::check(bytes, &OUTER);
    let version = strict::version(bytes, &OUTER, "version", 1);
    assert!(checked.is_err() || matches!(version, Ok(Some(_))), "what passes has the version that is required");
    outcome(&checked)
}

/// An enrolment config as it lies on the ESP.
pub fn enrolment(bytes: &[u8]) -> ParseVerdict {
    outcome(&enrol::config::read(bytes))
}

/// The body of an enrolment config, signed by the owner with the seed 01…01, so that mutations get past the signature.
pub fn enrolment_body(bytes: &[u8]) -> ParseVerdict {
    let owner = SigningKey::from_seed(Secret::take(&mut [1; 32]));
    let signature = owner.sign(Purpose::Enrol, bytes);
    let signed = [&[0x0a], &varint(bytes.len())[..], bytes, &[0x12, 64], &signature].concat();
    let read = enrol::config::read(&signed);
    if let Ok(verified) = &read {
        verified.config.sign(&owner).expect("what a machine takes, the tool can write");
    }
    outcome(&read)
}

/// A copy of the data header: as it is, and with its checksum made right.
pub fn header(bytes: &[u8]) -> ParseVerdict {
    let mut bytes = padded(bytes, HEADER_BYTES);
    let read = |bytes: &[u8]| match Copy::read(bytes) {
        Copy::Valid(header) => {
            assert_eq!(header.to_bytes()[..], *bytes, "a header has one form only");
            ParseVerdict::Accepted
        }
        Copy::Blank | Copy::Refused(_) => ParseVerdict::Refused,
    };
    let outcome = read(&bytes);
    let checksum = keys::derive::sha256(&[&bytes[..480]]);
    bytes[480..512].copy_from_slice(&checksum);
    read(&bytes);
    outcome
}

/// A slot of a two-slot file, and what the clear part means to each of them. The bytes are also put into a slot as its
/// clear part, so that mutations get past the checksum.
pub fn slot(bytes: &[u8]) -> ParseVerdict {
    for file in File::ALL {
        let around =
            two_slot::emit(*file, 1, &bytes[..bytes.len().min(SLOT_BYTES / 2)], None).expect("half a slot fits");
        Slot::read(*file, &around).expect("our own");
        let _ = keys::seal::read([&around, &around]);
    }
    let bytes = padded(bytes, SLOT_BYTES);
    let mut outcome = ParseVerdict::Refused;
    for file in File::ALL {
        if let Ok(slot) = Slot::read(*file, &bytes) {
            seal_clear(slot.clear());
            share(slot.clear());
            directory(slot.clear());
            record(slot.clear());
            outcome = ParseVerdict::Accepted;
        }
    }
    let _ = keys::seal::read([&bytes, &bytes]);
    outcome
}

/// The clear part of a seal.
pub fn seal_clear(bytes: &[u8]) -> ParseVerdict {
    outcome(&keys::seal::Clear::decode(bytes))
}

/// The decrypted body of a seal.
pub fn seal_body(bytes: &[u8]) -> ParseVerdict {
    outcome(&keys::seal::Body::decode(bytes, &NodeName::derived(MachineId([0; 16]))))
}

/// The clear part of an attempt.
pub fn attempt_clear(bytes: &[u8]) -> ParseVerdict {
    outcome(&keys::attempt::AttemptClear::decode(bytes))
}

/// The decrypted body of an attempt.
pub fn attempt_body(bytes: &[u8]) -> ParseVerdict {
    outcome(&keys::attempt::Attempt::decode(bytes))
}

/// Assignment of a machine in its cluster, from its data partition.
pub fn assignment(bytes: &[u8]) -> ParseVerdict {
    let decoded = keys::assignment::decode(bytes);
    if let Ok(assignment) = &decoded {
        let again = keys::assignment::decode(&keys::assignment::encode(assignment));
        assert_eq!(again.as_ref(), Ok(assignment), "an assignment says the same again");
    }
    outcome(&decoded)
}

/// Desired state of a machine, from its data partition and from a coordinator.
pub fn desired(bytes: &[u8]) -> ParseVerdict {
    let decoded = Desired::decode(bytes);
    if let Ok(desired) = &decoded {
        assert_eq!(Desired::decode(&desired.encode()).as_ref(), Ok(desired), "a desired state says the same again");
    }
    outcome(&decoded)
}

/// Share of the cold-start key, in a slot of the ESP.
pub fn share(bytes: &[u8]) -> ParseVerdict {
    let decoded = keys::share::Share::decode(bytes);
    if let Ok(share) = &decoded {
        share.emit(1).expect("a share's blobs have bounds that fit");
    }
    outcome(&decoded)
}

/// The body of a directory, and the whole of it under a CA that did not sign it.
pub fn directory(bytes: &[u8]) -> ParseVerdict {
    let verified = keys::directory::Directory::verify(bytes, b"no CA", 0);
    assert!(verified.is_err(), "a directory without a CA is believed");
    let kept = keys::directory::KeptDirectory::verify(bytes, b"no CA", 0);
    assert!(kept.is_err(), "one of a slot is believed without a CA");
    outcome(&keys::directory::Directory::decode(bytes))
}

/// Recovery record, in a slot of the ESP.
pub fn record(bytes: &[u8]) -> ParseVerdict {
    let decoded = keys::record::Record::decode(bytes);
    if let Ok(record) = decoded {
        let slot = Slot::read(File::Record, &record.emit(1).expect("a record fits")).expect("our own");
        assert_eq!(keys::record::Record::decode(slot.clear()), Ok(record), "a record says the same again");
    }
    outcome(&decoded)
}

/// A ticket: what is read says the same again.
pub fn ticket(bytes: &[u8]) -> ParseVerdict {
    let decoded = Ticket::decode(bytes);
    if let Ok(ticket) = &decoded {
        let again = Ticket::from_text(&ticket.to_text()).expect("a ticket's text is read");
        assert_eq!(again.encode(), ticket.encode(), "a ticket says the same again");
    }
    outcome(&decoded)
}

/// A ticket's text, and the bytes in it.
pub fn ticket_text(bytes: &[u8]) -> ParseVerdict {
    outcome(&Ticket::from_text(&String::from_utf8_lossy(bytes)))
}

/// Text of an owner's keys: what is read says the same again.
pub fn owner_text(bytes: &[u8]) -> ParseVerdict {
    let read = OwnerKeys::from_text(&String::from_utf8_lossy(bytes));
    if let Ok(keys) = &read {
        assert_eq!(OwnerKeys::from_text(&keys.to_text()).as_ref(), Ok(keys), "an owner says the same again");
    }
    outcome(&read)
}

/// Text of a user's key: what is read says the same again.
pub fn user_text(bytes: &[u8]) -> ParseVerdict {
    let read = user_key(&String::from_utf8_lossy(bytes));
    if let Ok(key) = read {
        assert_eq!(user_key(&keys::introduction::user_text(key)), Ok(key), "a user says the same again");
    }
    outcome(&read)
}

/// Text of a cluster's place: what is read says the same again.
pub fn place_text(bytes: &[u8]) -> ParseVerdict {
    let read = ClusterPlace::from_text(&String::from_utf8_lossy(bytes));
    if let Ok(place) = &read {
        assert_eq!(ClusterPlace::from_text(&place.to_text()).as_ref(), Ok(place), "a place says the same again");
    }
    outcome(&read)
}

/// The code of a blank machine: what is read is shown so that it is read.
pub fn activation_code(bytes: &[u8]) -> ParseVerdict {
    let read = Code::from_text(&String::from_utf8_lossy(bytes));
    if let Ok(code) = &read {
        let again = Code::from_text(&code.to_text()).expect("a code's text is read");
        assert_eq!(*again.to_text(), *code.to_text(), "a code says the same again");
    }
    outcome(&read)
}

/// A config that somebody hands in, to a machine whose code nobody knows: it is read, and never looked at.
pub fn handed_in(bytes: &[u8]) -> ParseVerdict {
    let read = api::decode_handed_in(bytes);
    if let Ok(HandedIn { config, proof }) = &read {
        let mut waiting = BlankMachine::new(
            Code::draw(|code| {
                code.fill(0x5a);
                Ok::<(), Infallible>(())
            })
            .expect("drawn"),
        );
        let connection = Connection { exporter: [1; 32], leaf_spki: [2; 32] };
        let taken = waiting.handed_in(&connection, &mut Tries::default(), config, proof);
        assert!(taken.is_err(), "a config without the code is taken");
    }
    outcome(&read)
}

/// A request to redeem a ticket, on a connection that exports zeros.
pub fn redeem(bytes: &[u8]) -> ParseVerdict {
    outcome(&RedeemRequest::verify(bytes, MachinePubKey([1; 32]), &[0; 32]))
}

/// The body of one, as its signature would let it through.
pub fn redeem_body(bytes: &[u8]) -> ParseVerdict {
    outcome(&RedeemBody::decode(bytes))
}

/// Answer to a machine that redeems a ticket.
pub fn redeem_answer(bytes: &[u8]) -> ParseVerdict {
    let read = RedeemAnswer::decode(bytes);
    if let Ok(answer) = &read {
        RedeemAnswer::decode(&answer.encode()).expect("what was read is written so that it is read");
    }
    outcome(&read)
}

/// A share of the cold-start key on its way, and where machines were found: what is read is sent so that it is read.
pub fn contribution(bytes: &[u8]) -> ParseVerdict {
    let read = api::decode_contribution(bytes);
    let accepted = read.as_ref().map(|_| ()).map_err(|malformed| *malformed);
    if let Ok(given) = read {
        let again = api::wire::Contribution::from(given);
        keys::cold_start::Contribution::try_from(again).expect("what was read is sent so that it is read");
    }
    outcome(&accepted)
}

/// News of a cluster's machines: what is read says the same again.
pub fn peers_news(bytes: &[u8]) -> ParseVerdict {
    let read = api::decode_word(bytes);
    if let Ok(answer) = &read {
        let again = api::wire::PeersResponse::from(answer.clone());
        assert_eq!(cluster::Word::try_from(again).as_ref(), Ok(answer), "news say the same again");
    }
    outcome(&read)
}

/// Keys of a coordinator: they say the same again when they are written and read.
pub fn coordinator_keys(bytes: &[u8]) -> ParseVerdict {
    let read = CoordinatorKeys::decode(bytes);
    if let Ok(keys) = &read {
        let again = CoordinatorKeys::decode(&keys.encode()).expect("what was read is written so that it is read");
        assert_eq!(*again.encode(), *keys.encode(), "a coordinator's keys say the same again");
    }
    outcome(&read)
}

/// List of the other machines that a machine keeps.
pub fn peers_known(bytes: &[u8]) -> ParseVerdict {
    let read = PeerBook::decode(bytes);
    if let Ok(known) = &read {
        let again = known.encode().expect("what was read has room").expect("and a version");
        assert_eq!(PeerBook::decode(&again.bytes).as_ref(), Ok(known), "what is kept says the same again");
    }
    outcome(&read)
}

/// Part of orders that names all registries.
pub fn registries_part(bytes: &[u8]) -> ParseVerdict {
    outcome(&cluster::part::decode_registries(bytes))
}

/// Part of orders that names all open ports.
pub fn published_part(bytes: &[u8]) -> ParseVerdict {
    outcome(&cluster::published::decode_published(bytes))
}

/// A DHCP message: the payload of a datagram.
pub fn dhcp_message(bytes: &[u8]) -> ParseVerdict {
    outcome(&dhcp::wire::DhcpMessage::parse(bytes))
}

/// An Ethernet frame that may hold one.
pub fn dhcp_frame(bytes: &[u8]) -> ParseVerdict {
    outcome(&dhcp::frame::parse(bytes))
}

/// A text for nf_tables: lengths of the messages that it becomes add up.
pub fn nft_text(bytes: &[u8]) -> ParseVerdict {
    let Ok(text) = str::from_utf8(bytes) else { return ParseVerdict::Refused };
    let batch = nft::Transaction::parse(text).and_then(|read| read.batch(&nft::KernelSets::new()));
    if let Ok(batch) = &batch {
        let bytes = batch.bytes();
        let mut rest = bytes.as_slice();
        while let Some((length, _)) = rest.split_first_chunk() {
            let length = usize::try_from(u32::from_ne_bytes(*length)).expect("it is short");
            rest = &rest[length..];
        }
        assert!(rest.is_empty(), "{} bytes are of no message", rest.len());
    }
    outcome(&batch)
}

/// A stream of Ethernet frames, in one piece and byte by byte: both must be taken for the same.
pub fn frames(bytes: &[u8]) -> ParseVerdict {
    let whole = frames_in(bytes, bytes.len().max(1));
    assert_eq!(frames_in(bytes, 1), whole, "a stream is taken differently by where it is cut");
    outcome(&whole)
}

/// A question to the process of a cluster's network: what is understood says the same again.
pub fn control_question(bytes: &[u8]) -> ParseVerdict {
    let question = control::question(bytes);
    if let Ok(question) = &question {
        let again = control::line(question).and_then(|line| control::question(&line)).expect("its own words");
        assert_eq!(&again, question, "the same once more");
    }
    outcome(&question)
}

/// A question for the address of a name: a query is answered, under its own number and as an answer, and no answer is.
pub fn dns_query(bytes: &[u8]) -> ParseVerdict {
    let mut known = false;
    let answer = qemu::network::answer_name(bytes, |_| {
        known = true;
        Some(std::net::Ipv4Addr::LOCALHOST)
    });
    if let Some(answer) = answer {
        assert!(answer.len() <= bytes.len() + 16, "a short question has a long answer");
        assert_eq!(answer[..2], bytes[..2], "an answer to another question");
        assert_eq!(qemu::network::answer_name(&answer, |_| None), None, "an answer is answered");
    }
    if known { ParseVerdict::Accepted } else { ParseVerdict::Refused }
}

/// Bytes that a program sends to the proxy: they mean the same with more behind them, and nothing before they are
/// whole.
pub fn socks(bytes: &[u8]) -> ParseVerdict {
    let mut accepted = ParseVerdict::Refused;
    for stage in [Stage::Methods, Stage::Password, Stage::Request] {
        let heard = hear_socks(stage, bytes);
        if let Heard::Methods(length, _) | Heard::Password(length, ..) | Heard::Connect(length, ..) = heard {
            accepted = ParseVerdict::Accepted;
            assert_eq!(hear_socks(stage, &bytes[..length]), heard, "what follows changes it");
            assert_eq!(hear_socks(stage, &bytes[..length - 1]), Heard::Part, "it was heard too early");
        }
    }
    accepted
}

/// The frames of a stream that arrives in such pieces.
fn frames_in(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, FrameFault> {
    let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        while let Some(frame) = decoder.pop().map_err(|TooLong(_)| FrameFault::OutOfStep)? {
            frames.push(Frame::parse(frame).map_err(|Runt(_)| FrameFault::Runt)?);
        }
    }
    if frames.is_empty() { Err(FrameFault::Nothing) } else { Ok(frames) }
}

/// Why a stream is not one of frames.
#[derive(Debug, PartialEq, Eq)]
enum FrameFault {
    OutOfStep,
    Runt,
    Nothing,
}

/// A TPM's answer: the frame to every command, and the parameters of each.
pub fn tpm_answer(bytes: &[u8]) -> ParseVerdict {
    let codes = [CommandCode::GetRandom, CommandCode::StartAuthSession, CommandCode::Create, CommandCode::Unseal];
    let mut accepted = ParseVerdict::Refused;
    for code in codes {
        for sessions in 0..3 {
            if response::answer(code, sessions, bytes).is_ok() {
                accepted = ParseVerdict::Accepted;
            }
        }
    }
    let parameters = bytes.get(10..).unwrap_or(bytes);
    let selection = sealing_pcrs(BootClass::Uefi).expect("served");
    let _ = response::nothing(parameters);
    let _ = response::property(0x200, parameters);
    let _ = response::get_random(parameters);
    let _ = response::unseal(parameters);
    let _ = response::pcr_read(selection, parameters);
    let _ = response::create_primary(parameters);
    let _ = response::create(parameters);
    let _ = response::load(parameters);
    let _ = response::start_auth_session(parameters);
    accepted
}

/// A PE image, and a unified kernel image.
pub fn pe(bytes: &[u8]) -> ParseVerdict {
    let _ = formats::uki::Uki::read(bytes);
    let parsed = formats::pe::Pe::parse(bytes);
    if let Ok(pe) = &parsed {
        let _ = pe.append(&[(".fuzz", b"content")]);
    }
    outcome(&parsed)
}

fn padded(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut padded = bytes[..bytes.len().min(length)].to_vec();
    padded.resize(length, 0);
    padded
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).expect("seven bits"));
    bytes
}
