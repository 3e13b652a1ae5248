//! `machine metrics`: what a machine counts, or one of its services, as monitoring systems read it.

use std::io::Write;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use serde::Serialize;

use crate::complete;
use crate::context::Context;
use crate::failure::Failure;
use crate::screen::{self, Format};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl machine metrics
  cairnctl -m m2 machine metrics kube.dns

etcd, containerd, kube.controllers, kube.dns and kube.proxy have pages. Those of
an apiserver and of a kubelet come by Kubernetes:
  cairnctl kubectl -- get --raw /metrics
  cairnctl kubectl -- get --raw /api/v1/nodes/m1/proxy/metrics

In a pod Prometheus reads all of them from the Kubernetes API, with the role
cairn:machine-metrics, at the path
  /apis/metrics.cairn.internal/v1/machines/NAME
and, for a service, with its name behind a slash.")]
pub(crate) struct Arguments {
    /// The service; without it the machine itself
    #[arg(add = ArgValueCandidates::new(complete::services))]
    service: Option<String>,
}

#[derive(Debug, Serialize)]
struct MetricsOut {
    page: String,
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open().await?;
    let page = session.metrics(arguments.service.as_deref().unwrap_or_default()).await?;
    match context.format {
        Format::Json => screen::json(out, &MetricsOut { page })?,
        Format::Table => write!(out, "{page}")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::home;

    /// Half a page looks like a whole one to whoever reads it. Proves: Q3
    #[tokio::test]
    async fn a_page_is_printed_whole_or_not_at_all() {
        let (_root, context, coordinator) = home::with_a_coordinator().await;
        let printed = async || {
            let mut out = Vec::new();
            let arguments = Arguments { service: Some("etcd".to_owned()) };
            let done = run(&arguments, &context, &mut out).await;
            (done.is_ok(), String::from_utf8(out).unwrap())
        };
        assert_eq!(printed().await, (true, "etcd_up 1\n# EOF\n".to_owned()));
        *coordinator.refuses.lock().unwrap() = true;
        assert_eq!(printed().await, (false, String::new()));
    }
}
