//! Container images for cases: one that runs, of a program of a few bytes that needs nothing else; and an owner who hands a machine
//! whatever a case says, without the owner's tool, which checks a file first.

use std::collections::BTreeMap;
use std::time::Duration;

use api::wire::ListImagesRequest;
use api::{ImageToImport, ImportPart, ListedImage};
use image::oci::{ContainerImage, ImageProcess, LayerEntry};
use oci::{Blob, BlobDigest};
use qemu::{Deadline, Vm};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::client::{Client, Shown};
use crate::owner::Owner;

/// A machine under emulation stores some bytes, and asks containerd a few times.
const ANSWER: Duration = Duration::from_secs(60);

/// Line that the program of [`archive`] prints.
pub const SAID: &str = "imported";

/// An archive of an image of that name: its program prints a line and waits for its end. It carries `ballast` besides.
///
/// # Errors
/// The archive cannot be put together.
pub fn archive(reference: &str, ballast: &[u8]) -> std::io::Result<Vec<u8>> {
    let (program, run) = (program(), "run".to_owned());
    let layer = BTreeMap::from([
        (run.clone(), LayerEntry::File { mode: 0o555, bytes: &program }),
        ("ballast".to_owned(), LayerEntry::File { mode: 0o444, bytes: ballast }),
    ]);
    let process =
        ImageProcess { entrypoint: vec![format!("/{run}")], user: Some("65534".to_owned()), ..ImageProcess::default() };
    ContainerImage { reference, layer, process, version: "1" }.archive()
}

/// A static x86-64 executable (System V ABI, ELF-64): a header, one segment that is the whole file, `write(1, line)`, `pause()`.
fn program() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    #[rustfmt::skip]
    let code = [
        0xb8, 1, 0, 0, 0,             // mov eax, 1 (write)
        0xbf, 1, 0, 0, 0,             // mov edi, 1
        0x48, 0x8d, 0x35, 19, 0, 0, 0, // lea rsi, [rip + 19]: behind the code
        0xba, 9, 0, 0, 0,             // mov edx, 9
        0x0f, 0x05,                   // syscall
        0xb8, 34, 0, 0, 0,            // mov eax, 34 (pause)
        0x0f, 0x05,                   // syscall
        0xeb, 0xf7,                   // jmp to the pause
        0x90, 0x90, 0x90,
    ];
    let length = HEADERS + code.len() as u64 + SAID.len() as u64 + 1;
    let half = |number: u16| number.to_le_bytes().to_vec();
    let word = |number: u32| number.to_le_bytes().to_vec();
    let wide = |number: u64| number.to_le_bytes().to_vec();
    let identity = [&b"\x7fELF\x02\x01\x01"[..], &[0; 9]].concat();
    let header = [half(2), half(62), word(1), wide(BASE + HEADERS), wide(64), wide(0), word(0)];
    let sizes = [64, 56, 1, 0, 0, 0].map(half);
    let segment = [word(1), word(5), wide(0), wide(BASE), wide(BASE), wide(length), wide(length), wide(0x1000)];
    [identity, header.concat(), sizes.concat(), segment.concat(), code.to_vec(), format!("{SAID}\n").into_bytes()]
        .concat()
}

/// An owner's connection to one machine, for its store.
#[derive(Debug)]
pub struct Importer(Client);

impl Importer {
    /// Connects to a machine.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn dial(vm: &Vm, owner: &Owner, deadline: Deadline) -> anyhow::Result<Self> {
        Client::dial_until(vm, Shown::Owner(&owner.key()?), deadline).map(Self)
    }

    /// Offers an image, and answers each wish by the bytes that `give` has for it; none: the caller leaves. The digests asked for.
    ///
    /// # Errors
    /// No answer in time; inside: what the machine says.
    pub fn import(
        &self,
        image: ImageToImport,
        give: impl Fn(&Blob) -> Option<Vec<u8>>,
    ) -> anyhow::Result<Result<Vec<BlobDigest>, Status>> {
        self.0.within(ANSWER, async |client| {
            let (pieces, requests) = mpsc::channel(1);
            let _queued = pieces.send(ImportPart::Image(image).into()).await;
            let mut asks = client.import_image(ReceiverStream::new(requests)).await?.into_inner();
            let mut asked = Vec::new();
            while let Some(ask) = asks.message().await? {
                let blob = Blob::try_from(ask).map_err(|wrong| Status::internal(wrong.to_string()))?;
                asked.push(blob.digest);
                let Some(bytes) = give(&blob) else { return Ok(asked) };
                for piece in bytes.chunks(32 << 10) {
                    let _told_by_the_answer = pieces.send(ImportPart::Data(piece.to_vec()).into()).await;
                }
            }
            Ok(asked)
        })
    }

    /// The images of the machine's store.
    ///
    /// # Errors
    /// No answer that makes sense.
    pub fn images(&self) -> anyhow::Result<Vec<ListedImage>> {
        let listed = self.0.within(ANSWER, async |client| {
            let mut pieces = client.list_images(ListImagesRequest {}).await?.into_inner();
            let mut images = Vec::new();
            while let Some(image) = pieces.message().await? {
                images.push(image);
            }
            Ok::<_, Status>(images)
        })??;
        Ok(listed.into_iter().map(ListedImage::try_from).collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// The program runs on this host as it does in a container.
    #[test]
    fn the_program_prints_its_line_and_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run");
        std::fs::write(&path, program()).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("ours");
        let mut child = Command::new(&path).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut said = vec![0; SAID.len() + 1];
        let read = std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut said);
        child.kill().expect("ours");
        child.wait().expect("ours");
        read.expect("a line");
        assert_eq!(said, format!("{SAID}\n").into_bytes());
    }
}
