//! A collection of the Kubernetes API, followed: listed in pages, then watched line by line, listed anew where the server has
//! forgotten what came between ("Efficient detection of changes" in the API's concepts).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ObjectMeta;
use crate::reading::{self, Items};

/// Objects of a page: few enough that an answer stays below the client's bound, with objects of some KiB. Where they are larger, a page
/// has fewer ([`Reflector::too_large`]).
const PAGE: u32 = 100;
/// Seconds after which a server ends a watch: then the connection is a new one, by the certificate of then.
const WATCH_SECONDS: u32 = 300;
/// The server has forgotten the version that was named.
const GONE: u16 = 410;

/// A collection that is followed: where it is, and in which form its objects are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collection {
    /// Path on the apiserver.
    pub path: &'static str,
    /// Whether metadata alone is asked for (`PartialObjectMetadata` of `meta/v1`).
    pub metadata_only: bool,
}

/// Object of a collection, with the fields that its reader uses: a change of others is none.
pub trait Resource: DeserializeOwned + PartialEq {
    /// Metadata of the object.
    fn meta(&self) -> &ObjectMeta;
}

/// Objects of a collection by namespace and name.
pub type Objects<T> = BTreeMap<(String, String), T>;

/// Request that a follower makes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListRequest {
    /// GET this path, whose answer goes to [`Reflector::listed`].
    List(String),
    /// GET this path, whose lines go to [`Reflector::line`] one by one.
    Watch(String),
}

/// State that a follower is in after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListStep {
    /// The objects are as they were.
    Same,
    /// The objects are others now.
    Changed,
    /// The objects are as they were, and the next request is another one.
    Anew,
}

/// Why an answer leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The server refuses.
    #[error("`{path}`: the Kubernetes API answers {status}")]
    Refused {
        /// The collection.
        path: &'static str,
        /// HTTP status.
        status: u16,
    },
    /// The answer is no list of objects, or a line no event.
    #[error("`{path}`: read what the Kubernetes API answers")]
    Unreadable {
        /// The collection.
        path: &'static str,
        /// Fault of what was read.
        #[source]
        error: serde_json::Error,
    },
    /// A page leads on by a token that is none.
    #[error("`{0}`: a page of the Kubernetes API leads nowhere")]
    Token(&'static str),
}

/// Follower of one collection.
#[derive(Debug)]
pub struct Reflector<T> {
    collection: Collection,
    /// Query by which objects are selected, behind other parameters.
    selection: String,
    /// Objects of a page.
    page: u32,
    state: State<T>,
    objects: Option<Objects<T>>,
}

#[derive(Debug)]
enum State<T> {
    /// In the middle of a list, with what its pages held so far.
    Lists { token: String, gathered: Objects<T> },
    /// From the version on that was seen last.
    Watches { version: String },
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: ListMeta,
    #[serde(borrow, deserialize_with = "Items::deserialize")]
    items: Items<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    token: String,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: EventKind,
    object: serde_json::Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// Object of which nothing but its version is known.
#[derive(Deserialize)]
struct Bookmark {
    metadata: ListMeta,
}

/// Why a watch is over (`Status` of `meta/v1`).
#[derive(Deserialize)]
struct WatchStatus {
    #[serde(default)]
    code: u16,
}

impl<T> State<T> {
    /// Beginning of a list.
    const fn first() -> Self {
        Self::Lists { token: String::new(), gathered: BTreeMap::new() }
    }
}

impl<T: Resource> Reflector<T> {
    /// Follows a collection from the beginning.
    #[must_use]
    pub const fn of(collection: Collection) -> Self {
        Self { collection, selection: String::new(), page: PAGE, state: State::first(), objects: None }
    }

    /// Follows those objects alone that the query selects: `&labelSelector=…&fieldSelector=…`, as they stand in a path.
    #[must_use]
    pub fn selected(collection: Collection, query: &str) -> Self {
        Self { selection: query.to_owned(), ..Self::of(collection) }
    }

    /// Takes that a page was larger than the client reads: the list begins anew, with half as many objects a page. Says whether there can
    /// be fewer; one object is read by every client.
    pub fn too_large(&mut self) -> bool {
        let is_more = self.page > 1;
        self.page = (self.page / 2).max(1);
        self.state = State::first();
        is_more
    }

    /// The objects, as far as they have been heard of; none before the first list is whole.
    #[must_use]
    pub const fn objects(&self) -> Option<&Objects<T>> {
        self.objects.as_ref()
    }

    /// The request that is to be made next.
    #[must_use]
    pub fn request(&self) -> ListRequest {
        let (path, page, selection) = (self.collection.path, self.page, &self.selection);
        match &self.state {
            State::Lists { token, .. } if token.is_empty() => {
                ListRequest::List(format!("{path}?limit={page}{selection}"))
            }
            State::Lists { token, .. } => ListRequest::List(format!("{path}?limit={page}{selection}&continue={token}")),
            State::Watches { version } => ListRequest::Watch(format!(
                "{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}{selection}&resourceVersion={version}"
            )),
        }
    }

    /// Form in which the next request is answered: an `Accept` header.
    #[must_use]
    pub const fn accepts(&self) -> &'static str {
        match (self.collection.metadata_only, &self.state) {
            (false, _) => "application/json",
            (true, State::Lists { .. }) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            (true, State::Watches { .. }) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }

    /// Takes a page. A list that the server has forgotten begins anew.
    ///
    /// # Errors
    /// [`FollowError`]: the list is to be begun anew, later.
    pub fn listed(&mut self, status: u16, body: &[u8]) -> Result<ListStep, FollowError> {
        let path = self.collection.path;
        let State::Lists { gathered, .. } = &mut self.state else { return Ok(ListStep::Same) };
        let mut gathered = std::mem::take(gathered);
        self.state = State::first();
        match status {
            200 => {}
            GONE => return Ok(ListStep::Anew),
            status => return Err(FollowError::Refused { path, status }),
        }
        let unreadable = |error| FollowError::Unreadable { path, error };
        let Page { metadata, items } = serde_json::from_slice(body).map_err(unreadable)?;
        let items: Vec<T> = items.objects().collect::<Result<_, _>>().map_err(unreadable)?;
        let ListMeta { resource_version: version, token } = metadata;
        // Both go into the next request's path as they are.
        if ![&version, &token].iter().all(|word| word.bytes().all(is_of_a_token)) {
            return Err(FollowError::Token(path));
        }
        gathered.extend(items.into_iter().map(|item| (key(item.meta()), item)));
        if token.is_empty() {
            self.state = State::Watches { version };
            self.objects = Some(gathered);
            Ok(ListStep::Changed)
        } else {
            self.state = State::Lists { token, gathered };
            Ok(ListStep::Anew)
        }
    }

    /// Takes the status of a watch that begins; whether lines follow.
    ///
    /// # Errors
    /// [`FollowError::Refused`].
    pub fn watching(&mut self, status: u16) -> Result<bool, FollowError> {
        match status {
            200 => Ok(true),
            GONE => {
                self.state = State::first();
                Ok(false)
            }
            status => Err(FollowError::Refused { path: self.collection.path, status }),
        }
    }

    /// Takes a line of a watch. After [`ListStep::Anew`] no other line of it counts.
    ///
    /// # Errors
    /// [`FollowError`]: the collection is to be listed anew.
    pub fn line(&mut self, line: &[u8]) -> Result<ListStep, FollowError> {
        let event = self.event(line);
        if matches!(event, Ok(ListStep::Anew) | Err(_)) {
            self.state = State::first();
        }
        event
    }

    fn event(&mut self, line: &[u8]) -> Result<ListStep, FollowError> {
        let path = self.collection.path;
        let unreadable = |error| FollowError::Unreadable { path, error };
        let (State::Watches { version }, Some(objects)) = (&mut self.state, &mut self.objects) else {
            return Ok(ListStep::Anew);
        };
        let Event { kind, object } = serde_json::from_slice(line).map_err(unreadable)?;
        if kind == EventKind::Error {
            let WatchStatus { code } = serde_json::from_value(object).map_err(unreadable)?;
            // Whatever it was: what came after the last version is not known.
            return if code == GONE { Ok(ListStep::Anew) } else { Err(FollowError::Refused { path, status: code }) };
        }
        let Bookmark { metadata } = Bookmark::deserialize(&object).map_err(unreadable)?;
        if !metadata.resource_version.bytes().all(is_of_a_token) {
            return Err(FollowError::Token(path));
        }
        let changed = match kind {
            EventKind::Bookmark | EventKind::Error => ListStep::Same,
            EventKind::Added | EventKind::Modified => {
                let object: T = reading::object(object).map_err(unreadable)?;
                let key = key(object.meta());
                let is_same = objects.get(&key) == Some(&object);
                objects.insert(key, object);
                if is_same { ListStep::Same } else { ListStep::Changed }
            }
            EventKind::Deleted => {
                let object: T = reading::object(object).map_err(unreadable)?;
                match objects.remove(&key(object.meta())) {
                    Some(_) => ListStep::Changed,
                    None => ListStep::Same,
                }
            }
        };
        *version = metadata.resource_version;
        Ok(changed)
    }
}

fn key(meta: &ObjectMeta) -> (String, String) {
    (meta.namespace.clone(), meta.name.clone())
}

/// Whether a byte may stand in a version or a token: tokens are base64 of URLs (`staging/src/k8s.io/apiserver`, `continue.go`).
const fn is_of_a_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests;
