//! Several boots of each kind, and what they come to: medians per milestone, ratios to the floor, a table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::milestone::{Arrival, BootMilestone};

/// Kind of boot, by what is booted and from which disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BootKind {
    /// The floor, on a new disk.
    FloorFirst,
    /// The same disk again.
    FloorSecond,
    /// Cairn at level encrypted, on a new disk.
    EncryptedFirst,
    /// The same disk again.
    EncryptedSecond,
    /// Cairn at level authenticated, on a new disk: tagging runs beside everything.
    Tagging,
    /// The same disk again, after tagging has ended.
    Tagged,
}

impl BootKind {
    /// Name of the kind in tables and in the closing line of JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FloorFirst => "floor, first boot",
            Self::FloorSecond => "floor, second boot",
            Self::EncryptedFirst => "encrypted, first boot",
            Self::EncryptedSecond => "encrypted, second boot",
            Self::Tagging => "authenticated, first boot, tagging",
            Self::Tagged => "authenticated, tagged",
        }
    }

    /// The floor's boot that has as much to do: a first one makes the cluster's first objects, a later one finds them.
    #[must_use]
    pub const fn floor(self) -> Self {
        match self {
            Self::FloorFirst | Self::EncryptedFirst | Self::Tagging => Self::FloorFirst,
            Self::FloorSecond | Self::EncryptedSecond | Self::Tagged => Self::FloorSecond,
        }
    }
}

/// A median over boots of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Median {
    /// Median of the guest's uptime.
    pub uptime: Duration,
    /// Median of QEMU's CPU time; none where a boot has none.
    pub cpu: Option<Duration>,
}

/// How much of the floor's a boot takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Uptime of the boot over that of the floor's; 1.0 is as long.
    pub uptime: f64,
    /// The same of QEMU's CPU time.
    pub cpu: f64,
}

/// All boots, in the order they were made.
#[derive(Debug, Clone, Default)]
pub struct Boots(Vec<(BootKind, Vec<Arrival>)>);

impl Boots {
    /// Adds a boot and what was seen of it.
    pub fn push(&mut self, kind: BootKind, seen: Vec<Arrival>) {
        self.0.push((kind, seen));
    }

    /// Each boot's kind, and what was seen of it.
    pub fn iter(&self) -> impl Iterator<Item = (BootKind, &[Arrival])> {
        self.0.iter().map(|(kind, seen)| (*kind, seen.as_slice()))
    }

    /// How many there are of a kind.
    #[must_use]
    pub fn count(&self, kind: BootKind) -> usize {
        self.0.iter().filter(|boot| boot.0 == kind).count()
    }

    /// The median of a milestone; none where no boot of this kind reached it.
    #[must_use]
    pub fn median(&self, kind: BootKind, milestone: BootMilestone) -> Option<Median> {
        let boots = self.0.iter().filter(|boot| boot.0 == kind);
        let seen: Vec<Arrival> = boots.filter_map(|(_, seen)| find(seen, milestone)).collect();
        let cpu: Option<Vec<Duration>> = seen.iter().map(|one| one.cpu).collect();
        Some(Median { uptime: median(seen.iter().map(|one| one.uptime).collect())?, cpu: cpu.and_then(median) })
    }

    /// The fastest and the slowest boot of a kind to a milestone: how much a median of so few is worth.
    #[must_use]
    pub fn spread(&self, kind: BootKind, milestone: BootMilestone) -> Option<(Duration, Duration)> {
        let boots = self.0.iter().filter(|boot| boot.0 == kind);
        let uptimes: Vec<Duration> = boots.filter_map(|(_, seen)| Some(find(seen, milestone)?.uptime)).collect();
        Some((*uptimes.iter().min()?, *uptimes.iter().max()?))
    }

    /// The median time from one milestone to another in the same boot.
    #[must_use]
    pub fn between(&self, kind: BootKind, from: BootMilestone, to: BootMilestone) -> Option<Duration> {
        let boots = self.0.iter().filter(|boot| boot.0 == kind);
        let spans = boots.filter_map(|(_, seen)| Some(find(seen, to)?.uptime.saturating_sub(find(seen, from)?.uptime)));
        median(spans.collect())
    }

    /// The medians of a kind over those of another.
    #[must_use]
    pub fn ratio(&self, kind: BootKind, over: BootKind, milestone: BootMilestone) -> Option<Ratio> {
        let (ours, theirs) = (self.median(kind, milestone)?, self.median(over, milestone)?);
        let ratio = |ours: Duration, theirs: Duration| ours.as_secs_f64() / theirs.as_secs_f64();
        Some(Ratio { uptime: ratio(ours.uptime, theirs.uptime), cpu: ratio(ours.cpu?, theirs.cpu?) })
    }

    /// Medians of every kind beside those of the floor's like boot, with ratios: uptime in seconds, CPU seconds in brackets.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut line = |words: [&str; 4]| {
            let [what, floor, ours, ratio] = words;
            let row = format!("{what:<18}{floor:>18}{ours:>18}{ratio:>18}");
            writeln!(text, "{}", row.trim_end()).expect("writing to a String does not fail");
        };
        let counted: BTreeMap<BootKind, usize> = self
            .0
            .iter()
            .map(|(kind, _)| (*kind, self.count(*kind)))
            .filter(|(kind, _)| *kind != kind.floor())
            .collect();
        for (kind, count) in counted {
            line([&format!("{}, median of {count}", kind.name()), "", "", ""]);
            line(["", "floor", "cairn", "ratio"]);
            for milestone in BootMilestone::ALL {
                let [floor, ours] = [kind.floor(), kind].map(|kind| cell(self.median(kind, milestone)));
                let ratio = self.ratio(kind, kind.floor(), milestone);
                let ratio = ratio.map_or(String::from("-"), |ratio| format!("{:.3} [{:.3}]", ratio.uptime, ratio.cpu));
                if ours != "-" {
                    line([milestone.name(), &floor, &ours, &ratio]);
                }
            }
            let [floor, ours] = [kind.floor(), kind].map(|kind| span(self.spread(kind, BootMilestone::NodeReady)));
            line(["node Ready, all", &floor, &ours, ""]);
        }
        text
    }
}

fn cell(median: Option<Median>) -> String {
    match median {
        None => String::from("-"),
        Some(Median { uptime, cpu: None }) => format!("{:.3}        ", uptime.as_secs_f64()),
        Some(Median { uptime, cpu: Some(cpu) }) => format!("{:.3} [{:>5.1}]", uptime.as_secs_f64(), cpu.as_secs_f64()),
    }
}

fn span(spread: Option<(Duration, Duration)>) -> String {
    spread.map_or(String::from("-"), |(from, to)| format!("{:.1} - {:.1}", from.as_secs_f64(), to.as_secs_f64()))
}

fn find(seen: &[Arrival], milestone: BootMilestone) -> Option<Arrival> {
    seen.iter().find(|one| one.milestone == milestone).copied()
}

/// The middle one; between the middle two where their number is even.
pub(crate) fn median(mut durations: Vec<Duration>) -> Option<Duration> {
    durations.sort();
    let middle = durations.len() / 2;
    let upper = *durations.get(middle)?;
    match durations.len() % 2 {
        0 => Some((durations[middle - 1] + upper) / 2),
        _ => Some(upper),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn seen(milestone: BootMilestone, uptime: u64, cpu: impl Into<Option<u64>>) -> Arrival {
        Arrival { milestone, uptime: Duration::from_secs(uptime), cpu: cpu.into().map(Duration::from_secs) }
    }

    #[test]
    fn a_median_does_not_follow_one_slow_boot() {
        let seconds = |all: &[u64]| median(all.iter().copied().map(Duration::from_secs).collect());
        assert_eq!(seconds(&[]), None);
        assert_eq!(seconds(&[7]), Some(Duration::from_secs(7)));
        assert_eq!(seconds(&[300, 20, 22]), Some(Duration::from_secs(22)));
        assert_eq!(seconds(&[20, 300, 22, 23]), Some(Duration::from_millis(22_500)));
    }

    #[test]
    fn ratios_are_of_medians_and_need_both_sides() {
        let mut boots = Boots::default();
        for (uptime, cpu) in [(20, 40), (90, 80), (10, 30)] {
            boots.push(BootKind::FloorFirst, vec![seen(BootMilestone::NodeReady, uptime, cpu)]);
        }
        boots.push(
            BootKind::EncryptedFirst,
            vec![seen(BootMilestone::NodeReady, 22, 50), seen(BootMilestone::PublicApi, 3, None)],
        );
        let ratio = boots.ratio(BootKind::EncryptedFirst, BootKind::FloorFirst, BootMilestone::NodeReady);
        assert_eq!(ratio, Some(Ratio { uptime: 1.1, cpu: 1.25 }));
        assert_eq!(boots.ratio(BootKind::Tagged, BootKind::FloorFirst, BootMilestone::NodeReady), None);
        assert_eq!(boots.ratio(BootKind::EncryptedFirst, BootKind::FloorFirst, BootMilestone::PublicApi), None);
        let table = boots.table();
        assert!(table.contains("encrypted, first boot, median of 1\n"), "{table}");
        assert!(
            table.contains("node Ready            20.000 [ 40.0]    22.000 [ 50.0]     1.100 [1.250]\n"),
            "{table}"
        );
        assert!(table.contains("node Ready, all          10.0 - 90.0       22.0 - 22.0\n"), "{table}");
    }

    #[test]
    fn a_span_is_taken_within_each_boot() {
        let mut boots = Boots::default();
        for start in [1, 100, 50] {
            let span =
                [seen(BootMilestone::FirstProgram, start, None), seen(BootMilestone::PublicApi, start + 2, None)];
            boots.push(BootKind::Tagged, span.to_vec());
        }
        let span = boots.between(BootKind::Tagged, BootMilestone::FirstProgram, BootMilestone::PublicApi);
        assert_eq!(span, Some(Duration::from_secs(2)));
    }
}
