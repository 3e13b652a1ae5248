//! Numbers of a machine, as a page of OpenMetrics. Pure: all of it is handed in.

use std::time::Duration;

use api::{MachineStatus, Service, ServiceState, Truth};
use openmetrics::{FamilyKind, PageWriter};

/// Use of the machine by PID 1 itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnUse {
    pub(crate) cpu: Duration,
    /// Bytes in memory.
    pub(crate) resident: u64,
}

/// The page of a machine that says this of itself, whose PID 1 uses so much, and runs these services.
pub(crate) fn page(status: &MachineStatus, own: OwnUse, services: &[Service]) -> String {
    let mut page = PageWriter::default();
    let root = status.root_hash.to_string();
    let machine = status.machine_id.to_string();
    let about = [
        ("name", status.name.as_str()),
        ("machine", machine.as_str()),
        ("version", status.version.as_str()),
        ("root_hash", root.as_str()),
    ];
    page.family(FamilyKind::Info, "cairn_machine", "The machine, and the image that it runs.").sample(&about, 1);
    let uptime = status.uptime.as_secs_f64();
    page.family(FamilyKind::Gauge, "cairn_uptime_seconds", "Time since the kernel started.").sample(&[], uptime);
    // The names that Prometheus' client libraries have for any process.
    let mut family = page.family(FamilyKind::Counter, "process_cpu_seconds", "Processor time of PID 1.");
    family.sample(&[], own.cpu.as_secs_f64());
    let mut family = page.family(FamilyKind::Gauge, "process_resident_memory_bytes", "Memory of PID 1.");
    family.sample(&[], own.resident);
    let mut family =
        page.family(FamilyKind::Gauge, "cairn_condition", "1 where a condition holds, 0 where it does not.");
    for condition in &status.conditions {
        let holds = match condition.truth {
            Truth::True => 1,
            Truth::False => 0,
            Truth::Unknown => continue,
        };
        family.sample(&[("condition", &condition.name)], holds);
    }
    let mut family =
        page.family(FamilyKind::Gauge, "cairn_service_ready", "1 where a service is ready, 0 where it is not.");
    for service in services {
        family.sample(&[("service", &service.name)], u8::from(service.state == ServiceState::Ready));
    }
    let mut family =
        page.family(FamilyKind::Counter, "cairn_service_restarts", "Starts of a service behind its first.");
    for service in services {
        family.sample(&[("service", &service.name)], service.restarts);
    }
    let mut family =
        page.family(FamilyKind::Counter, "cairn_service_cpu_seconds", "Processor time of a service's processes.");
    for (service, cpu) in services.iter().filter_map(|service| Some((service, service.cpu?))) {
        family.sample(&[("service", &service.name)], cpu.as_secs_f64());
    }
    let mut family =
        page.family(FamilyKind::Gauge, "cairn_service_memory_bytes", "Memory of a service's control group.");
    for (service, memory) in services.iter().filter_map(|service| Some((service, service.memory?))) {
        family.sample(&[("service", &service.name)], memory);
    }
    page.end()
}
