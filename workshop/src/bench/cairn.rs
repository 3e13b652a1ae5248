//! Cairn's machine: made as hardware is, by a config on its ESP; booted as often as asked with the same disk and TPM;
//! steered by `cairnctl` alone.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use ::image::{ManifestEntry, names};
use ::tests::Stranger;
use anyhow::{Context, Result, ensure};
use benches::{Arrival, BootMilestone, evidence, evidence::Evidence, floor};
use model::{Level, PUBLIC_API_PORT};
use qemu::{
    Deadline, Machine, Vm,
    machine::{
        Boot as Board, Cache, Clock, Content, Disk, EmulatedTpm, Forward, Kernel, Link, Mac, Nic, OnReset, Watchdog,
    },
    run::Tie,
};
use serde_json::Value;
use services::ServicePlan;

use super::{
    follow::{self, Told},
    pod::Kubectl,
    site::{self, Boot, CPUS, DISK, MEMORY, Site, fresh},
};
use crate::owner;
use xtask::process::answer;

/// The cluster, by its owner's name for it.
const CLUSTER: &str = "bench";
/// Tagging of the whole disk, emulated.
const TAGGING: Duration = Duration::from_secs(3600);
/// Pods, services and file system have 75 s.
const END: Duration = Duration::from_secs(300);

/// A machine that can be booted.
pub(crate) struct Cairn<'a> {
    site: &'a Site,
    folder: PathBuf,
}

impl<'a> Cairn<'a> {
    /// Makes its disk, with a config to create a cluster at this level.
    ///
    /// # Errors
    /// Names the step.
    pub(crate) fn create(site: &'a Site, level: Level, name: &str) -> Result<Self> {
        let folder = site.out.join(name);
        fresh(&folder)?;
        let cairn = Self { site, folder };
        let config = cairn.folder.join("enrolment.pb");
        let file = config.to_string_lossy();
        let choices = ["--node-name", floor::NODE, "--level", level.word(), "--out", &file];
        answer(&mut cairn.cairnctl(&[&["enrol", "config", "--name", CLUSTER], &choices[..]].concat()))?;
        ::image::instantiate(&site.image, &cairn.disk(), DISK).context("make the machine's disk")?;
        let config = std::fs::read(&config).context("read the config")?;
        ::image::put_enrolment(&cairn.disk(), &config).context("put the config onto the disk")?;
        Ok(cairn)
    }

    /// Boots it to a running pod and powers it off.
    ///
    /// # Errors
    /// Names the step; its artefacts stay.
    pub(crate) fn boot(&self, name: &str) -> Result<Boot> {
        self.boot_until(name, |_| Ok(()))
    }

    /// The same with an image of the debug profile, whose PID 1 tells what it holds when everything is up: `VmRSS` in
    /// kilobytes. The release's is the same program without faults, so it holds no more.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn resident(&self, name: &str) -> Result<u64> {
        let mut resident = 0;
        self.boot_until(name, |vm| {
            let key = owner::key(&self.folder)?;
            resident = site::resident(Stranger::meet_as(vm, Some(&key), Deadline::after(END))?)?;
            Ok(())
        })?;
        Ok(resident)
    }

    /// The same, and waits until tagging has ended before it powers off.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn boot_and_tag(&self, name: &str) -> Result<Boot> {
        self.boot_until(name, |vm| {
            // The line comes once, and may have come before the node was Ready.
            let wait = vm.wait_for(vm.started(), "  protection authenticated,", Deadline::after(TAGGING));
            wait.map(drop).context("wait until all is tagged")
        })
    }

    /// Takes its disk away: gigabytes that nobody looks at. All else of its boots stays.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove_disk(self) -> Result<()> {
        std::fs::remove_file(self.disk()).context("remove the machine's disk")
    }

    fn boot_until(&self, name: &str, then: impl FnOnce(&mut Vm) -> Result<()>) -> Result<Boot> {
        let folder = self.folder.join(name);
        fresh(&folder)?;
        let mut vm = Vm::launch(&self.machine(), &folder, Tie::Launcher).context("start the machine")?;
        let address = vm.forward(PUBLIC_API_PORT).context("the public API has no port here")?.to_string();
        let owner = Owner { cairn: self, address };
        let config = folder.join("kubeconfig");
        let mut tunnel = None;
        let followed = follow::to_node_ready(&mut vm, told, || {
            tunnel = Some(owner.tunnel(&config, &folder.join("tunnel.log"))?);
            Ok(())
        })?;
        let tunnel = tunnel.context("the machine was ready before it ran")?;
        // It was written long ago where nothing is wrong.
        let opened = vm.until(Deadline::after(END), || config.is_file().then_some(()));
        opened.with_context(|| format!("open the tunnel: see `{}`", folder.join("tunnel.log").display()))?;
        let kubectl = Kubectl { program: self.site.kubectl.clone(), config };
        let pod = kubectl.run_pod(&mut vm, &followed, &folder)?;

        let status = owner.ask(&["machine", "status"])?;
        let services = owner.ask(&["machine", "services"])?;
        let timeline = owner.ask(&["machine", "timeline"])?;
        std::fs::write(folder.join("timeline.json"), timeline.to_string()).context("keep the timeline")?;
        let mut seen = vec![
            Arrival { cpu: followed.started, ..of_timeline(&timeline, BootMilestone::FirstProgram, "stage 0")? },
            of_timeline(&timeline, BootMilestone::PublicApi, "public api")?,
        ];
        seen.extend(&followed.seen);
        seen.push(pod);
        kubectl.remove_pod()?;
        drop(tunnel);
        then(&mut vm)?;
        let boot = self.evidence(seen, &status, &services)?;
        answer(&mut owner.cairnctl(&["machine", "poweroff"]))?;
        vm.wait_shutdown(Deadline::after(END)).context("wait for the machine's end")?;
        Ok(boot)
    }

    /// The root that was verified is the one whose files the manifest lists; arguments follow from the plan; a process
    /// that PID 1 has started and the plan does not name is our own.
    fn evidence(&self, seen: Vec<Arrival>, status: &Value, services: &Value) -> Result<Boot> {
        let manifest = &self.site.manifest;
        ensure!(status["root_hash"] == *manifest.verity.root_hash, "the machine runs another image: {status}");
        ensure!(status["name"] == floor::NODE, "the machine has another name: {status}");
        let cluster = status["cluster_id"].as_str().and_then(|id| id.parse().ok()).context("read the cluster's id")?;
        let hash = |(path, entry): (&String, &ManifestEntry)| match entry {
            ManifestEntry::File { sha256, .. } if is_program(path) => Some((path.clone(), sha256.clone())),
            ManifestEntry::File { .. }
            | ManifestEntry::Link { .. }
            | ManifestEntry::Directory
            | ManifestEntry::Device => None,
        };
        let sha256: BTreeMap<String, String> = manifest.root.iter().filter_map(hash).collect();
        let plan = ServicePlan { cluster, ..floor::plan() };
        let argv = evidence::argv(&plan);
        let planned = services::wanted(&plan);
        let is_planned = |process: &&Value| planned.iter().any(|unit| process["name"] == unit.spec.name.as_str());
        let processes = services.as_array().context("read the services")?.iter().filter(|one| one["pid"].is_u64());
        let ours = processes.filter(|process| !is_planned(process)).count();
        Ok(Boot { seen, evidence: Evidence { argv, sha256, ours, resident: None }, cluster })
    }

    fn disk(&self) -> PathBuf {
        self.folder.join(names::DISK)
    }

    fn machine(&self) -> Machine {
        let kernel = Kernel {
            image: self.site.image.join(names::KERNEL),
            initrd: self.site.image.join(names::INITRAMFS),
            cmdline: self.site.manifest.cmdline.clone(),
        };
        Machine {
            name: "cairn-bench".to_owned(),
            boot: Board::Direct(kernel),
            cpus: CPUS,
            memory_mib: MEMORY,
            disks: vec![Disk {
                content: Content::Raw(self.disk()),
                serial: "cairn-0".to_owned(),
                cache: Cache::Unsafe,
            }],
            tpm: Some(EmulatedTpm { state: self.folder.join("tpm") }),
            nics: vec![Nic { mac: Mac::numbered(1), link: Link::User(vec![Forward::tcp(PUBLIC_API_PORT)]) }],
            fw_cfg: vec![],
            watchdog: Watchdog::Absent,
            on_reset: OnReset::Exit,
            clock: Clock::OfHost,
        }
    }

    /// `cairnctl` of an owner who lives in the machine's folder.
    fn cairnctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.site.cairnctl);
        command.args(arguments).env("XDG_DATA_HOME", &self.folder).env("HOME", &self.folder);
        command
    }
}

/// The owner of a machine that runs.
struct Owner<'a> {
    cairn: &'a Cairn<'a>,
    address: String,
}

impl Owner<'_> {
    fn cairnctl(&self, arguments: &[&str]) -> Command {
        self.cairn.cairnctl(&[&["--cluster", CLUSTER, "--address", &self.address], arguments].concat())
    }

    fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let text = answer(&mut self.cairnctl(&[&["--output", "json"], arguments].concat()))?;
        serde_json::from_str(&text).with_context(|| format!("read the answer of {arguments:?}"))
    }

    /// First contact if there was none, a kubeconfig, and a tunnel that lasts as long as the value.
    fn tunnel(&self, config: &Path, log: &Path) -> Result<Tunnel> {
        let log = File::create(log).context("make the tunnel's log")?;
        let mut command = self.cairnctl(&["kubeconfig", "--out", &config.to_string_lossy()]);
        command.stdin(Stdio::null()).stdout(log.try_clone().context("share the tunnel's log")?).stderr(log);
        Ok(Tunnel(command.spawn().context("start cairnctl")?))
    }
}

/// An open tunnel; ends with its value.
struct Tunnel(Child);

impl Drop for Tunnel {
    fn drop(&mut self) {
        // A child that has ended already cannot be killed and need not be.
        let (_killed, _reaped) = (self.0.kill(), self.0.wait());
    }
}

/// Whether a path of the root is a program.
pub(crate) fn is_program(path: &str) -> bool {
    ["/bin/", "/opt/cni/bin/"].iter().any(|folder| path.starts_with(folder))
}

/// Meaning of a line of Cairn's console: the first of the screen, or `[ 26.106] INFO now true condition=EtcdReady`.
fn told(line: &str) -> Option<Told> {
    if line.starts_with("  Cairn ") {
        return Some(Told::Started);
    }
    let (uptime, told) = line.strip_prefix('[')?.split_once("] INFO now true condition=")?;
    let uptime = Duration::try_from_secs_f64(uptime.trim().parse().ok()?).ok()?;
    let milestone = match told.trim() {
        "Running" => return Some(Told::Running),
        "EtcdReady" => BootMilestone::Etcd,
        "ContainerdReady" => BootMilestone::Containerd,
        "KubernetesApiReady" => BootMilestone::Apiserver,
        "NodeReady" => BootMilestone::NodeReady,
        _ => return None, // a condition that is no milestone
    };
    Some(Told::Reached(milestone, uptime))
}

fn of_timeline(timeline: &Value, milestone: BootMilestone, name: &str) -> Result<Arrival> {
    let rows = timeline.as_array().map(Vec::as_slice).unwrap_or_default();
    let row = rows.iter().find(|row| row["name"] == name).with_context(|| format!("find `{name}` in {timeline}"))?;
    let millis = row["uptime_ms"].as_u64().with_context(|| format!("read `{name}` of {timeline}"))?;
    Ok(Arrival { milestone, uptime: Duration::from_millis(millis), cpu: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_becomes_true_is_a_milestone() {
        let etcd = "[    26.106] INFO now true condition=EtcdReady";
        assert_eq!(told(etcd), Some(Told::Reached(BootMilestone::Etcd, Duration::from_millis(26_106))));
        assert_eq!(told("  Cairn      0.1.0 release · image dfc3b0112f89"), Some(Told::Started));
        assert_eq!(told("[     9.547] INFO now true condition=Running"), Some(Told::Running));
        for other in ["", "  holds      Running EtcdReady", "[    13.059] INFO connection refused source=10.0.2.2"] {
            assert_eq!(told(other), None, "{other}");
        }
    }
}
