//! etcd's members: who they are by etcd's list, how each is by its own word, and the requests that change them. A member is
//! known by the URL at which other members reach it, which is made of its machine's VPN address: its name is not there
//! before it has started.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use cluster::backends::{Backend, Backends, EtcdAlarm, MemberBackend, MemberPart};
use cluster::members::{Learner, Look, MemberStep, Members, Voter};
use model::{MachineId, NodeName, etcd_peer_url};

use crate::BadAnswer;
use crate::wire::etcdserverpb::alarm_request::AlarmAction;
use crate::wire::etcdserverpb::{
    AlarmRequest, AlarmResponse, AlarmType, MemberAddRequest, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberRemoveRequest, MoveLeaderRequest, StatusResponse,
};

/// A learner has caught up when it holds so much of the log, in percent: etcd itself promotes none that holds less
/// (`readyPercentThreshold`, server/etcdserver/server.go).
const CAUGHT_UP: u64 = 90;

/// A member in etcd's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// etcd's number for it.
    pub id: u64,
    /// VPN address of the member's machine.
    pub vpn_ip: Ipv4Addr,
    /// Whether it votes.
    pub votes: bool,
}

/// Health that a member reports of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// etcd's number for itself.
    pub id: u64,
    /// etcd's number of the member that leads, as far as this one knows one.
    pub leader: Option<u64>,
    /// How far its log goes.
    pub log: u64,
    /// How far it has applied that.
    pub applied: u64,
    /// Newest revision of its records.
    pub revision: u64,
    /// Whether it votes; a learner answers nothing but this question.
    pub votes: bool,
}

impl Health {
    /// Whether the one who says so leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leader == Some(self.id)
    }

    /// Moment of a look at the members, if they were listed behind this report.
    #[must_use]
    pub const fn look(&self) -> Look {
        Look { revision: self.revision, applied: self.applied }
    }
}

/// Status that a member reports of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Health of the member.
    pub health: Health,
    /// Backend of the member.
    pub backend: Backend,
    /// Version of etcd that it runs.
    pub version: String,
    /// Alarms that etcd has raised, as far as the member knows.
    pub alarms: BTreeSet<EtcdAlarm>,
    /// Other things that are wrong with it, in etcd's words.
    pub errors: Vec<String>,
}

/// Change of the members, as etcd is asked for it.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberChange {
    /// Adds a learner.
    Add(MemberAddRequest),
    /// Makes a learner a voter.
    Promote(MemberPromoteRequest),
    /// Takes a member out.
    Remove(MemberRemoveRequest),
    /// Has another one lead, which then takes this one out.
    MoveLeader(MoveLeaderRequest),
}

/// Asks for the list as the asked member has it; `Status` says whether it is up to date.
#[must_use]
pub const fn list() -> MemberListRequest {
    MemberListRequest { linearizable: false }
}

/// The members of a list.
///
/// # Errors
/// [`BadAnswer`] when one is reached otherwise than Cairn's are.
pub fn listed(answer: &MemberListResponse) -> Result<Vec<Member>, BadAnswer> {
    let member = |member: &crate::wire::etcdserverpb::Member| {
        let [url] = member.peer_ur_ls.as_slice() else { return Err(BadAnswer::Member) };
        let host = url.strip_prefix("https://").and_then(|rest| rest.rsplit_once(':'));
        let vpn_ip = host.and_then(|(host, _)| host.parse().ok()).ok_or(BadAnswer::Member)?;
        if etcd_peer_url(vpn_ip) != *url {
            return Err(BadAnswer::Member);
        }
        Ok(Member { id: member.id, vpn_ip, votes: !member.is_learner })
    };
    answer.members.iter().map(member).collect()
}

/// Reads the health that a member reports of itself.
///
/// # Errors
/// [`BadAnswer`] without a header.
pub fn health(answer: &StatusResponse) -> Result<Health, BadAnswer> {
    let header = answer.header.as_ref().ok_or(BadAnswer::Missing("header"))?;
    let leader = (answer.leader != 0).then_some(answer.leader);
    let (log, applied) = (answer.raft_index, answer.raft_applied_index);
    let revision = u64::try_from(header.revision).map_err(|_negative| BadAnswer::Missing("revision"))?;
    Ok(Health { id: header.member_id, leader, log, applied, revision, votes: !answer.is_learner })
}

/// Reads the status that a member reports of itself.
///
/// # Errors
/// [`BadAnswer`] as of its health, and with sizes below nothing.
pub fn status(answer: &StatusResponse) -> Result<MemberStatus, BadAnswer> {
    let bytes = |number: i64| u64::try_from(number).map_err(|_negative| BadAnswer::Size);
    let (size, in_use, quota) = (bytes(answer.db_size)?, bytes(answer.db_size_in_use)?, bytes(answer.db_size_quota)?);
    let alarms = |text: &String| text.split_whitespace().find_map(alarm);
    Ok(MemberStatus {
        health: health(answer)?,
        backend: Backend { size, in_use, quota },
        version: answer.version.clone(),
        alarms: answer.errors.iter().filter_map(alarms).collect(),
        errors: answer.errors.iter().filter(|text| alarms(text).is_none()).cloned().collect(),
    })
}

/// Reads a word of an alarm as etcd writes it: `memberID:1 alarm:NOSPACE`.
fn alarm(word: &str) -> Option<EtcdAlarm> {
    match word {
        "alarm:NOSPACE" => Some(EtcdAlarm::NoSpace),
        "alarm:CORRUPT" => Some(EtcdAlarm::Corrupt),
        _ => None, // its number, or another error's word
    }
}

/// Asks which alarms are raised, and by whom.
#[must_use]
pub fn alarms() -> AlarmRequest {
    AlarmRequest { action: AlarmAction::Get.into(), member_id: 0, alarm: AlarmType::None.into() }
}

/// Requests that disarm the alarm NOSPACE, one for each member that has raised it.
#[must_use]
pub fn disarming(raised: &AlarmResponse) -> Vec<AlarmRequest> {
    let no_space = raised.alarms.iter().filter(|raised| raised.alarm() == AlarmType::Nospace);
    let disarm = |member_id| AlarmRequest {
        action: AlarmAction::Deactivate.into(),
        member_id,
        alarm: AlarmType::Nospace.into(),
    };
    no_space.map(|raised| disarm(raised.member_id)).collect()
}

/// Members with their backends, by what the asked one and the others said in time. Another member leads only where it says so itself. A
/// member of no machine that is known is left out.
#[must_use]
pub fn backends(
    listed: &[Member],
    said: &BTreeMap<u64, &MemberStatus>,
    machines: &BTreeMap<Ipv4Addr, (MachineId, NodeName)>,
) -> Backends {
    let member = |member: &Member| {
        let (machine, name) = machines.get(&member.vpn_ip)?;
        let status = said.get(&member.id).filter(|status| status.health.leader.is_some());
        let part = match (member.votes, status) {
            (false, _) => MemberPart::Learner,
            (true, Some(status)) if status.health.leads() => MemberPart::Leader,
            (true, _) => MemberPart::Voter,
        };
        let backend = status.map(|status| status.backend);
        Some((*machine, MemberBackend { name: name.clone(), part, backend }))
    };
    let alarms = said.values().flat_map(|status| &status.alarms).copied().collect();
    Backends { members: listed.iter().filter_map(member).collect(), alarms }
}

/// The members by machine, as decisions are made over them: `own` is what the asked one says of itself, `others` what the
/// others said in time. A member of no machine that is known is nobody's, and left out.
#[must_use]
pub fn seen(listed: &[Member], own: &Health, others: &[Health], machines: &BTreeMap<Ipv4Addr, MachineId>) -> Members {
    let said: BTreeMap<u64, &Health> = others.iter().chain([own]).map(|health| (health.id, health)).collect();
    let mut members = Members::default();
    for member in listed {
        let Some(machine) = machines.get(&member.vpn_ip) else { continue };
        let health = said.get(&member.id);
        if member.votes {
            let live = health.is_some_and(|health| health.leader.is_some());
            members.voters.insert(*machine, if live { Voter::Live } else { Voter::Silent });
        } else {
            let ready = health.is_some_and(|health| health.applied >= own.log.saturating_mul(CAUGHT_UP) / 100);
            members.learners.insert(*machine, if ready { Learner::Ready } else { Learner::Behind });
        }
    }
    members
}

/// Request to etcd for a step, made by the member that leads: `own` is what it reports of itself, `others` what the
/// others reported in time. None where that is done already, or the machine has no address.
///
/// A leader does not take itself out while one that follows it can lead: whoever asked it for something at that moment would
/// get no answer before etcd's own deadline, 7 s later.
#[must_use]
pub fn change(
    step: MemberStep,
    listed: &[Member],
    (own, others): (&Health, &[Health]),
    address: impl Fn(&MachineId) -> Option<Ipv4Addr>,
) -> Option<MemberChange> {
    let of = |machine: &MachineId| {
        let vpn_ip = address(machine)?;
        Some((vpn_ip, listed.iter().find(|member| member.vpn_ip == vpn_ip)))
    };
    match step {
        MemberStep::Add(machine) => match of(&machine)? {
            (vpn_ip, None) => {
                Some(MemberChange::Add(MemberAddRequest { peer_ur_ls: vec![etcd_peer_url(vpn_ip)], is_learner: true }))
            }
            (_, Some(_)) => None,
        },
        MemberStep::Promote(machine) => {
            let (_, member) = of(&machine)?;
            member.filter(|member| !member.votes).map(|it| MemberChange::Promote(MemberPromoteRequest { id: it.id }))
        }
        MemberStep::Remove(machine) => {
            let id = of(&machine)?.1?.id;
            let next = successor(own, others).filter(|_| id == own.id);
            Some(next.unwrap_or(MemberChange::Remove(MemberRemoveRequest { id })))
        }
    }
}

/// Request to etcd, made by the member that leads, to have the voter lead that follows it and holds most of the log.
#[must_use]
pub fn successor(own: &Health, others: &[Health]) -> Option<MemberChange> {
    let follow = others.iter().filter(|other| other.votes && other.leader == Some(own.id));
    let next = follow.max_by_key(|other| other.log)?;
    Some(MemberChange::MoveLeader(MoveLeaderRequest { target_id: next.id }))
}

#[cfg(test)]
mod tests {
    use super::{listed as list_of, *};
    use crate::wire::etcdserverpb::{Member as Listed, ResponseHeader};

    fn ip(n: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 118, 0, n)
    }

    fn member(n: u8, votes: bool) -> Member {
        Member { id: u64::from(n) * 100, vpn_ip: ip(n), votes }
    }

    fn says(n: u8, leader: Option<u64>, applied: u64) -> Health {
        Health { id: u64::from(n) * 100, leader, log: applied, applied, revision: 1, votes: true }
    }

    fn machines() -> BTreeMap<Ipv4Addr, MachineId> {
        (1..=4).map(|n| (ip(n), MachineId([n; 16]))).collect()
    }

    #[test]
    fn a_member_is_known_by_its_url_and_by_no_name() {
        let listed = |urls: &[&str], is_learner| {
            let peer_ur_ls = urls.iter().map(|url| (*url).to_owned()).collect();
            let member = Listed { id: 300, peer_ur_ls, is_learner, ..Listed::default() };
            list_of(&MemberListResponse { members: vec![member], ..MemberListResponse::default() })
        };
        assert_eq!(listed(&["https://10.118.0.3:7834"], true), Ok(vec![member(3, false)]));
        assert_eq!(listed(&["https://10.118.0.3:7834"], false), Ok(vec![member(3, true)]));
        for urls in [&[][..], &["http://10.118.0.3:7834"], &["https://10.118.0.3:2380"], &["https://m3:7834"]] {
            assert_eq!(listed(urls, true), Err(BadAnswer::Member), "{urls:?}");
        }
        assert_eq!(listed(&["https://10.118.0.3:7834", "https://10.118.0.4:7834"], true), Err(BadAnswer::Member));
        assert!(!list().linearizable, "it is asked while nobody leads, too");
    }

    #[test]
    fn who_says_nothing_in_time_is_silent_and_who_lags_is_behind() {
        let listed = [member(1, true), member(2, true), member(3, false), member(4, false), member(9, true)];
        let own = says(1, Some(100), 1000);
        let others = [says(2, None, 1000), says(3, Some(100), 900), Health { log: 1000, ..says(4, Some(100), 899) }];
        let members = seen(&listed, &own, &others, &machines());
        let of = |n: u8| MachineId([n; 16]);
        assert_eq!(members.voters, [(of(1), Voter::Live), (of(2), Voter::Silent)].into(), "one without a leader, too");
        assert_eq!(members.learners, [(of(3), Learner::Ready), (of(4), Learner::Behind)].into());
        let silent = seen(&listed[..3], &own, &[], &machines());
        assert_eq!((silent.voters[&of(2)], silent.learners[&of(3)]), (Voter::Silent, Learner::Behind));
        assert!(own.leads() && !others[1].leads() && !others[0].leads());
    }

    #[test]
    fn a_step_that_was_taken_is_not_asked_for_again() {
        let listed = [member(1, true), member(2, false)];
        let address = |machine: &MachineId| (machine.0[0] < 5).then(|| ip(machine.0[0]));
        let own = says(1, Some(100), 9);
        let asked =
            |step: fn(MachineId) -> MemberStep, n: u8| change(step(MachineId([n; 16])), &listed, (&own, &[]), address);
        let add = MemberAddRequest { peer_ur_ls: vec!["https://10.118.0.3:7834".to_owned()], is_learner: true };
        assert_eq!(asked(MemberStep::Add, 3), Some(MemberChange::Add(add)));
        assert_eq!((asked(MemberStep::Add, 2), asked(MemberStep::Add, 7)), (None, None));
        assert_eq!(asked(MemberStep::Promote, 2), Some(MemberChange::Promote(MemberPromoteRequest { id: 200 })));
        assert_eq!((asked(MemberStep::Promote, 1), asked(MemberStep::Promote, 3)), (None, None));
        assert_eq!(asked(MemberStep::Remove, 1), Some(MemberChange::Remove(MemberRemoveRequest { id: 100 })));
        assert_eq!(asked(MemberStep::Remove, 3), None);
    }

    #[test]
    fn a_leader_has_another_one_lead_before_it_is_taken_out() {
        let listed = [1, 2, 3, 4].map(|n| member(n, n != 4));
        let own = says(1, Some(100), 9);
        let asked = |n: u8, others: &[Health]| {
            change(MemberStep::Remove(MachineId([n; 16])), &listed, (&own, others), |machine| Some(ip(machine.0[0])))
        };
        let remove = |n: u64| Some(MemberChange::Remove(MemberRemoveRequest { id: n * 100 }));
        let lead = |n: u64| Some(MemberChange::MoveLeader(MoveLeaderRequest { target_id: n * 100 }));
        let follows = |n, log| says(n, Some(100), log);
        assert_eq!(asked(1, &[follows(2, 9), follows(3, 8)]), lead(2));
        assert_eq!(asked(1, &[follows(2, 8), follows(3, 9)]), lead(3), "the one that holds most");
        assert_eq!(asked(2, &[follows(2, 9), follows(3, 9)]), remove(2), "another one");
        // One that keeps a copy, or that follows nobody or somebody else, does not lead: the leader goes all the same.
        let learner = Health { votes: false, ..follows(4, 9) };
        assert_eq!(asked(1, &[learner, says(2, None, 9), says(3, Some(300), 9)]), remove(1));
        assert_eq!(asked(1, &[]), remove(1));
    }

    #[test]
    fn an_answer_without_a_header_says_nothing_of_anybody() {
        assert_eq!(health(&StatusResponse::default()), Err(BadAnswer::Missing("header")));
        let header = Some(ResponseHeader { member_id: 100, revision: 5, ..ResponseHeader::default() });
        let said = health(&StatusResponse { header, raft_index: 7, ..StatusResponse::default() });
        assert_eq!(said, Ok(Health { id: 100, leader: None, log: 7, applied: 0, revision: 5, votes: true }));
        let led = StatusResponse { header, leader: 200, raft_applied_index: 6, is_learner: true, ..Default::default() };
        assert_eq!(
            health(&led),
            Ok(Health { id: 100, leader: Some(200), log: 0, applied: 6, revision: 5, votes: false })
        );
        assert_eq!(said.map(|health| health.look()), Ok(Look { revision: 5, applied: 0 }));
    }

    /// Proves: Q4
    #[test]
    fn a_status_tells_backend_and_alarms_by_name() {
        let header = Some(ResponseHeader { member_id: 100, revision: 5, ..ResponseHeader::default() });
        let errors = ["etcdserver: no leader", "memberID:100  alarm:NOSPACE ", "memberID:7 alarm:CORRUPT"];
        let answer = StatusResponse {
            header,
            version: "3.7.3".to_owned(),
            db_size: 9,
            db_size_in_use: 4,
            db_size_quota: 20,
            errors: errors.map(str::to_owned).to_vec(),
            ..StatusResponse::default()
        };
        let said = status(&answer).expect("a status");
        assert_eq!(said.backend, Backend { size: 9, in_use: 4, quota: 20 });
        assert_eq!((said.alarms, &*said.version), ([EtcdAlarm::NoSpace, EtcdAlarm::Corrupt].into(), "3.7.3"));
        assert_eq!(said.errors, ["etcdserver: no leader"]);
        assert_eq!(status(&StatusResponse { db_size: -1, ..answer }), Err(BadAnswer::Size));
    }

    /// Proves: Q4
    #[test]
    fn each_member_that_raised_nospace_is_asked_to_disarm_it() {
        use crate::wire::etcdserverpb::AlarmMember;

        assert_eq!((alarms().action, alarms().alarm), (0, 0));
        let raised = [(100, AlarmType::Nospace), (200, AlarmType::Corrupt), (300, AlarmType::Nospace)];
        let raised = raised.map(|(member_id, alarm)| AlarmMember { member_id, alarm: alarm.into() }).to_vec();
        let asked = disarming(&AlarmResponse { header: None, alarms: raised });
        assert_eq!(asked.iter().map(|asked| asked.member_id).collect::<Vec<_>>(), [100, 300]);
        assert!(asked.iter().all(|asked| (asked.action, asked.alarm) == (2, 1)), "{asked:?}");
    }

    /// Proves: Q4
    #[test]
    fn a_member_that_is_silent_or_leaderless_has_no_backend() {
        let listed = [member(1, true), member(2, true), member(3, true), member(4, false), member(9, true)];
        let status = |health: Health| MemberStatus {
            health,
            backend: Backend { size: health.id, ..Backend::default() },
            version: String::new(),
            alarms: BTreeSet::new(),
            errors: Vec::new(),
        };
        let said =
            [says(1, Some(100), 9), says(2, None, 9), Health { votes: false, ..says(4, Some(100), 9) }].map(status);
        let said = said.iter().map(|status| (status.health.id, status)).collect();
        let name = |n: u8| NodeName::stored(&format!("m{n}")).expect("a name");
        let machines = (1..=4).map(|n| (ip(n), (MachineId([n; 16]), name(n)))).collect();
        let found = backends(&listed, &said, &machines);
        let rows = found.members.values().map(|it| (it.part, it.backend.map(|backend| backend.size)));
        let (voter, learner) = (MemberPart::Voter, MemberPart::Learner);
        let expected = [(MemberPart::Leader, Some(100)), (voter, None), (voter, None), (learner, Some(400))];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }
}
