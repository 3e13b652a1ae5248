//! Volumes of machines that are removed, or are to be: what somebody counts on is named before it goes.

use super::*;

/// Machine that has the only volume.
fn holder_of_one(world: &World) -> MachineId {
    let held = world.disks.iter().find(|(_, disk)| !disk.volumes.is_empty());
    *held.expect("one has it").0
}

/// Proves: S10
#[test]
fn a_removed_machines_volume_goes_when_its_claim_was_told() {
    let mut world = World::new();
    world.claim(1, GIB);
    world.settle();
    let held = holder_of_one(&world);
    world.remove(held);
    world.settle();
    assert_eq!((world.names(VOLUMES.path).len(), &world.unnamed), (0, &vec![]));
    let told = world.events();
    let named = format!("was on machine `m1` ({held}), which was removed from the cluster: it is gone");
    assert!(told.len() == 1 && told[0].contains(&named), "{told:?}");
    assert_eq!(world.names(CLAIMS.path).len(), 1, "people end the claim");
    assert_eq!(world.names(CAPACITIES.path).len(), 2);
    assert_eq!(world.on_disks().len(), 1, "it has no other volume");
    perform(&mut world, &Deed::End(1));
    world.claim(1, GIB);
    world.settle();
    assert_eq!(world.names(VOLUMES.path), [format!("pvc-{}", uuid(2))].into(), "the next claim begins anew");
}

/// A list of machines that is short, or empty, is no word about anybody. Proves: S10
#[test]
fn no_volume_goes_because_its_machine_is_not_listed() {
    let mut world = World::new();
    world.claim(1, GIB);
    world.settle();
    world.remove(machine(3));
    assert_ne!(holder_of_one(&world), machine(3));
    let workers = std::mem::take(&mut world.workers);
    world.settle();
    assert_eq!((world.names(VOLUMES.path).len(), world.on_disks().len(), world.events()), (1, 1, vec![]));
    world.workers = workers;
    perform(&mut world, &Deed::Grow(1, 2 * GIB));
    world.settle();
    assert_eq!(world.on_disks(), [(uuid(1), 2 * GIB)].into(), "it is what it was");
}

/// The place of a volume is a machine's id. Proves: S10
#[test]
fn a_new_machine_of_an_old_name_gets_no_old_volume() {
    let mut world = World::new();
    world.claim(1, GIB);
    world.settle();
    let (old, new) = (holder_of_one(&world), machine(9));
    let volumes = world.of::<PersistentVolume>(VOLUMES.path);
    assert!(may_leave(old, &volumes).is_err() && may_leave(new, &volumes).is_ok());
    world.remove(old);
    world.workers.insert(name(old.0[0]), new);
    world.disks.insert(new, Disk::default());
    perform(&mut world, &Deed::Grow(1, 2 * GIB));
    world.settle();
    assert_eq!((world.names(VOLUMES.path).len(), world.events().len()), (0, 1));
    assert!(world.disks[&new].volumes.is_empty(), "nothing comes back under the name");
    world.claim(2, GIB);
    world.objects.get_mut(&(CLAIMS.path.to_owned(), "claim2".to_owned())).expect("a claim")["metadata"]["annotations"]
        [SELECTED] = json!(name(old.0[0]).as_str());
    world.settle();
    assert_eq!(world.disks[&new].volumes, [(uuid(2), GIB)].into(), "what is new is its own");
}

/// Proves: S10
#[test]
fn a_machine_with_claimed_volumes_does_not_leave_unasked() {
    let mut world = World::new();
    world.claim(1, GIB);
    world.settle();
    let held = holder_of_one(&world);
    let left = |world: &World, machine| may_leave(machine, &world.of(VOLUMES.path)).map_err(|it| it.to_string());
    let named = |what: String| Err(format!("the data of these would go with the machine: {what}"));
    assert_eq!(left(&world, held), named(format!("claim shop/claim1 ({GIB})")));
    assert_eq!(left(&world, machine(2)), Ok(()), "another machine has none");
    // Claims that are many are counted.
    let key = (VOLUMES.path.to_owned(), format!("pvc-{}", uuid(1)));
    let one = world.objects[&key].clone();
    for n in 2..=13 {
        let mut other = one.clone();
        other["metadata"]["name"] = json!(format!("by-hand-{n}"));
        other["spec"]["claimRef"]["name"] = json!(format!("claim{n}"));
        world.objects.insert((VOLUMES.path.to_owned(), format!("by-hand-{n}")), other);
    }
    let told = left(&world, held).expect_err("13 of them");
    assert!(told.matches("shop/claim").count() == 10 && told.ends_with(" and 3 more"), "{told}");
    world.objects.retain(|(path, name), _| path != VOLUMES.path || *name == key.1);
    // A volume ends with its claim, or is kept by people.
    perform(&mut world, &Deed::End(1));
    world.controllers();
    assert_eq!(left(&world, held), Ok(()));
    world.objects.get_mut(&key).expect("a volume")["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    assert_eq!(left(&world, held), named(format!("PersistentVolume {} ({GIB})", key.1)));
}
