//! Units that a machine is to run.

use model::Assignment;

use crate::kubernetes::{control_plane, dns, kubelet, proxy};
use crate::plan::{ServicePlan, ServiceRole};
use crate::task::Task;
use crate::unit::{Run, Unit};
use crate::{containerd, etcd};

/// A program's role, its name in the image, and its unit.
type Program = (ServiceRole, &'static str, fn(&ServicePlan) -> Unit);

/// Programs in the order in which they start.
const PROGRAMS: [Program; 7] = [
    (ServiceRole::Coordinator, etcd::PROGRAM, etcd::unit),
    (ServiceRole::Worker, containerd::PROGRAM, containerd::unit),
    (ServiceRole::ControlPlane, control_plane::APISERVER, control_plane::apiserver),
    (ServiceRole::Worker, kubelet::PROGRAM, kubelet::unit),
    (ServiceRole::ControlPlane, control_plane::CONTROLLERS, control_plane::controllers),
    (ServiceRole::Worker, proxy::PROGRAM, proxy::unit),
    (ServiceRole::Worker, dns::PROGRAM, dns::unit),
];

/// Units that the machine's roles want, and nothing else: programs, then tasks.
#[must_use]
pub fn wanted(plan: &ServicePlan) -> Vec<Unit> {
    let programs = PROGRAMS.into_iter().filter(|(role, ..)| plan.wants(*role)).map(|(_, _, unit)| unit(plan));
    let task = |task: Task| Unit { spec: task.spec(plan), run: Run::Task(task) };
    programs.chain(Task::wanted(plan).map(task)).collect()
}

/// Names of the programs that a machine of this assignment is to run, in the order in which they start.
pub fn programs(assignment: &Assignment) -> impl Iterator<Item = &'static str> {
    PROGRAMS.into_iter().filter(|(role, ..)| role.is_given_by(assignment)).map(|(_, name, _)| name)
}
