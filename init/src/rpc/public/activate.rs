//! A blank machine is activated: shows that it knows the code on its screen, and is handed a config by somebody who does, too.
//! Decides nothing, and knows no code.

use api::HandedIn;
use keys::activation::{self, Connection};
use model::Chain;
use tonic::Status;

use super::context::Context;
use crate::enrolment::activate::ConfigRefusal;
use crate::rpc::session::Origin;

/// Proof for `ProveCode` that this machine knows the code.
pub(super) fn prove(context: &Context, origin: &Origin) -> Result<activation::Proof, Status> {
    context.entrance.ways.activation.proof(&connection(context, origin)).map_err(|why| refused(&why))
}

/// Hands the config in; the machine goes on with it.
pub(super) async fn activate(context: &Context, origin: &Origin, handed_in: HandedIn) -> Result<(), Status> {
    let done = context.entrance.ways.activation.hand_in(&connection(context, origin), &origin.tries, handed_in).await;
    done.map_err(|why| refused(&why))?;
    tracing::info!(from = %origin.peer, "activated from outside");
    Ok(())
}

/// A blank machine shows everybody the certificate of this boot: it has no other.
fn connection(context: &Context, origin: &Origin) -> Connection {
    Connection { exporter: origin.activation, leaf_spki: context.entrance.nameless.0 }
}

fn refused(why: &ConfigRefusal) -> Status {
    let text = format!("{}; nothing was changed", Chain(why));
    match why {
        ConfigRefusal::HandedIn(activation::HandInError::Code) => Status::permission_denied(text),
        ConfigRefusal::HandedIn(activation::HandInError::Tries) => Status::resource_exhausted(text),
        ConfigRefusal::HandedIn(activation::HandInError::TooLarge(_)) | ConfigRefusal::Config(_) => {
            Status::invalid_argument(text)
        }
        ConfigRefusal::NotBlank
        | ConfigRefusal::HandedIn(activation::HandInError::Underway | activation::HandInError::Taken) => {
            Status::failed_precondition(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use enrol::asking::AnswerError;
    use enrol::config::ConfigError;
    use tonic::Code;

    use super::*;

    /// Proves: F2
    #[test]
    fn late_callers_wrong_codes_and_bad_configs_are_told_apart() {
        let told = |why| {
            let status = refused(&why);
            (status.code(), status.message().to_owned())
        };
        let wrong = (Code::PermissionDenied, "the code is not the one on the machine's screen; nothing was changed");
        assert_eq!(told(activation::HandInError::Code.into()), (wrong.0, wrong.1.to_owned()));
        let late = (Code::FailedPrecondition, "somebody else has activated the machine; nothing was changed");
        assert_eq!(told(activation::HandInError::Taken.into()), (late.0, late.1.to_owned()));
        let (code, text) = told(AnswerError::Config(ConfigError::Signature).into());
        assert_eq!(code, Code::InvalidArgument);
        assert!(text.starts_with("the config that was given is refused: ") && text.ends_with("; nothing was changed"));
    }
}
