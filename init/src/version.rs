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

/// The version as the API says it: what an image is or has beyond a plain release's is its mark, as semantic versions say it.
pub(crate) fn shown(profile: api::Profile, has_gvisor: bool) -> String {
    let debug = (profile == api::Profile::Debug).then_some("debug");
    let marks: Vec<&str> = debug.into_iter().chain(has_gvisor.then_some("gvisor")).collect();
    if marks.is_empty() { VERSION.to_owned() } else { format!("{VERSION}+{}", marks.join(".")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_image_is_beyond_a_release_is_its_mark() {
        assert_eq!(shown(api::Profile::Release, false), VERSION);
        assert_eq!(shown(api::Profile::Debug, false), format!("{VERSION}+debug"));
        assert_eq!(shown(api::Profile::Release, true), format!("{VERSION}+gvisor"));
        assert_eq!(shown(api::Profile::Debug, true), format!("{VERSION}+debug.gvisor"));
    }

    #[test]
    fn the_release_of_kubernetes_is_the_one_that_is_built() {
        let built = format!("k8s.io/kubernetes {KUBERNETES}\n");
        assert!(include_str!("../../components/kube/go.mod").contains(&built));
    }
}
