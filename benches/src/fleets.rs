//! Measures of saved fleets: how long a cluster takes from nothing, to be saved, and to be back; medians over several, and
//! their limits. Also the signs by which a cluster is known to be back.

use std::time::Duration;

use crate::boots::median;
use crate::cluster::Took;
use crate::verdict::Figure;

/// FleetStage of a cluster that is timed from its owner's command on, by the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetStage {
    /// Three coordinators from nothing, until `cluster create` is over.
    ThreeMade,
    /// Save of the three, hashed and synced, until `cluster save` is over.
    ThreeSaved,
    /// Back, until `machine list` shows all as seen now.
    ThreeBack,
    /// Kubernetes on one machine from nothing, until its pod is Ready.
    PodMade,
    /// Save of that machine, hashed and synced.
    PodSaved,
    /// Back, until `kubectl get pods` shows the pod Running.
    PodBack,
}

impl FleetStage {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 6] =
        [Self::ThreeMade, Self::ThreeSaved, Self::ThreeBack, Self::PodMade, Self::PodSaved, Self::PodBack];

    /// Name of the stage for a person.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::ThreeMade => "three coordinators, from nothing",
            Self::ThreeSaved => "three coordinators, saved",
            Self::ThreeBack => "three coordinators, back",
            Self::PodMade => "Kubernetes and a pod, from nothing",
            Self::PodSaved => "Kubernetes and a pod, saved",
            Self::PodBack => "Kubernetes and a pod, back",
        }
    }

    /// The limit in SPECIFICATION.md, in seconds; none for what is only there to compare with.
    #[must_use]
    pub const fn at_most(self) -> Option<f64> {
        match self {
            Self::ThreeMade | Self::PodMade => None,
            Self::ThreeSaved | Self::PodSaved => Some(20.0),
            Self::ThreeBack => Some(2.0),
            Self::PodBack => Some(3.0),
        }
    }

    /// Least work of the host for the bytes that are moved, which no program undercuts.
    #[must_use]
    pub const fn floor(self) -> Option<Floor> {
        match self {
            Self::ThreeMade | Self::PodMade => None,
            Self::ThreeSaved | Self::PodSaved => Some(Floor::Write),
            Self::ThreeBack | Self::PodBack => Some(Floor::Read),
        }
    }
}

/// Work on the bytes of a saved fleet, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// Written to the host's disk, and synced.
    Write,
    /// Read from its page cache.
    Read,
}

/// A stage that was measured once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageTimes {
    /// Time, and the CPU time of all virtual machines.
    pub took: Took,
    /// Time of its floor, where it has one.
    pub floor: Option<Duration>,
}

/// All that was measured.
#[derive(Debug, Clone, Default)]
pub struct Stages(Vec<(FleetStage, StageTimes)>);

impl Stages {
    /// Adds a stage that was measured.
    pub fn push(&mut self, stage: FleetStage, measured: StageTimes) {
        self.0.push((stage, measured));
    }

    /// Each as it was measured.
    pub fn iter(&self) -> impl Iterator<Item = (FleetStage, StageTimes)> {
        self.0.iter().copied()
    }

    /// The medians of a stage; none that was not measured.
    #[must_use]
    pub fn median(&self, stage: FleetStage) -> Option<StageTimes> {
        let seen: Vec<StageTimes> = self.iter().filter(|(of, _)| *of == stage).map(|(_, measured)| measured).collect();
        let middle = |part: fn(&StageTimes) -> Option<Duration>| {
            seen.iter().map(part).collect::<Option<Vec<Duration>>>().and_then(median)
        };
        let took = Took { uptime: middle(|one| Some(one.took.uptime))?, cpu: middle(|one| one.took.cpu) };
        Some(StageTimes { took, floor: middle(|one| one.floor) })
    }

    /// The medians against their limits, in seconds.
    #[must_use]
    pub fn findings(&self) -> Vec<Figure> {
        let finding = |stage: FleetStage| {
            let measured = vec![self.median(stage)?.took.uptime.as_secs_f64()];
            Some(Figure { what: stage.what(), measured, at_most: stage.at_most()? })
        };
        FleetStage::ALL.into_iter().filter_map(finding).collect()
    }

    /// The medians for a person: seconds, CPU seconds of the machines, seconds of the floor, the limit.
    #[must_use]
    pub fn table(&self) -> String {
        let row = |what: &str, cells: [String; 4]| {
            let [took, cpu, floor, limit] = cells;
            format!("{what:<36}{took:>9}{cpu:>9}{floor:>9}{limit:>9}\n")
        };
        let seconds = |time: Duration| format!("{:.2}", time.as_secs_f64());
        let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        let mut text = row("", ["seconds", "[CPU]", "floor", "at most"].map(str::to_owned));
        for stage in FleetStage::ALL {
            let Some(StageTimes { took: Took { uptime, cpu }, floor }) = self.median(stage) else { continue };
            let cpu = cpu.map(|cpu| format!("[{:.1}]", cpu.as_secs_f64()));
            let limit = stage.at_most().map(|limit| format!("{limit:.0}"));
            let [cpu, floor, limit] = [cpu, floor.map(seconds), limit].map(or_none);
            text += &row(stage.what(), [seconds(uptime), cpu, floor, limit]);
        }
        text
    }
}

/// Whether `machine list` shows so many machines, each a member that was seen within this second.
#[must_use]
pub fn all_seen_now(list: &str, machines: usize) -> bool {
    let rows: Vec<&str> = list.lines().skip(1).collect();
    let seen = |row: &&str| row.contains(" Member ") && row.rsplit("  ").next().map(str::trim) == Some("0s ago");
    rows.len() == machines && rows.iter().all(seen)
}

/// Whether `kubectl get pods` shows this pod Running, with all its containers ready.
#[must_use]
pub fn pod_runs(pods: &str, name: &str) -> bool {
    pods.lines().any(|line| line.split_whitespace().take(3).eq([name, "1/1", "Running"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(millis: u64, floor: impl Into<Option<u64>>) -> StageTimes {
        let took = Took { uptime: Duration::from_millis(millis), cpu: Some(Duration::from_secs(4)) };
        StageTimes { took, floor: floor.into().map(Duration::from_millis) }
    }

    #[test]
    fn a_limit_is_held_against_the_median_of_its_stage() {
        let mut stages = Stages::default();
        for millis in [1_500, 9_000, 1_900] {
            stages.push(FleetStage::ThreeBack, measured(millis, 100));
        }
        stages.push(FleetStage::ThreeMade, measured(40_000, None));
        let holds = |stages: &Stages| stages.findings().iter().map(Figure::holds).collect::<Vec<_>>();
        assert_eq!(holds(&stages), [true], "what comes from nothing has no limit");
        stages.push(FleetStage::PodBack, measured(3_100, 100));
        assert_eq!(holds(&stages), [true, false]);
    }

    #[test]
    fn the_table_has_a_row_for_what_was_measured() {
        let mut stages = Stages::default();
        stages.push(FleetStage::ThreeMade, measured(36_900, None));
        stages.push(FleetStage::ThreeBack, measured(1_100, 120));
        let table = stages.table();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 3, "{table}");
        assert!(rows[1].ends_with(&["36.90", "[4.0]", "-", "-"]), "{table}");
        assert!(rows[2].ends_with(&["1.10", "[4.0]", "0.12", "2"]), "{table}");
    }

    #[test]
    fn a_cluster_is_back_when_each_member_is_seen_now() {
        let list = |state: &str, seen: &str| {
            format!(
                "NAME  ROLE         KUBERNETES  STATE   VERSION  VPN ADDRESS  ADDRESSES  LAST SEEN\n\
                 m1    coordinator  -           Member  0.1.0    10.118.0.1   10.0.2.15  0s ago\n\
                 m2    coordinator  -           {state}  0.1.0    10.118.0.2   10.0.2.16  {seen}\n"
            )
        };
        assert!(all_seen_now(&list("Member", "0s ago"), 2));
        assert!(!all_seen_now(&list("Member", "0s ago"), 3), "one is missing");
        assert!(!all_seen_now(&list("Member", "10s ago"), 2));
        assert!(!all_seen_now(&list("Member", "-"), 2));
        assert!(!all_seen_now(&list("Admitted", "0s ago"), 2));
        assert!(!all_seen_now("", 2));
    }

    #[test]
    fn a_pod_runs_when_it_is_ready_too() {
        let pods =
            |ready: &str, status: &str| format!("NAME  READY  STATUS  RESTARTS  AGE\nweb  {ready}  {status}  0  9s\n");
        assert!(pod_runs(&pods("1/1", "Running"), "web"));
        assert!(!pod_runs(&pods("0/1", "Running"), "web") && !pod_runs(&pods("1/1", "Unknown"), "web"));
        assert!(!pod_runs(&pods("1/1", "Running"), "other"));
    }
}
