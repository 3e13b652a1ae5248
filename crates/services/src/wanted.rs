//! Units that a machine is to run.

use crate::plan::{ServicePlan, ServiceRole};
use crate::task::Task;
use crate::unit::{Run, Unit};
use crate::{containerd, etcd, kubernetes};

/// Units that the machine's roles want, and nothing else: programs, then tasks.
#[must_use]
pub fn wanted(plan: &ServicePlan) -> Vec<Unit> {
    let programs = [
        (ServiceRole::Coordinator, etcd::unit(plan)),
        (ServiceRole::Worker, containerd::unit(plan)),
        (ServiceRole::ControlPlane, kubernetes::control_plane::apiserver(plan)),
        (ServiceRole::Worker, kubernetes::kubelet::unit(plan)),
        (ServiceRole::ControlPlane, kubernetes::control_plane::controller_manager(plan)),
        (ServiceRole::ControlPlane, kubernetes::control_plane::scheduler(plan)),
    ];
    let programs = programs.into_iter().filter(|(role, _)| plan.wants(*role)).map(|(_, unit)| unit);
    let task = |task: Task| Unit { spec: task.spec(plan), run: Run::Task(task) };
    programs.chain(Task::wanted(plan).map(task)).collect()
}
