//! Laws that a world itself judges: each is set off by a fault that is put into a world which kept it a moment before.

use super::*;

/// A cluster of four members that have heard of each other.
fn world() -> World {
    let plan = Plan { machines: 3, members: 3, tickets: 1, ..Plan::SMALL };
    let mut world = World::new(1, plan);
    world.begin_with_members().expect("all laws are kept");
    world.now = 100_000;
    world.converges().expect("they hear");
    world
}

fn two(world: &mut World) -> &mut Machine {
    world.machines.get_mut(&2).expect("the second one")
}

fn broken(result: Result<(), Broken>) -> &'static str {
    result.expect_err("the fault is noticed").law
}

/// Proves: M3
#[test]
fn whoever_does_not_hear_in_time_or_not_at_all_breaks_a_law() {
    let mut world = world();
    world.is_up_to_date(2).expect("it has heard");
    let known = std::mem::take(&mut two(&mut world).known);
    let law = "every live machine converges to the store's peers within two intervals of reachability";
    assert_eq!(broken(world.is_up_to_date(2)), law);
    let now = world.now;
    two(&mut world).reached_since = now;
    world.is_up_to_date(2).expect("nobody reached it until now");
    // It takes what it knows for all that there is.
    let version = known.version().expect("it has heard");
    two(&mut world).known = Known::of_answer(version, vec![]);
    assert_eq!(broken(world.converges()), "every live machine converges to the store's peers");
    two(&mut world).known = known;
    world.converges().expect("it knows all");
}

/// Proves: D13 K6
#[test]
fn a_key_that_a_disk_is_locked_with_and_nobody_gives_breaks_a_law() {
    let mut world = world();
    let asks = |generation| Request::ReleaseKey {
        machine: cast::machine_key(2),
        disk: cast::disk(2),
        generation,
        level: Level::Encrypted,
    };
    let mut refused =
        |generation| world.refused(Who::Machine(2), &asks(generation), &Denied::UnknownGeneration(generation));
    refused(2).expect("its disk is locked with another one");
    assert_eq!(broken(refused(1)), "the cluster gives the key that a member's disk is locked with");
    world.comes_back().expect("all open");
    two(&mut world).locked_with = 7;
    assert_eq!(broken(world.comes_back()), "after a total power-off every member gets its key again");
    two(&mut world).locked_with = 1;
    world.comes_back().expect("all open");
    world.esps = Esps::new(cast::CLUSTER);
    assert_eq!(broken(world.comes_back()), crate::esp::LAW);
}
