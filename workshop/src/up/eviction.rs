//! Which saved clusters go so that all of them together take no more of the disk than they may. Pure: what lies in the cache
//! comes in, names come out.

use std::time::SystemTime;

/// A saved cluster that lies in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SavedUp {
    /// Name of the saved machine in the cache.
    pub(super) name: String,
    /// Bytes that it takes of the host's disk.
    pub(super) bytes: u64,
    /// When an `up` saved it or came back from it last.
    pub(super) used: SystemTime,
    /// Whether it stays in any case: somebody saves it or comes back from it now.
    pub(super) in_use: bool,
}

/// Names of those that go, the least recently used first, so that at most `limit` bytes are left; more where those in use
/// take more.
pub(super) fn going(all: &[SavedUp], limit: u64) -> Vec<&str> {
    let mut left: u64 = all.iter().map(|one| one.bytes).sum();
    let mut may_go: Vec<&SavedUp> = all.iter().filter(|one| !one.in_use).collect();
    may_go.sort_by_key(|one| one.used);
    let mut names = Vec::new();
    for one in may_go {
        if left <= limit {
            break;
        }
        left -= one.bytes;
        names.push(one.name.as_str());
    }
    names
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn one(name: &str, bytes: u64, used: u64) -> SavedUp {
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(used);
        SavedUp { name: name.to_owned(), bytes, used, in_use: false }
    }

    #[test]
    fn nothing_goes_while_all_are_within_the_limit() {
        assert!(going(&[], 0).is_empty());
        assert!(going(&[one("a", 4, 1), one("b", 6, 2)], 10).is_empty());
    }

    #[test]
    fn the_least_recently_used_go_first_and_no_more_than_must() {
        let all = [one("newest", 4, 9), one("oldest", 4, 1), one("middle", 4, 5)];
        assert_eq!(going(&all, 11), ["oldest"]);
        assert_eq!(going(&all, 7), ["oldest", "middle"]);
        assert_eq!(going(&all, 3), ["oldest", "middle", "newest"]);
    }

    #[test]
    fn what_is_in_use_stays_and_counts() {
        let in_use = |one| SavedUp { in_use: true, ..one };
        assert_eq!(going(&[in_use(one("a", 8, 1)), one("b", 4, 2), one("c", 2, 3)], 10), ["b"]);
        assert!(going(&[in_use(one("a", 20, 1))], 10).is_empty());
    }
}
