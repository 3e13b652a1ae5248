//! Container images that owners give to machines: they run where no registry is, and what is no image, or too large, or cut off
//! changes no store.

use std::fs;

use crate::{Case, Context, FleetKind, Importer, Prerequisite, SAID, Starts, UnpackedImage, archive, web_pod};
use anyhow::{Context as _, ensure};
use api::{ImageToImport, ListedImage};
use oci::{Blob, ImageName, ImageOrigin};
use serde_json::json;
use tonic::Code;

use super::kube::{self, POD};
use super::pods;
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
    pods::case("an image that lies or is too large changes no store", &["W5"], refused),
    pods::case("an import that was cut leaves nothing in the store", &["W5"], cut),
];

const NAME: &str = "registry.example/own/app:1";
/// An image that every machine brings along.
const CARRIED: &str = "cairn.local/web:1";
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
        cluster.runs_at(t, node)?;
    }
    let names = || -> anyhow::Result<String> { cluster.run(&["-m", "m2", "image", "list"]) };
    ensure!(names()?.contains(NAME), "{}", names()?);
    let remove = |name| cluster.run(&["-m", "m2", "image", "remove", name]);
    remove(NAME)?;
    ensure!(!names()?.contains("own/app"), "{}", names()?);
    let phase = cluster.kubectl(&["get", "pod/own-m2", "--output=jsonpath={.status.phase}"])?;
    ensure!(phase == "Running", "what runs goes on: {phase}");
    for (name, why) in [(NAME, "no image is called"), (CARRIED, "brings along")] {
        let refused = format!("{:?}", remove(name));
        ensure!(refused.contains(why), "{refused}");
    }
    Ok(())
}

impl owned::Cluster {
    /// A pod of the imported image runs on a node, and has said its line.
    fn runs_at(&self, t: &Context, node: &str) -> anyhow::Result<()> {
        let name = format!("own-{node}");
        let mut pod = web_pod(&name, false);
        pod["spec"]["nodeName"] = node.into();
        pod["spec"]["containers"][0]["image"] = NAME.into();
        pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
        pod["spec"]["containers"][0]["args"] = json!([]);
        self.apply(t, &pod)?;
        self.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), POD])?;
        let said = self.kubectl(&["logs", &name])?;
        ensure!(said.trim() == SAID, "{said}");
        Ok(())
    }
}

/// A copy of the machine whose owner hands it an image.
struct Handing {
    importer: Importer,
    image: UnpackedImage,
    /// Images of the store before.
    before: Vec<ListedImage>,
    cluster: kube::Cluster,
}

impl Handing {
    fn copy(t: &Context) -> anyhow::Result<Self> {
        let cluster = kube::Cluster::copy(t)?;
        let importer = Importer::dial(&cluster.vm, &cluster.owner, t.within(30))?;
        let before = importer.images()?;
        ensure!(before.iter().all(|image| image.origin == ImageOrigin::Carried), "{before:?}");
        Ok(Self { importer, image: UnpackedImage::of(archive(NAME, &[])?)?, before, cluster })
    }

    /// The image under a name, or what this manifest says it is.
    fn offer(&self, name: &str, manifest: &[u8]) -> ImageToImport {
        let name = ImageName::parse(name).expect("a name");
        ImageToImport { name, media_type: self.image.media_type, manifest: manifest.to_vec() }
    }

    fn whole(&self, name: &str) -> ImageToImport {
        self.offer(name, &self.image.manifest)
    }

    /// The machine does not take what is offered and given: for this reason, in these words.
    fn refuses(&self, offer: ImageToImport, give: Giving<'_>, (code, words): (Code, &str)) -> anyhow::Result<()> {
        let refused = self.importer.import(offer, give)?.err().context("it was taken")?;
        ensure!(refused.code() == code && refused.message().contains(words), "{words}: {refused:?}");
        Ok(())
    }
}

/// An owner's bytes for a part that is asked for.
type Giving<'a> = &'a dyn Fn(&Blob) -> Option<Vec<u8>>;

fn refused(t: &Context) -> anyhow::Result<()> {
    let handing = Handing::copy(t)?;
    let of = |blob: &Blob| handing.image.bytes_of(blob);
    let sevens = |blob: &Blob| Some(vec![7; blob.size.try_into().ok()?]);
    let more = |blob: &Blob| of(blob).map(|bytes| [&bytes[..], b"more"].concat());
    let size = |size: u64| format!("\"size\":{size}");
    let manifest = String::from_utf8(handing.image.manifest.clone())?;
    let large = manifest.replace(&size(handing.image.parts.layers[0].size), &size(1 << 39));
    let lies: [(_, Giving<'_>, _); 5] = [
        (handing.whole(NAME), &sevens, (Code::InvalidArgument, "the bytes that came for")),
        (handing.whole(NAME), &more, (Code::InvalidArgument, "more bytes came for")),
        (handing.offer(NAME, large.as_bytes()), &|_| None, (Code::FailedPrecondition, "are free for images")),
        (handing.offer(NAME, b"{}"), &|_| None, (Code::InvalidArgument, "read the manifest")),
        (handing.whole(CARRIED), &of, (Code::FailedPrecondition, "brings along")),
    ];
    lies.into_iter().try_for_each(|(offer, give, why)| handing.refuses(offer, give, why))?;
    let images = handing.importer.images()?;
    ensure!(images == handing.before, "{images:?}");
    Ok(())
}

/// A caller leaves amid an import: what came before is thrown away, and asked for again by the next, who brings all of it.
fn cut(t: &Context) -> anyhow::Result<()> {
    let handing = Handing::copy(t)?;
    let Handing { importer, image, before, cluster } = &handing;
    let all = |blob: &Blob| image.bytes_of(blob);
    let left =
        importer.import(handing.whole(NAME), |blob| all(blob).filter(|_| blob.digest != image.parts.config.digest))?;
    ensure!(left.as_ref().is_ok_and(|asked| asked.len() == 2), "{left:?}");
    ensure!(importer.images()? == *before, "{:?}", importer.images()?);
    let taken = cluster.vm.until(t.within(20), || {
        let taken = importer.import(handing.whole(NAME), all).ok()?;
        Some(taken).filter(|taken| !matches!(taken, Err(busy) if busy.code() == Code::ResourceExhausted))
    })?;
    ensure!(
        taken.as_ref().is_ok_and(|asked| asked.len() == 2),
        "it asks for the layer and its configuration: {taken:?}"
    );
    let images = importer.images()?;
    let own = images.iter().find(|image| image.name == NAME).context("it is there")?;
    let size = image.parts.blobs().iter().map(|blob| blob.size).sum::<u64>();
    ensure!(own.origin == ImageOrigin::Imported && own.size == Some(size), "{own:?}");
    // All of it is there, so nothing is asked for; another name of it is given all the same.
    let again = importer.import(handing.whole("registry.example/own/other:1"), |_| None)?;
    ensure!(again.as_ref().is_ok_and(Vec::is_empty), "{again:?}");
    ensure!(importer.images()?.len() == before.len() + 2, "{:?}", importer.images()?);
    Ok(())
}
