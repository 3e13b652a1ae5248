//! How a machine comes up: each way of booting, what its console shows, what verity and the command line check refuse.

use anyhow::ensure;
use tests::{Case, Context, Need};

pub(crate) const CASES: &[Case] =
    &[Case { name: "direct boot runs", proves: &["O6", "O11"], needs: &[Need::Swtpm], run: direct }];

fn direct(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let config = owner.config("one", &["--level", "encrypted", "--no-kubernetes"])?;
    let mut vm = t.machine("m").tpm().config(&config)?.start()?;
    let status = owner.status_when_running("one", &mut vm, t.within(30))?;
    ensure!(status["boot_class"] == "direct", "{status:#}");
    Ok(())
}
