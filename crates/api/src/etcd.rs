//! etcd's members as their owner is told of them, and the defragmentation of their backends.

use std::collections::BTreeSet;

use cluster::backends::{Backend, EtcdAlarm, MemberPart};
use model::{MachineId, NodeName};

use crate::field_error::{fixed, known, present};
use crate::{FieldError, Problem, wire};

/// Member of etcd, as its owner is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEtcd {
    /// Id of its machine.
    pub machine: MachineId,
    /// Name of its machine.
    pub name: NodeName,
    /// Part that it has, as far as the answering coordinator knows.
    pub part: MemberPart,
    /// Answer of the member; none when it gives none.
    pub answer: Option<EtcdAnswer>,
}

/// Answer of a member of etcd about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdAnswer {
    /// Newest revision that it has.
    pub revision: u64,
    /// Backend of the member.
    pub backend: Backend,
    /// Version of etcd.
    pub version: String,
    /// Alarms that are raised, as far as it knows.
    pub alarms: BTreeSet<EtcdAlarm>,
    /// Other things that are wrong with it, in etcd's words.
    pub errors: Vec<String>,
}

/// Step of a defragmentation, told as it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefragmentStep {
    /// A member begins, with a backend of so many bytes.
    Begin {
        /// Name of its machine.
        name: NodeName,
        /// Size of its backend.
        bytes: u64,
    },
    /// The member is done.
    End {
        /// Name of its machine.
        name: NodeName,
        /// Size of its backend now; none where it did not say.
        bytes: Option<u64>,
    },
    /// The alarm NOSPACE was raised and is not any more: etcd takes writes again.
    Disarmed,
    /// The alarm NOSPACE stays, since less than a fifth of a member's quota is free.
    StillFull,
}

const fn alarm(alarm: EtcdAlarm) -> wire::EtcdAlarm {
    match alarm {
        EtcdAlarm::NoSpace => wire::EtcdAlarm::NoSpace,
        EtcdAlarm::Corrupt => wire::EtcdAlarm::Corrupt,
    }
}

fn name(text: &str) -> Result<NodeName, FieldError> {
    NodeName::stored(text).map_err(|_| FieldError::new("name", Problem::Unusable))
}

impl From<ListedEtcd> for wire::EtcdMember {
    fn from(ListedEtcd { machine, name, part, answer }: ListedEtcd) -> Self {
        let part = match part {
            MemberPart::Leader => wire::EtcdPart::Leader,
            MemberPart::Voter => wire::EtcdPart::Voter,
            MemberPart::Learner => wire::EtcdPart::Learner,
        };
        let answer = answer.map(|EtcdAnswer { revision, backend, version, alarms, errors }| wire::EtcdAnswer {
            revision,
            size_bytes: backend.size,
            in_use_bytes: backend.in_use,
            quota_bytes: backend.quota,
            version,
            alarms: alarms.into_iter().map(|it| alarm(it).into()).collect(),
            errors,
        });
        Self { machine_id: machine.0.to_vec(), name: name.as_str().to_owned(), part: part.into(), answer }
    }
}

impl TryFrom<wire::EtcdMember> for ListedEtcd {
    type Error = FieldError;

    fn try_from(member: wire::EtcdMember) -> Result<Self, FieldError> {
        let part = match member.part() {
            wire::EtcdPart::Leader => Some(MemberPart::Leader),
            wire::EtcdPart::Voter => Some(MemberPart::Voter),
            wire::EtcdPart::Learner => Some(MemberPart::Learner),
            wire::EtcdPart::Unspecified => None,
        };
        let answer = |answer: wire::EtcdAnswer| {
            let alarms = answer.alarms.iter().map(|alarm| match wire::EtcdAlarm::try_from(*alarm) {
                Ok(wire::EtcdAlarm::NoSpace) => Some(EtcdAlarm::NoSpace),
                Ok(wire::EtcdAlarm::Corrupt) => Some(EtcdAlarm::Corrupt),
                Ok(wire::EtcdAlarm::Unspecified) | Err(_) => None,
            });
            let alarms = alarms.map(|alarm| known("alarms", alarm)).collect::<Result<_, _>>()?;
            let (size, in_use, quota) = (answer.size_bytes, answer.in_use_bytes, answer.quota_bytes);
            let (revision, version, errors) = (answer.revision, answer.version, answer.errors);
            Ok(EtcdAnswer { revision, backend: Backend { size, in_use, quota }, version, alarms, errors })
        };
        Ok(Self {
            machine: fixed("machine_id", &member.machine_id).map(MachineId)?,
            name: name(&member.name)?,
            part: known("part", part)?,
            answer: member.answer.map(answer).transpose()?,
        })
    }
}

impl From<Vec<ListedEtcd>> for wire::EtcdStatusResponse {
    fn from(members: Vec<ListedEtcd>) -> Self {
        Self { members: members.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<wire::EtcdStatusResponse> for Vec<ListedEtcd> {
    type Error = FieldError;

    fn try_from(answer: wire::EtcdStatusResponse) -> Result<Self, FieldError> {
        answer.members.into_iter().map(ListedEtcd::try_from).collect()
    }
}

impl wire::DefragmentEtcdRequest {
    /// Request to defragment these members; all voters where none is named.
    #[must_use]
    pub fn of(machines: &BTreeSet<MachineId>) -> Self {
        Self { machine_ids: machines.iter().map(|machine| machine.0.to_vec()).collect() }
    }

    /// Machines that the request names.
    ///
    /// # Errors
    /// [`FieldError`] for an id that is none, or comes twice.
    pub fn machines(&self) -> Result<BTreeSet<MachineId>, FieldError> {
        let mut machines = BTreeSet::new();
        for bytes in &self.machine_ids {
            if !machines.insert(fixed("machine_ids", bytes).map(MachineId)?) {
                return Err(FieldError::new("machine_ids", Problem::Unusable));
            }
        }
        Ok(machines)
    }
}

impl From<DefragmentStep> for wire::DefragmentEtcdResponse {
    fn from(step: DefragmentStep) -> Self {
        let (step, name, bytes) = match step {
            DefragmentStep::Begin { name, bytes } => (wire::DefragmentStep::Begin, Some(name), Some(bytes)),
            DefragmentStep::End { name, bytes } => (wire::DefragmentStep::End, Some(name), bytes),
            DefragmentStep::Disarmed => (wire::DefragmentStep::Disarmed, None, None),
            DefragmentStep::StillFull => (wire::DefragmentStep::StillFull, None, None),
        };
        Self { step: step.into(), name: name.map_or_else(String::new, |name| name.to_string()), bytes }
    }
}

impl TryFrom<wire::DefragmentEtcdResponse> for DefragmentStep {
    type Error = FieldError;

    fn try_from(answer: wire::DefragmentEtcdResponse) -> Result<Self, FieldError> {
        let name = || name(&answer.name);
        match answer.step() {
            wire::DefragmentStep::Begin => {
                let bytes = present("bytes", answer.bytes)?;
                Ok(Self::Begin { name: name()?, bytes })
            }
            wire::DefragmentStep::End => Ok(Self::End { name: name()?, bytes: answer.bytes }),
            wire::DefragmentStep::Disarmed => Ok(Self::Disarmed),
            wire::DefragmentStep::StillFull => Ok(Self::StillFull),
            wire::DefragmentStep::Unspecified => known("step", None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn m1() -> NodeName {
        NodeName::stored("m1").expect("a name")
    }

    fn member(part: MemberPart, answer: Option<EtcdAnswer>) -> ListedEtcd {
        ListedEtcd { machine: MachineId([1; 16]), name: m1(), part, answer }
    }

    /// Proves: Q4
    #[test]
    fn members_of_etcd_cross_the_wire() {
        let answer = EtcdAnswer {
            revision: 7,
            backend: Backend { size: 3, in_use: 2, quota: 9 },
            version: "3.7.3".to_owned(),
            alarms: [EtcdAlarm::NoSpace, EtcdAlarm::Corrupt].into(),
            errors: vec!["etcdserver: no leader".to_owned()],
        };
        let members = vec![
            member(MemberPart::Leader, Some(answer.clone())),
            member(MemberPart::Voter, None),
            member(MemberPart::Learner, Some(answer.clone())),
        ];
        let sent = wire::EtcdStatusResponse::from(members.clone());
        assert_eq!(Vec::try_from(sent), Ok(members));
        let field = |edit: fn(&mut wire::EtcdMember)| {
            let mut sent = wire::EtcdMember::from(member(MemberPart::Leader, Some(answer.clone())));
            edit(&mut sent);
            ListedEtcd::try_from(sent).map_err(|wrong| wrong.field)
        };
        assert_eq!(field(|sent| sent.part = 9), Err("part"));
        assert_eq!(field(|sent| sent.name = "M 1".to_owned()), Err("name"));
        assert_eq!(field(|sent| sent.machine_id.clear()), Err("machine_id"));
    }

    /// Proves: Q4
    #[test]
    fn steps_of_a_defragmentation_cross_the_wire() {
        for step in [
            DefragmentStep::Begin { name: m1(), bytes: 5 },
            DefragmentStep::End { name: m1(), bytes: Some(4) },
            DefragmentStep::End { name: m1(), bytes: None },
            DefragmentStep::Disarmed,
            DefragmentStep::StillFull,
        ] {
            assert_eq!(DefragmentStep::try_from(wire::DefragmentEtcdResponse::from(step.clone())), Ok(step));
        }
        let nothing = DefragmentStep::try_from(wire::DefragmentEtcdResponse::default());
        assert_eq!(nothing.map_err(|wrong| wrong.field), Err("step"));
        for machines in [&[][..], &[MachineId([1; 16]), MachineId([2; 16])]] {
            let machines = machines.iter().copied().collect();
            assert_eq!(wire::DefragmentEtcdRequest::of(&machines).machines(), Ok(machines));
        }
        let twice = wire::DefragmentEtcdRequest { machine_ids: vec![vec![1; 16]; 2] };
        assert_eq!(twice.machines().map_err(|wrong| wrong.field), Err("machine_ids"));
    }
}
