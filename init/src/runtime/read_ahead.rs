//! Programs that start soon, read before they start, while a processor has nothing else to do: each block that is read first is
//! checked against the root's hashes, and their check is most of what a first start costs (`drivers/md/dm-verity-target.c`).

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use model::Chain;

use super::tasks;

/// Part that is read at once.
const PIECE: usize = 64 << 10;

/// Has the files read into the page cache, one after the other, by a thread that makes way for all others. What cannot be read is
/// read by whoever starts it, who says why it fails.
pub(crate) fn begin(files: Vec<PathBuf>) {
    let read_all = move || {
        for file in each_once(files) {
            match read(&file) {
                Ok(bytes) => tracing::debug!(file = %file.display(), bytes, "read ahead"),
                Err(error) => tracing::debug!(file = %file.display(), error = %Chain(&error), "not read ahead"),
            }
        }
    };
    if let Err(error) = tasks::idle("read-ahead", read_all) {
        tracing::debug!(error = %Chain(&error), "nothing is read ahead");
    }
}

/// Files that the paths lead to, in their order: several names may be links to one program.
fn each_once(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in paths {
        let file = fs::canonicalize(&path).unwrap_or(path);
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// Bytes that were read.
fn read(path: &Path) -> io::Result<u64> {
    io::copy(&mut BufReader::with_capacity(PIECE, File::open(path)?), &mut io::sink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_and_an_absent_one_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("program");
        fs::write(&file, vec![1; 3 * PIECE + 1]).expect("it is written");
        assert_eq!(read(&file).expect("it is read"), 3 * PIECE as u64 + 1);
        assert_eq!(read(&folder.path().join("none")).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    }

    #[test]
    fn a_program_of_several_names_is_read_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().canonicalize().expect("it is there").join(name);
        fs::write(path("one"), "").expect("it is written");
        std::os::unix::fs::symlink("one", path("link")).expect("it is linked");
        let paths = ["link", "none", "one"].map(path).to_vec();
        assert_eq!(each_once(paths), ["one", "none"].map(path));
    }
}
