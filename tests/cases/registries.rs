//! Images that workers pull from registries as owners say, each a service of the host on the machine's second link.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::kube::{self, POD};
use super::network::HOST;
use crate::owned;
use crate::{Case, Context, FleetKind, ImageRegistry, Prerequisite, SAID, Starts, web_pod};

/// Cases on copies of one machine, and of two.
pub(crate) const CASES: &[Case] = &[
    case("a mirror is pulled from until the registry is removed", FleetKind::Kubernetes, mirrored),
    case("a registry is pulled from by its own authority alone", FleetKind::Kubernetes, proved),
    case("a worker that is no coordinator hears of registries", FleetKind::Workers, told),
];

const fn case(name: &'static str, starts: FleetKind, run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves: &["W5"], needs: &[Prerequisite::Swtpm, Prerequisite::Ovmf], starts: Starts::From(starts), run }
}

/// Port of the registry, and of the same in clear.
const PORTS: [u16; 2] = [5443, 5000];

/// The first mirror shows a certificate, the second one none. What was not pulled before the removal is not pulled behind it.
fn mirrored(t: &Context) -> anyhow::Result<()> {
    let cluster = kube::Cluster::copy(t)?;
    let (registry, ca) = serve(t, &cluster)?;
    for (port, scheme, app) in [(PORTS[0], "https", "one"), (PORTS[1], "http", "two")] {
        let mirror = format!("{scheme}://{HOST}:{port}");
        let line = ["registry", "set", "registry.example", "--mirror", &mirror];
        let with_ca = [&line[..], &["--ca", &ca]].concat();
        cluster.run(if scheme == "https" { &with_ca } else { &line })?;
        runs(t, &cluster, app, &format!("registry.example/own/{app}:1"))?;
        ensure!(registry.asked().contains(&format!("/v2/own/{app}/manifests/1")), "{:?}", registry.asked());
    }
    cluster.run(&["registry", "remove", "registry.example"])?;
    let said = fails(t, &cluster, "three", "registry.example/own/three:1")?;
    ensure!(said.contains("registry.example"), "{said}");
    ensure!(!registry.asked().iter().any(|path| path.contains("three")), "{:?}", registry.asked());
    Ok(())
}

/// By another authority's certificate it is not; once its own is given, the same pod starts.
fn proved(t: &Context) -> anyhow::Result<()> {
    let cluster = kube::Cluster::copy(t)?;
    let (registry, ca) = serve(t, &cluster)?;
    let other = t.dir().join("other.pem");
    fs::write(&other, registry.by_tls(HOST)?.1).context("write a certificate")?;
    let host = format!("{HOST}:{}", PORTS[0]);
    let image = format!("{host}/own/app:1");
    cluster.run(&["registry", "set", &host, "--ca", &other.to_string_lossy()])?;
    let said = fails(t, &cluster, "app", &image)?;
    ensure!(said.contains("x509") && registry.asked().is_empty(), "{said}");
    cluster.run(&["registry", "set", &host, "--ca", &ca])?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/app", POD])?;
    ensure!(cluster.kubectl(&["logs", "app"])?.trim() == SAID);
    Ok(())
}

/// A place where nothing listens is said to be a mirror, and containerd's log of that machine names it.
fn told(t: &Context) -> anyhow::Result<()> {
    const MIRROR: &str = "http://127.0.0.1:9";
    let cluster = owned::Cluster::copy_of(t, FleetKind::Workers)?;
    cluster.run(&["registry", "set", "registry.example", "--mirror", MIRROR])?;
    let mut pod = web_pod("app", false);
    pod["spec"]["nodeName"] = "m2".into();
    pod["spec"]["containers"][0]["image"] = "registry.example/own/app:1".into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    cluster.apply(t, &pod)?;
    let tried = |cluster: &owned::Cluster| {
        let log = cluster.run(&["-m", "m2", "machine", "logs", "containerd"])?;
        Ok(vec![log.contains("127.0.0.1:9").to_string()])
    };
    cluster.comes_to(&["true"], t.within(60), tried)?;
    let listed = cluster.run(&["registry", "list"])?;
    ensure!(listed.contains(MIRROR), "{listed}");
    Ok(())
}

/// A registry on the host, by TLS and in clear, and the file of its authority.
fn serve(t: &Context, cluster: &kube::Cluster) -> anyhow::Result<(ImageRegistry, String)> {
    let registry = ImageRegistry::in_clear()?;
    let (secured, ca) = registry.by_tls(HOST)?;
    cluster.outside.host.serve(PORTS[0], secured);
    cluster.outside.host.serve(PORTS[1], registry.clone());
    let file = t.dir().join("ca.pem");
    fs::create_dir_all(t.dir()).context("make the case's directory")?;
    fs::write(&file, ca).context("write a certificate")?;
    Ok((registry, file.to_string_lossy().into_owned()))
}

fn pod(t: &Context, cluster: &kube::Cluster, name: &str, image: &str) -> anyhow::Result<()> {
    let mut pod = web_pod(name, false);
    pod["spec"]["containers"][0]["image"] = image.into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod["spec"]["containers"][0]["args"] = json!([]);
    cluster.apply(t, &pod)
}

fn runs(t: &Context, cluster: &kube::Cluster, name: &str, image: &str) -> anyhow::Result<()> {
    pod(t, cluster, name, image)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), POD])?;
    let said = cluster.kubectl(&["logs", name])?;
    ensure!(said.trim() == SAID, "{said}");
    Ok(())
}

/// Word of the kubelet on why the image is not pulled.
fn fails(t: &Context, cluster: &kube::Cluster, name: &str, image: &str) -> anyhow::Result<String> {
    pod(t, cluster, name, image)?;
    let place = "{.status.containerStatuses[0].state.waiting.message}";
    let refused = || {
        let said = cluster.kubectl(&["get", &format!("pod/{name}"), "--output", &format!("jsonpath={place}")]).ok()?;
        said.contains("failed to").then_some(said)
    };
    Ok(cluster.vm.until(t.within(60), refused)?)
}
