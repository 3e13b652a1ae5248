//! Container images that owners give to machines: they run where no registry is, and what is no image, or too large, or cut off
//! changes no store.

use std::fs;
use std::io::{Cursor, Read};

use crate::{Case, Context, FleetKind, Importer, Prerequisite, SAID, Starts, archive, web_pod};
use anyhow::{Context as _, ensure};
use api::ImageToImport;
use oci::{Archive, Blob, BlobDigest, ImageName, ImageOrigin, MANIFEST_TYPES};
use serde_json::json;
use tonic::Code;

use super::kube::{self, POD};
use crate::owned::{self, text};

/// Cases on copies: of two workers, and of one machine.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "an imported image runs on all workers until it is removed",
        proves: &["W5"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::From(FleetKind::Workers),
        run: imported,
    },
    Case {
        name: "an image that lies, is too large or cut changes no store",
        proves: &["W5"],
        needs: &[Prerequisite::Swtpm, Prerequisite::Ovmf],
        starts: Starts::From(FleetKind::Kubernetes),
        run: refused,
    },
];

const NAME: &str = "registry.example/own/app:1";
/// Bytes that an image carries besides its program: many pieces.
const BALLAST: usize = 4 << 20;

fn imported(t: &Context) -> anyhow::Result<()> {
    let cluster = owned::Cluster::copy_of(t, FleetKind::Workers)?;
    let file = t.dir().join("app.tar");
    fs::create_dir_all(t.dir()).context("make the case's directory")?;
    fs::write(&file, archive(NAME, &vec![7; BALLAST])?).context("write the archive")?;
    let said = cluster.run(&["image", "import", text(&file)?, "--all"])?;
    ensure!(said == format!("{NAME} is in the store of m1, m2\n"), "{said}");
    for node in ["m1", "m2"] {
        let mut pod = web_pod(&format!("own-{node}"), false);
        pod["spec"]["nodeName"] = node.into();
        pod["spec"]["containers"][0]["image"] = NAME.into();
        pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
        pod["spec"]["containers"][0]["args"] = json!([]);
        cluster.apply(t, &pod)?;
        cluster.kubectl(&["wait", "--for=condition=Ready", &format!("pod/own-{node}"), POD])?;
        let said = cluster.kubectl(&["logs", &format!("own-{node}")])?;
        ensure!(said.trim() == SAID, "{said}");
    }
    let names = || -> anyhow::Result<String> { cluster.run(&["-m", "m2", "image", "list"]) };
    ensure!(names()?.contains(NAME), "{}", names()?);
    cluster.run(&["-m", "m2", "image", "remove", NAME])?;
    ensure!(!names()?.contains("own/app"), "{}", names()?);
    let phase = cluster.kubectl(&["get", "pod/own-m2", "--output=jsonpath={.status.phase}"])?;
    ensure!(phase == "Running", "what runs goes on: {phase}");
    let again = format!("{:?}", cluster.run(&["-m", "m2", "image", "remove", NAME]));
    ensure!(again.contains("no image is called"), "{again}");
    let carried = format!("{:?}", cluster.run(&["-m", "m2", "image", "remove", "cairn.local/web:1"]));
    ensure!(carried.contains("brings along"), "{carried}");
    Ok(())
}

fn refused(t: &Context) -> anyhow::Result<()> {
    let cluster = kube::Cluster::copy(t)?;
    let importer = Importer::dial(&cluster.vm, &cluster.owner, t.within(30))?;
    let before = importer.images()?;
    ensure!(before.iter().all(|image| image.origin == ImageOrigin::Carried), "{before:?}");
    let mut archive = Archive::open(Cursor::new(archive(NAME, &[])?))?;
    let whole = archive.images()?.pop().context("an image")?;
    let mut bytes = Vec::new();
    for blob in whole.parts.blobs() {
        let mut read = Vec::new();
        archive.blob(&whole, &blob.digest)?.read_to_end(&mut read)?;
        bytes.push(read);
    }
    let of = |blob: &Blob| bytes.iter().find(|bytes| BlobDigest::of(bytes) == blob.digest).cloned();
    let offer = |name: &str, manifest: &[u8]| ImageToImport {
        name: ImageName::parse(name).expect("a name"),
        media_type: MANIFEST_TYPES[0],
        manifest: manifest.to_vec(),
    };
    let code = |image, give: &dyn Fn(&Blob) -> Option<Vec<u8>>| -> anyhow::Result<(Code, String)> {
        let refused = importer.import(image, give)?.err().context("it was taken")?;
        Ok((refused.code(), refused.message().to_owned()))
    };
    let lie = code(offer(NAME, &whole.manifest), &|blob| Some(vec![7; blob.size.try_into().ok()?]))?;
    ensure!(lie.0 == Code::InvalidArgument && lie.1.contains("the bytes that came for"), "{lie:?}");
    let long = code(offer(NAME, &whole.manifest), &|blob| of(blob).map(|bytes| [&bytes[..], b"more"].concat()))?;
    ensure!(long.0 == Code::InvalidArgument && long.1.contains("more bytes came for"), "{long:?}");
    let text = String::from_utf8(whole.manifest.clone())?;
    let layer = whole.parts.layers[0].size;
    let large = text.replace(&format!("\"size\":{layer}"), &format!("\"size\":{}", 1_u64 << 39));
    let large = code(offer(NAME, large.as_bytes()), &|_| None)?;
    ensure!(large.0 == Code::FailedPrecondition && large.1.contains("are free for images"), "{large:?}");
    let none = code(offer(NAME, b"{}"), &|_| None)?;
    ensure!(none.0 == Code::InvalidArgument && none.1.contains("read the manifest"), "{none:?}");
    let carried = code(offer("cairn.local/web:1", &whole.manifest), &of)?;
    ensure!(carried.0 == Code::FailedPrecondition && carried.1.contains("brings along"), "{carried:?}");
    // Whoever left asked for nothing any more, and what came of it before is asked for again.
    let left = importer
        .import(offer(NAME, &whole.manifest), |blob| of(blob).filter(|_| blob.digest != whole.parts.config.digest))?;
    ensure!(left.as_ref().is_ok_and(|asked| asked.len() == 2), "{left:?}");
    ensure!(importer.images()? == before, "{:?}", importer.images()?);

    let taken = cluster.vm.until(t.within(20), || {
        importer
            .import(offer(NAME, &whole.manifest), of)
            .ok()
            .filter(|taken| !matches!(taken, Err(busy) if busy.code() == Code::ResourceExhausted))
    })?;
    ensure!(taken.as_ref().is_ok_and(|asked| asked.len() == 2), "the layer of before was thrown away: {taken:?}");
    let images = importer.images()?;
    let own = images.iter().find(|image| image.name == NAME).context("it is there")?;
    let size = whole.parts.blobs().iter().map(|blob| blob.size).sum::<u64>();
    ensure!(own.origin == ImageOrigin::Imported && own.size == Some(size), "{own:?}");
    // All of it is there, so nothing is asked for; another name of it is given all the same.
    let again = importer.import(offer("registry.example/own/other:1", &whole.manifest), |_| None)?;
    ensure!(again.as_ref().is_ok_and(Vec::is_empty), "{again:?}");
    ensure!(importer.images()?.len() == before.len() + 2, "{:?}", importer.images()?);
    Ok(())
}
