//! How a fake proves at first contact who it is, honestly or not.

use std::sync::{Arc, Mutex};

use api::wire::{ClaimRequest, ClaimResponse};
use api::{Claim, public_client};
use keys::activation::BlankMachine;
use keys::first_contact::{Transcript, prove};
use model::{ConfigDigest, FirstContact, MachineId};
use rustls::time_provider::DefaultTimeProvider;
use tonic::{Response, Status};

use super::Api;
use crate::machine::dial::{self, Address};

/// The id of a machine that has another key.
pub(super) const OTHER: MachineId = MachineId([9; 16]);

/// How the fake answers `Claim`.
#[derive(Debug)]
pub(crate) enum Answer {
    /// With a proof, as a machine does that read the config; honest or not.
    Proven {
        /// The secret of the config it read.
        secret: FirstContact,
        /// The digest of the config it read.
        config: ConfigDigest,
        /// Fault of the rest of the answer.
        lie: Lie,
    },
    /// Not at all: it is blank, and has this code on its screen.
    Blank(Mutex<BlankMachine>),
    /// As a machine does whose header is not committed yet.
    NotYet,
    /// Answer of the genuine machine at this address, whatever it is.
    Relayed(Address),
}

/// Untruth that a machine tells that knows the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Tells the truth.
    None,
    /// Claims another machine's id.
    OtherId,
    /// The same, and its cluster has certified that id for it.
    CertifiedOtherId,
    /// Claims another certificate than the one it proves.
    OtherLeaf,
}

impl Api {
    /// Answer to `Claim`, as its [`Answer`] has it.
    pub(super) async fn claimed(&self) -> Result<Response<ClaimResponse>, Status> {
        match &*self.answer {
            Answer::Proven { secret, config, lie } => {
                let machine = if *lie == Lie::OtherId { OTHER } else { self.machine };
                let mut claim = self.proven(machine, secret, *config);
                if *lie == Lie::OtherLeaf {
                    claim.leaf_certificate = self.authority.to_vec();
                }
                Ok(Response::new(claim))
            }
            Answer::NotYet | Answer::Blank(_) => {
                Err(Status::failed_precondition("the data header is not committed yet"))
            }
            Answer::Relayed(address) => {
                let tls = pki::danger::first_contact(Arc::new(DefaultTimeProvider)).unwrap();
                let session = dial::dial(address, tls, "machine.cairn.internal").await.unwrap();
                let channel = dial::channel(address, session).await.unwrap();
                public_client::PublicClient::new(channel).claim(ClaimRequest {}).await
            }
        }
    }

    fn proven(&self, machine: MachineId, secret: &FirstContact, config: ConfigDigest) -> ClaimResponse {
        let spki = |certificate| pki::public_key_of(certificate).unwrap().pin().0;
        let transcript = Transcript {
            exporter: self.exporter,
            leaf_spki: spki(&self.leaf),
            ca_spki: spki(&self.authority),
            machine,
            config,
        };
        Claim {
            machine_id: machine,
            leaf_certificate: self.leaf.to_vec(),
            ca_certificate: self.authority.to_vec(),
            proof: prove(secret, &transcript),
        }
        .into()
    }
}
