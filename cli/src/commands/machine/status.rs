//! `machine status`: everything the machine says about itself, in words.

use std::io::{self, Write};

use api::MachineStatus;
use serde::Serialize;

use crate::commands::condition::{self, ConditionOut};
use crate::context::Context;
use crate::failure::Failure;
use crate::screen::{self, Format};

/// The status as it is written for programs.
#[derive(Debug, Serialize)]
struct StatusOut {
    name: String,
    machine_id: String,
    cluster_id: Option<String>,
    version: String,
    profile: String,
    root_hash: String,
    boot_id: String,
    now_unix_ms: u64,
    uptime_ms: u64,
    state: String,
    step: String,
    reason: String,
    state_since_unix_ms: u64,
    level: Option<String>,
    protection: String,
    boot_class: String,
    role: Option<String>,
    kubernetes_roles: Vec<String>,
    cold_start: Option<String>,
    public_addresses: Vec<String>,
    vpn_addresses: Vec<String>,
    conditions: Vec<ConditionOut>,
    waits_for: Vec<String>,
    last_error: String,
}

impl From<&MachineStatus> for StatusOut {
    fn from(status: &MachineStatus) -> Self {
        Self {
            name: status.name.clone(),
            machine_id: status.machine_id.to_string(),
            cluster_id: status.cluster_id.map(|id| id.to_string()),
            version: status.version.clone(),
            profile: status.profile.to_string(),
            root_hash: status.root_hash.to_string(),
            boot_id: status.boot_id.clone(),
            now_unix_ms: status.now.0,
            uptime_ms: screen::milliseconds(status.uptime),
            state: status.state.to_string(),
            step: status.step.clone(),
            reason: status.reason.clone(),
            state_since_unix_ms: status.state_since.0,
            level: status.level.map(|level| level.to_string()),
            protection: status.protection.to_string(),
            boot_class: status.boot_class.to_string(),
            role: status.role.map(|role| role.to_string()),
            kubernetes_roles: status.kubernetes.iter().map(ToString::to_string).collect(),
            cold_start: status.cold_start.map(|cold_start| cold_start.to_string()),
            public_addresses: status.public_addresses.clone(),
            vpn_addresses: status.vpn_addresses.clone(),
            conditions: status.conditions.iter().map(ConditionOut::from).collect(),
            waits_for: status.waits_for.clone(),
            last_error: status.last_error.clone(),
        }
    }
}

pub(crate) async fn run(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open().await?;
    let status = session.status().await?;
    match context.format {
        Format::Json => screen::json(out, &StatusOut::from(&status))?,
        Format::Table => {
            sheet(&status, out)?;
            if !status.conditions.is_empty() {
                writeln!(out)?;
                condition::table(&status.conditions).print(out)?;
            }
        }
    }
    Ok(())
}

/// Writes a line per fact; empty ones are left out.
fn sheet(status: &MachineStatus, out: &mut dyn Write) -> io::Result<()> {
    let none = || "-".to_owned();
    let step = if status.step.is_empty() { String::new() } else { format!(" ({})", status.step) };
    let since = screen::span(status.now.since(status.state_since));
    let in_kubernetes = status.kubernetes.iter().map(ToString::to_string);
    let roles: Vec<String> = status.role.iter().map(ToString::to_string).chain(in_kubernetes).collect();
    let rows = [
        ("Name", status.name.clone()),
        ("State", format!("{}{step}, for {since}", status.state)),
        ("Because", status.reason.clone()),
        ("Role", roles.join(", ")),
        ("Waits for", status.waits_for.join("; ")),
        ("Last error", status.last_error.clone()),
        ("Level", status.level.map_or_else(none, |level| level.to_string())),
        ("Protection", format!("{} (boot class {})", status.protection, status.boot_class)),
        ("Cold start", status.cold_start.map_or_else(none, |cold_start| cold_start.to_string())),
        ("Addresses", status.public_addresses.join(", ")),
        ("VPN", status.vpn_addresses.join(", ")),
        ("Version", format!("{} ({})", status.version, status.profile)),
        ("Image", status.root_hash.to_string()),
        ("Machine", status.machine_id.to_string()),
        ("Cluster", status.cluster_id.map_or_else(none, |id| id.to_string())),
        ("Up", screen::span(screen::milliseconds(status.uptime))),
    ];
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        writeln!(out, "{name:<12}{}", screen::printable(value))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::{LevelInForce, Profile, UnixMillis};
    use model::{
        BootClass, ClusterId, ClusterRole, ColdStart, KubernetesRole, MachineId, MachineState, Protection, RootHash,
    };

    use super::*;

    /// Proves: D1 D10 S7
    #[test]
    fn the_sheet_shows_state_reason_level_and_protection() {
        let status = MachineStatus {
            name: "m-010101010101".into(),
            machine_id: MachineId([1; 16]),
            cluster_id: Some(ClusterId([2; 16])),
            version: "0.1.0".into(),
            profile: Profile::Release,
            root_hash: RootHash([3; 32]),
            boot_id: "b".into(),
            now: UnixMillis(65_000),
            uptime: Duration::from_secs(70),
            state: MachineState::Running,
            step: "control".into(),
            reason: String::new(),
            state_since: UnixMillis(0),
            level: Some(LevelInForce::Tagging { percent: 37 }),
            protection: Protection::Tpm,
            boot_class: BootClass::Direct,
            role: Some(ClusterRole::Coordinator),
            kubernetes: [KubernetesRole::Worker].into(),
            cold_start: Some(ColdStart::Automatic),
            public_addresses: vec!["10.0.2.15/24".into()],
            vpn_addresses: vec!["10.118.0.1/16".into()],
            conditions: vec![],
            waits_for: vec!["NodeReady".into()],
            last_error: String::new(),
            takes_key_generation: Some(1),
        };
        let mut text = Vec::new();
        sheet(&status, &mut text).unwrap();
        let expected = "\
Name        m-010101010101
State       Running (control), for 1m05s
Role        coordinator, worker
Waits for   NodeReady
Level       authenticated (37 % tagged)
Protection  tpm (boot class direct)
Cold start  automatic
Addresses   10.0.2.15/24
VPN         10.118.0.1/16
Version     0.1.0 (release)
Image       0303030303030303030303030303030303030303030303030303030303030303
Machine     01010101010101010101010101010101
Cluster     02020202020202020202020202020202
Up          1m10s
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let status = MachineStatus { reason: "a reason".into(), last_error: "an error".into(), ..status };
        let mut text = Vec::new();
        sheet(&status, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("\nBecause     a reason\n") && text.contains("\nLast error  an error\n"), "{text}");
        let json = serde_json::to_value(StatusOut::from(&status)).unwrap();
        assert_eq!(json["level"], "authenticated (37 % tagged)");
        assert_eq!(json["state"], "Running");
    }
}
