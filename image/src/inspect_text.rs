//! Reports for people: one fact per line, name first, within 80 columns but for hashes and command lines.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::inspect::{DiskReport, InitramfsReport, KernelReport, Report, RootReport, UkiReport};
use crate::manifest::{Manifest, ManifestEntry};

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(kernel) => kernel.fmt(f),
            Self::Initramfs(initramfs) => initramfs.fmt(f),
            Self::Uki(uki) => uki.fmt(f),
            Self::Root(root) => root.fmt(f),
            Self::Disk(disk) => disk.fmt(f),
            Self::Image(manifest) => manifest.fmt(f),
        }
    }
}

/// Writes a line: a name, filled up to a column, and a value.
fn line(f: &mut Formatter<'_>, name: &str, value: impl Display) -> fmt::Result {
    writeln!(f, "{name:<14}{value}")
}

fn entries(f: &mut Formatter<'_>, title: &str, entries: &BTreeMap<String, ManifestEntry>) -> fmt::Result {
    writeln!(f, "{title}:")?;
    for (path, entry) in entries {
        match entry {
            ManifestEntry::File { size, sha256, .. } => {
                writeln!(f, "  {size:>11}  {}  {path}", &sha256[..sha256.len().min(12)])?
            }
            ManifestEntry::Link { target } => writeln!(f, "  {:>11}  {:12}  {path} -> {target}", "link", "")?,
            ManifestEntry::Directory => writeln!(f, "  {:>11}  {:12}  {path}/", "directory", "")?,
            ManifestEntry::Device => writeln!(f, "  {:>11}  {:12}  {path}", "device", "")?,
        }
    }
    Ok(())
}

impl Display for KernelReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "kernel", &self.version)?;
        line(f, "size", self.size)?;
        line(f, "sha256", &self.sha256)
    }
}

impl Display for InitramfsReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "initramfs", format_args!("{} bytes", self.size))?;
        line(f, "sha256", &self.sha256)?;
        line(f, "root hash", &self.verity.root_hash)?;
        line(f, "command line", &self.cmdline)?;
        entries(f, "files", &self.files)
    }
}

impl Display for UkiReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "unified", format_args!("{} bytes", self.size))?;
        line(f, "sha256", &self.sha256)?;
        for text in self.os_release.lines().filter_map(|text| text.strip_prefix("PRETTY_NAME=")) {
            line(f, "name", text.trim_matches('"'))?;
        }
        line(f, "kernel", &self.kernel.version)?;
        line(f, "root hash", &self.initramfs.verity.root_hash)?;
        line(f, "command line", &self.cmdline)?;
        line(f, "PCR 11", &self.pcr11)?;
        writeln!(f, "sections:")?;
        for (name, address, size) in &self.sections {
            writeln!(f, "  {name:<9} at {address:#010x}  {size:>11} bytes")?;
        }
        Ok(())
    }
}

impl Display for RootReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "root", format_args!("{} bytes, every block verified", self.size))?;
        line(f, "sha256", &self.sha256)?;
        line(f, "root hash", &self.verity.root_hash)?;
        line(f, "slot", format_args!("PARTUUID {}", self.partition_uuid))?;
        line(f, "hash tree", format_args!("at {}, {} data blocks", self.verity.hash_offset, self.verity.data_blocks))
    }
}

impl Display for DiskReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "disk", &self.guid)?;
        writeln!(f, "partitions:")?;
        for part in &self.partitions {
            let (start, length) = (part.start >> 20, part.length >> 20);
            writeln!(f, "  {:<15} {start:>6} MiB + {length:>6} MiB  {}", part.name, part.guid)?;
        }
        entries(f, "ESP", &self.esp)?;
        for (path, uki) in &self.kernels {
            writeln!(f, "\n{path}:\n{uki}")?;
        }
        for (slot, root) in &self.slots {
            writeln!(f, "\n{slot}:\n{root}")?;
        }
        Ok(())
    }
}

impl Display for Manifest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "Cairn", format_args!("{} ({})", self.version, self.profile.word()))?;
        if !self.extensions.is_empty() {
            let words: Vec<&str> = self.extensions.iter().map(|one| one.word()).collect();
            line(f, "extensions", words.join(", "))?;
        }
        line(f, "kernel", format_args!("{}, source {}", self.kernel.version, self.kernel.source_sha256))?;
        line(f, "root hash", &self.verity.root_hash)?;
        line(f, "command line", &self.cmdline)?;
        line(f, "PCR 11", &self.pcr11)?;
        writeln!(f, "components:")?;
        for (name, version) in &self.components {
            writeln!(f, "  {name:<20} {version}")?;
        }
        entries(f, "artefacts", &self.artefacts)?;
        entries(f, "initramfs", &self.initramfs)?;
        entries(f, "ESP", &self.esp)?;
        entries(f, "root", &self.root)
    }
}
