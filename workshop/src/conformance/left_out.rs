//! Conformance specs that are not run, each with its reason: what they need cannot be had here. A spec that fails does not
//! belong here.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::results::Specs;

/// Spec that is not run.
struct LeftOut {
    /// Part of its name.
    spec: &'static str,
    because: &'static str,
}

#[rustfmt::skip] // one row per line
const LEFT_OUT: &[LeftOut] = &[
    LeftOut { spec: "Aggregator Should be able to support the 1.17 Sample API Server", because: "its image, sample-apiserver, is not built here" },
    LeftOut { spec: "ImageVolume should succeed with pod and pull policy of Always", because: "it pulls an image from a registry" },
];

/// Splits specs into those that are run and those that are not.
pub(super) fn judged(all: impl IntoIterator<Item = String>) -> Specs {
    let mut specs = Specs { all: all.into_iter().collect(), left_out: BTreeMap::new() };
    for name in &specs.all {
        if let Some(row) = LEFT_OUT.iter().find(|row| name.contains(row.spec)) {
            specs.left_out.insert(name.clone(), row.because);
        }
    }
    specs
}

/// Refuses a row that no longer names a spec.
///
/// # Errors
/// There is one.
pub(super) fn check(specs: &Specs) -> Result<()> {
    match LEFT_OUT.iter().find(|row| !specs.all.iter().any(|name| name.contains(row.spec))) {
        None => Ok(()),
        Some(row) => {
            bail!("upstream has no spec `{}` any more: workshop/src/conformance/left_out.rs names it", row.spec)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_table_names_is_left_out_and_all_else_stays() {
        let names = LEFT_OUT.iter().map(|row| format!("[sig-x] {} [Conformance]", row.spec));
        let specs = judged(names.chain(["[sig-x] other [Conformance]".to_owned()]));
        assert_eq!((specs.all.len(), specs.left_out.len()), (LEFT_OUT.len() + 1, LEFT_OUT.len()));
        assert!(!specs.left_out.contains_key("[sig-x] other [Conformance]"));
        check(&specs).expect("every row names one");
        check(&judged(["[sig-x] other [Conformance]".to_owned()])).expect_err("no row names one");
    }
}
