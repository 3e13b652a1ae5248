//! The EFI system partition: its files, and changing one inside a disk image.
//!
//! Owns the layout of the ESP (FORMATS.md, *ESP*). The files that a machine overwrites in place come first and
//! lie in one piece each; they must never be created, removed or resized after the image is made.

use std::io::{self, Cursor, Read, Seek, Write};
use std::path::Path;

use fatfs::{Dir, FatType, FileSystem, FormatVolumeOptions, FsOptions};
use formats::fat;
use model::{ESP_BYTES, PartitionKind};

use crate::disk::{self, DiskError};

/// systemd-boot, where firmware looks when it has no entry.
pub const BOOT_LOADER: &str = "EFI/BOOT/BOOTX64.EFI";
/// The unified kernel of slot A; with boot counting, `+tries` comes before the extension.
pub const KERNEL_A: &str = "EFI/Linux/cairn-a.efi";
/// systemd-boot's configuration.
pub const LOADER_CONFIG: &str = "loader/loader.conf";
/// The enrolment config, which a fresh image does not have.
pub const ENROLMENT: &str = "cairn/enrolment.pb";

/// Files that a machine overwrites in place, each in two copies `.0` and `.1`.
pub const PAIRS: [&str; 4] = ["cairn/seal", "cairn/share", "cairn/directory", "cairn/record"];
/// Length of each of them.
pub const PAIR_BYTES: usize = 64 << 10;

/// No menu to wait for, and no editing of the command line by who stands in front of the machine.
const LOADER_TEXT: &[u8] = b"timeout 0\neditor no\n";
const DIRECTORIES: [&str; 5] = ["cairn", "EFI", "EFI/BOOT", "EFI/Linux", "loader"];
/// Any constant does; a random one would make each build another image.
const VOLUME_ID: u32 = 0x000c_a124;
const VOLUME_LABEL: [u8; 11] = *b"CAIRN-ESP  ";
/// Changes are written back in pieces of this size, so that the rest of a sparse image stays sparse.
const PIECE: usize = 4096;

/// The whole partition, with the boot loader and the unified kernel of slot A.
///
/// `fatfs` is built without a clock: every time stamp is 1980-01-01.
pub(crate) fn make(boot_loader: &[u8], kernel: &[u8]) -> io::Result<Vec<u8>> {
    let mut volume = vec![0; usize::try_from(ESP_BYTES).expect("64 MiB fit any address space")];
    let options = FormatVolumeOptions::new()
        .fat_type(FatType::Fat32)
        .bytes_per_sector(512)
        .bytes_per_cluster(512)
        .volume_id(VOLUME_ID)
        .volume_label(VOLUME_LABEL);
    fatfs::format_volume(Cursor::new(&mut volume), options)?;
    edit(&mut volume, |root| {
        for directory in DIRECTORIES {
            root.create_dir(directory)?;
        }
        Ok(())
    })?;
    mend_directories(&mut volume)?;
    edit(&mut volume, |root| {
        for name in PAIRS {
            for copy in 0..2 {
                root.create_file(&format!("{name}.{copy}"))?.write_all(&[0; PAIR_BYTES])?;
            }
        }
        root.create_file(LOADER_CONFIG)?.write_all(LOADER_TEXT)?;
        root.create_file(BOOT_LOADER)?.write_all(boot_loader)?;
        root.create_file(KERNEL_A)?.write_all(kernel)
    })?;
    Ok(volume)
}

/// Puts `config` at [`ENROLMENT`] on the ESP of the raw disk image `disk`, in place of one that is there. The rest of
/// the disk stays as it is.
///
/// # Errors
/// [`DiskError`] when the image has no ESP or the ESP no room.
pub fn put_enrolment(disk: &Path, config: &[u8]) -> Result<(), DiskError> {
    put_file(disk, ENROLMENT, config)
}

/// Puts the file `path` onto the ESP of `disk`, with the directories above it, in the place of one that is there.
///
/// # Errors
/// As [`put_enrolment`].
pub fn put_file(disk: &Path, path: &str, content: &[u8]) -> Result<(), DiskError> {
    change(disk, |root| {
        for (end, _) in path.match_indices('/') {
            root.create_dir(&path[..end])?;
        }
        match root.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {} // absent either way
        }
        root.create_file(path)?.write_all(content)
    })
}

/// The content of the file `path` on the ESP of `disk`.
///
/// # Errors
/// [`DiskError`] when the image has no ESP or the ESP no such file.
pub fn read_file(disk: &Path, path: &str) -> Result<Vec<u8>, DiskError> {
    content(&mut read(disk)?, path).map_err(DiskError::Esp)
}

/// All files on the ESP of `disk` with their content, by path.
///
/// # Errors
/// [`DiskError`] when the image has no ESP or it is damaged.
pub fn list(disk: &Path) -> Result<Vec<(String, Vec<u8>)>, DiskError> {
    files(&mut read(disk)?).map_err(DiskError::Esp)
}

/// The bytes of the ESP of `disk`, for who wants to know where a file lies ([`formats::fat::place`]).
///
/// # Errors
/// [`DiskError`] when the image has no ESP.
pub fn read(disk: &Path) -> Result<Vec<u8>, DiskError> {
    disk::read_partition(disk, PartitionKind::Esp)
}

/// All files of a volume with their content, sorted by path.
pub(crate) fn files(volume: &mut [u8]) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    edit(volume, |root| collect(&root, "", &mut files))?;
    files.sort();
    Ok(files)
}

fn content(volume: &mut [u8], path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    edit(volume, |root| root.open_file(path)?.read_to_end(&mut bytes).map(|_| ()))?;
    Ok(bytes)
}

fn collect<T: Read + Write + Seek>(
    dir: &Dir<'_, T>,
    below: &str,
    files: &mut Vec<(String, Vec<u8>)>,
) -> io::Result<()> {
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name();
        let path = format!("{below}{name}");
        if entry.is_file() {
            let mut bytes = Vec::new();
            entry.to_file().read_to_end(&mut bytes)?;
            files.push((path, bytes));
        } else if name != "." && name != ".." {
            collect(&entry.to_dir(), &format!("{path}/"), files)?;
        }
    }
    Ok(())
}

/// Makes new directories as the specification has them: `fatfs` 0.3 gives `.` and `..` long names, which belong to no such
/// entry, and has `..` name the root's cluster where 0 must stand. Firmware may mind; fsck.fat does.
fn mend_directories(volume: &mut [u8]) -> io::Result<()> {
    const ENTRY: usize = 32;
    const LONG_NAME: u8 = 0x0f;
    let is_dots = |entry: &[u8]| entry[..11] == *b".          " || entry[..11] == *b"..         ";
    for directory in DIRECTORIES {
        let place = fat::place(volume, directory).map_err(io::Error::other)?;
        let bytes = volume.get_mut(place.extents[0].clone()).ok_or(io::ErrorKind::InvalidData)?;
        let entries: Vec<_> = bytes.chunks_exact(ENTRY).map(<[u8]>::to_vec).collect();
        let followers = entries.iter().skip(1).map(|next| is_dots(next)).chain([false]);
        let kept = entries.iter().zip(followers).filter(|(entry, dots_follow)| entry[11] != LONG_NAME || !dots_follow);
        let mut mended: Vec<u8> = kept.flat_map(|(entry, _)| entry.iter().copied()).collect();
        if !directory.contains('/') {
            let parent = &mut mended[ENTRY..2 * ENTRY];
            parent[20..22].fill(0);
            parent[26..28].fill(0);
        }
        mended.resize(bytes.len(), 0);
        bytes.copy_from_slice(&mended);
    }
    Ok(())
}

/// Runs `work` on the root directory of `volume` and leaves the volume clean.
fn edit<W>(volume: &mut [u8], work: W) -> io::Result<()>
where
    W: for<'a> FnOnce(Dir<'a, Cursor<&mut [u8]>>) -> io::Result<()>,
{
    let fs = FileSystem::new(Cursor::new(volume), FsOptions::new())?;
    work(fs.root_dir())?;
    fs.stats()?; // counts the free clusters, which unmounting then writes down
    fs.unmount()
}

/// Changes the ESP of `disk`: in memory first, then what differs is written.
fn change<W>(disk: &Path, work: W) -> Result<(), DiskError>
where
    W: for<'a> FnOnce(Dir<'a, Cursor<&mut [u8]>>) -> io::Result<()>,
{
    let before = read(disk)?;
    let mut after = before.clone();
    edit(&mut after, work).map_err(DiskError::Esp)?;
    let pieces = before.chunks(PIECE).zip(after.chunks(PIECE)).zip((0..).step_by(PIECE));
    let changed = pieces.filter(|((old, new), _)| old != new).map(|((_, new), at)| (at, new));
    disk::write_partition(disk, PartitionKind::Esp, changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: D7
    #[test]
    fn files_overwritten_in_place_lie_in_one_piece_at_fixed_places() {
        let small = make(b"loader", b"kernel").expect("room");
        let large = make(&[1; 200_000], &[2; 9_000_000]).expect("room");
        for name in PAIRS {
            for copy in 0..2 {
                let place = fat::place(&small, &format!("{name}.{copy}")).expect("there");
                assert_eq!((place.extents.len(), place.length), (1, 64 << 10), "{name}.{copy}");
                assert_eq!(place.extents[0].len(), PAIR_BYTES);
                assert!(small[place.extents[0].clone()].iter().all(|&byte| byte == 0));
                assert_eq!(fat::place(&large, &format!("{name}.{copy}")), Ok(place));
            }
        }
    }

    #[test]
    fn the_volume_has_its_known_places() {
        let volume = make(b"loader", b"kernel").expect("room");
        // Bytes of a sector, sectors of a cluster; id, label and type of the volume (Microsoft FAT, section 3.1 and 3.3).
        assert_eq!(volume[11..14], [0x00, 0x02, 1]);
        assert_eq!(volume[67..90], *b"\x24\xa1\x0c\x00CAIRN-ESP  FAT32   ");
        let start = |path: &str| fat::place(&volume, path).expect("there").extents[0].start;
        let first = start("cairn/seal.0");
        let pairs =
            ["seal", "share", "directory", "record"].map(|name| [0, 1].map(|copy| format!("cairn/{name}.{copy}")));
        let places: Vec<_> = pairs.iter().flatten().map(|path| (start(path) - first) >> 10).collect();
        assert_eq!((first, places), (1_040_384, vec![0, 64, 128, 192, 256, 320, 384, 448]));
    }

    /// Proves: O5
    #[test]
    fn the_volume_is_the_same_bytes_and_holds_the_files() {
        let mut volume = make(b"loader", b"kernel").expect("room");
        assert_eq!(volume, make(b"loader", b"kernel").expect("room"));
        assert_eq!(content(&mut volume, BOOT_LOADER).expect("there"), b"loader");
        assert_eq!(content(&mut volume, KERNEL_A).expect("there"), b"kernel");
        assert_eq!(content(&mut volume, LOADER_CONFIG).expect("there"), b"timeout 0\neditor no\n");
        let paths: Vec<_> = files(&mut volume).expect("sound").into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths.len(), 3 + 2 * PAIRS.len());
        assert!(!paths.iter().any(|path| path == ENROLMENT), "a fresh image is blank");
    }
}
