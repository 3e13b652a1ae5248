//! What this build calls itself.

/// Semantic version of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version as the API says it: the debug profile carries its mark.
pub(crate) fn shown(profile: api::Profile) -> String {
    match profile {
        api::Profile::Release => VERSION.to_owned(),
        api::Profile::Debug => format!("{VERSION}+debug"),
    }
}
