//! `cargo xtask bench kube`: three machines with all roles, a worker beside them, and one of the three that loses its power; all by
//! `cairnctl`, as a person has them.

use std::{path::PathBuf, time::Duration};

use ::tests::web_pod;
use anyhow::{Context, Result, ensure};
use benches::{
    kube::{KubeNumber, mebibytes},
    verdict::Figure,
};
use clap::Args;
use qemu::{Deadline, Vm, deadline::Stopwatch};
use serde_json::{Value, json};
use xtask::{
    cache::BuildCache,
    progress::{say, talking_step},
    workspace::Workspace,
};

use super::{conclude, person::Person, site};
use crate::{image, programs::Build};

/// The cluster, by its owner's name for it.
const CLUSTER: &str = "bench";
/// Options for every machine. Of two processors each, three machines that are emulated on two cores wait for one another: 654 s until
/// all were Ready, and 524 s of one.
const MACHINE: [&str; 6] = ["--level", "encrypted", "--cpus", "1", "--memory", "2G"];
const THREE: [&str; 3] = ["m1", "m2", "m3"];
/// The machine that ends: `cairnctl` asks it first.
const ENDS: &str = THREE[0];
const WORKER: &str = "m4";
/// Namespace of the pods that look into machines.
const LOOKS: &str = "looks";
/// The deployment whose pods are on all machines.
const SITE: &str = "docs/examples/site.yaml";
const PODS: u64 = 3;
/// Bound of a wait for what is broken.
const LONGEST: Duration = Duration::from_secs(900);

/// How such a cluster is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// The files of a build of the release profile, instead of building one
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// How to compile the machine's own programs
    #[arg(long, value_enum, default_value = "release", conflicts_with = "image")]
    build: Build,
    /// Where the image and the artefacts of the cluster go
    #[arg(long, value_name = "DIR", default_value = "out/bench-kube")]
    out: PathBuf,
}

/// Builds, makes a cluster, ends one of its machines, prints; fails when a limit is broken.
///
/// # Errors
/// Any step's; a broken limit.
pub(crate) fn kube(workspace: &Workspace, cache: &BuildCache, options: &Options) -> Result<()> {
    let out = workspace.root().join(&options.out);
    let someone = Person::with_image(workspace, cache, (options.image.as_deref(), options.build), &out)?;
    let root_hash = image::manifest(&someone.image)?.verity.root_hash;
    let person = someone.at(out.join("home"));
    if person.files(CLUSTER, ENDS).exists() {
        // What a bench that was ended left running.
        person.ask(&["cluster", "destroy", CLUSTER, "--yes"])?;
    }
    site::fresh(&person.home)?;
    let mut figures = Vec::new();
    let measured = person.figures(&workspace.root().join(SITE).to_string_lossy(), &mut figures);
    let end: &[&str] = if measured.is_ok() { &["destroy", CLUSTER, "--yes"] } else { &["stop", CLUSTER, "--now"] };
    let ended = person.ask(&[&["cluster"], end].concat());
    say("");
    for figure in &figures {
        say(figure.line());
    }
    measured?;
    ended?;
    conclude(&figures, json!({ "root_hash": root_hash }))
}

impl Person {
    /// Measures one after the other; what was measured before a failure stays.
    fn figures(&self, site: &str, figures: &mut Vec<Figure>) -> Result<()> {
        let image = self.image.to_string_lossy();
        talking_step("three machines of all roles", "booting", || {
            let size = ["--image", &image, "--machines", "3", "--coordinators", "3", "--wait"];
            self.ask(&[&["cluster", "create", CLUSTER], &size[..], &MACHINE].concat())?;
            figures.push(KubeNumber::ThreeReady.figure(self.ready(&THREE)?));
            anyhow::Ok(())
        })?;
        talking_step("a worker", "booting", || {
            self.ask(&[&["cluster", "add", CLUSTER, "--worker", "--image", &image], &MACHINE[..]].concat())?;
            figures.push(KubeNumber::WorkerReady.figure(self.ready(&[WORKER])?));
            anyhow::Ok(())
        })?;
        talking_step("memory", "looking into machines", || {
            self.kubectl(CLUSTER, &["create", "namespace", LOOKS])?;
            let level = "pod-security.kubernetes.io/enforce=privileged";
            self.kubectl(CLUSTER, &["label", "namespace", LOOKS, level])?;
            self.kubectl(
                CLUSTER,
                &["wait", "--for=create", "serviceaccount/default", "--namespace", LOOKS, "--timeout=120s"],
            )?;
            for (machine, init, services) in [
                (ENDS, KubeNumber::InitOfAllRoles, KubeNumber::ServicesOfAllRoles),
                (WORKER, KubeNumber::InitOfWorker, KubeNumber::ServicesOfWorker),
            ] {
                let (own, all) = self.memory(machine)?;
                figures.extend([init.figure(own), services.figure(all)]);
            }
            anyhow::Ok(())
        })?;
        talking_step("a machine that ends", "waiting until others do its work", || self.ends(site, figures))
    }

    /// Seconds that the first of these machines has been up when the nodes of all are Ready.
    fn ready(&self, machines: &[&str]) -> Result<f64> {
        let nodes: Vec<String> = machines.iter().map(|machine| format!("node/{machine}")).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        // A machine that is a member may be no node yet, and of a condition `kubectl` says then that it is not found.
        for comes in ["create", "condition=Ready"] {
            let wait = ["wait", "--timeout=900s", &format!("--for={comes}")];
            self.kubectl(CLUSTER, &[&wait[..], &nodes[..]].concat())?;
        }
        let status = self.of_machine(machines[0], "status")?;
        let up = status["uptime_ms"].as_u64().context("a status has an uptime")?;
        Ok(Duration::from_millis(up).as_secs_f64())
    }

    /// VmRSS of PID 1 and proportional memory of all services of a machine, in MiB: a privileged pod reads both.
    fn memory(&self, machine: &str) -> Result<(f64, f64)> {
        let name = format!("look-{machine}");
        let mut pod = web_pod(&name, true);
        pod["metadata"]["namespace"] = LOOKS.into();
        pod["spec"]["nodeName"] = machine.into();
        pod["spec"]["hostPID"] = true.into();
        pod["spec"]["containers"][0]["securityContext"]["runAsUser"] = 0.into();
        let file = self.home.join("pod.json");
        std::fs::write(&file, pod.to_string()).context("write the pod")?;
        self.kubectl(CLUSTER, &["apply", "--filename", &file.to_string_lossy()])?;
        let pod = format!("pod/{name}");
        self.kubectl(CLUSTER, &["wait", "--for=condition=Ready", &pod, "--namespace", LOOKS, "--timeout=300s"])?;
        let held = |process: u64, file: &str, line: &str| {
            let path = format!("/api/v1/namespaces/{LOOKS}/pods/{name}:8080/proxy/proc/{process}/{file}");
            let text = self.kubectl(CLUSTER, &["get", "--raw", &path])?;
            mebibytes(&text, line).with_context(|| format!("no `{line}` in `{file}` of process {process}: {text}"))
        };
        let services = self.of_machine(machine, "services")?;
        let mut all = 0.0;
        for service in services.as_array().context("services are a list")? {
            if let Some(process) = service["pid"].as_u64() {
                let held = held(process, "smaps_rollup", "Pss")?;
                say(format_args!("    {machine} {:<24}{held:>8.1} MiB", service["name"].as_str().unwrap_or_default()));
                all += held;
            }
        }
        Ok((held(1, "status", "VmRSS")?, all))
    }

    /// Ends a machine without a word, and waits until clients, services and pods do without it.
    fn ends(&self, site: &str, figures: &mut Vec<Figure>) -> Result<()> {
        self.kubectl(CLUSTER, &["apply", "--filename", site])?;
        self.kubectl(CLUSTER, &["rollout", "status", "deployment/web", "--namespace=site", "--timeout=600s"])?;
        ensure!(self.leads_to(ENDS)?, "no pod of {ENDS} is among those that are to be led away");
        let lease = self.json(&["get", "lease", "kube-controller-manager", "--namespace=kube-system"])?;
        let led = lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| holder.starts_with(ENDS));
        Vm::end_detached(&self.files(CLUSTER, ENDS)).context("end a machine")?;
        let since = Stopwatch::start();
        let mut measure = |number: KubeNumber, is_so: &dyn Fn() -> Result<bool>| {
            let deadline = Deadline::after(LONGEST);
            while !is_so().unwrap_or_default() {
                deadline.left().with_context(|| format!("{} does not come", number.what()))?;
            }
            figures.push(number.figure(since.elapsed().as_secs_f64()));
            anyhow::Ok(())
        };
        measure(KubeNumber::NextAnswer, &|| self.kubectl(CLUSTER, &["get", "--raw", "/readyz"]).map(|_answer| true))?;
        measure(KubeNumber::EndpointsGone { led }, &|| Ok(!self.leads_to(ENDS)?))?;
        measure(KubeNumber::PodsElsewhere { led }, &|| {
            let pods = self.json(&["get", "deployment/web", "--namespace=site"])?;
            Ok(pods["status"]["availableReplicas"].as_u64() == Some(PODS))
        })
    }

    /// Whether the service of the site leads to a pod of this machine.
    fn leads_to(&self, machine: &str) -> Result<bool> {
        let slices = self.json(&["get", "endpointslices", "--namespace=site"])?;
        let slices = slices["items"].as_array().context("slices are a list")?;
        let mut ends = slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        Ok(ends.any(|end| end["nodeName"] == machine && end["conditions"]["ready"] == true))
    }

    /// Answer of `kubectl`, asked for JSON.
    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.kubectl(CLUSTER, &[arguments, &["--output=json", "--request-timeout=10s"]].concat())?;
        serde_json::from_str(&text).context("read what kubectl says")
    }

    /// Answer of `cairnctl machine` on one machine, asked for JSON.
    fn of_machine(&self, machine: &str, what: &str) -> Result<Value> {
        let text = self.ask(&["-o", "json", "-c", CLUSTER, "-m", machine, "machine", what])?;
        serde_json::from_str(&text).with_context(|| format!("read the {what} of {machine}"))
    }
}
