//! `image import`: the container images of an archive, into the stores of one or all workers. The file is read and checked
//! before a machine hears of it, and each blob is sent only where it is lacking.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use api::{FieldError, ImageToImport, Problem};
use clap::Args;
use cluster::record::Standing;
use model::{KubernetesRole, NodeName};
use oci::{Archive, ArchiveError, ArchivedImage, ImageName};

use crate::context::{Context, OpenError};
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::machine::{CallError, PIECE};
use crate::screen::{self, Progress};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  docker save ghcr.io/me/app:1 -o app.tar
  cairnctl image import app.tar --all
  cairnctl image import app.tar --machine m2 --name registry.example/app:1

The archive is a tar, of an OCI layout or as `docker save` and `podman save`
write it. A pod starts from what was imported without asking a registry, unless
its pull policy is `Always`; for a tag `latest` that is the default. What was
imported stays when the disk fills up, until `cairnctl image remove`.")]
pub(crate) struct Import {
    /// The archive
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Into the stores of all machines that run pods
    #[arg(long, conflicts_with = "machine")]
    all: bool,
    /// Call the image this, whatever the archive calls it; for an archive of one
    #[arg(long, value_name = "IMAGE", value_parser = ImageName::parse)]
    name: Option<ImageName>,
}

/// Why an archive's images are not on their way.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveFileError {
    /// The file cannot be opened.
    #[error("open `{file}`")]
    Open { file: PathBuf, source: io::Error },
    /// No images that machines could run are in it.
    #[error("look through `{file}`")]
    Archive { file: PathBuf, source: ArchiveError },
    /// An image is in it without a name.
    #[error("`{0}` does not say what its image is called")]
    Nameless(PathBuf),
    /// A single name was given for several images.
    #[error("`{file}` holds {count} images, and one name was given")]
    Several { file: PathBuf, count: usize },
    /// No machine runs pods.
    #[error("no machine of the cluster runs pods")]
    NoWorker,
}

impl Advice for ArchiveFileError {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn code(&self) -> Code {
        match self {
            Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => Code::NotFound,
            Self::Open { .. } | Self::Archive { .. } | Self::NoWorker => Code::Failed,
            Self::Nameless(_) | Self::Several { .. } => Code::Usage,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Open { .. } => None,
            Self::Archive { .. } => {
                Some("write the archive again: docker save, podman save, or skopeo copy".to_owned())
            }
            Self::Nameless(_) => Some("say it: --name registry.example/app:1".to_owned()),
            Self::Several { .. } => Some("leave out --name, or make an archive of one image".to_owned()),
            Self::NoWorker => Some("see their roles: cairnctl machine list".to_owned()),
        }
    }
}

/// Images of a file, each with the name that it is to have.
struct Wanted {
    file: PathBuf,
    archive: Archive<File>,
    images: Vec<(ImageName, ArchivedImage)>,
}

pub(super) async fn run(arguments: &Import, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let mut progress = Progress::start();
    progress.show(&format!("reading {}", arguments.file.display()));
    let mut wanted = Wanted::read(&arguments.file, arguments.name.as_ref())?;
    let machines = if arguments.all { workers(context).await? } else { vec![None] };
    let (mut have, mut failed) = (Vec::new(), Vec::new());
    for machine in machines {
        let about = machine.as_ref().map(|(cluster, name)| context.about(cluster, name));
        let context = about.as_ref().unwrap_or(context);
        let called = machine.map_or_else(|| "the machine".to_owned(), |(_, name)| name.to_string());
        match wanted.send(context, &mut progress).await {
            Ok(name) => have.push(name),
            Err(failure) => failed.push((called, failure)),
        }
    }
    let names: Vec<_> = wanted.images.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(", ");
    let mut failed = failed.into_iter();
    let Some((first, failure)) = failed.next() else {
        let lies = if wanted.images.len() == 1 { "is" } else { "are" };
        let did = format!("{names} {lies} in the store of {}", have.join(", "));
        return Ok(screen::did(context.format, out, &did)?);
    };
    let others: Vec<_> = failed.map(|(other, failure)| format!("; {other}: {}", failure.reason())).collect();
    if have.is_empty() && others.is_empty() {
        return Err(failure);
    }
    let have = if have.is_empty() { "no machine".to_owned() } else { have.join(", ") };
    Err(failure.leaving(format!("that was {first}{}; {have} took {names}", others.concat())))
}

/// The machines of the cluster that run pods.
async fn workers(context: &Context) -> Result<Vec<Option<(crate::store::ClusterName, NodeName)>>, Failure> {
    let (mut session, meant) = context.open_coordinator().await?;
    let listed = session.machines().await.map_err(OpenError::from)?.rows;
    context.hear(&meant, &listed)?;
    let works = listed
        .iter()
        .filter(|row| row.standing == Standing::Member && row.kubernetes.contains(&KubernetesRole::Worker));
    let names = works.filter_map(|row| NodeName::stored(&row.name).ok());
    let machines: Vec<_> = names.map(|name| Some((meant.record.name.clone(), name))).collect();
    if machines.is_empty() { Err(ArchiveFileError::NoWorker.into()) } else { Ok(machines) }
}

impl Wanted {
    /// Reads a file and checks every byte of its images.
    fn read(file: &Path, name: Option<&ImageName>) -> Result<Self, ArchiveFileError> {
        let opened = File::open(file).map_err(|source| ArchiveFileError::Open { file: file.to_owned(), source })?;
        let wrong = |source| ArchiveFileError::Archive { file: file.to_owned(), source };
        let mut archive = Archive::open(opened).map_err(wrong)?;
        let found = archive.images().map_err(wrong)?;
        for image in &found {
            archive.verify(image).map_err(wrong)?;
        }
        let images = named(file, found, name)?;
        Ok(Self { file: file.to_owned(), archive, images })
    }

    /// Has one machine take all of them; how it is called.
    async fn send(&mut self, context: &Context, progress: &mut Progress) -> Result<String, Failure> {
        let (mut session, meant) = context.open().await?;
        for (name, image) in &self.images {
            let (media_type, manifest) = (image.media_type, image.manifest.clone());
            let opening = ImageToImport { name: name.clone(), media_type, manifest };
            let mut import = session.import_image(opening).await?;
            while let Some(blob) = import.wanted().await? {
                if !image.parts.blobs().contains(&blob) {
                    let source = FieldError { field: "digest", problem: Problem::Unknown };
                    return Err(CallError::Answer { method: "ImportImage", source }.into());
                }
                let mut sent = 0_u64;
                let unread =
                    |source: io::Error| ArchiveFileError::Archive { file: self.file.clone(), source: source.into() };
                let mut bytes = self.archive.blob(image, &blob.digest).map_err(unread)?;
                loop {
                    let tens = sent.saturating_mul(10).checked_div(blob.size).unwrap_or(10);
                    let whole = screen::size(blob.size);
                    progress.show(&format!("{}: {name}: a blob of {whole}, {tens}0 %", meant.name()));
                    let mut piece = Vec::with_capacity(PIECE);
                    (&mut bytes).take(PIECE as u64).read_to_end(&mut piece).map_err(unread)?;
                    sent += piece.len() as u64;
                    if piece.is_empty() || !import.give(piece).await {
                        break;
                    }
                }
            }
        }
        Ok(meant.name().to_string())
    }
}

/// Images by the names that they are to have.
fn named(
    file: &Path,
    found: Vec<ArchivedImage>,
    name: Option<&ImageName>,
) -> Result<Vec<(ImageName, ArchivedImage)>, ArchiveFileError> {
    if let Some(name) = name {
        let count = found.len();
        let [image] =
            <[_; 1]>::try_from(found).map_err(|_| ArchiveFileError::Several { file: file.to_owned(), count })?;
        return Ok(vec![(name.clone(), image)]);
    }
    if found.iter().any(|image| image.names.is_empty()) {
        return Err(ArchiveFileError::Nameless(file.to_owned()));
    }
    let each = |image: ArchivedImage| image.names.clone().into_iter().map(move |name| (name, image.clone()));
    Ok(found.into_iter().flat_map(each).collect())
}

#[cfg(test)]
mod tests {
    use api::ListedMachine;

    use super::*;
    use crate::context::home;

    /// An archive in Docker's older form, of one image with these names.
    fn archive(folder: &Path, names: &[&str]) -> PathBuf {
        let config = br#"{"os":"linux","architecture":"amd64"}"#;
        let rows = serde_json::json!([{ "Config": "c.json", "RepoTags": names, "Layers": ["l.tar"] }]).to_string();
        let layer = vec![7; 3 * PIECE + 1];
        let mut tar = tar::Builder::new(Vec::new());
        for (path, bytes) in [("c.json", &config[..]), ("l.tar", &layer), ("manifest.json", rows.as_bytes())] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, bytes).unwrap();
        }
        let file = folder.join("app.tar");
        std::fs::write(&file, tar.into_inner().unwrap()).unwrap();
        file
    }

    async fn import(file: &Path, all: bool, name: Option<&str>, context: &Context) -> Result<String, Failure> {
        let name = name.map(|name| ImageName::parse(name).unwrap());
        let mut said = Vec::new();
        run(&Import { file: file.to_owned(), all, name }, context, &mut said).await?;
        Ok(String::from_utf8(said).unwrap())
    }

    /// Proves: W5
    #[tokio::test]
    async fn all_workers_get_each_image_and_who_did_not_is_told() {
        let two = home::two().await;
        let folder = tempfile::tempdir().unwrap();
        let file = archive(folder.path(), &["app:1", "app:2"]);
        let none = import(&file, true, None, &two.context).await.unwrap_err();
        assert_eq!(none.reason(), "no machine of the cluster runs pods");
        two.lists(two.node.machine, Standing::Member);
        let mut rows = two.coordinator.listed.lock().unwrap().clone();
        let addresses = vec![two.coordinator.address.to_string()];
        rows.insert(
            0,
            ListedMachine { id: two.coordinator.machine, name: "m1".to_owned(), addresses, ..rows[0].clone() },
        );
        rows.iter_mut().for_each(|row| row.kubernetes = [KubernetesRole::Worker].into());
        *two.coordinator.listed.lock().unwrap() = rows;
        let said = import(&file, true, None, &two.context).await.unwrap();
        let (one, other) = ("docker.io/library/app:1", "docker.io/library/app:2");
        assert_eq!(said, format!("{one}, {other} are in the store of m1, m2\n"));
        assert_eq!(two.node.calls(), ["ImportImage", "ImportImage"]);
        *two.coordinator.refuses.lock().unwrap() = true;
        let mut failure = Vec::new();
        let refused = import(&file, true, Some("x.y/z:1"), &two.context).await.unwrap_err();
        refused.print(&mut failure).unwrap();
        let said = String::from_utf8(failure).unwrap();
        assert!(said.contains("no containers run here\n  that was m1; m2 took x.y/z:1\n"), "{said}");
    }

    #[tokio::test]
    async fn a_file_that_no_machine_could_use_reaches_none() {
        let two = home::two().await;
        let folder = tempfile::tempdir().unwrap();
        let refused = async |file: &Path, name| import(file, false, name, &two.second()).await.unwrap_err();
        let missing = refused(&folder.path().join("none.tar"), None).await;
        assert_eq!(missing.code(), Code::NotFound);
        let nameless = refused(&archive(folder.path(), &[]), None).await;
        assert_eq!((nameless.code(), nameless.next().unwrap().contains("--name")), (Code::Usage, true));
        let file = archive(folder.path(), &["app:1"]);
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        let cut = refused(&file, None).await.reason();
        assert!(cut.contains("look through"), "{cut}");
        assert_eq!(two.node.calls(), [""; 0]);
    }
}
