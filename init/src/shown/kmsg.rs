//! The kernel's log as lines of `kernel` (`Documentation/ABI/testing/dev-kmsg`): one record per read.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use tokio::io::Interest;

use crate::runtime::log;

/// The name under which the kernel logs.
const KERNEL: &str = "kernel";
/// The longest record the kernel hands out.
const RECORD: usize = 8 << 10;

/// Copies records as they come; a task for good. Started again it begins with the oldest record that the kernel still has.
///
/// # Errors
/// When the kernel has no log to read.
pub(crate) async fn copy() -> io::Result<()> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let log = File::options().read(true).custom_flags(nonblocking).open("/dev/kmsg")?;
    let log = sys::readiness::watch(log.into(), Interest::READABLE)?;
    let mut record = vec![0; RECORD];
    loop {
        let mut ready = log.readable().await?;
        let Ok(read) = ready.try_io(|log| Ok(rustix::io::read(log.get_ref(), &mut record)?)) else { continue };
        match read {
            Ok(length) => log::write(KERNEL, message(&record[..length])),
            // EPIPE: records were overwritten before they were read; the next read goes on behind them.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => return Err(error),
        }
    }
}

/// The text of a record: behind its prefix (`priority,number,time,flags;`) and before its dictionary.
fn message(record: &[u8]) -> &[u8] {
    let text = record.iter().position(|&byte| byte == b';').map_or(record, |at| &record[at + 1..]);
    text.split(|&byte| byte == b'\n').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: O1
    #[test]
    fn a_record_is_its_text() {
        assert_eq!(message(b"6,339,5140900,-;NET: Registered; PF\n SUBSYSTEM=acpi\n"), b"NET: Registered; PF");
        assert_eq!(message(b"without a prefix"), b"without a prefix");
        assert_eq!(message(b""), b"");
    }
}
