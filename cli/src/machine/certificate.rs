//! A certificate for kubectl, asked of a coordinator: its private key is made here and stays here.

use api::ClientCertificate;
use pki::{BadRequest, KeyError, PrivateKey};

use super::call::CallError;
use super::session::Session;
use crate::failure::{Advice, Code, NOTHING};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// The key could not be made.
    #[error("make a key for kubectl")]
    Key(#[from] KeyError),
    /// The request could not be made.
    #[error("make a certificate request for kubectl")]
    Request(#[from] BadRequest),
    /// The machine did not sign it.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl AskError {
    /// Whether asking again later can help.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Call(error) => error.may_pass(),
            Self::Key(_) | Self::Request(_) => false,
        }
    }
}

impl Advice for AskError {
    fn code(&self) -> Code {
        match self {
            Self::Call(error) => error.code(),
            Self::Key(_) | Self::Request(_) => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Call(error) => error.unchanged(),
            Self::Key(_) | Self::Request(_) => NOTHING,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Call(error) => error.next(),
            Self::Key(_) | Self::Request(_) => None,
        }
    }
}

/// A key and what the machine signed for it.
#[derive(Debug)]
pub(crate) struct Granted {
    /// The private key.
    pub key: PrivateKey,
    /// The certificate of its public half.
    pub certificate: ClientCertificate,
}

/// Has a certificate signed for a fresh key.
pub(crate) async fn ask_certificate(session: &mut Session) -> Result<Granted, AskError> {
    let key = PrivateKey::generate()?;
    let request = pki::make_request(&key)?;
    let certificate = session.kubeconfig(request.to_vec()).await?;
    Ok(Granted { key, certificate })
}
