//! A holder in memory: what it writes into its slots, what is erased of them, and which keys come of what lies there.

use cluster::record::Generations;
use model::{ClusterId, LocalKey, Uuid};
use zeroize::Zeroizing;

use super::*;
use crate::fixture::blank;

const CLUSTER: ClusterId = ClusterId([1; 16]);

fn machine(number: u8) -> MachineId {
    MachineId([number; 16])
}

fn epoch(number: u32, holders: impl IntoIterator<Item = u8>) -> Epoch {
    Epoch::new(number, holders.into_iter().map(machine).collect()).expect("an epoch")
}

fn share_key() -> ShareKey {
    let holder = Holder { cluster: CLUSTER, machine: machine(1) };
    ShareKey::of(&LocalKey(Secret::take(&mut [8; 32])), &holder)
}

/// A holder writes each share once, never over the one that stands, and what lies there then opens with the others'.
///
/// Proves: K6
#[test]
fn a_share_is_written_once_and_not_over_the_one_that_stands() {
    let holder = Holder { cluster: CLUSTER, machine: machine(1) };
    let (master, key) = (MasterSecret(Secret::take(&mut [7; 32])), share_key());
    let disk = DiskUuid(Uuid([1; 16]));
    let mut slots = blank();
    let mut holds = |epoch: &Epoch, stands| {
        let holding = ShareOrder { epoch: epoch.clone(), stands, disk, generations: Generations::One(1) };
        let write = hold(&holding, &holder, &master, &key, &slots).expect("it is a holder");
        let written = write.is_some();
        if let Some(write) = write {
            slots.0[write.slot] = Zeroizing::new(write.bytes);
        }
        let (held, _) = open_shares(&slots, disk, &key);
        (written, held.iter().map(|held| held.epoch.number()).collect::<Vec<_>>())
    };
    let (first, second) = (epoch(1, [1]), epoch(2, [1, 2, 3]));
    assert_eq!(holds(&first, None), (true, vec![1]));
    assert_eq!(holds(&second, Some(1)), (true, vec![2, 1]));
    assert_eq!(holds(&second, Some(1)), (false, vec![2, 1]), "it lies there");
    assert_eq!(holds(&epoch(3, [1, 2]), Some(1)), (true, vec![3, 1]), "epoch 2 was never whole");
    assert_eq!(holds(&epoch(4, [1, 2]), Some(3)), (true, vec![4, 3]));
    for (stands, left) in [(3, vec![4, 3]), (4, vec![4])] {
        for write in superseded(&slots, stands).collect::<Vec<_>>() {
            slots.0[write.slot] = Zeroizing::new(write.bytes);
        }
        let (held, _) = open_shares(&slots, disk, &key);
        let numbers: Vec<_> = held.iter().map(|held| held.epoch.number()).collect();
        assert_eq!(numbers, left, "what a thief would need fewer for is gone once {stands} stands");
    }

    let others = ShareOrder { epoch: epoch(5, [2, 3]), stands: None, disk, generations: Generations::One(1) };
    let refused = hold(&others, &holder, &master, &key, &slots).map(|_| ());
    assert_eq!(refused, Err(HoldError::NoHolder(5)));
    let (held, _) = open_shares(&slots, disk, &key);
    let opened = held[0].alone(machine(1)).expect("a holder");
    assert!(opened.is_none(), "two hold it, and both are needed");
}

/// While its key rotates, the share of the same epoch is written anew with both; and at the end with the newer one alone.
///
/// Proves: D13 K6
#[test]
fn a_share_follows_its_keys_and_a_cut_leaves_one_that_opens() {
    let holder = Holder { cluster: CLUSTER, machine: machine(1) };
    let (master, key) = (MasterSecret(Secret::take(&mut [7; 32])), share_key());
    let disk = DiskUuid(Uuid([1; 16]));
    let mut slots = blank();
    let (alone, next) = (epoch(3, [1]), epoch(4, [1]));
    let hold = |slots: &mut Slots, epoch: &Epoch, generations| {
        let holding = ShareOrder { epoch: epoch.clone(), stands: Some(3), disk, generations };
        let write = hold(&holding, &holder, &master, &key, slots).expect("it is a holder");
        write.is_some_and(|write| {
            slots.0[write.slot] = Zeroizing::new(write.bytes);
            true
        })
    };
    let gives = |slots: &Slots| {
        let (held, senseless) = open_shares(slots, disk, &key);
        assert!(senseless.is_empty());
        let half = |held: &OpenShare| held.alone(machine(1)).expect("it holds it").expect("it is alone");
        let of = |half: &ClusterHalf| [1, 2, 3].map(|it| half.of(it).map(|key| *key.expose()));
        held.iter().map(|held| (held.epoch.number(), of(&half(held)))).collect::<Vec<_>>()
    };
    let [one, two] = [1, 2].map(|it| Some(*cluster_key(&master, CLUSTER, disk, it).expose()));
    let erase = |slots: &mut Slots, stands| {
        for over in superseded(&slots.clone(), stands) {
            slots.0[over.slot] = Zeroizing::new(over.bytes);
        }
    };
    assert!(hold(&mut slots, &alone, Generations::One(1)));
    assert!(hold(&mut slots, &alone, Generations::Rotating(1)));
    assert_eq!(gives(&slots), [(3, [one, two, None]), (3, [one, None, None])], "cut here, the newer one counts");
    erase(&mut slots, 3);
    assert_eq!(gives(&slots), [(3, [one, two, None])]);
    assert_eq!([1, 2, 3].map(|it| open_shares(&slots, disk, &key).0[0].carries(it)), [true, true, false]);
    assert!(!hold(&mut slots, &alone, Generations::Rotating(1)), "it lies there");
    assert!(hold(&mut slots, &alone, Generations::One(2)));
    erase(&mut slots, 3);
    let before = slots.clone();
    assert!(hold(&mut slots, &next, Generations::One(2)));
    assert_eq!(gives(&slots), [(4, [None, two, None]), (3, [None, two, None])]);
    // The cluster may have been told that this one lies there: it is not written over, though the one that stands is another by now.
    assert!(!hold(&mut slots, &alone, Generations::Rotating(2)), "what lies there opens");
    assert_eq!(gives(&slots), [(4, [None, two, None]), (3, [None, two, None])]);
    let mut lost = slots.clone();
    lost.0[(0..2).find(|slot| slots.0[*slot] == before.0[*slot]).expect("that of epoch 3")] =
        vec![0; SLOT_BYTES].into();
    assert!(hold(&mut lost, &alone, Generations::One(2)));
    assert_eq!(gives(&lost), [(3, [None, two, None]), (4, [None, two, None])]);
    erase(&mut slots, 5);
    assert_eq!(gives(&slots).len(), 2, "where the one that stands does not lie, nothing goes");
    erase(&mut slots, 4);
    assert_eq!(gives(&slots), [(4, [None, two, None])]);
    // What cannot be read may be a newer Cairn's.
    let other = (0..2).find(|slot| slots.0[*slot].iter().all(|byte| *byte == 0)).expect("one was erased");
    slots.0[other] = Zeroizing::new(vec![0xff; SLOT_BYTES]);
    assert_eq!(superseded(&slots, 4).count(), 0);
}
