//! Objects of Kubernetes, and visits that pods count on their volumes, by the owner's `kubectl`. What was acknowledged has to be read
//! back: each object by its content, and of each pod a number above all that it has told.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use qemu::Deadline;
use serde_json::Value;

use super::{Ledger, Writer};
use crate::owner::Owner;

/// Pods of `docs/examples/shop.yaml`, which count their visits.
const PODS: [&str; 3] = ["shop-0", "shop-1", "shop-2"];
/// Bound of a request: the machine that was asked may be silent.
const PATIENCE: &str = "--request-timeout=20s";

/// Objects that were made, and visits that were counted.
#[derive(Debug)]
pub(crate) struct Objects {
    owner: Owner,
    attempts: usize,
    made: BTreeSet<String>,
    visits: Visits,
}

impl Objects {
    /// Objects in the namespace `default` of the owner's one cluster.
    pub(crate) fn new(owner: &Owner) -> Self {
        Self { owner: owner.clone(), attempts: 0, made: BTreeSet::new(), visits: Visits::default() }
    }

    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        Ok(self.owner.run(&[&["kubectl", "--", PATIENCE], arguments].concat())?)
    }

    /// Makes an object of a name that no attempt had.
    fn make(&mut self) -> anyhow::Result<()> {
        let name = format!("kept-{}", self.attempts);
        self.kubectl(&["create", "configmap", &name, &format!("--from-literal=word={name}")])?;
        self.made.insert(name);
        Ok(())
    }

    fn visit(&mut self, pod: &'static str) -> anyhow::Result<()> {
        let said = self.kubectl(&["get", "--raw", &format!("/api/v1/namespaces/shop/pods/{pod}:8080/proxy/")])?;
        self.visits.told(pod, &said)
    }

    /// Whether all is there, where all can be asked.
    fn look(&mut self) -> anyhow::Result<anyhow::Result<()>> {
        PODS.iter().try_for_each(|pod| self.visit(pod))?;
        let listed = self.kubectl(&["get", "configmaps", "--output=json"])?;
        let listed = serde_json::from_str(&listed).context("read the objects")?;
        Ok(self.visits.are_kept().and_then(|()| compare(&self.made, &listed)))
    }
}

impl Ledger for Objects {
    /// In turn a visit of each pod, and an object.
    fn change(&mut self) -> anyhow::Result<()> {
        self.attempts += 1;
        match PODS.get(self.attempts % (PODS.len() + 1)) {
            Some(pod) => self.visit(pod),
            None => self.make(),
        }
    }
}

impl Writer<Objects> {
    /// All pods count on from all that they have told, and all objects are there.
    ///
    /// # Errors
    /// When something is lost, or cannot be asked before the deadline passes.
    pub(crate) fn read_back(&self, deadline: Deadline) -> anyhow::Result<()> {
        loop {
            match self.between(Objects::look) {
                Ok(verdict) => return verdict,
                Err(unheard) => ensure!(deadline.left().is_some(), unheard),
            }
        }
    }
}

/// The last number that each pod told.
#[derive(Debug, Default)]
struct Visits {
    last: BTreeMap<&'static str, u64>,
    lost: Vec<String>,
}

impl Visits {
    /// A pod says how many visits it had: this one is durable.
    fn told(&mut self, pod: &'static str, said: &str) -> anyhow::Result<()> {
        let number = said.trim_end().strip_prefix(&format!("Hello from {pod}, visit "));
        let number = number.and_then(|number| number.parse().ok()).with_context(|| format!("{pod} says {said:?}"))?;
        let last = self.last.entry(pod).or_default();
        if number <= *last {
            self.lost.push(format!("{pod} told visit {last}, and then counts {number}"));
        }
        *last = number;
        Ok(())
    }

    fn are_kept(&self) -> anyhow::Result<()> {
        ensure!(self.lost.is_empty(), "{}", self.lost.join("; "));
        Ok(())
    }
}

/// Whether a list has all that was made.
fn compare(made: &BTreeSet<String>, listed: &Value) -> anyhow::Result<()> {
    let rows = listed["items"].as_array().context("a list of objects")?;
    let words: BTreeMap<_, _> =
        rows.iter().map(|row| (row["metadata"]["name"].as_str(), &row["data"]["word"])).collect();
    for name in made {
        match words.get(&Some(name.as_str())) {
            None => {
                bail!("configmap {name} was acknowledged, and is lost: {} of {} are there", words.len(), made.len())
            }
            Some(word) => ensure!(*word == name, "configmap {name} has the word {word}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_counts_on_from_all_that_it_has_told() {
        let after = |numbers: &[u64]| {
            let mut visits = Visits::default();
            let said = |number| format!("Hello from shop-0, visit {number}\n");
            numbers.iter().try_for_each(|number| visits.told("shop-0", &said(number))).expect("a number");
            visits.are_kept().map_err(|lost| lost.to_string())
        };
        // A visit may be counted that nobody heard of.
        assert_eq!(after(&[1, 2, 4]), Ok(()));
        assert_eq!(after(&[4, 5, 5]), Err("shop-0 told visit 5, and then counts 5".into()));
        assert_eq!(after(&[4, 1, 2]), Err("shop-0 told visit 4, and then counts 1".into()));
        let mut visits = Visits::default();
        for other in ["Hello from shop-1, visit 1\n", "Hello from shop-0\n", "Hello from shop-0, visit x\n"] {
            visits.told("shop-0", other).expect_err(other);
        }
    }

    #[test]
    fn an_object_that_was_made_is_there_with_its_word() {
        let row = |name: &str, word: &str| json!({ "metadata": { "name": name }, "data": { "word": word } });
        let made = ["kept-1".to_owned()].into();
        let fits = |rows: &[Value]| compare(&made, &json!({ "items": rows })).is_ok();
        assert!(fits(&[row("other", "x"), row("kept-1", "kept-1")]));
        assert!(!fits(&[row("kept-1", "other")]));
        assert!(!fits(&[row("other", "kept-1")]));
    }
}
