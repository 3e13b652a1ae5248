//! The clock of the board (rtc(4), `drivers/rtc/dev.c`). It counts whole seconds, on a board of QEMU those of the host's clock.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::libc;

/// `_IOR('p', 0x09, struct rtc_time)` of `include/uapi/linux/rtc.h`.
const RTC_RD_TIME: libc::c_ulong = 0x8024_7009;

/// `struct rtc_time`; the driver sets neither week day nor day of the year.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RtcTime {
    second: libc::c_int,
    minute: libc::c_int,
    hour: libc::c_int,
    /// From 1.
    day: libc::c_int,
    /// From 0.
    month: libc::c_int,
    /// Since 1900.
    year: libc::c_int,
    week_day: libc::c_int,
    year_day: libc::c_int,
    daylight_saving: libc::c_int,
}

/// Seconds since 1970 by the clock `device`, in whichever zone it keeps.
///
/// # Errors
/// When `device` is no such clock, or shows no time, as one whose battery is empty.
pub fn read(device: &File) -> io::Result<u64> {
    let mut time = RtcTime::default();
    // SAFETY: `time` is a live rtc_time, nine ints, which is all that the kernel writes to the place given.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), RTC_RD_TIME, &raw mut time) };
    crate::check(result.into())?;
    time.since_1970().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

impl RtcTime {
    /// Seconds since 1970, where that is a date of then or later.
    fn since_1970(self) -> Option<u64> {
        let within = |value: libc::c_int, range: std::ops::RangeInclusive<u64>| {
            u64::try_from(value).ok().filter(|value| range.contains(value))
        };
        let (year, month) = (within(self.year, 70..=8099)? + 1900, within(self.month, 0..=11)?);
        let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let february = if leap(year) { 29 } else { 28 };
        let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let month = usize::try_from(month).ok()?;
        let day = within(self.day, 1..=months[month])?;
        let (hour, minute) = (within(self.hour, 0..=23)?, within(self.minute, 0..=59)?);
        let second = within(self.second, 0..=59)?;
        // Leap days of the years before this one, less those before 1970.
        let leap_days = |years: u64| years / 4 - years / 100 + years / 400;
        let years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
        let days = years + months[..month].iter().sum::<u64>() + day - 1;
        Some(((days * 24 + hour) * 60 + minute) * 60 + second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A date as people write it.
    fn date(year: i32, month: i32, day: i32, hour: i32, minute: i32, second: i32) -> RtcTime {
        RtcTime { year: year - 1900, month: month - 1, day, hour, minute, second, ..RtcTime::default() }
    }

    #[test]
    fn the_kernels_structure_and_number_fit() {
        let bytes = libc::c_ulong::try_from(size_of::<RtcTime>()).expect("nine ints");
        assert_eq!(RTC_RD_TIME, 2 << 30 | bytes << 16 | u64::from(b'p') << 8 | 9);
    }

    /// As `date -u --date=… +%s` has them.
    #[test]
    fn dates_are_counted_over_leap_years_and_centuries() {
        for (time, seconds) in [
            (date(1970, 1, 1, 0, 0, 0), 0),
            (date(1999, 12, 31, 23, 59, 59), 946_684_799),
            (date(2000, 2, 29, 12, 0, 0), 951_825_600),
            (date(2000, 3, 1, 0, 0, 0), 951_868_800),
            (date(2026, 11, 24, 14, 49, 19), 1_795_531_759),
            (date(2100, 3, 1, 0, 0, 0), 4_107_542_400),
            (date(2400, 12, 31, 0, 0, 0), 13_601_001_600),
        ] {
            assert_eq!(time.since_1970(), Some(seconds), "{time:?}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for wrong in [
            date(1969, 12, 31, 23, 59, 59),
            date(2100, 2, 29, 0, 0, 0),
            date(2026, 0, 1, 0, 0, 0),
            date(2026, 13, 1, 0, 0, 0),
            date(2026, 1, 0, 0, 0, 0),
            date(2026, 4, 31, 0, 0, 0),
            date(2026, 1, 1, 24, 0, 0),
            date(2026, 1, 1, 0, 60, 0),
            date(2026, 1, 1, 0, 0, 60),
            date(2026, 1, 1, 0, 0, -1),
            RtcTime::default(),
        ] {
            assert_eq!(wrong.since_1970(), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_no_clock_is_an_error() {
        assert!(read(&File::open("/dev/null").expect("it opens")).is_err());
    }
}
