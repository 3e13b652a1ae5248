//! A campaign of Kubernetes: whatever a seed brings happens to machines as their owner made them, while somebody makes objects and
//! visits a StatefulSet's pods. It must never look in another way than an owner could.

use anyhow::Context as _;

use super::{Endures, Trail};
use crate::fleet::Off;
use crate::owned::{Cluster, NAME, patience};
use crate::writer::{Objects, Writer};
use crate::{Context, FleetKind};

mod plan;

pub use plan::{KubeEvent, KubeEvents, KubeMachines};

/// A StatefulSet of three, on as many machines as there are.
const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/shop.yaml");

/// Machines, and who writes.
pub(crate) struct KubeCampaign {
    cluster: Cluster,
    machines: KubeMachines,
    writer: Writer<Objects>,
    past: Trail,
}

impl KubeCampaign {
    /// Makes the machines and begins to write.
    ///
    /// # Errors
    /// When they do not become a cluster that runs all pods.
    pub(super) fn begin(t: &Context, machines: KubeMachines) -> anyhow::Result<Self> {
        let cluster = Cluster::of(t)?;
        let size: &[&str] = match machines {
            KubeMachines::Two => &["--machines", "2"],
            KubeMachines::Three => &["--machines", "3", "--coordinators", "3"],
        };
        let line = ["cluster", "create", NAME, "--level", "encrypted", "--wait", "--timeout", &patience(t, 240)];
        cluster.run(&[&line[..], size, &["--memory", "2560M"]].concat())?;
        Self::of(t, cluster, machines)
    }

    /// The same with a copy of two machines for this case.
    ///
    /// # Errors
    /// When they do not come back.
    pub(crate) fn copy(t: &Context) -> anyhow::Result<Self> {
        Self::of(t, Cluster::copy_of(t, FleetKind::Workers)?, KubeMachines::Two)
    }

    fn of(t: &Context, cluster: Cluster, machines: KubeMachines) -> anyhow::Result<Self> {
        cluster.kubectl(&["apply", "--validate=false", "--filename", SHOP])?;
        cluster.runs_shop(t)?;
        let writer = Writer::start(Objects::new(&cluster.owner))?;
        let past = Trail::default();
        let campaign = Self { cluster, machines, writer, past };
        // As many as a turn through all pods and an object.
        campaign.goes_on(t, 4)?;
        Ok(campaign)
    }

    /// Switches off the machines that `which` means.
    fn off(&self, t: &Context, which: &[&str], how: Off) -> anyhow::Result<()> {
        let patience = patience(t, 30);
        let how = match how {
            Off::AtOnce => &["--now"][..],
            Off::InOrder => &["--timeout", &patience],
        };
        self.cluster.run(&[&["cluster", "stop"], which, how].concat()).map(drop)
    }

    fn goes_on(&self, t: &Context, changes: usize) -> anyhow::Result<()> {
        self.writer.goes_on(changes, t.within(60))
    }

    /// Something is so while so many changes are made.
    fn meanwhile(&self, t: &Context, changes: usize, begin: &[&str], end: &[&str]) -> anyhow::Result<()> {
        self.cluster.run(begin)?;
        self.goes_on(t, changes)?;
        self.cluster.run(end).map(drop)
    }
}

impl Endures for KubeCampaign {
    type Event = KubeEvent;

    fn happens(&mut self, t: &Context, event: &KubeEvent) -> anyhow::Result<()> {
        let patience = patience(t, 120);
        match event {
            KubeEvent::Cut { machine, changes } => {
                let link = |end| vec!["cluster", "link", machine, end];
                self.meanwhile(t, *changes, &link("--down"), &link("--up"))
            }
            KubeEvent::Slow { machine, delay, loss, changes } => {
                let (delay, loss) = (format!("{delay}ms"), format!("{loss}%"));
                let slow = ["cluster", "link", machine, "--delay", &delay, "--loss", &loss];
                self.meanwhile(t, *changes, &slow, &["cluster", "link", machine, "--up"])
            }
            KubeEvent::Away { machine, how, changes } => {
                self.off(t, &["-m", machine], *how)?;
                self.goes_on(t, *changes)?;
                self.cluster.run(&["cluster", "start", "-m", machine]).map(drop)
            }
            KubeEvent::Reboot { machine } => self.cluster.boots_again(t, machine),
            KubeEvent::AllOff { how } => {
                self.off(t, &[], *how)?;
                self.cluster.run(&["cluster", "start"]).map(drop)
            }
            KubeEvent::Drained { machine, changes } => {
                let drain = ["machine", "drain", machine, "--force", "--timeout", &patience];
                self.meanwhile(t, *changes, &drain, &["machine", "drain", machine, "--undo"])
            }
            KubeEvent::NoControlPlane { machine, changes } => {
                let role = |verb| ["machine", "role", verb, machine, "control-plane", "--wait", "--timeout", &patience];
                self.meanwhile(t, *changes, &role("remove"), &role("add"))
            }
        }
    }

    /// Each machine runs, serves the Kubernetes API where it should, and has a node that is ready; all pods run, and nothing is lost.
    fn is_well(&self, t: &Context) -> anyhow::Result<()> {
        for machine in self.machines.names() {
            let served = self.machines.has_control_plane(machine).then_some("KubernetesApiReady");
            for condition in ["Running", "NodeReady"].into_iter().chain(served) {
                let wait = ["-m", machine, "condition", "wait", condition, "--timeout", &patience(t, 60)];
                self.cluster.run(&wait).with_context(|| format!("{condition} of {machine}"))?;
            }
        }
        self.cluster.runs_shop(t)?;
        self.writer.read_back(t.within(30))
    }

    fn acknowledged(&self) -> usize {
        self.writer.acknowledged()
    }

    fn past(&mut self) -> &mut Trail {
        &mut self.past
    }
}

impl Cluster {
    /// Waits until all pods of the StatefulSet are ready.
    fn runs_shop(&self, t: &Context) -> anyhow::Result<()> {
        let patience = format!("--timeout={}", patience(t, 60));
        self.kubectl(&["rollout", "status", "statefulset/shop", "--namespace=shop", &patience]).map(drop)
    }

    /// Has a machine boot, and waits until it is another boot that answers.
    fn boots_again(&self, t: &Context, machine: &str) -> anyhow::Result<()> {
        let before = self.status(&["-m", machine])?;
        self.run(&["-m", machine, "machine", "reboot"])?;
        self.comes_to(&["again"], t.within(60), |cluster| {
            let again = cluster.status(&["-m", machine])?.is_of_another_boot(&before);
            Ok(again.then(|| "again".to_owned()).into_iter().collect())
        })
    }
}
