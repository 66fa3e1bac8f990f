//! From a URL to what it names (AS-3…AS-7): a resource, an object, a subresource, or a path beside the API.

use std::borrow::Cow;

use batch_types::{names, selector::FieldSelector};
use http::Method;

use crate::{
    query::{Query, unescape_path},
    resources::{
        Endpoint, Resource, Subresource,
        registry::{self, Review},
    },
};

/// What a path names.
#[derive(Debug)]
pub enum Route {
    Resource(Target),
    Review(&'static Review),
    /// Discovery and other documents below `/api` and `/apis`: the trimmed path segments.
    Discovery(Discovery),
    /// Anything else, by its path: health, version, metrics, OpenAPI.
    Other(String),
    /// A path inside a served group that names nothing (404 with a Status).
    NoSuchResource,
    /// A path that no group serves (404 in plain text).
    NotFound,
}

/// Documents about the API itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Discovery {
    Api,
    Apis,
    Group(String),
    Resources { group: String, version: String },
}

/// A collection, an object of it, or a part of an object.
#[derive(Debug, Clone)]
pub struct Target {
    pub resource: &'static Resource,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<&'static Subresource>,
    /// Reached through a deprecated `/watch/` path.
    pub watch_path: bool,
}

/// Who wants to do what, for authorization, told from method and URL alone (as upstream's RequestInfo).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// Set for paths that are no resources.
    pub path: Option<String>,
}

impl Target {
    /// The key prefix of the collection in the store.
    pub fn prefix(&self) -> String {
        match &self.namespace {
            Some(namespace) if self.resource.namespaced => format!("{}/{namespace}/", self.resource.topic),
            _ => format!("{}/", self.resource.topic),
        }
    }

    /// The key of the named object.
    pub fn key(&self) -> String {
        key(self.resource, self.namespace.as_deref().unwrap_or_default(), self.name.as_deref().unwrap_or_default())
    }

    /// Something to be done rather than an object to be shown: a binding, an eviction, a token.
    pub fn is_action(&self) -> bool {
        match self.subresource {
            Some(part) => matches!(part.endpoint, Endpoint::Binding | Endpoint::Eviction | Endpoint::Token),
            None => self.resource.kind == "Binding",
        }
    }

    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// The store's key of an object.
pub fn key(resource: &Resource, namespace: &str, name: &str) -> String {
    if resource.namespaced {
        format!("{}/{namespace}/{name}", resource.topic)
    } else {
        format!("{}/{name}", resource.topic)
    }
}

/// Finds what a path names.
pub fn route(path: &str) -> Route {
    let Some(unescaped) = unescaped(path) else { return Route::NotFound };
    if path.contains("%2f") || path.contains("%2F") {
        // No name has a slash, and one that separates is not written like that (BI-31).
        return Route::NoSuchResource;
    }
    let segments: Vec<&str> = unescaped.split('/').collect();
    match segments.as_slice() {
        ["api"] => Route::Discovery(Discovery::Api),
        ["apis"] => Route::Discovery(Discovery::Apis),
        ["api", "v1"] => resources_of("", "v1"),
        ["api", "v1", rest @ ..] => in_group("", "v1", rest),
        ["api", ..] => Route::NoSuchResource,
        ["apis", group, ..] if !registry::serves_group(group) => Route::NotFound,
        ["apis", group] => Route::Discovery(Discovery::Group((*group).to_owned())),
        ["apis", group, version] => resources_of(group, version),
        ["apis", group, version, rest @ ..] => in_group(group, version, rest),
        _ => Route::Other(path.to_owned()),
    }
}

/// What authorization judges (AS-60); needs no served resource, so that unknown paths are refused alike.
pub fn attributes(method: &Method, path: &str, query: &Query) -> Attributes {
    let method_verb = method.as_str().to_ascii_lowercase();
    let other = || Attributes { verb: method_verb.clone(), path: Some(path.to_owned()), ..Attributes::default() };
    let Some(unescaped) = unescaped(path) else { return other() };
    let segments: Vec<&str> = unescaped.split('/').collect();
    let (group, rest) = match segments.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return other(),
    };
    let (watch_path, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() && !is_namespace_part(rest) => (*namespace, rest),
        rest => ("", rest),
    };
    let (resource, name, subresource) = match rest {
        [] => return other(),
        [resource] => (*resource, "", ""),
        [resource, name] => (*resource, *name, ""),
        [resource, name, subresource, ..] => (*resource, *name, *subresource),
    };
    let verb = match (method.as_str(), name.is_empty()) {
        ("GET" | "HEAD", true) if watch_path || query.flag("watch") => "watch",
        ("GET" | "HEAD", true) => "list",
        ("GET" | "HEAD", false) if watch_path => "watch",
        ("GET" | "HEAD", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ => "",
    };
    let namespace = if resource == "namespaces" { name } else { namespace };
    let selected = if matches!(verb, "list" | "watch") && name.is_empty() { selected_name(query) } else { None };
    Attributes {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: selected.unwrap_or_else(|| name.to_owned()),
        path: None,
    }
}

/// The one object that a list or watch asks for by `metadata.name=`, so that rules for names apply to it (AS-60).
fn selected_name(query: &Query) -> Option<String> {
    let selector: FieldSelector = query.get("fieldSelector")?.parse().ok()?;
    let name = selector.required_value("metadata.name").filter(|name| !name.is_empty())?;
    names::path_segment(name).is_empty().then(|| name.to_owned())
}

/// The path as it is routed: with its escapes resolved, so that a slash is one however it was sent, and without a single
/// trailing slash; `None` when an escape is malformed.
fn unescaped(path: &str) -> Option<Cow<'_, str>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    unescape_path(path.strip_suffix('/').unwrap_or(path))
}

/// `namespaces/x/status` and `…/finalize` are parts of a namespace, not resources inside it.
fn is_namespace_part(rest: &[&str]) -> bool {
    matches!(rest, ["status" | "finalize"])
}

fn resources_of(group: &str, version: &str) -> Route {
    if registry::serves(group, version) {
        Route::Discovery(Discovery::Resources { group: group.to_owned(), version: version.to_owned() })
    } else {
        Route::NoSuchResource
    }
}

fn in_group(group: &str, version: &str, rest: &[&str]) -> Route {
    if !registry::serves(group, version) {
        return Route::NoSuchResource;
    }
    let (watch_path, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() && !is_namespace_part(rest) => {
            (Some((*namespace).to_owned()), rest)
        }
        rest => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some((*name).to_owned()), None),
        [plural, name, subresource] => (*plural, Some((*name).to_owned()), Some(*subresource)),
        _ => return Route::NoSuchResource,
    };
    if let Some(review) = registry::review(group, version, plural) {
        return if name.is_none() && review.namespaced == namespace.is_some() {
            Route::Review(review)
        } else {
            Route::NoSuchResource
        };
    }
    let Some(resource) = registry::find(group, version, plural) else { return Route::NoSuchResource };
    // A namespaced object cannot be named without its namespace, nor a cluster-wide one inside a namespace.
    if (resource.namespaced && namespace.is_none() && name.is_some()) || (!resource.namespaced && namespace.is_some()) {
        return Route::NoSuchResource;
    }
    let subresource = match subresource.map(|wanted| resource.subresource(wanted)) {
        None => None,
        Some(Some(subresource)) => Some(subresource),
        Some(None) => return Route::NoSuchResource,
    };
    Route::Resource(Target { resource, namespace, name, subresource, watch_path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        match route(path) {
            Route::Resource(target) => target,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn objects_and_their_parts_are_found() {
        let job = target("/apis/batch/v1/namespaces/a/jobs/b/status");
        assert_eq!((job.resource.kind, job.key().as_str()), ("Job", "jobs.batch/a/b"));
        assert_eq!(job.subresource.map(|part| part.name), Some("status"));
        let namespace = target("/api/v1/namespaces/a/finalize");
        assert_eq!((namespace.resource.kind, namespace.name()), ("Namespace", "a"));
        let pods = target("/api/v1/watch/pods/");
        assert_eq!((pods.prefix().as_str(), pods.watch_path), ("pods/", true));
    }

    #[test]
    fn unknown_paths_are_told_apart() {
        assert!(matches!(route("/apis/forest/v1/trees"), Route::NotFound));
        assert!(matches!(route("/apis/batch/v2"), Route::NoSuchResource));
        assert!(matches!(route("/api/v1/namespaces/a/configmaps/b/leaf"), Route::NoSuchResource));
        assert!(matches!(route("/healthz"), Route::Other(_)));
        for escaped in ["configmaps/b%2Fc", "configmaps%2fb", "configmaps/..%2fb"] {
            assert!(matches!(route(&format!("/api/v1/namespaces/a/{escaped}")), Route::NoSuchResource), "{escaped}");
        }
    }

    #[test]
    fn attributes_are_those_of_the_request() {
        let query = Query::parse(Some("watch=1"));
        let watching = attributes(&Method::GET, "/api/v1/namespaces/a/pods", &query);
        assert_eq!((watching.verb.as_str(), watching.namespace.as_str()), ("watch", "a"));
        let path = attributes(&Method::GET, "/metrics", &Query::default());
        assert_eq!(path.path.as_deref(), Some("/metrics"));
    }
}
