//! A follower against a server that pages, forgets, cuts and repeats.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Thing {
    metadata: ObjectMeta,
    #[serde(default)]
    value: u32,
}

impl Resource for Thing {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

const THINGS: Collection = Collection { path: "/api/v1/things", metadata_only: false };

/// Server of one collection, with a history that it forgets.
#[derive(Debug, Default)]
struct Server {
    things: BTreeMap<String, u32>,
    /// Events since the beginning; the version is how many there are.
    history: Vec<(&'static str, String, u32)>,
    /// Events before this one are forgotten.
    forgotten: usize,
    /// Whether the next page that goes on is too late.
    expires: bool,
}

impl Server {
    fn set(&mut self, name: &str, value: Option<u32>) {
        let before = match value {
            Some(value) => self.things.insert(name.to_owned(), value),
            None => self.things.remove(name),
        };
        let kind = match (before, value) {
            (None, Some(_)) => "ADDED",
            (Some(_), Some(_)) => "MODIFIED",
            (Some(_), None) => "DELETED",
            (None, None) => return,
        };
        self.history.push((kind, name.to_owned(), value.unwrap_or_default()));
    }

    fn thing(name: &str, value: u32, version: usize) -> serde_json::Value {
        json!({ "metadata": { "name": name, "namespace": "n", "resourceVersion": version.to_string() }, "value": value })
    }

    /// A page of two.
    fn list(&mut self, path: &str) -> (u16, String) {
        let from: usize = path.split_once("continue=").map_or(0, |(_, token)| token.parse().expect("ours"));
        if from > 0 && std::mem::take(&mut self.expires) {
            return (GONE, String::new());
        }
        let items: Vec<_> =
            self.things.iter().skip(from).take(2).map(|(name, value)| Self::thing(name, *value, 1)).collect();
        let token = if from + 2 < self.things.len() { (from + 2).to_string() } else { String::new() };
        let metadata = json!({ "resourceVersion": self.history.len().to_string(), "continue": token });
        (200, json!({ "metadata": metadata, "items": items }).to_string())
    }

    /// At most so many lines after the version that the path names.
    fn watch(&self, path: &str, most: usize) -> Result<Vec<String>, u16> {
        let from: usize = path.split_once("resourceVersion=").expect("a version").1.parse().expect("ours");
        if from < self.forgotten {
            return Err(GONE);
        }
        let lines = self.history.iter().enumerate().skip(from).take(most).map(|(at, (kind, name, value))| {
            json!({ "type": kind, "object": Self::thing(name, *value, at + 1) }).to_string()
        });
        Ok(lines.collect())
    }
}

/// Answers a request of the follower; a list is asked in one go, since a changed server answers another list.
fn step(reflector: &mut Reflector<Thing>, server: &mut Server, most: usize) {
    loop {
        match reflector.request() {
            ListRequest::List(path) => {
                let (status, body) = server.list(&path);
                if reflector.listed(status, body.as_bytes()).expect("a list") == ListStep::Changed {
                    return;
                }
            }
            ListRequest::Watch(path) => match server.watch(&path, most) {
                Ok(lines) => {
                    assert!(reflector.watching(200).expect("it begins"));
                    for line in lines {
                        assert_eq!(reflector.line(line.as_bytes()).expect("a line"), ListStep::Changed);
                    }
                    return;
                }
                Err(status) => assert!(!reflector.watching(status).expect("listed anew")),
            },
        }
    }
}

fn seen(reflector: &Reflector<Thing>) -> BTreeMap<String, u32> {
    let objects = reflector.objects().expect("listed");
    objects.iter().map(|((_, name), thing)| (name.clone(), thing.value)).collect()
}

#[derive(Debug, Clone)]
enum Deed {
    Set(u8, Option<u32>),
    Forget,
    Follow(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (0_u8..6, proptest::option::of(0_u32..9)).prop_map(|(name, value)| Deed::Set(name, value)),
        1 => Just(Deed::Forget),
        2 => (0_usize..4).prop_map(Deed::Follow),
    ];
    proptest::collection::vec(deed, 0..60)
}

proptest! {
    /// Proves: W1
    #[test]
    fn a_follower_holds_in_the_end_what_the_server_holds(deeds in deeds()) {
        let (mut server, mut reflector) = (Server::default(), Reflector::of(THINGS));
        for deed in deeds {
            match deed {
                Deed::Set(name, value) => server.set(&name.to_string(), value),
                Deed::Forget => (server.forgotten, server.expires) = (server.history.len(), true),
                Deed::Follow(most) => step(&mut reflector, &mut server, most),
            }
        }
        step(&mut reflector, &mut server, usize::MAX);
        step(&mut reflector, &mut server, usize::MAX);
        prop_assert_eq!(seen(&reflector), server.things);
    }

    #[test]
    fn no_line_ends_a_follower(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut reflector = Reflector::<Thing>::of(THINGS);
        reflector.listed(200, br#"{"metadata":{"resourceVersion":"1"},"items":[]}"#).expect("a list");
        let _any = reflector.line(&line);
    }
}

#[test]
fn an_error_in_a_watch_has_the_collection_listed_anew() {
    let mut reflector = Reflector::<Thing>::of(THINGS);
    let mut server = Server::default();
    server.set("a", Some(1));
    step(&mut reflector, &mut server, 0);
    let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
    assert_eq!(reflector.line(bookmark).expect("a bookmark"), ListStep::Same);
    assert!(matches!(reflector.request(), ListRequest::Watch(path) if path.ends_with("resourceVersion=7")));
    let gone = br#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#;
    assert_eq!(reflector.line(gone).expect("too old"), ListStep::Anew);
    assert!(matches!(reflector.request(), ListRequest::List(_)));
    assert_eq!(seen(&reflector), server.things, "what was known stays until the list is whole");
    step(&mut reflector, &mut server, 0);
    for bad in [&b"no JSON"[..], br#"{"type":"OTHER","object":{}}"#, br#"{"type":"ERROR","object":{"code":500}}"#] {
        assert!(reflector.line(bad).is_err(), "{bad:?}");
        assert!(matches!(reflector.request(), ListRequest::List(_)));
        step(&mut reflector, &mut server, 0);
    }
}

/// Objects may be as large as the server takes them; what was known stays meanwhile.
#[test]
fn a_page_that_is_too_large_is_asked_for_in_smaller_ones() {
    let (mut reflector, mut server) = (Reflector::<Thing>::of(THINGS), Server::default());
    server.set("a", Some(1));
    step(&mut reflector, &mut server, 0);
    let mut limits = Vec::new();
    while reflector.too_large() {
        let ListRequest::List(path) = reflector.request() else { panic!("it is listed anew") };
        limits.push(path.split_once("limit=").expect("a bound").1.to_owned());
        assert_eq!(seen(&reflector), server.things);
    }
    assert_eq!(limits, ["50", "25", "12", "6", "3", "1"]);
    assert!(matches!(reflector.request(), ListRequest::List(path) if path.ends_with("limit=1")), "that is read by all");
}

/// A version or token goes into the next request's path, so nothing else may stand in it.
#[test]
fn a_token_that_would_be_another_request_is_refused() {
    for metadata in [r#"{"continue":"a&watch=1"}"#, r#"{"resourceVersion":"1 HTTP"}"#] {
        let mut reflector = Reflector::<Thing>::of(THINGS);
        let list = format!(r#"{{"metadata":{metadata},"items":[]}}"#);
        assert!(matches!(reflector.listed(200, list.as_bytes()), Err(FollowError::Token(_))), "{metadata}");
    }
    let mut reflector = Reflector::<Thing>::of(THINGS);
    assert!(matches!(reflector.listed(403, b""), Err(FollowError::Refused { status: 403, .. })));
    assert!(reflector.listed(200, b"{}").is_err(), "no list");
    assert!(reflector.listed(200, br#"{"metadata":{"resourceVersion":"7"}}"#).is_err(), "no items");
}

/// A list of metadata alone, of which there is none, is written so. Proves: Q3
#[test]
fn a_list_without_objects_may_have_null_for_them() {
    let mut reflector = Reflector::<Thing>::of(THINGS);
    let listed = reflector.listed(200, br#"{"metadata":{"resourceVersion":"7"},"items":null}"#);
    assert!(matches!(listed, Ok(ListStep::Changed)), "{listed:?}");
    assert_eq!(reflector.objects(), Some(&Objects::new()));
}

/// Slices of a service without pods have null for their endpoints. Proves: W8
#[test]
fn a_member_that_is_null_stops_nobody() {
    let thing = |name: &str, version: u32| json!({"metadata": {"name": name, "labels": null, "resourceVersion": version.to_string()}, "value": null});
    let mut reflector = Reflector::<Thing>::of(THINGS);
    let list = json!({"metadata": {"resourceVersion": "7"}, "items": [thing("a", 6)]});
    let listed = reflector.listed(200, list.to_string().as_bytes());
    assert!(matches!(listed, Ok(ListStep::Changed)), "{listed:?}");
    let line = json!({"type": "ADDED", "object": thing("b", 8)});
    let heard = reflector.line(line.to_string().as_bytes());
    assert!(matches!(heard, Ok(ListStep::Changed)), "{heard:?}");
    assert_eq!(seen(&reflector), BTreeMap::from([("a".to_owned(), 0), ("b".to_owned(), 0)]));
}

#[test]
fn a_selection_stands_in_each_request() {
    let mut reflector = Reflector::<Thing>::selected(THINGS, "&labelSelector=a%3Db");
    let mut asked = Vec::new();
    for metadata in [r#"{"continue":"t"}"#, r#"{"resourceVersion":"7"}"#] {
        let ListRequest::List(path) = reflector.request() else { panic!("it is listed") };
        asked.push(path);
        reflector.listed(200, format!(r#"{{"metadata":{metadata},"items":[]}}"#).as_bytes()).expect("a page");
    }
    let ListRequest::Watch(path) = reflector.request() else { panic!("it is whole") };
    asked.push(path);
    assert!(asked.iter().all(|path| path.contains("&labelSelector=a%3Db&") || path.ends_with("=a%3Db")), "{asked:?}");
}
