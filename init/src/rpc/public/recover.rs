//! The owner opens a machine that waits for the cluster's half of its key: sees its recovery record, and gives the half; or gives it
//! the directory by which it finds who gives it, as to a machine that runs. Decides nothing: whether a half fits, the machine's header says.

use api::{OwnerHalf, Recovery};
use enrol::asking::{Answer, AnswerError};
use keys::record::Record;
use model::Chain;
use tonic::Status;

use crate::enrolment::recover::{Needs, Rescue, RescueError};

/// Disk, key generation and recovery record: by these the owner finds the half.
pub(super) fn record(rescue: &Rescue) -> Result<Recovery, Status> {
    let Needs { disk, generation, record, .. } = rescue.needs().ok_or_else(|| refused(&RescueError::NotWaiting))?;
    Ok(Recovery { disk, generation, record: record.as_ref().map(Record::encode) })
}

/// Gives the half; the machine goes on with it.
pub(super) async fn give(rescue: &Rescue, OwnerHalf { disk, generation, key }: OwnerHalf) -> Result<(), Status> {
    rescue.give(Answer::half(key, disk, generation)).await.map_err(|why| refused(&why))?;
    tracing::info!("the owner has given the cluster's half of the key");
    Ok(())
}

/// Gives a directory; a machine that waits asks whom it names, and one that runs goes on from it.
pub(super) async fn renew(rescue: &Rescue, directory: Vec<u8>) -> Result<(), Status> {
    rescue.renew(directory).await.map_err(|why| refused(&why))
}

fn refused(why: &RescueError) -> Status {
    let text = format!("{}; nothing was changed", Chain(why));
    match why {
        RescueError::NotWaiting | RescueError::NoAuthority => Status::failed_precondition(text),
        RescueError::NotKept => Status::unavailable(text),
        RescueError::Refused(AnswerError::NotWritten) => Status::internal(text),
        RescueError::Refused(_) => Status::invalid_argument(text),
    }
}

#[cfg(test)]
mod tests {
    use keys::data_key::OpenError;
    use tonic::Code;
    use unlock::renewal::RenewError;

    use super::*;

    /// Proves: K5
    #[test]
    fn a_half_that_is_not_taken_says_why() {
        let wrong = refused(&RescueError::Refused(AnswerError::ClusterHalf(OpenError::ClusterHalf)));
        let text = "the cluster's half that was given does not open the disk: the cluster key is not the one this disk \
                    was locked with; nothing was changed";
        assert_eq!((wrong.code(), wrong.message()), (Code::InvalidArgument, text));
        let unwritten = refused(&RescueError::Refused(AnswerError::NotWritten));
        assert_eq!(unwritten.code(), Code::Internal, "the request is not at fault: {unwritten}");
        let foreign = RenewError::Directory(keys::directory::DirectoryError::Signature);
        let foreign = refused(&RescueError::Refused(AnswerError::Directory(foreign)));
        assert_eq!(foreign.code(), Code::InvalidArgument);
        assert!(foreign.message().starts_with("the directory that was given is not taken: "), "{foreign}");
        assert_eq!(refused(&RescueError::NotKept).code(), Code::Unavailable, "asking again helps");
        let nobody = record(&Rescue::of_nobody()).map(|_| ()).map_err(|refused| refused.code());
        assert_eq!(nobody, Err(Code::FailedPrecondition));
    }
}
