//! `machine logs`: the entries of one service or of a stem of several.

use std::io::{self, Write};
use std::time::Duration;

use api::{LogEntry, LogQuery, UnixMillis};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use serde::Serialize;
use tokio_stream::StreamExt;

use crate::complete;
use crate::context::Context;
use crate::failure::Failure;
use crate::length;
use crate::screen::{self, Format};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl machine logs --tail 20 kube.apiserver
  cairnctl machine logs -f kube          everything below kube
  cairnctl machine logs audit            who changed what, and who was refused
  cairnctl machine logs --since 10m      all services, the last ten minutes

With -o json each entry is one line of JSON.")]
pub(crate) struct Arguments {
    /// A service, or the stem of several; all without it
    #[arg(
        value_name = "SERVICE", default_value = "", hide_default_value = true,
        add = ArgValueCandidates::new(complete::logs),
    )]
    subtree: String,
    /// Only the newest N entries
    #[arg(long, value_name = "N")]
    tail: Option<u32>,
    /// Go on with new entries until interrupted
    #[arg(long, short)]
    follow: bool,
    /// Only entries younger than this: 90s, 10m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = length::parse)]
    since: Option<Duration>,
}

#[derive(Debug, Serialize)]
struct EntryOut<'a> {
    unix_ms: u64,
    service: &'a str,
    line: &'a str,
    lost: u64,
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open().await?;
    let since = match arguments.since {
        None => None,
        // By the machine's clock: its entries are.
        Some(since) => {
            let now = session.status().await?.now;
            Some(UnixMillis(now.0.saturating_sub(screen::milliseconds(since))))
        }
    };
    let query = LogQuery { subtree: arguments.subtree.clone(), tail: arguments.tail, follow: arguments.follow, since };
    let mut entries = session.logs(query).await?;
    while let Some(entry) = entries.next().await {
        show(&entry?, context.format, out)?;
        out.flush()?;
    }
    Ok(())
}

fn show(entry: &LogEntry, format: Format, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Json => {
            let LogEntry { time, service, line, lost } = entry;
            serde_json::to_writer(&mut *out, &EntryOut { unix_ms: time.0, service, line, lost: *lost })?;
            writeln!(out)
        }
        Format::Table => {
            if entry.lost > 0 {
                writeln!(out, "… {} entries lost …", entry.lost)?;
            }
            let (service, line) = (screen::printable(&entry.service), screen::printable(&entry.line));
            writeln!(out, "{} {service}: {line}", screen::instant(entry.time.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines_in_both_formats_and_losses_are_said() {
        let entry = LogEntry { time: UnixMillis(1500), service: "etcd".into(), line: "a\u{1b}b".into(), lost: 2 };
        let text = |format| {
            let mut out = Vec::new();
            show(&entry, format, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(Format::Table), "… 2 entries lost …\n1970-01-01T00:00:01.500Z etcd: a\\u{1b}b\n");
        let json = "{\"unix_ms\":1500,\"service\":\"etcd\",\"line\":\"a\\u001bb\",\"lost\":2}\n";
        assert_eq!(text(Format::Json), json);
    }
}
