//! A container image for cases: it runs a program of a few bytes that needs nothing else.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use anyhow::Context as _;
use image::oci::{ContainerImage, ImageProcess, LayerEntry};
use oci::{Archive, ArchivedImage, Blob, BlobDigest, ImageManifest};

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

/// An image of [`archive`] out of its archive, to be handed out part by part.
#[derive(Debug)]
pub struct UnpackedImage {
    /// Media type of the manifest.
    pub media_type: &'static str,
    /// Bytes of the manifest.
    pub manifest: Vec<u8>,
    /// The same, read.
    pub parts: ImageManifest,
    /// Bytes of the configuration and the layers.
    pub blobs: BTreeMap<BlobDigest, Vec<u8>>,
}

impl UnpackedImage {
    /// The only image of an archive.
    ///
    /// # Errors
    /// The archive is none, or has no image.
    pub fn of(archive: Vec<u8>) -> anyhow::Result<Self> {
        let mut archive = Archive::open(Cursor::new(archive))?;
        let image = archive.images()?.pop().context("an archive of one image")?;
        let mut blobs = BTreeMap::new();
        for blob in image.parts.blobs() {
            let mut bytes = Vec::new();
            archive.blob(&image, &blob.digest)?.read_to_end(&mut bytes)?;
            blobs.insert(blob.digest, bytes);
        }
        let ArchivedImage { media_type, manifest, parts, .. } = image;
        Ok(Self { media_type, manifest, parts, blobs })
    }

    /// Bytes of a part, if it is one of this image.
    #[must_use]
    pub fn bytes_of(&self, blob: &Blob) -> Option<Vec<u8>> {
        self.blobs.get(&blob.digest).cloned()
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
        let read = Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut said);
        child.kill().expect("ours");
        child.wait().expect("ours");
        read.expect("a line");
        assert_eq!(said, format!("{SAID}\n").into_bytes());
    }
}
