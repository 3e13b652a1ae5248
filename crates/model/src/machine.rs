//! Properties of a machine: its state, level, boot class, protection, roles. Display gives the words users see.

use std::fmt;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All of them, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word for it, in status, configs and on the command line.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The inverse of [`Self::word`].
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.word() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }
    )*};
}

words! {
    /// How data is protected on the disk; cluster policy, never lowered by anything on the disk.
    Level {
        /// Plain XFS: for tests and floors.
        Insecure = "insecure",
        /// dm-crypt, XTS-AES-256.
        Encrypted = "encrypted",
        /// dm-crypt over dm-integrity with a keyed hash.
        Authenticated = "authenticated",
    }

    /// How the machine was started, so what its TPM measured.
    BootClass {
        /// UEFI with Secure Boot: reserved, refused when read.
        UefiSecureBoot = "uefi-sb",
        /// UEFI: measured.
        Uefi = "uefi",
        /// Kernel loaded by the hypervisor: a TPM, but nothing measured.
        Direct = "direct",
    }

    /// Protection of the data against a thief; shown in status and on the console.
    Protection {
        /// No protection: the seal root lies in clear on the ESP.
        None = "none",
        /// This machine's TPM.
        Tpm = "tpm",
        /// The TPM and the rest of the cluster.
        TpmCluster = "tpm+cluster",
        /// The TPM and the owner.
        TpmOwner = "tpm+owner",
    }

    /// Source of the cluster key for a lone coordinator at a cold start.
    ColdStart {
        /// A share in the TPM: protects a stolen disk, not a stolen machine.
        Automatic = "automatic",
        /// The owner's recovery record.
        Manual = "manual",
    }

    /// Role of a machine in its cluster.
    ClusterRole {
        /// Machine that runs etcd, holds the cluster's secrets and signs.
        Coordinator = "coordinator",
        /// Machine that holds its own keys only.
        Node = "node",
    }

    /// Role of a machine in Kubernetes: it has both, one or none.
    #[derive(PartialOrd, Ord)]
    KubernetesRole {
        /// apiserver, controller-manager, scheduler: only on coordinators.
        ControlPlane = "control-plane",
        /// kubelet, containerd, pods.
        Worker = "worker",
    }

    /// The states a machine can be in: the only list there is.
    MachineState {
        /// No config, no seal: waits to be activated.
        Blank = "Blank",
        /// Creates or joins a cluster.
        Enrolling = "Enrolling",
        /// Sealed, and its data is not open: the cluster's half of the data key is not at hand, or just being used.
        AwaitingKeys = "AwaitingKeys",
        /// A member with its data open.
        Running = "Running",
        /// Cannot go on without its owner; nothing was changed.
        NeedsOwner = "NeedsOwner",
        /// A step failed that no owner's word can mend.
        Failed = "Failed",
    }
}
