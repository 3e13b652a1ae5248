//! `machine timeline`: what this boot reached when, in seconds since the kernel started.

use std::io::Write;
use std::time::Duration;

use api::Milestone;
use serde::Serialize;

use crate::context::Context;
use crate::failure::Failure;
use crate::screen::{self, Format, Table};

#[derive(Debug, Serialize)]
struct MilestoneOut {
    uptime_ms: u64,
    kind: String,
    name: String,
}

impl From<&Milestone> for MilestoneOut {
    fn from(milestone: &Milestone) -> Self {
        Self {
            uptime_ms: screen::milliseconds(milestone.uptime),
            kind: milestone.kind.to_string(),
            name: milestone.name.clone(),
        }
    }
}

pub(crate) async fn run(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open().await?;
    let milestones = session.timeline().await?;
    match context.format {
        Format::Json => screen::json(out, &milestones.iter().map(MilestoneOut::from).collect::<Vec<_>>())?,
        Format::Table => table(&milestones).print(out)?,
    }
    Ok(())
}

fn table(milestones: &[Milestone]) -> Table<4> {
    let mut table = Table::new(["AT", "AFTER", "KIND", "WHAT"]);
    let mut before = Duration::ZERO;
    for milestone in milestones {
        table.row([
            format!("{:>8.3}", milestone.uptime.as_secs_f64()),
            format!("{:>8.3}", milestone.uptime.saturating_sub(before).as_secs_f64()),
            milestone.kind.to_string(),
            milestone.name.clone(),
        ]);
        before = milestone.uptime;
    }
    table
}

#[cfg(test)]
mod tests {
    use api::MilestoneKind;

    use super::*;

    #[test]
    fn a_timeline_shows_each_point_and_the_way_to_it() {
        let at =
            |millis, kind, name: &str| Milestone { name: name.into(), uptime: Duration::from_millis(millis), kind };
        let milestones = [at(1600, MilestoneKind::Kernel, "init"), at(12_345, MilestoneKind::Service, "etcd")];
        let mut text = Vec::new();
        table(&milestones).print(&mut text).unwrap();
        let expected = "\
AT        AFTER     KIND     WHAT
   1.600     1.600  kernel   init
  12.345    10.745  service  etcd
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
