//! Questions that the API has: what a path and its query ask for.

use crate::GROUP_VERSION;

/// Question of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsageQuestion {
    /// Resources that the API has.
    Resources,
    /// Usage of nodes.
    Nodes(UsageSelection),
    /// Usage of pods.
    Pods(UsageSelection),
}

/// Nodes or pods that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSelection {
    /// Query by which the apiserver selects them, to be put behind other parameters; it says what a client's own selectors said.
    pub query: String,
    /// Name of the one object that is asked for, where one is: then the answer is that object, or that there is none.
    pub one: Option<String>,
}

impl UsageQuestion {
    /// Question of a path with its query; none where the API has no such path.
    #[must_use]
    pub fn of(path: &str, query: &str) -> Option<Self> {
        match below(GROUP_VERSION, path)?[..] {
            [] => Some(Self::Resources),
            ["nodes"] => Some(Self::Nodes(selection(query, &[], None))),
            ["nodes", name] if is_a_name(name) => Some(Self::Nodes(selection("", &[("name", name)], Some(name)))),
            ["pods"] => Some(Self::Pods(selection(query, &[], None))),
            ["namespaces", namespace, "pods"] if is_a_name(namespace) => {
                Some(Self::Pods(selection(query, &[("namespace", namespace)], None)))
            }
            ["namespaces", namespace, "pods", name] if is_a_name(namespace) && is_a_name(name) => {
                Some(Self::Pods(selection("", &[("namespace", namespace), ("name", name)], Some(name))))
            }
            _ => None, // every other path
        }
    }
}

/// Objects by the selectors of a client's query, and by these fields of their metadata.
fn selection(query: &str, fields: &[(&str, &str)], one: Option<&str>) -> UsageSelection {
    let asked = |parameter: &str| query.split('&').find_map(|part| part.strip_prefix(parameter)?.strip_prefix('='));
    // As they came: a percent and what is behind it mean to the apiserver what they would have meant to us.
    let mut by_fields: Vec<_> = fields.iter().map(|(field, value)| format!("metadata.{field}%3D{value}")).collect();
    by_fields.extend(asked("fieldSelector").filter(|text| !text.is_empty()).map(str::to_owned));
    let labels = asked("labelSelector").map(|text| format!("&labelSelector={text}"));
    let fields = (!by_fields.is_empty()).then(|| format!("&fieldSelector={}", by_fields.join("%2C")));
    UsageSelection { query: [labels, fields].into_iter().flatten().collect(), one: one.map(str::to_owned) }
}

/// Parts of a path below an API's group and version.
pub(crate) fn below<'p>(group_version: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let rest = path.strip_prefix("/apis/")?.strip_prefix(group_version)?;
    match rest.strip_prefix('/') {
        Some(rest) if !rest.is_empty() => Some(rest.split('/').collect()),
        Some(_) => Some(Vec::new()),
        None => rest.is_empty().then(Vec::new),
    }
}

/// Whether it can be a name, as nodes, pods and namespaces have them (RFC 1123 subdomain): none of it means anything in a query.
pub(crate) fn is_a_name(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&text.len()) && text.bytes().all(inside)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(path: &str, query: &str) -> Option<UsageQuestion> {
        UsageQuestion::of(&format!("/apis/metrics.k8s.io/v1beta1{path}"), query)
    }

    fn of(query: &str, one: Option<&str>) -> UsageSelection {
        UsageSelection { query: query.to_owned(), one: one.map(str::to_owned) }
    }

    /// Proves: Q3
    #[test]
    fn a_path_asks_for_nodes_or_pods_as_the_apiserver_selects_them() {
        use UsageQuestion::{Nodes, Pods, Resources};
        for (path, query, question) in [
            ("", "", Resources),
            ("/", "timeout=32s", Resources),
            ("/nodes", "", Nodes(of("", None))),
            ("/nodes", "limit=500&labelSelector=a%3Db", Nodes(of("&labelSelector=a%3Db", None))),
            ("/nodes/m1", "labelSelector=a", Nodes(of("&fieldSelector=metadata.name%3Dm1", Some("m1")))),
            ("/pods", "", Pods(of("", None))),
            (
                "/namespaces/shop/pods",
                "fieldSelector=metadata.name%21%3Dweb&labelSelector=app%20in%20%28a%2Cb%29",
                Pods(of(
                    "&labelSelector=app%20in%20%28a%2Cb%29&fieldSelector=metadata.namespace%3Dshop%2Cmetadata.name%21%3Dweb",
                    None,
                )),
            ),
            (
                "/namespaces/shop/pods/web-0",
                "",
                Pods(of("&fieldSelector=metadata.namespace%3Dshop%2Cmetadata.name%3Dweb-0", Some("web-0"))),
            ),
        ] {
            assert_eq!(asked(path, query), Some(question), "{path}?{query}");
        }
        let no_paths =
            ["x", "//", "/services", "/nodes/", "/nodes/M1", "/nodes/a%26b", "/nodes/m1/stats", "/namespaces//pods"];
        for path in no_paths.into_iter().chain(["/namespaces/shop", "/namespaces/shop/nodes", "/namespaces/a&b/pods"]) {
            assert_eq!(asked(path, ""), None, "{path}");
        }
        for path in ["", "/", "/apis/metrics.k8s.io", "/apis/metrics.k8s.io/v1", "/openapi/v2"] {
            assert_eq!(UsageQuestion::of(path, ""), None, "{path}");
        }
    }

    proptest! {
        /// A selection adds two parameters at most, whatever stands in a path or in a query. Proves: Q3
        #[test]
        fn nothing_else_gets_into_a_selection(path in "(/[a-z0-9.&=%-]{0,9}){1,5}", query in "[a-zA-Z=&%+.-]{0,40}") {
            if let Some(UsageQuestion::Nodes(selected) | UsageQuestion::Pods(selected)) = asked(&path, &query) {
                for part in selected.query.split('&').skip(1) {
                    prop_assert!(part.starts_with("labelSelector=") || part.starts_with("fieldSelector="), "{}", part);
                }
                prop_assert!(selected.query.matches('&').count() <= 2);
            }
        }
    }
}
