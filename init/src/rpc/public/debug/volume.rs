//! Operations on volumes that stop behind some of their steps, for a test that cuts the power there.

use ::volumes::{Inventory, VolumeId, VolumeStep};
use tonic::Status;

use crate::rpc::public::context::{Context, no_member};
use crate::rpc::public::volumes::refused;
use crate::storage::VolumeError;

/// Decision over an operation.
type Plan = Box<dyn FnOnce(&Inventory) -> Result<Vec<VolumeStep>, VolumeError> + Send>;

/// Does the first steps of an operation, or tells which volumes there are.
pub(super) async fn operate(context: &Context, argument: &str) -> Result<String, Status> {
    let (volumes, _) = context.reach.volumes().ok_or_else(no_member)?;
    if argument == "list" {
        let told = volumes.list().await.map_err(|error| refused(&error))?;
        return Ok(format!("{told:?}"));
    }
    let (steps, plan) = operation(argument)
        .ok_or_else(|| Status::invalid_argument(format!("`{argument}` is no operation; nothing was done")))?;
    volumes.begin(steps, plan).await.map_err(|error| refused(&error))?;
    Ok(argument.to_owned())
}

/// Reads how many steps are wanted, and of what.
fn operation(argument: &str) -> Option<(usize, Plan)> {
    let (operation, steps) = argument.rsplit_once(' ')?;
    let words: Vec<&str> = operation.split(' ').collect();
    let volume = VolumeId::parse(words.get(1)?).ok()?;
    let plan: Plan = match words[..] {
        ["create", _, bytes] => {
            let bytes = bytes.parse().ok()?;
            Box::new(move |found| Ok(found.create(volume, bytes)?))
        }
        ["expand", _, bytes] => {
            let bytes = bytes.parse().ok()?;
            Box::new(move |found| Ok(found.grow(volume, found.volume(volume)?, bytes)?))
        }
        ["delete", _] => Box::new(move |found| Ok(found.delete(volume, false)?)),
        _ => return None,
    };
    Some((steps.parse().ok()?, plan))
}
