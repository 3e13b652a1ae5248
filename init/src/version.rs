//! Version of this build, as a number, a record and a text.

use cluster::record::Release;
use snapshot::KubernetesRelease;

/// Semantic version of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Release of Kubernetes in this build.
pub(crate) const KUBERNETES: KubernetesRelease = KubernetesRelease(1, 36, 3);

/// The same as the cluster's records have it.
pub(crate) fn release() -> Release {
    Release::read(VERSION).expect("a version of this workspace is three numbers")
}

/// The version as the API says it: the debug profile carries its mark.
pub(crate) fn shown(profile: api::Profile) -> String {
    match profile {
        api::Profile::Release => VERSION.to_owned(),
        api::Profile::Debug => format!("{VERSION}+debug"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_kubernetes_is_the_one_that_is_built() {
        let built = format!("k8s.io/kubernetes {KUBERNETES}\n");
        assert!(include_str!("../../components/kube/go.mod").contains(&built));
    }
}
