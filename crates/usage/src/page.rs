//! Questions for the pages of machines: `/apis/metrics.cairn.internal/v1/machines/NAME[/SERVICE]`.

use model::NodeName;

use crate::question::{below, is_a_name};

/// Group of the API, with its version.
pub const MACHINE_METRICS: &str = "metrics.cairn.internal/v1";

/// Question of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageQuestion {
    /// Resources that the API has: none of the kind that a client lists, since pages are no objects.
    Resources,
    /// Page of a machine, or of one of its services.
    Page {
        /// Name of the machine.
        machine: NodeName,
        /// Name of the service; empty for the machine itself.
        service: String,
    },
}

impl PageQuestion {
    /// Question of a path; none where the API has no such path.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        let parts = below(MACHINE_METRICS, path)?;
        let page = |machine: &str, service: &str| {
            Some(Self::Page { machine: NodeName::stored(machine).ok()?, service: service.to_owned() })
        };
        match parts[..] {
            [] => Some(Self::Resources),
            ["machines", machine] => page(machine, ""),
            ["machines", machine, service] if is_a_name(service) => page(machine, service),
            _ => None, // every other path
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q3
    #[test]
    fn a_path_names_a_machine_and_one_of_its_services() {
        let asked = |path: &str| PageQuestion::of(&format!("/apis/metrics.cairn.internal/v1{path}"));
        let page = |service: &str| {
            let machine = NodeName::stored("m1").expect("a name");
            Some(PageQuestion::Page { machine, service: service.to_owned() })
        };
        assert_eq!([asked(""), asked("/")], [Some(PageQuestion::Resources), Some(PageQuestion::Resources)]);
        assert_eq!([asked("/machines/m1"), asked("/machines/m1/kube.dns")], [page(""), page("kube.dns")]);
        for path in
            ["/machines", "/machines/", "/machines/M1", "/machines/m1/", "/machines/m1/a%2Fb", "/machines/m1/a/b", "x"]
        {
            assert_eq!(asked(path), None, "{path}");
        }
        assert_eq!(PageQuestion::of("/apis/metrics.k8s.io/v1beta1"), None);
    }
}
