//! `image list` and `image remove`: the container images of one machine's store.

use std::io::Write;

use api::ListedImage;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use oci::ImageName;
use serde::Serialize;

use crate::complete;
use crate::context::Context;
use crate::failure::Failure;
use crate::machine::CallError;
use crate::screen::{self, Format, Table};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl image remove --machine m1 ghcr.io/me/app:1

A container that runs goes on. A pod that starts anew pulls the image, if its
registry is reached. Images that the machine brings along stay.")]
pub(crate) struct Remove {
    /// The image's name, as `cairnctl image list` shows it
    #[arg(value_name = "IMAGE", add = ArgValueCandidates::new(complete::images))]
    name: String,
}

#[derive(Debug, Serialize)]
struct ImageOut {
    name: String,
    digest: String,
    /// Bytes; absent: the machine cannot tell.
    size: Option<u64>,
    /// `carried`, `imported` or `pulled`.
    origin: String,
}

#[derive(Debug, Serialize)]
struct ImagesOut {
    images: Vec<ImageOut>,
}

impl From<ListedImage> for ImageOut {
    fn from(image: ListedImage) -> Self {
        let ListedImage { name, digest, size, origin } = image;
        Self { name, digest, size, origin: origin.to_string() }
    }
}

pub(super) async fn list(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open().await?;
    let images = session.images().await?;
    match context.format {
        Format::Json => screen::json(out, &ImagesOut { images: images.into_iter().map(ImageOut::from).collect() })?,
        Format::Table => {
            let mut table = Table::new(["NAME", "SIZE", "ORIGIN", "DIGEST"]);
            for image in images {
                let digest = image.digest.chars().take("sha256:".len() + 12).collect();
                let size = image.size.map_or_else(|| "-".to_owned(), screen::size);
                table.row([image.name, size, image.origin.to_string(), digest]);
            }
            table.print(out)?;
        }
    }
    Ok(())
}

pub(super) async fn remove(arguments: &Remove, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, meant) = context.open().await?;
    // As people shorten it; what is no name at all may still be how a pod called it.
    let name = ImageName::parse(&arguments.name).map_or_else(|_| arguments.name.clone(), |name| name.to_string());
    session.remove_image(&name).await.map_err(|error| {
        let unknown = matches!(error, CallError::NotFound { .. });
        let failure = Failure::from(error);
        if unknown { failure.going_on("see their names: cairnctl image list") } else { failure }
    })?;
    Ok(screen::did(context.format, out, &format!("{name} is no longer in the store of {}", meant.called()))?)
}
