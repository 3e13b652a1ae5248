//! Messages that `build.rs` generates from `proto/`, and the words they share with `model`. Nothing outside this crate
//! keeps one of these types: they are what a message is made from and read into.

#![expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    reason = "generated code"
)]

tonic::include_proto!("cairn.v1");

/// Conversions of wire enums, a row for each: its variants and the model's, both ways. The wire's zero value and
/// numbers of a newer version have no counterpart.
macro_rules! same_words {
    ($($wire:ident = $model:ty { $($variant:ident = $word:ident,)* })*) => {$(
        impl From<$model> for $wire {
            fn from(word: $model) -> Self {
                match word { $(<$model>::$word => Self::$variant,)* }
            }
        }

        impl $wire {
            /// The word it stands for; none for the zero value, which is also what prost gives for unknown numbers.
            pub(crate) const fn known(self) -> Option<$model> {
                match self {
                    Self::Unspecified => None,
                    $(Self::$variant => Some(<$model>::$word),)*
                }
            }
        }
    )*};
}

same_words! {
    MachineState = model::MachineState {
        Blank = Blank,
        Enrolling = Enrolling,
        AwaitingKeys = AwaitingKeys,
        Running = Running,
        NeedsOwner = NeedsOwner,
        Failed = Failed,
    }
    Level = model::Level {
        Insecure = Insecure,
        Encrypted = Encrypted,
        Authenticated = Authenticated,
    }
    Protection = model::Protection {
        None = None,
        Tpm = Tpm,
        TpmCluster = TpmCluster,
        TpmOwner = TpmOwner,
    }
    BootClass = model::BootClass {
        UefiSecureBoot = UefiSecureBoot,
        Uefi = Uefi,
        Direct = Direct,
    }
    ColdStart = model::ColdStart {
        Automatic = Automatic,
        Manual = Manual,
    }
    Profile = crate::Profile {
        Release = Release,
        Debug = Debug,
    }
    MilestoneKind = crate::MilestoneKind {
        Kernel = Kernel,
        Step = Step,
        Service = Service,
        Condition = Condition,
    }
    ServiceState = crate::ServiceState {
        Waiting = Waiting,
        Starting = Starting,
        Ready = Ready,
        Stopping = Stopping,
        BackingOff = BackingOff,
        Stopped = Stopped,
        Failed = Failed,
    }
    ConditionStatus = crate::Truth {
        True = True,
        False = False,
        Unknown = Unknown,
    }
    ClusterRole = model::ClusterRole {
        Coordinator = Coordinator,
        Node = Node,
    }
    KubernetesRole = model::KubernetesRole {
        ControlPlane = ControlPlane,
        Worker = Worker,
    }
    Standing = cluster::record::Standing {
        Admitted = Admitted,
        Member = Member,
        Draining = Draining,
        Removed = Removed,
    }
}
