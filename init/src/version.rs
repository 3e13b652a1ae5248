//! Version of this build, as a number, a record and a text.

use cluster::record::Release;

/// Semantic version of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

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
