//! Words that a boot that could not go on leaves for the next one: the kernel's log with the reason at its end, kept by
//! pstore (`Documentation/ABI/testing/pstore`), under UEFI in firmware variables. A panic of the kernel leaves the same
//! by itself.
//!
//! Words stay until a boot comes up and has taken them into its log. Until then no others are left: a machine that fails
//! again and again must never wear out its firmware's flash.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::machine::kernel;
use crate::runtime::log;
use crate::runtime::tasks;

/// Where records appear as files.
const PSTORE: &str = "/sys/fs/pstore";
/// Whether the kernel also keeps its log when a boot ends without a panic (`kernel/printk/printk.c`).
const ALSO_AT_REBOOT: &str = "/sys/module/printk/parameters/always_kmsg_dump";
/// The name under which they are in the log.
const NAME: &str = "last-words";
/// The kernel keeps 10 KiB (`pstore.kmsg_bytes`) in parts of 1 KiB; compressed ones hold some times more.
const PART_BYTES: u64 = 64 << 10;

/// Has the kernel keep its log over the reboot that follows, with `text` at its end. Where words lie that nobody has taken
/// yet, it does nothing.
///
/// # Errors
/// When there is nothing to keep it in, or something refuses.
pub(crate) fn leave(text: &str) -> io::Result<()> {
    // It is mounted later than the first error can happen.
    let _mounted_already_or_nowhere = kernel::mount_pstore();
    if !records()?.is_empty() {
        return Ok(());
    }
    for line in text.lines().filter(|line| !line.is_empty()) {
        // Below what the kernel shows on the console, where it stands already.
        fs::write("/dev/kmsg", format!("<6>init: {line}"))?;
    }
    fs::write(ALSO_AT_REBOOT, "Y")
}

/// Takes what an earlier boot has left into the log, and says so.
pub(crate) async fn collect() {
    match tasks::blocking(take).await {
        Ok(0) => {}
        Ok(_) => tracing::warn!("an earlier boot could not go on: its last words are in the log `{NAME}`"),
        Err(error) => tracing::error!(%error, "last words of an earlier boot not read"),
    }
}

/// How many records went into the log; they are removed, so that there is room.
fn take() -> io::Result<usize> {
    let records = records()?;
    for name in &records {
        let path = Path::new(PSTORE).join(name);
        let mut text = Vec::new();
        File::open(&path)?.take(PART_BYTES).read_to_end(&mut text)?;
        text.split(|&byte| byte == b'\n').for_each(|line| log::write(NAME, line));
        fs::remove_file(path)?;
    }
    Ok(records.len())
}

/// The records, in the order in which they were written; none where there is no pstore.
fn records() -> io::Result<Vec<String>> {
    let names = match fs::read_dir(PSTORE) {
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(in_order(names.iter().filter_map(|name| OsStr::to_str(name))))
}

/// Kernel logs among pstore's files, oldest first. A firmware's file is `dmesg-efi_pstore-N`, where N is time, part and count
/// in decimal: `(seconds × 100 + part) × 1000 + count` (`drivers/firmware/efi/efi-pstore.c`); part 1 is the end of the log.
fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<&str> = names.filter(|name| name.starts_with("dmesg-")).collect();
    names.sort_by_key(|name| {
        let number: u64 = name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        (number / 100_000, number % 1000, Reverse(number / 1000 % 100))
    });
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: O1
    #[test]
    fn parts_of_a_log_are_read_from_its_beginning() {
        let names = [
            "dmesg-efi_pstore-179528114901001", // the later boot
            "dmesg-efi_pstore-179528000001001", // part 1: the end
            "console-ramoops-0",
            "dmesg-efi_pstore-179528000002001",
            "dmesg-efi_pstore-179528000010001",
        ];
        let expected = [names[4], names[3], names[1], names[0]];
        assert_eq!(in_order(names.into_iter()), expected);
        assert_eq!(in_order(["dmesg-ramoops-0", "x"].into_iter()), ["dmesg-ramoops-0"]);
    }
}
