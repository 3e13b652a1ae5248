//! `image inspect`: says what a file of a build is, and what is in it; or the licences of that.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use image::inspect::{InspectError, inspect};
use image::licences::{LicencesError, licences};
use serde::Serialize;

use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::screen::{self, Format};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cairnctl image inspect out/image\n  cairnctl image inspect -o json out/image/cairn.efi\n  \
                  cairnctl image inspect --licences out/image | less"
)]
pub(crate) struct Inspect {
    /// A kernel, initramfs, unified kernel, root, disk, or a directory of them
    file: PathBuf,
    /// Print the licences of what is in a root, a disk or a directory instead
    #[arg(long)]
    licences: bool,
}

#[derive(Debug, Serialize)]
struct LicencesOut {
    /// Texts by what they are of.
    licences: BTreeMap<String, String>,
}

/// A file that cannot be explained.
#[derive(Debug, thiserror::Error)]
#[error("inspect `{file}`")]
pub(crate) struct UnreadableImage {
    file: PathBuf,
    source: InspectError,
}

impl Advice for UnreadableImage {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn code(&self) -> Code {
        if self.file.exists() { Code::Failed } else { Code::NotFound }
    }
}

/// Licences that cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoLicences {
    /// For a reason that lies in the file.
    #[error("read the licences in `{file}`")]
    File { file: PathBuf, source: LicencesError },
    /// No room to unpack them.
    #[error("make a temporary directory")]
    Room(#[source] io::Error),
}

impl Advice for NoLicences {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn code(&self) -> Code {
        match self {
            Self::File { file, .. } if !file.exists() => Code::NotFound,
            Self::File { .. } | Self::Room(_) => Code::Failed,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::File { source: LicencesError::NoRoot(_), .. } => {
                Some("name root.img, disk.img or the directory of an image".to_owned())
            }
            Self::File { .. } | Self::Room(_) => None,
        }
    }
}

pub(super) fn run(arguments: &Inspect, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let Inspect { file, licences: wanted } = arguments;
    if *wanted {
        let room = tempfile::tempdir().map_err(NoLicences::Room)?;
        let read = licences(file, &room.path().join("stage"));
        let licences = read.map_err(|source| NoLicences::File { file: file.clone(), source })?;
        match format {
            Format::Json => screen::json(out, &LicencesOut { licences })?,
            Format::Table => print_licences(&licences, out)?,
        }
        return Ok(());
    }
    let report = inspect(file).map_err(|source| UnreadableImage { file: file.clone(), source })?;
    match format {
        Format::Json => screen::json(out, &report)?,
        Format::Table => writeln!(out, "{}", report.to_string().trim_end())?,
    }
    Ok(())
}

/// Texts below one another, each under the name of what it is of.
fn print_licences(licences: &BTreeMap<String, String>, out: &mut dyn Write) -> io::Result<()> {
    for (name, text) in licences {
        writeln!(out, "==> {} <==", screen::printable(name))?;
        // Some are cut into pages.
        for line in text.split(['\n', '\x0c']) {
            writeln!(out, "{}", screen::printable(line.trim_end_matches('\r')))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_stand_below_one_another_and_steer_no_terminal() {
        let texts = [("linux", "page one\n\x0cpage two\r\n"), ("runc", "\x1b[2J")];
        let licences = texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let mut out = Vec::new();
        print_licences(&licences, &mut out).unwrap();
        let printed = "==> linux <==\npage one\n\npage two\n\n==> runc <==\n\\u{1b}[2J\n";
        assert_eq!(String::from_utf8(out).unwrap(), printed);
    }
}
