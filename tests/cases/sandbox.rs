//! Pods in a sandbox of gVisor, on a machine whose image has it. Its owner makes it, as any other; it is the only case of that image.

use crate::{Case, Context, Image, Prerequisite, Starts, page_of, web_pod};
use anyhow::ensure;
use serde_json::json;

use super::kube::POD;
use crate::owned::{Cluster, NAME, patience, text};

pub(crate) const CASES: &[Case] = &[Case {
    name: "a sandboxed pod runs on a kernel of its own",
    proves: &["W6"],
    needs: &[Prerequisite::Swtpm, Prerequisite::Gvisor],
    starts: Starts::Cold,
    run: sandboxed,
}];

fn sandboxed(t: &Context) -> anyhow::Result<()> {
    let (cluster, image) = (Cluster::of(t)?, Image::gvisor_of_environment()?);
    let create = ["cluster", "create", NAME, "--image", text(image.dir())?, "--level", "encrypted"];
    cluster.run(&[&create[..], &["--wait", "--timeout", &patience(t, 180)]].concat())?;
    let version = cluster.ask(&["machine", "status"])?["version"].clone();
    ensure!(version.as_str().is_some_and(|version| version.ends_with("+gvisor")), "{version}");

    for (name, class) in [("plain", None), ("sandboxed", Some("gvisor"))] {
        let mut pod = web_pod(name, false);
        pod["spec"]["runtimeClassName"] = json!(class);
        cluster.apply(t, &pod)?;
        cluster.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), POD])?;
    }
    let kernel = |pod| cluster.kubectl(&["get", "--raw", &page_of(pod, "/proc/version")]);
    let (plain, sandboxed) = (kernel("plain")?, kernel("sandboxed")?);
    ensure!(!plain.contains("gvisor") && sandboxed.contains("gvisor"), "{plain} {sandboxed}");
    cluster.destroyed()
}
