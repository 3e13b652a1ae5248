//! Access to the APIs: who may call what, and in which state of the machine. One row per method, decided here and
//! nowhere else.
//!
//! The state is looked at before the caller: it is public anyway, and a machine without an owner refuses everybody for
//! the reason that counts. Telling *who* a caller is, by certificate, is the server's work.

use std::fmt;

use model::MachineState::{AwaitingKeys, Enrolling, Failed, NeedsOwner, Running};
use model::{Caller, MachineState};

use crate::{NOT_YET, Profile};

/// Proof that a caller must have given to call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permission {
    /// No authentication.
    Anyone,
    /// Knowledge of the code on a blank machine's screen: the message proves it.
    Code,
    /// No authentication, and of no user: nobody has met the machine yet.
    Newcomer,
    /// Possession of some machine's key: nothing is granted by that alone.
    Machine,
    /// The owner; or possession of some machine's key, by which alone nothing is granted.
    OwnerOrMachine,
    /// A machine that the cluster let in, by its certificate; its record is asked before the call goes on.
    Member,
    /// A user of Kubernetes by the records of now, or an owner.
    User,
    /// The owner, by the pinned key of its client certificate.
    Owner,
}

/// Conditions for calls of one method.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// As in the request's path: `/package.Service/Method`.
    pub path: &'static str,
    /// Permission that the caller must have.
    pub permission: Permission,
    /// The states it is answered in.
    pub states: &'static [MachineState],
    /// The least profile that has it: debug methods do not exist in a release.
    pub profile: Profile,
    /// Whether it is written down who called.
    pub audit: Audit,
    /// Why the row is as it is.
    pub because: &'static str,
}

/// Whether a call that is let in leaves a line in the audit record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Audit {
    /// Leaves no line: the call only looks.
    Silent,
    /// Leaves a line: the call changes something, or hands out what can.
    Recorded,
}

/// Every state.
const ANY: &[MachineState] = MachineState::ALL;
/// States in which the machine may know an owner.
const OWNED: &[MachineState] = &[Enrolling, AwaitingKeys, Running, NeedsOwner, Failed];
/// States in which there may be an identity to prove, as the data header is committed, or was; or a config to refuse.
const CLAIMED: &[MachineState] = &[Enrolling, Running, NeedsOwner, Failed];
/// A machine that is nobody's.
const BLANK: &[MachineState] = &[MachineState::Blank];
/// States with services to speak of.
const SERVING: &[MachineState] = &[Enrolling, Running, Failed];
/// A member whose data is closed, because the cluster's half of its key is not there.
const WAITING: &[MachineState] = &[AwaitingKeys];
/// A member that waits for its key, or has it.
const SEALED: &[MachineState] = &[AwaitingKeys, Running];
/// A member with its data open.
const MEMBER: &[MachineState] = &[Running];

/// The table, in the order of the `.proto` files.
pub const TABLE: &[Row] = &[
    anyone("/cairn.v1.Public/GetState", ANY, "says what a person in front of it can see anyway"),
    Row {
        audit: Audit::Recorded,
        permission: Permission::Newcomer,
        ..anyone(
            "/cairn.v1.Public/Claim",
            CLAIMED,
            "comes before the caller has a pin, so before either can authenticate",
        )
    },
    Row {
        permission: Permission::Newcomer,
        ..anyone(
            "/cairn.v1.Public/ProveCode",
            BLANK,
            "comes before anybody is known; the proof shows nothing of the code",
        )
    },
    Row {
        audit: Audit::Recorded,
        permission: Permission::Code,
        ..anyone("/cairn.v1.Public/Activate", BLANK, "nobody owns the machine yet; the code on its screen is the proof")
    },
    owner("/cairn.v1.Public/Status", OWNED, "names the machine, its cluster and its addresses"),
    owner("/cairn.v1.Public/Timeline", OWNED, "tells what the machine runs"),
    owner("/cairn.v1.Public/Services", OWNED, "tells what the machine runs"),
    changing("/cairn.v1.Public/RestartService", SERVING, "interrupts work"),
    Row {
        permission: Permission::OwnerOrMachine,
        ..owner(
            "/cairn.v1.Public/Metrics",
            MEMBER,
            "tells what the machine runs; coordinators hand it on in Kubernetes",
        )
    },
    owner("/cairn.v1.Public/Logs", OWNED, "logs hold whatever services write"),
    changing("/cairn.v1.Public/Reboot", OWNED, "interrupts work"),
    changing("/cairn.v1.Public/PowerOff", OWNED, "interrupts work, and takes a person to undo"),
    Row {
        permission: Permission::User,
        ..changing("/cairn.v1.Public/Kubeconfig", MEMBER, "grants an owner cluster-admin, a user what is bound to them")
    },
    Row {
        permission: Permission::User,
        ..changing("/cairn.v1.Public/Tunnel", MEMBER, "reaches ports that are closed to the world; a user one alone")
    },
    owner("/cairn.v1.Public/Conditions", OWNED, "tells what the machine runs"),
    owner("/cairn.v1.Public/WaitCondition", OWNED, "tells what the machine runs and holds a stream open"),
    owner("/cairn.v1.Public/ListMachines", MEMBER, "names every machine and where it is"),
    changing("/cairn.v1.Public/ChangeMachine", MEMBER, "gives roles and takes machines out"),
    owner("/cairn.v1.Public/CheckRemoval", MEMBER, "names what pods keep on a machine"),
    changing("/cairn.v1.Public/DrainMachine", MEMBER, "ends pods"),
    changing("/cairn.v1.Public/RecoverCluster", MEMBER, "takes all other coordinators out"),
    changing("/cairn.v1.Public/EraseRole", MEMBER, "erases a copy of the records that may be the last"),
    changing("/cairn.v1.Public/IssueTicket", MEMBER, "lets machines into the cluster"),
    owner("/cairn.v1.Public/ListTickets", MEMBER, "tells who may be let in"),
    changing("/cairn.v1.Public/RevokeTicket", MEMBER, "keeps machines out of the cluster"),
    changing("/cairn.v1.Public/AddOwner", MEMBER, "gives a person all that an owner has"),
    owner("/cairn.v1.Public/ListOwners", MEMBER, "names who owns the cluster"),
    changing("/cairn.v1.Public/RemoveOwner", MEMBER, "takes from a person all that an owner has"),
    changing("/cairn.v1.Public/SetRegistry", MEMBER, "decides what containers run"),
    owner("/cairn.v1.Public/ListRegistries", MEMBER, "tells where images come from"),
    changing("/cairn.v1.Public/RemoveRegistry", MEMBER, "decides what containers run"),
    changing("/cairn.v1.Public/AddUser", MEMBER, "lets a person reach Kubernetes"),
    owner("/cairn.v1.Public/ListUsers", MEMBER, "names who reaches Kubernetes"),
    changing("/cairn.v1.Public/RemoveUser", MEMBER, "takes from a person the way to Kubernetes"),
    changing("/cairn.v1.Public/Publish", MEMBER, "opens ports of machines to their networks"),
    owner("/cairn.v1.Public/ListPublished", MEMBER, "tells which ports are open to whom"),
    changing("/cairn.v1.Public/Unpublish", MEMBER, "closes ports that people use"),
    changing("/cairn.v1.Public/ImportImage", MEMBER, "decides what containers run"),
    owner("/cairn.v1.Public/ListImages", MEMBER, "tells what the machine runs"),
    changing("/cairn.v1.Public/RemoveImage", MEMBER, "takes from pods what they start from"),
    owner("/cairn.v1.Public/ListVolumes", MEMBER, "names what pods keep, and where"),
    changing("/cairn.v1.Public/RemoveVolume", MEMBER, "destroys what pods have written"),
    owner("/cairn.v1.Public/EtcdStatus", MEMBER, "tells how the cluster's store is, member by member"),
    changing("/cairn.v1.Public/DefragmentEtcd", MEMBER, "has members of etcd answer nothing for a while"),
    changing("/cairn.v1.Public/SnapshotKubernetes", MEMBER, "hands out all that Kubernetes keeps"),
    changing("/cairn.v1.Public/RestoreKubernetes", MEMBER, "replaces all that Kubernetes keeps"),
    Row {
        audit: Audit::Recorded,
        permission: Permission::Machine,
        ..anyone(
            "/cairn.v1.Public/Redeem",
            MEMBER,
            "comes before the machine has a certificate; its ticket is the proof",
        )
    },
    Row {
        audit: Audit::Recorded,
        permission: Permission::Machine,
        ..anyone(
            "/cairn.v1.Public/ReleaseKey",
            MEMBER,
            "comes before the machine's disk is open; the record of its key is the proof",
        )
    },
    owner("/cairn.v1.Public/RecoveryRecord", WAITING, "shows what its owner alone can open"),
    changing("/cairn.v1.Public/GiveClusterKey", WAITING, "opens the machine's data"),
    owner("/cairn.v1.Public/Directory", MEMBER, "names the coordinators and where they are"),
    changing("/cairn.v1.Public/GiveDirectory", SEALED, "decides whom the machine asks for its key"),
    Row {
        audit: Audit::Recorded,
        permission: Permission::Machine,
        ..anyone(
            "/cairn.v1.Public/Contribute",
            SEALED,
            "comes before either machine's disk is open; directory and share name whom they are exchanged with",
        )
    },
    coordinator("/cairn.v1.Public/CreateVolume", Audit::Recorded, "takes room on the machine's disk"),
    coordinator("/cairn.v1.Public/ExpandVolume", Audit::Recorded, "takes room on the machine's disk"),
    coordinator("/cairn.v1.Public/DeleteVolume", Audit::Recorded, "destroys what pods have written"),
    coordinator("/cairn.v1.Public/Volumes", Audit::Silent, "tells which claims lie on the machine"),
    #[cfg(feature = "faults")]
    Row { profile: Profile::Debug, ..changing("/cairn.v1.Debug/Inject", OWNED, "breaks things on purpose") },
    Row {
        audit: Audit::Recorded,
        ..member("/cairn.v1.Vpn/Announce", "changes the machine's own record, and no other")
    },
    member("/cairn.v1.Vpn/Peers", "tells whom packets may be exchanged with, and where"),
    Row {
        audit: Audit::Recorded,
        ..member("/cairn.v1.Vpn/HandOver", "gives what makes a coordinator; only to whom the record makes one")
    },
    Row {
        audit: Audit::Recorded,
        ..member(
            "/cairn.v1.Vpn/Certify",
            "signs a Kubernetes worker's certificates; only for whom the record makes one",
        )
    },
    member("/cairn.v1.Vpn/Hold", "lets a machine have an address; only one that the record gives it"),
];

/// Decides one call, before its body is read.
///
/// # Errors
/// [`CallRefusal`], which says what to tell the caller.
pub fn decide(path: &str, profile: Profile, state: MachineState, caller: Caller) -> Result<&'static Row, CallRefusal> {
    let row = TABLE.iter().find(|row| row.path == path).ok_or(CallRefusal::NoSuchMethod)?;
    match (row.profile, profile) {
        (Profile::Debug, Profile::Release) => return Err(CallRefusal::NoSuchMethod),
        (Profile::Release, Profile::Release | Profile::Debug) | (Profile::Debug, Profile::Debug) => {}
    }
    if !row.states.contains(&state) {
        return Err(CallRefusal::State { is: state, answered_in: row.states });
    }
    match (row.permission, caller) {
        (Permission::Anyone, Caller::Stranger | Caller::Machine | Caller::Member | Caller::User | Caller::Owner)
        | (
            Permission::Newcomer | Permission::Code,
            Caller::Stranger | Caller::Machine | Caller::Member | Caller::Owner,
        )
        | (Permission::Machine, Caller::Machine)
        | (Permission::OwnerOrMachine, Caller::Machine | Caller::Owner)
        | (Permission::Member, Caller::Member)
        | (Permission::User, Caller::User | Caller::Owner)
        | (Permission::Owner, Caller::Owner) => Ok(row),
        (
            Permission::Newcomer
            | Permission::Code
            | Permission::Machine
            | Permission::OwnerOrMachine
            | Permission::Member
            | Permission::Owner,
            Caller::User,
        ) => Err(CallRefusal::NotForUsers),
        (Permission::User | Permission::Owner, Caller::Stranger | Caller::Machine | Caller::Member) => {
            Err(CallRefusal::NoCertificate)
        }
        (Permission::OwnerOrMachine, Caller::Stranger | Caller::Member) => Err(CallRefusal::NoCertificate),
        (Permission::Machine, Caller::Stranger | Caller::Member | Caller::Owner) => Err(CallRefusal::NoMachineKey),
        (Permission::Member, Caller::Stranger | Caller::Machine | Caller::Owner) => Err(CallRefusal::NoMember),
    }
}

/// Why a call is refused. Nothing was done then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallRefusal {
    /// This version and profile has no such method.
    NoSuchMethod,
    /// Not in this state.
    State {
        /// The state the machine is in.
        is: MachineState,
        /// The states the method is answered in.
        answered_in: &'static [MachineState],
    },
    /// The method is for the owner and the caller is a stranger.
    NoCertificate,
    /// The method is for machines, and the caller has not shown the key of one.
    NoMachineKey,
    /// The method is for machines of the cluster, over the VPN.
    NoMember,
    /// The caller showed a certificate that is of no owner any more, so nothing is answered on its connection.
    NotTheOwner,
    /// The caller is a user of Kubernetes, and the method is for others.
    NotForUsers,
    /// The caller calls itself a user, and the records of now know none of its key.
    UnknownUser,
    /// The caller calls itself a user, and the machine has no records to find them in.
    NoUsersHere,
    /// The caller calls itself a user, and the records are not read yet.
    UsersUnread,
}

impl fmt::Display for CallRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchMethod => f.write_str("this machine has no such method"),
            Self::State { is, answered_in } => {
                write!(f, "not while the machine is {is}; nothing was done; answered in: ")?;
                for (position, state) in answered_in.iter().enumerate() {
                    write!(f, "{}{state}", if position == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::NoCertificate => {
                f.write_str("only for the owner; nothing was done; call with the owner's certificate")
            }
            Self::NoMachineKey => {
                f.write_str("only for a machine; nothing was done; call with a certificate of the machine's key")
            }
            Self::NoMember => f.write_str("only for a machine of the cluster, over the VPN; nothing was done"),
            Self::NotTheOwner => f.write_str("only for the owner, whose key this is not; nothing was done"),
            Self::NotForUsers => f.write_str(
                "not for a user of Kubernetes, who is given a kubeconfig and the way there, and nothing else; nothing was done; \
                 ask an owner of the cluster",
            ),
            Self::UnknownUser => f.write_str(
                "the cluster has no user with this key: it was not added, was removed, or its time is over; nothing was done; \
                 ask an owner of the cluster",
            ),
            Self::NoUsersHere => f.write_str(
                "this machine is no coordinator and knows no users of the cluster; nothing was done; ask a coordinator",
            ),
            Self::UsersUnread => f.write_str(
                "the cluster's users are not read here yet; nothing was done; ask another coordinator, or try again",
            ),
        }
    }
}

impl std::error::Error for CallRefusal {}

impl From<CallRefusal> for tonic::Status {
    fn from(refused: CallRefusal) -> Self {
        let code = match refused {
            CallRefusal::NoSuchMethod => tonic::Code::Unimplemented,
            // No machine comes to be blank again by waiting.
            CallRefusal::State { answered_in: BLANK, .. } => tonic::Code::FailedPrecondition,
            // On its way to where it answers, or not.
            CallRefusal::State { is: Enrolling | AwaitingKeys, .. } => NOT_YET,
            CallRefusal::State { is: MachineState::Blank | Running | NeedsOwner | Failed, .. } => {
                tonic::Code::FailedPrecondition
            }
            CallRefusal::NoCertificate | CallRefusal::NoMachineKey | CallRefusal::NoMember => {
                tonic::Code::Unauthenticated
            }
            CallRefusal::NotTheOwner | CallRefusal::NotForUsers | CallRefusal::UnknownUser => {
                tonic::Code::PermissionDenied
            }
            CallRefusal::NoUsersHere => tonic::Code::FailedPrecondition,
            CallRefusal::UsersUnread => NOT_YET,
        };
        Self::new(code, refused.to_string())
    }
}

const fn anyone(path: &'static str, states: &'static [MachineState], because: &'static str) -> Row {
    Row { path, permission: Permission::Anyone, states, profile: Profile::Release, audit: Audit::Silent, because }
}

const fn owner(path: &'static str, states: &'static [MachineState], because: &'static str) -> Row {
    Row { path, permission: Permission::Owner, states, profile: Profile::Release, audit: Audit::Silent, because }
}

const fn member(path: &'static str, because: &'static str) -> Row {
    Row { permission: Permission::Member, ..anyone(path, MEMBER, because) }
}

/// For coordinators: the method compares the key that the caller has shown with the machine's directory.
const fn coordinator(path: &'static str, audit: Audit, because: &'static str) -> Row {
    Row { audit, permission: Permission::Machine, ..anyone(path, MEMBER, because) }
}

const fn changing(path: &'static str, states: &'static [MachineState], because: &'static str) -> Row {
    Row { audit: Audit::Recorded, ..owner(path, states, because) }
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;
    use tonic::Code;

    use super::*;

    const CALLERS: [Caller; 5] = [Caller::Stranger, Caller::Machine, Caller::Member, Caller::User, Caller::Owner];

    fn code(path: &str, state: MachineState, caller: Caller) -> Code {
        decide(path, Profile::Release, state, caller)
            .map_or_else(|refused| tonic::Status::from(refused).code(), |_| Code::Ok)
    }

    /// A missing row, a row too many, or one out of order fails. Proves: Q1
    #[test]
    fn the_table_has_one_row_per_method_of_the_descriptor() {
        let pool = DescriptorPool::decode(crate::DESCRIPTOR).expect("built beside this test");
        let methods: Vec<String> = pool
            .services()
            .flat_map(|service| service.methods().collect::<Vec<_>>())
            .map(|method| format!("/{}/{}", method.parent_service().full_name(), method.name()))
            .collect();
        let rows: Vec<&str> = TABLE.iter().map(|row| row.path).collect();
        assert_eq!(rows, methods);
    }

    #[test]
    fn every_row_says_why_and_where() {
        for row in TABLE {
            assert!(!row.because.is_empty() && !row.states.is_empty(), "{}", row.path);
            assert_eq!(row.profile == Profile::Debug, row.path.starts_with("/cairn.v1.Debug/"), "{}", row.path);
        }
    }

    /// Proves: Q1 A1 A8
    #[test]
    fn get_state_claim_and_activation_need_no_authentication() {
        let open = |state: MachineState| -> Vec<&str> {
            let open = [Permission::Anyone, Permission::Newcomer, Permission::Code];
            let rows = TABLE.iter().filter(|row| open.contains(&row.permission));
            let rows = rows.filter(|row| row.states.contains(&state));
            rows.filter_map(|row| row.path.strip_prefix("/cairn.v1.Public/")).collect()
        };
        assert_eq!(open(MachineState::Blank), ["GetState", "ProveCode", "Activate"]);
        assert_eq!(open(AwaitingKeys), ["GetState"]);
        for state in [Enrolling, Running, NeedsOwner, Failed] {
            assert_eq!(open(state), ["GetState", "Claim"], "{state}");
        }
        for row in TABLE.iter().filter(|row| [Permission::Owner, Permission::User].contains(&row.permission)) {
            for &state in row.states {
                let refused = |caller| decide(row.path, Profile::Debug, state, caller).err();
                for caller in [Caller::Stranger, Caller::Machine, Caller::Member] {
                    assert_eq!(refused(caller), Some(CallRefusal::NoCertificate), "{}", row.path);
                }
                assert_eq!(refused(Caller::Owner), None, "{}", row.path);
            }
        }
    }

    /// Proves: W9 Q1
    #[test]
    fn a_user_of_kubernetes_calls_three_methods_and_no_other() {
        let answered = |caller| -> Vec<&str> {
            let rows = TABLE.iter().filter(|row| decide(row.path, Profile::Debug, Running, caller).is_ok());
            rows.filter_map(|row| row.path.strip_prefix("/cairn.v1.Public/")).collect()
        };
        assert_eq!(answered(Caller::User), ["GetState", "Kubeconfig", "Tunnel"]);
        assert!(answered(Caller::Owner).contains(&"Kubeconfig") && answered(Caller::Owner).contains(&"Tunnel"));
        for row in TABLE.iter().filter(|row| row.states.contains(&Running)) {
            let refused = decide(row.path, Profile::Debug, Running, Caller::User).err();
            let answered = matches!(row.permission, Permission::Anyone | Permission::User);
            assert_eq!(refused, (!answered).then_some(CallRefusal::NotForUsers), "{}", row.path);
        }
        let codes =
            [CallRefusal::NotForUsers, CallRefusal::UnknownUser, CallRefusal::NoUsersHere, CallRefusal::UsersUnread]
                .map(|refused| tonic::Status::from(refused).code());
        assert_eq!(codes, [Code::PermissionDenied, Code::PermissionDenied, Code::FailedPrecondition, NOT_YET]);
    }

    /// A machine's key says nothing yet of who it is: what is sent has to be signed by a ticket, or the record has to
    /// name the key, or the directory. Proves: Q1
    #[test]
    fn a_machines_key_is_good_for_these_calls_alone() {
        let rows: Vec<&str> =
            TABLE.iter().filter(|row| row.permission == Permission::Machine).map(|row| row.path).collect();
        let expected = [
            "/cairn.v1.Public/Redeem",
            "/cairn.v1.Public/ReleaseKey",
            "/cairn.v1.Public/Contribute",
            "/cairn.v1.Public/CreateVolume",
            "/cairn.v1.Public/ExpandVolume",
            "/cairn.v1.Public/DeleteVolume",
            "/cairn.v1.Public/Volumes",
        ];
        assert_eq!(rows, expected);
        for row in rows {
            let refused = |caller| decide(row, Profile::Release, Running, caller).err();
            assert_eq!(refused(Caller::Machine), None);
            assert_eq!(refused(Caller::Stranger), Some(CallRefusal::NoMachineKey));
            assert_eq!(refused(Caller::Owner), Some(CallRefusal::NoMachineKey), "an owner's key is no machine's");
        }
    }

    /// Proves: Q1 Q3
    #[test]
    fn metrics_are_for_owners_and_for_machines() {
        let refused = |caller| decide("/cairn.v1.Public/Metrics", Profile::Release, Running, caller).err();
        assert_eq!([Caller::Owner, Caller::Machine].map(refused), [None, None]);
        assert_eq!([Caller::Stranger, Caller::Member].map(refused), [Some(CallRefusal::NoCertificate); 2]);
        assert_eq!(refused(Caller::User), Some(CallRefusal::NotForUsers));
    }

    /// A machine's key does not make its holder one of the cluster's. Proves: Q1
    #[test]
    fn the_vpn_api_is_for_the_clusters_machines_alone() {
        let rows: Vec<&Row> = TABLE.iter().filter(|row| row.permission == Permission::Member).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.path.starts_with("/cairn.v1.Vpn/")));
        for row in rows {
            for caller in [Caller::Stranger, Caller::Machine, Caller::Owner] {
                let refused = decide(row.path, Profile::Debug, Running, caller).err();
                assert_eq!(refused, Some(CallRefusal::NoMember), "{}", row.path);
            }
        }
    }

    /// Proves: Q1
    #[test]
    fn what_changes_something_or_hands_out_what_can_is_written_down() {
        let recorded: Vec<&str> = TABLE
            .iter()
            .filter(|row| row.audit == Audit::Recorded)
            .filter_map(|row| row.path.rsplit('/').next())
            .collect();
        let expected = [
            "Claim",
            "Activate",
            "RestartService",
            "Reboot",
            "PowerOff",
            "Kubeconfig",
            "Tunnel",
            "ChangeMachine",
            "DrainMachine",
            "RecoverCluster",
            "EraseRole",
            "IssueTicket",
            "RevokeTicket",
            "AddOwner",
            "RemoveOwner",
            "SetRegistry",
            "RemoveRegistry",
            "AddUser",
            "RemoveUser",
            "Publish",
            "Unpublish",
            "ImportImage",
            "RemoveImage",
            "RemoveVolume",
            "DefragmentEtcd",
            "SnapshotKubernetes",
            "RestoreKubernetes",
            "Redeem",
            "ReleaseKey",
            "GiveClusterKey",
            "GiveDirectory",
            "Contribute",
            "CreateVolume",
            "ExpandVolume",
            "DeleteVolume",
            #[cfg(feature = "faults")]
            "Inject",
            "Announce",
            "HandOver",
            "Certify",
        ];
        assert_eq!(recorded, expected);
    }

    /// Proves: A1
    #[test]
    fn a_blank_machine_answers_get_state_and_its_activation_alone() {
        for row in TABLE.iter().filter(|row| row.profile == Profile::Release) {
            let method = row.path.rsplit('/').next().expect("a path has a method");
            let answers = ["GetState", "ProveCode", "Activate"].contains(&method);
            let expected = if answers { Code::Ok } else { Code::FailedPrecondition };
            // No records of a blank machine make anybody a user.
            for caller in CALLERS.into_iter().filter(|caller| *caller != Caller::User) {
                assert_eq!(code(row.path, MachineState::Blank, caller), expected, "{}", row.path);
            }
        }
    }

    /// Waiting does not help: no machine becomes blank again. Proves: A1
    #[test]
    fn a_machine_that_is_not_blank_is_not_activated_now_or_later() {
        for state in [Enrolling, AwaitingKeys, Running, NeedsOwner, Failed] {
            let refused = code("/cairn.v1.Public/Activate", state, Caller::Stranger);
            assert_eq!(refused, Code::FailedPrecondition, "{state}");
        }
    }

    /// The whole policy, written out: whoever changes a row changes it here as well. Proves: Q1
    #[test]
    fn each_method_is_answered_in_these_states_to_these_callers() {
        let owned = [Enrolling, AwaitingKeys, Running, NeedsOwner, Failed];
        let serving = [Enrolling, Running, Failed];
        let expected: &[(&str, Permission, &[MachineState])] = &[
            (
                "Public/GetState",
                Permission::Anyone,
                &[MachineState::Blank, Enrolling, AwaitingKeys, Running, NeedsOwner, Failed],
            ),
            ("Public/Claim", Permission::Newcomer, &[Enrolling, Running, NeedsOwner, Failed]),
            ("Public/ProveCode", Permission::Newcomer, &[MachineState::Blank]),
            ("Public/Activate", Permission::Code, &[MachineState::Blank]),
            ("Public/Status", Permission::Owner, &owned),
            ("Public/Timeline", Permission::Owner, &owned),
            ("Public/Services", Permission::Owner, &owned),
            ("Public/RestartService", Permission::Owner, &serving),
            ("Public/Metrics", Permission::OwnerOrMachine, &[Running]),
            ("Public/Logs", Permission::Owner, &owned),
            ("Public/Reboot", Permission::Owner, &owned),
            ("Public/PowerOff", Permission::Owner, &owned),
            ("Public/Kubeconfig", Permission::User, &[Running]),
            ("Public/Tunnel", Permission::User, &[Running]),
            ("Public/Conditions", Permission::Owner, &owned),
            ("Public/WaitCondition", Permission::Owner, &owned),
            ("Public/ListMachines", Permission::Owner, &[Running]),
            ("Public/ChangeMachine", Permission::Owner, &[Running]),
            ("Public/CheckRemoval", Permission::Owner, &[Running]),
            ("Public/DrainMachine", Permission::Owner, &[Running]),
            ("Public/RecoverCluster", Permission::Owner, &[Running]),
            ("Public/EraseRole", Permission::Owner, &[Running]),
            ("Public/IssueTicket", Permission::Owner, &[Running]),
            ("Public/ListTickets", Permission::Owner, &[Running]),
            ("Public/RevokeTicket", Permission::Owner, &[Running]),
            ("Public/AddOwner", Permission::Owner, &[Running]),
            ("Public/ListOwners", Permission::Owner, &[Running]),
            ("Public/RemoveOwner", Permission::Owner, &[Running]),
            ("Public/SetRegistry", Permission::Owner, &[Running]),
            ("Public/ListRegistries", Permission::Owner, &[Running]),
            ("Public/RemoveRegistry", Permission::Owner, &[Running]),
            ("Public/AddUser", Permission::Owner, &[Running]),
            ("Public/ListUsers", Permission::Owner, &[Running]),
            ("Public/RemoveUser", Permission::Owner, &[Running]),
            ("Public/Publish", Permission::Owner, &[Running]),
            ("Public/ListPublished", Permission::Owner, &[Running]),
            ("Public/Unpublish", Permission::Owner, &[Running]),
            ("Public/ImportImage", Permission::Owner, &[Running]),
            ("Public/ListImages", Permission::Owner, &[Running]),
            ("Public/RemoveImage", Permission::Owner, &[Running]),
            ("Public/ListVolumes", Permission::Owner, &[Running]),
            ("Public/RemoveVolume", Permission::Owner, &[Running]),
            ("Public/EtcdStatus", Permission::Owner, &[Running]),
            ("Public/DefragmentEtcd", Permission::Owner, &[Running]),
            ("Public/SnapshotKubernetes", Permission::Owner, &[Running]),
            ("Public/RestoreKubernetes", Permission::Owner, &[Running]),
            ("Public/Redeem", Permission::Machine, &[Running]),
            ("Public/ReleaseKey", Permission::Machine, &[Running]),
            ("Public/RecoveryRecord", Permission::Owner, &[AwaitingKeys]),
            ("Public/GiveClusterKey", Permission::Owner, &[AwaitingKeys]),
            ("Public/Directory", Permission::Owner, &[Running]),
            ("Public/GiveDirectory", Permission::Owner, &[AwaitingKeys, Running]),
            ("Public/Contribute", Permission::Machine, &[AwaitingKeys, Running]),
            ("Public/CreateVolume", Permission::Machine, &[Running]),
            ("Public/ExpandVolume", Permission::Machine, &[Running]),
            ("Public/DeleteVolume", Permission::Machine, &[Running]),
            ("Public/Volumes", Permission::Machine, &[Running]),
            #[cfg(feature = "faults")]
            ("Debug/Inject", Permission::Owner, &owned),
            ("Vpn/Announce", Permission::Member, &[Running]),
            ("Vpn/Peers", Permission::Member, &[Running]),
            ("Vpn/HandOver", Permission::Member, &[Running]),
            ("Vpn/Certify", Permission::Member, &[Running]),
            ("Vpn/Hold", Permission::Member, &[Running]),
        ];
        assert_eq!(expected.len(), TABLE.len());
        for &(method, permission, states) in expected {
            let path = format!("/cairn.v1.{method}");
            for &state in MachineState::ALL {
                for caller in CALLERS {
                    let allowed = match permission {
                        Permission::Anyone => true,
                        Permission::Newcomer | Permission::Code => caller != Caller::User,
                        Permission::Machine => caller == Caller::Machine,
                        Permission::Member => caller == Caller::Member,
                        Permission::User => [Caller::User, Caller::Owner].contains(&caller),
                        Permission::Owner => caller == Caller::Owner,
                        Permission::OwnerOrMachine => [Caller::Machine, Caller::Owner].contains(&caller),
                    };
                    let answered = decide(&path, Profile::Debug, state, caller).is_ok();
                    assert_eq!(answered, allowed && states.contains(&state), "{method} while {state} to {caller:?}");
                }
            }
        }
    }

    /// Calls that the owner can still make to a machine that waits for its keys, or for its owner.
    #[test]
    fn a_waiting_machine_can_be_seen_and_restarted_by_its_owner() {
        for state in [AwaitingKeys, NeedsOwner, Failed] {
            for method in ["Status", "Logs", "Reboot", "PowerOff"] {
                let path = format!("/cairn.v1.Public/{method}");
                assert_eq!(code(&path, state, Caller::Owner), Code::Ok, "{method} while {state}");
                assert_eq!(code(&path, state, Caller::Stranger), Code::Unauthenticated, "{method} while {state}");
            }
        }
    }

    #[test]
    fn what_needs_a_member_is_refused_before() {
        let refused = [(Enrolling, NOT_YET), (AwaitingKeys, NOT_YET)]
            .into_iter()
            .chain([NeedsOwner, Failed].map(|state| (state, Code::FailedPrecondition)));
        for (state, expected) in refused {
            assert_eq!(code("/cairn.v1.Public/Kubeconfig", state, Caller::Owner), expected);
            assert_eq!(code("/cairn.v1.Public/Tunnel", state, Caller::Owner), expected);
            assert_eq!(code("/cairn.v1.Public/ReleaseKey", state, Caller::Machine), expected);
        }
        assert_eq!(code("/cairn.v1.Public/Tunnel", Running, Caller::Owner), Code::Ok);
    }

    #[test]
    fn the_release_has_no_debug_methods_and_nobody_has_unknown_ones() {
        for caller in CALLERS {
            assert_eq!(code("/cairn.v1.Debug/Inject", Running, caller), Code::Unimplemented);
            assert_eq!(code("/cairn.v1.Public/Shell", Running, caller), Code::Unimplemented);
            assert_eq!(code("", Running, caller), Code::Unimplemented);
        }
        let injects = decide("/cairn.v1.Debug/Inject", Profile::Debug, Running, Caller::Owner).is_ok();
        assert_eq!(injects, cfg!(feature = "faults"));
    }

    /// Proves: S8
    #[test]
    fn without_the_feature_the_wire_has_no_word_of_faults() {
        let names = |word: &str| crate::DESCRIPTOR.windows(word.len()).any(|part| part == word.as_bytes());
        assert!(names("GetState"));
        for word in ["Inject", "FaultKind"] {
            assert_eq!(names(word), cfg!(feature = "faults"), "{word}");
        }
    }

    #[test]
    fn a_refusal_says_what_was_wrong_and_what_was_left() {
        let refused = decide("/cairn.v1.Public/Tunnel", Profile::Release, Enrolling, Caller::Owner).map(|row| row.path);
        let text = refused.map_err(|refused| refused.to_string());
        let expected = "not while the machine is Enrolling; nothing was done; answered in: Running";
        assert_eq!(text, Err(expected.to_owned()));
    }
}
