//! Limits that boots must keep, and whether they do. The limits are those of SPECIFICATION.md; no boot can bend them.

use std::time::Duration;

use crate::boots::{BootKind, Boots};
use crate::evidence::Evidence;
use crate::milestone::BootMilestone;

/// A number that has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    /// Median uptime and CPU time over those of another kind of boot.
    Ratio { of: BootKind, over: BootKind, to: BootMilestone },
    /// Median uptime alone over that of another kind of boot: what runs beside it costs the processor time all the same.
    Uptime { of: BootKind, over: BootKind, to: BootMilestone },
    /// Median time from the first program to the public API, in seconds.
    UntilApi { of: BootKind },
}

struct Row {
    what: &'static str,
    number: Number,
    at_most: f64,
}

const fn over_floor(what: &'static str, of: BootKind, to: BootMilestone, at_most: f64) -> Row {
    Row { what, number: Number::Ratio { of, over: of.floor(), to }, at_most }
}

/// Seconds from stage 0 to the public API where the processor is the host's own.
const UNTIL_API_ACCELERATED: f64 = 0.3;

const ROWS: &[Row] = &[
    Row {
        what: "stage 0 to public API, seconds",
        number: Number::UntilApi { of: BootKind::EncryptedFirst },
        at_most: 1.5,
    },
    Row { what: "stage 0 to public API, seconds", number: Number::UntilApi { of: BootKind::Tagged }, at_most: 1.5 },
    over_floor("node Ready, encrypted / floor", BootKind::EncryptedFirst, BootMilestone::NodeReady, 1.10),
    over_floor("node Ready, tagged / floor", BootKind::Tagged, BootMilestone::NodeReady, 1.10),
    over_floor("pod Running, encrypted / floor", BootKind::EncryptedFirst, BootMilestone::PodRunning, 1.05),
    over_floor("pod Running, tagged / floor", BootKind::Tagged, BootMilestone::PodRunning, 1.05),
    Row {
        what: "node Ready, second boot / first",
        number: Number::Ratio {
            of: BootKind::EncryptedSecond,
            over: BootKind::EncryptedFirst,
            to: BootMilestone::NodeReady,
        },
        at_most: 1.0,
    },
    Row {
        what: "node Ready, tagging / encrypted",
        number: Number::Uptime { of: BootKind::Tagging, over: BootKind::EncryptedFirst, to: BootMilestone::NodeReady },
        at_most: 1.3,
    },
];

/// How a processor is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// By QEMU's translation (TCG).
    Emulated,
    /// The host's own, by KVM.
    Accelerated,
}

/// Row of the verdict: measured numbers and their limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Name of what was measured, for a person.
    pub what: &'static str,
    /// The numbers: uptime and CPU time, or one.
    pub measured: Vec<f64>,
    /// None of them may be larger.
    pub at_most: f64,
}

impl Figure {
    /// Whether every number is within the limit.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.measured.iter().all(|number| *number <= self.at_most)
    }

    /// A line for a person.
    #[must_use]
    pub fn line(&self) -> String {
        let measured: Vec<String> = self.measured.iter().map(|number| format!("{number:.3}")).collect();
        let word = if self.holds() { "holds" } else { "BROKEN" };
        format!("{word:<7} {:<34} {:>14}   at most {:.2}", self.what, measured.join(", "), self.at_most)
    }

    /// The same for a program, as a row of the closing line of JSON.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let Self { what, measured, at_most } = self;
        serde_json::json!({ "what": what, "measured": measured, "at_most": at_most, "holds": self.holds() })
    }
}

/// Every limit that these boots can tell something of.
#[must_use]
pub fn findings(boots: &Boots, processor: Processor) -> Vec<Figure> {
    let measure = |number: Number| match number {
        Number::Ratio { of, over, to } => boots.ratio(of, over, to).map(|ratio| vec![ratio.uptime, ratio.cpu]),
        Number::Uptime { of, over, to } => boots.ratio(of, over, to).map(|ratio| vec![ratio.uptime]),
        Number::UntilApi { of } => {
            let span = boots.between(of, BootMilestone::FirstProgram, BootMilestone::PublicApi);
            span.as_ref().map(Duration::as_secs_f64).map(|seconds| vec![seconds])
        }
    };
    let limit = |row: &Row| match (row.number, processor) {
        (Number::UntilApi { .. }, Processor::Accelerated) => UNTIL_API_ACCELERATED,
        (Number::UntilApi { .. } | Number::Ratio { .. } | Number::Uptime { .. }, _) => row.at_most,
    };
    let found = ROWS
        .iter()
        .filter_map(|row| Some(Figure { what: row.what, measured: measure(row.number)?, at_most: limit(row) }));
    found.collect()
}

/// The limits on PID 1 with everything up: what it holds, and how many processes of our own it needs.
#[must_use]
pub fn memory(cairn: &Evidence) -> Vec<Figure> {
    let count = u32::try_from(cairn.ours).map_or(f64::INFINITY, f64::from);
    let processes = Figure { what: "processes of our own beside PID 1", measured: vec![count], at_most: 0.0 };
    let resident = cairn.resident.map(|kilobytes| resident("VmRSS of PID 1, everything up, MiB", kilobytes, 10.0));
    resident.into_iter().chain([processes]).collect()
}

/// Row for the resident memory of PID 1, given in kilobytes, against a limit in MiB.
pub(crate) fn resident(what: &'static str, kilobytes: u64, at_most: f64) -> Figure {
    Figure { what, measured: vec![u32::try_from(kilobytes).map_or(f64::INFINITY, f64::from) / 1024.0], at_most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boots::tests::seen;

    #[test]
    fn either_number_breaks_a_limit_where_there_are_boots() {
        let mut boots = Boots::default();
        assert_eq!(findings(&boots, Processor::Emulated), []);
        boots.push(BootKind::FloorFirst, vec![seen(BootMilestone::NodeReady, 20, 40)]);
        boots.push(
            BootKind::EncryptedFirst,
            vec![
                seen(BootMilestone::FirstProgram, 2, None),
                seen(BootMilestone::PublicApi, 3, None),
                seen(BootMilestone::NodeReady, 22, 45),
            ],
        );
        let found = findings(&boots, Processor::Emulated);
        let words: Vec<(&str, bool)> = found.iter().map(|finding| (finding.what, finding.holds())).collect();
        assert_eq!(words, [("stage 0 to public API, seconds", true), ("node Ready, encrypted / floor", false)]);
        assert!(found[1].line().starts_with("BROKEN"), "{}", found[1].line());
        assert!(!findings(&boots, Processor::Accelerated)[0].holds(), "a second is too much for a real processor");
    }

    /// The processor time that tagging takes is not what a person waits for.
    #[test]
    fn tagging_may_cost_three_tenths_of_uptime_and_any_cpu_time() {
        for (uptime, holds) in [(52, true), (53, false)] {
            let mut boots = Boots::default();
            boots.push(BootKind::EncryptedFirst, vec![seen(BootMilestone::NodeReady, 40, 70)]);
            boots.push(BootKind::Tagging, vec![seen(BootMilestone::NodeReady, uptime, 700)]);
            let found = findings(&boots, Processor::Emulated);
            let finding = found.iter().find(|finding| finding.what == "node Ready, tagging / encrypted").unwrap();
            assert_eq!((finding.measured.len(), finding.holds()), (1, holds), "{}", finding.line());
        }
    }

    #[test]
    fn memory_and_processes_have_limits() {
        let evidence = |ours, resident| Evidence { ours, resident, argv: [].into(), sha256: [].into() };
        let holds = |found: Vec<Figure>| found.iter().map(Figure::holds).collect::<Vec<bool>>();
        assert_eq!(holds(memory(&evidence(0, Some(10 << 10)))), [true, true]);
        assert_eq!(holds(memory(&evidence(1, Some((10 << 10) + 20)))), [false, false]);
        assert_eq!(holds(memory(&evidence(0, None))), [true], "not asked is not held");
    }
}
