//! Join: what a machine asks with, which answers it takes, and what it then writes, in its order.

use std::convert::Infallible;

use cluster::redeem::{BadRedeem, RedeemRequest as Request};
use keys::header::{Copy, HeaderState};
use keys::record::Record;
use keys::recovery;
use keys::two_slot::Slot;
use model::{Assignment, ClusterId, MachinePubKey, WaitState};

use super::*;
use crate::asking::{self, WaitingMachine};
use crate::fixture::{self, ca, secret};
use crate::found::{BootDecision, Findings, Report};
use crate::plan::Refusal;
use crate::step::{HeaderCopy, Step};
use crate::wait::Wait;
use crate::world::{Chip, Cut, Ended, Store, World, about, drawn, issued};

const EXPORTER: [u8; 32] = [0xe0; 32];

/// Writes nothing, and remembers what was to be written.
#[derive(Default)]
struct Recorder(Vec<Effect>);

impl Performer for Recorder {
    type Error = std::fmt::Error;
    type Open = Infallible;

    fn perform(&mut self, effect: Effect) -> Result<(), std::fmt::Error> {
        self.0.push(effect);
        Ok(())
    }

    fn refused_by(_: &std::fmt::Error) -> Option<Refusal> {
        None
    }

    fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn material() -> Material {
    let Ok(material) = Material::draw(drawn(1));
    material
}

fn asker_of(found: Findings, recorder: &mut Recorder) -> Asker {
    let BootDecision::Join(joining) = found.decision else { panic!("a config that joins: {found:?}") };
    let attempting = joining.attempt::<Chip>(material(), None).expect("fits");
    attempting.perform(recorder).expect("it is remembered")
}

fn asker() -> Asker {
    asker_of(World::invited(Level::Authenticated, None).found(), &mut Recorder::default())
}

fn offer(asker: &Asker) -> AdmissionOffer {
    let request = asker.request(&about(), &EXPORTER);
    let answer = Store::default().redeem(MachinePubKey(asker.identity().public()), &request, &EXPORTER);
    AdmissionOffer { answer: answer.expect("one use"), issued: issued() }
}

/// Proves: S4
#[test]
fn a_request_says_what_was_made_and_holds_on_one_connection() {
    let asker = asker();
    let key = MachinePubKey(asker.identity().public());
    let request = asker.request(&about(), &EXPORTER);
    let taken = Request::verify(&request, key, &EXPORTER).expect("it is signed");
    let made = material();
    assert_eq!(key.0, made.identity.public());
    assert_eq!(taken.body().disk, made.disk);
    assert_eq!(taken.body().vpn_key.0, x25519_public(&made.vpn_key.0));
    assert_eq!(taken.body().level, Level::Authenticated);
    assert_eq!(taken.body().storage_key_name, None, "it has no TPM");
    assert_eq!((taken.body().owner.0, taken.body().ticket), (fixture::owner().public(), asker.ticket().public()));
    assert_eq!(Request::verify(&request, key, &[0; 32]), Err(BadRedeem::Signature));
}

/// Proves: S4
#[test]
fn a_machine_names_its_tpm_also_as_an_attempt_resumes() {
    let mut world = World::invited(Level::Encrypted, Some(Chip::default()));
    let joining = |world: &World| match world.found().decision {
        BootDecision::Join(joining) => *joining,
        other @ (BootDecision::Create(_)
        | BootDecision::Admitted(_)
        | BootDecision::Open(_)
        | BootDecision::Wait(..)) => {
            panic!("{other:?}")
        }
    };
    let asks = |joining: JoiningMachine| {
        let attempting = joining.attempt(material(), Some(&mut Chip::default())).expect("fits");
        attempting.perform(&mut Recorder::default()).expect("it is remembered").body(&about())
    };
    let first = asks(joining(&world));
    assert_eq!(first.storage_key_name.map(|name| name[..2].to_vec()), Some(vec![0, 0x0b]));
    assert_eq!(world.boot(Some(Cut { after: 1, sectors: 0 })), Ended::Cut);
    let resumed = joining(&world);
    assert!(resumed.resumes());
    assert_eq!(asks(resumed).storage_key_name, first.storage_key_name);
}

/// Proves: S3 S4 H3
#[test]
fn an_answer_that_does_not_fit_is_refused_by_name() {
    type Edit = fn(&mut RedeemAnswer, &mut IssuedCertificates);
    let rows: [(&str, Edit); 7] = [
        ("the answer is of another cluster than the ticket's", |_, issued| issued.ca_spki[30] ^= 1),
        ("the cluster does not name the owner who signed this machine's config", |answer, _| {
            answer.desired.owners[0].key.0[0] ^= 1;
        }),
        ("the answer makes a coordinator of the machine before it is a member", |answer, _| {
            let assignment = Assignment::new([10, 118, 0, 2].into(), ClusterRole::Coordinator, [].into(), None);
            answer.desired.assignment = assignment.expect("they fit");
        }),
        ("the answer's directory is not believed: the directory is not signed by this cluster", |answer, _| {
            let cluster = cluster_id(&ca().spki);
            let unsigned = Directory { cluster, version: 5, coordinators: vec![] }.unsigned();
            answer.directory = unsigned.signed(b"somebody's signature".to_vec());
        }),
        ("the answer's directory is not believed: the directory names another cluster", |answer, _| {
            let foreign = Directory { cluster: ClusterId([1; 16]), version: 5, coordinators: vec![] };
            answer.directory = ca().sign(&foreign.unsigned());
        }),
        (
            "the machine's network does not fit the cluster: 192.0.2.10/24 overlaps 192.0.0.0/16, which is kept for \
             the VPN",
            |answer, _| answer.desired.prefixes.vpn = "192.0.0.0/16".parse().expect("a prefix"),
        ),
        ("the answer's directory is not believed: Signed is empty", |answer, _| answer.directory.clear()),
    ];
    for (message, edit) in rows {
        let asker = asker();
        let unfit = || {
            let mut offer = offer(&asker);
            edit(&mut offer.answer, &mut offer.issued);
            offer
        };
        let judged = asker.judge(unfit(), &[]).map(|_| ()).expect_err(message);
        // As if another machine had judged it: it is judged anew.
        let offer = FittingOffer(unfit());
        let (again, why) = asker.accept(offer).map(|_| ()).expect_err(message);
        assert_eq!(judged, why);
        assert_eq!(model::Chain(&why).to_string(), message);
        let next = again.judge(self::offer(&again), &[]).expect("it fits");
        assert!(again.accept(next).is_ok(), "{message}: the next one may be good");
    }
    let named = Asker { site: Site { node: NodeName::chosen("one").ok(), ..asker().site }, ..asker() };
    assert_eq!(named.judge(offer(&named), &[]).map(|_| ()).expect_err("a name"), OfferError::OtherName);
    let leased = asker();
    let judged = |address, bits| leased.judge(offer(&leased), &[([192, 0, 2, 9].into(), 24), (address, bits)]);
    assert!(judged([10, 117, 0, 9].into(), 16).is_ok());
    let why = judged([10, 96, 0, 9].into(), 16).map(|_| ()).expect_err("a lease");
    let message = "the machine's network does not fit the cluster: 10.96.0.9/16 overlaps 10.96.0.0/16, which is kept for services";
    assert_eq!(model::Chain(&why).to_string(), message);
    let encrypted = asker_of(World::invited(Level::Encrypted, None).found(), &mut Recorder::default());
    let mut strict = offer(&encrypted);
    strict.answer.desired.level = Level::Authenticated;
    let level = OfferError::Level { found: Level::Encrypted, least: Level::Authenticated };
    assert_eq!(encrypted.judge(strict, &[]).map(|_| ()).expect_err("a level"), level);
}

/// Proves: S4 S7
#[test]
fn a_machine_goes_on_with_an_offer_that_fits_or_asks_again() {
    let mut world = World::invited(Level::Encrypted, None);
    assert_eq!(world.boot(Some(Cut { after: 1, sectors: 0 })), Ended::Cut);
    let given = |edit: fn(&mut AdmissionOffer)| {
        let asker = asker_of(world.found(), &mut Recorder::default());
        let FittingOffer(mut offer) = asker.judge(offer(&asker), &[]).expect("it fits");
        edit(&mut offer);
        let wait = Wait::LetIn(Box::new(asker));
        assert_eq!((wait.state(), wait.message().contains("192.0.2.1:7836")), (WaitState::Joining, true));
        let (mut asking, asked) = WaitingMachine::begin(&wait, None);
        let refused = asking.hears(asking::Answer::Config(Zeroizing::default()));
        let resumed = asking.hears(asking::Answer::FittingOffer(Box::new(FittingOffer(offer))));
        assert!(matches!(asked, asking::Effect::Ask(asking::Question::Admission(_))), "{asked:?}");
        assert!(matches!(refused, asking::Effect::Report(asking::AnswerError::NotAsked)), "{refused:?}");
        let asking::Effect::Resume(given) = resumed else { panic!("{resumed:?}") };
        given
    };
    let found = world.found_with(given(|_| ()), Ok(None));
    assert!(matches!(found.decision, BootDecision::Admitted(_)), "{found:?}");
    let found = world.found_with(given(|offer| offer.issued.ca_spki[30] ^= 1), Ok(None));
    assert_eq!(found.reports, [Report::NotAccepted(OfferError::OtherCluster)]);
    assert!(matches!(found.decision, BootDecision::Join(joining) if joining.resumes()));
    let blank = World::invited(Level::Encrypted, None).found_with(given(|_| ()), Ok(None));
    assert!(matches!(blank.decision, BootDecision::Join(joining) if !joining.resumes()), "nobody asked for it");
}

/// Everything that a join writes.
fn written(level: Level) -> (Vec<Effect>, Attempt) {
    let mut recorder = Recorder::default();
    let asker = asker_of(World::invited(level, None).found(), &mut recorder);
    let offer = asker.judge(offer(&asker), &[]).expect("it fits");
    let Ok(fresh) = Fresh::draw(drawn(2));
    let draft = asker.accept(offer).expect("it fits");
    let (plan, member) = draft.plan::<Chip>(fresh, None, 1_790_000_000).expect("fits");
    assert_eq!(member.identity.holder.cluster, cluster_id(&ca().spki));
    let _capped = plan.perform(&mut recorder).expect("it is remembered");
    let Material { identity, local_key, vpn_key, disk, .. } = material();
    (recorder.0, Attempt { identity, local_key, vpn_key, disk, config: model::ConfigDigest([0; 32]) })
}

/// Proves: S4 D4
#[test]
fn a_join_writes_in_this_order_and_no_other() {
    use HeaderCopy::{First, Second};
    use HeaderState::{Committed, Provisional};
    let steps: Vec<_> = written(Level::Authenticated).0.iter().map(Effect::step).collect();
    let expected = [
        Step::WriteAttempt,
        Step::GrowData,
        Step::WriteHeader(Provisional, First),
        Step::WriteHeader(Provisional, Second),
        Step::MapVolume,
        Step::MakeFilesystem,
        Step::Mount,
        Step::PopulateData,
        Step::WriteEsp(File::Directory),
        Step::WriteEsp(File::Record),
        Step::WriteEsp(File::Seal),
        Step::EraseAttempt,
        Step::WriteHeader(Committed, First),
        Step::WriteHeader(Committed, Second),
        Step::RemoveConfig,
        Step::LoadKeys,
        Step::Cap,
    ];
    assert_eq!(steps, expected);
}

/// Proves: D12 S4
#[test]
fn the_seal_takes_the_other_slot_and_the_owner_opens_it_all() {
    let (effects, made) = written(Level::Encrypted);
    let slot = |wanted: Step| {
        let of = |effect: &Effect| {
            let (Effect::WriteAttempt { slot, .. } | Effect::EraseAttempt { slot } | Effect::WriteEsp { slot, .. }) =
                effect
            else {
                panic!("{effect:?}")
            };
            *slot
        };
        effects.iter().find(|effect| effect.step() == wanted).map(of).expect("it is written")
    };
    assert_eq!((slot(Step::WriteAttempt), slot(Step::EraseAttempt), slot(Step::WriteEsp(File::Seal))), (0, 0, 1));
    let holder = Holder { cluster: cluster_id(&ca().spki), machine: machine_id(&made.identity.public()) };
    let context = |kind| SecretContext {
        kind,
        cluster: holder.cluster,
        machine: holder.machine,
        disk: made.disk,
        key_generation: 1,
    };
    let (owner, cluster_key) = (secret(2), Store::half(made.disk, 1));
    for effect in &effects {
        if let Effect::WriteEsp { file: File::Record, bytes, .. } = effect {
            let record = Record::decode(Slot::read(File::Record, bytes).expect("reads").clear()).expect("a record");
            assert_eq!(record.context, context(SecretKind::ClusterKey));
            let opened = recovery::open(&owner, &record.context, &record.sealed).expect("it is the owner's");
            assert_eq!(opened.expose(), cluster_key.expose());
        }
        if let Effect::WriteHeader { bytes, .. } = effect {
            let Copy::Valid(header) = Copy::read(&bytes[..]) else { panic!("a header") };
            let slot = header.lock.as_ref().and_then(|lock| lock.owner).expect("an owner slot");
            let opened = recovery::open(&owner, &context(SecretKind::VolumeKey), &slot).expect("it is the owner's");
            let Ok(fresh) = Fresh::draw(drawn(2));
            assert_eq!(opened.expose(), fresh.volume_key.0.expose());
        }
    }
}

/// Proves: D3
#[test]
fn each_random_value_of_an_attempt_is_drawn_by_itself() {
    let made = material();
    let mut drawn: Vec<[u8; 32]> = vec![
        *made.identity.seed().expose(),
        *made.local_key.expose(),
        *made.seal_root.expose(),
        made.salt,
        [made.nonce[0]; 32],
        [made.disk.0.0[0]; 32],
        [made.vpn_key.expose()[1]; 32],
    ];
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 7, "no two from one draw");
    let vpn = made.vpn_key.expose();
    assert_eq!((vpn[0] & 7, vpn[31] & 0xc0), (0, 0x40), "clamped");
    assert_eq!((made.disk.0.0[6] >> 4, made.disk.0.0[8] >> 6), (4, 2), "a random UUID");
}
