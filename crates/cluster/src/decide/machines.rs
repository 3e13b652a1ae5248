//! A machine's life behind its admission: it announces itself, gets its key back, is drained, is removed.

use std::iter;

use keys::endpoint::Endpoint;
use keys::identity::machine_id;
use model::{ClusterRole, DiskUuid, Level, MachineId, MachinePubKey, OwnerPubKey};

use super::{Ground, cold_start, roles};
use crate::denial::Denial;
use crate::key::{AuditId, Key};
use crate::record::{AuditLine, Endpoints, Generations, MachineRecord, Release, Standing, Times, is_below};
use crate::request::Removal;
use crate::txn::{Grant, Txn};

/// Most observed endpoints of a machine: each coordinator may hear it at another place, and nowhere do more of them vote.
const MOST_OBSERVED: usize = 5;

pub(super) fn announce(
    ground: &Ground<'_>,
    machine: &MachinePubKey,
    (release, endpoints): (Release, &[Endpoint]),
    generation: u32,
) -> Result<Txn, Denial> {
    let known = ground.belonging(&machine_id(&machine.0))?;
    Endpoint::judge_of_machine(endpoints)?;
    let (standing, member) = match known.standing {
        Standing::Admitted => (Standing::Member, Some(ground.now)),
        Standing::Member | Standing::Draining | Standing::Removed => (known.standing, known.times.member),
    };
    let told = MachineRecord {
        standing,
        release,
        times: Times { member, ..known.times },
        endpoints: if known.endpoints.reported == endpoints {
            known.endpoints.clone()
        } else {
            // It has moved: where it was heard before, it is hardly any more.
            Endpoints { reported: endpoints.to_vec(), observed: Vec::new() }
        },
        generations: known.generations.told(generation),
        ..known.clone()
    };
    if told == *known {
        return Ok(ground.unchanged(Grant::Already));
    }
    let rotated = told.generations != known.generations;
    let mut draft = ground.change_by(if rotated { "key rotated" } else { "announced" }, known.id());
    draft.machine(&told);
    // The epoch that stands was begun while its share carried the older key: in the next one none does.
    let holds = || ground.state.cold_start().newest().is_some_and(|epoch| epoch.holders().contains(&known.id()));
    if rotated && holds() && !ground.state.members().voters.is_empty() {
        cold_start::begin_with(ground, &mut draft)?;
    }
    Ok(draft.grants(Grant::Done))
}

/// Notes where coordinators hear a machine, the newest first: each may hear it at another place.
pub(super) fn observe(ground: &Ground<'_>, id: &MachineId, endpoint: &Endpoint) -> Result<Txn, Denial> {
    let known = ground.belonging(id)?;
    Endpoint::judge_of_machine(std::slice::from_ref(endpoint))?;
    let Endpoints { reported, observed } = &known.endpoints;
    if reported.contains(endpoint) || observed.contains(endpoint) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let observed = iter::once(endpoint).chain(observed).take(MOST_OBSERVED).cloned().collect();
    let endpoints = Endpoints { observed, reported: reported.clone() };
    let mut draft = ground.change_by("heard elsewhere", *id);
    draft.machine(&MachineRecord { endpoints, ..known.clone() });
    Ok(draft.grants(Grant::Done))
}

/// Proves that the record is still this one, and writes a line: the version stays, or every reboot would change it.
pub(super) fn release_key(
    ground: &Ground<'_>,
    machine: &MachinePubKey,
    disk: DiskUuid,
    generation: u32,
    level: Level,
) -> Result<Txn, Denial> {
    let known = ground.belonging(&machine_id(&machine.0))?;
    if known.disk != disk {
        return Err(Denial::OtherDisk);
    }
    if !known.generations.include(generation) {
        return Err(Denial::UnknownGeneration(generation));
    }
    let least = ground.cluster.policy.level;
    if is_below(level, least) {
        return Err(Denial::LevelTooLow { found: level, least });
    }
    let id = known.id();
    let line = AuditId::Released { machine: id, seconds: ground.now.0 };
    let next = known.generations.behind(generation);
    let mut txn = ground.unchanged(Grant::ClusterKey { machine: id, disk, generation, next });
    let text = AuditLine { what: "key released".to_owned(), whom: id.to_string(), owner: None, time: ground.now };
    txn.puts.push((Key::Audit(line), text.encode()));
    Ok(txn)
}

pub(super) fn rotate_key(ground: &Ground<'_>, by: OwnerPubKey, id: &MachineId) -> Result<Txn, Denial> {
    let known = ground.member(id)?;
    if known.level == Level::Insecure {
        return Err(Denial::NothingLocked);
    }
    let generations = match known.generations {
        Generations::Rotating(_) => return Ok(ground.unchanged(Grant::Already)),
        Generations::One(u32::MAX) => return Err(Denial::GenerationsExhausted),
        Generations::One(one) => Generations::Rotating(one),
    };
    let mut draft = ground.change("key rotation begun", id, Some(by));
    draft.machine(&MachineRecord { generations, ..known.clone() });
    Ok(draft.grants(Grant::Done))
}

pub(super) fn drain(ground: &Ground<'_>, by: OwnerPubKey, id: &MachineId) -> Result<Txn, Denial> {
    let known = ground.belonging(id)?;
    match known.standing {
        Standing::Admitted => Err(Denial::NotMember),
        Standing::Draining => Ok(ground.unchanged(Grant::Already)),
        Standing::Member | Standing::Removed => {
            let mut draft = ground.change("draining", id, Some(by));
            draft.machine(&MachineRecord { standing: Standing::Draining, ..known.clone() });
            Ok(draft.grants(Grant::Done))
        }
    }
}

/// Removes a machine: its address and its pods are free from here on; its disk and its VPN key stay known for good.
pub(super) fn remove(ground: &Ground<'_>, by: OwnerPubKey, id: &MachineId, leaving: Removal) -> Result<Txn, Denial> {
    let known = ground.machine(id)?;
    match (known.standing, leaving) {
        (Standing::Removed, _) => return Ok(ground.unchanged(Grant::Already)),
        (Standing::Member, Removal::Drained) => return Err(Denial::NotDrained),
        (Standing::Draining, Removal::Drained) if known.role == ClusterRole::Coordinator => {
            return Err(Denial::StillCoordinator);
        }
        (Standing::Draining, Removal::Drained) if ground.members()?.has(id) => return Err(Denial::StillLeaving),
        (Standing::Admitted | Standing::Draining, _) | (Standing::Member, Removal::Lost) => {}
    }
    roles::may_go(ground, known)?;
    let times = Times { removed: Some(ground.now), ..known.times };
    let mut draft = ground.change("removed", id, Some(by));
    draft.machine(&MachineRecord { standing: Standing::Removed, times, awaits_approval: false, ..known.clone() });
    draft.delete(Key::Address(known.vpn_ip));
    if let Some(pods) = known.pods {
        draft.delete(Key::Pods(pods));
    }
    Ok(draft.grants(Grant::Done))
}
