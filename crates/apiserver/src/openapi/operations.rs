//! What can be done at which path, told from the table of served resources. How a document version writes it down
//! is the business of the writers.

use std::collections::BTreeMap;

use api_schema::{Type, registry};

use super::{
    names,
    parameters::{self, Parameter},
    types,
};
use crate::resources::{
    Endpoint, Resource, Subresource,
    registry::{GROUPS, RESOURCES, REVIEWS, Review},
};

/// The operations at one path.
#[derive(Debug, Default)]
pub struct Path {
    /// By method, in lower case.
    pub operations: BTreeMap<&'static str, Operation>,
}

/// One method of a path.
#[derive(Debug)]
pub struct Operation {
    pub id: String,
    pub description: String,
    pub tag: String,
    /// `x-kubernetes-action` and the kind acted on; discovery has neither.
    pub subject: Option<Subject>,
    /// Sorted by name.
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    pub answer: Answer,
    pub codes: &'static [u16],
}

#[derive(Debug, Clone)]
pub struct Subject {
    pub action: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub struct Body {
    pub ty: &'static Type,
    pub required: bool,
    pub is_patch: bool,
}

/// What an operation answers with.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    Object(&'static Type),
    /// An object that exists as JSON only.
    Json(&'static Type),
    /// An object, or a stream of events when the client watches.
    Stream(&'static Type),
    Text,
}

/// Paths by URL.
pub type Paths = BTreeMap<String, Path>;

/// Everything below `/api/v1` or `/apis/<group>/<version>`.
pub fn of_version(group: &'static str, version: &'static str) -> Paths {
    let base = Base { group, version, url: url_of(group, version) };
    let mut paths = Paths::new();
    let id = format!("get{}APIResources", names::id_part(group, version));
    let tag = names::tag(group, version);
    let resources = discovery(id, "get available resources", tag, "APIResourceList");
    add(&mut paths, format!("{}/", base.url), "get", resources);
    for resource in RESOURCES.iter().filter(|resource| (resource.group, resource.version) == (group, version)) {
        base.resource(resource, &mut paths);
    }
    for review in REVIEWS.iter().filter(|review| (review.group, review.version) == (group, version)) {
        base.review(review, &mut paths);
    }
    paths
}

/// `/api/`: the versions of the core group.
pub fn of_api() -> Paths {
    let operation =
        discovery("getCoreAPIVersions".to_owned(), "get available API versions", "core".to_owned(), "APIVersions");
    single("/api/".to_owned(), operation)
}

/// `/apis/`: the groups.
pub fn of_apis() -> Paths {
    let operation =
        discovery("getAPIVersions".to_owned(), "get available API versions", "apis".to_owned(), "APIGroupList");
    single("/apis/".to_owned(), operation)
}

/// `/apis/<group>/`: the versions of a group.
pub fn of_group(group: &str) -> Paths {
    let short = names::short_group(group);
    let id = format!("get{}APIGroup", names::capitalized(&short));
    single(format!("/apis/{group}/"), discovery(id, "get information of a group", short, "APIGroup"))
}

/// `/version/`.
pub fn of_server_version() -> Paths {
    let description = "get the version information for this server";
    let mut operation = discovery("getCodeVersion".to_owned(), description, "version".to_owned(), "Info");
    operation.answer = Answer::Json(types::own("Info"));
    single("/version/".to_owned(), operation)
}

/// All of the above.
pub fn all() -> Paths {
    let mut paths = of_api();
    paths.extend(of_apis());
    paths.extend(of_server_version());
    for group in GROUPS {
        if !group.is_empty() {
            paths.extend(of_group(group));
        }
        paths.extend(of_version(group, "v1"));
    }
    paths
}

/// Where a version is served: `/api/v1`, `/apis/batch/v1`.
pub fn url_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

const READ: &[u16] = &[200];
const CREATED: &[u16] = &[200, 201, 202];
const WRITTEN: &[u16] = &[200, 201];
const DELETED: &[u16] = &[200, 202];

/// A group-version, as the beginning of everything in it.
struct Base {
    group: &'static str,
    version: &'static str,
    url: String,
}

impl Base {
    fn resource(&self, resource: &'static Resource, paths: &mut Paths) {
        let scope = Scope::of(resource.namespaced);
        let collection = format!("{}{}/{}", self.url, scope.path, resource.plural);
        let item = format!("{collection}/{{name}}");
        for verb in resource.verbs {
            match *verb {
                "create" => add(paths, collection.clone(), "post", self.create(resource, &scope)),
                "list" => self.lists(resource, &scope, paths),
                "watch" => self.watches(resource, &scope, paths),
                "deletecollection" => {
                    add(paths, collection.clone(), "delete", self.delete_collection(resource, &scope));
                }
                "get" => add(paths, item.clone(), "get", self.read(resource, &scope, None)),
                "update" => add(paths, item.clone(), "put", self.replace(resource, &scope, None)),
                "patch" => add(paths, item.clone(), "patch", self.patch(resource, &scope, None)),
                "delete" => add(paths, item.clone(), "delete", self.delete(resource, &scope)),
                other => unreachable!("`{other}` is no verb of the registry"),
            }
        }
        for part in resource.subresources {
            let url = format!("{item}/{}", part.name);
            for verb in part.verbs {
                let (method, operation) = match *verb {
                    "get" => ("get", self.read(resource, &scope, Some(part))),
                    "update" => ("put", self.replace(resource, &scope, Some(part))),
                    "patch" => ("patch", self.patch(resource, &scope, Some(part))),
                    "create" => ("post", self.create_part(resource, &scope, part)),
                    other => unreachable!("`{other}` is no verb of a subresource"),
                };
                add(paths, url.clone(), method, operation);
            }
        }
    }

    fn create(&self, resource: &Resource, scope: &Scope) -> Operation {
        let ty = self.kind(resource.kind);
        let act = Act { action: "post", verb: "create", noun: resource.kind.to_owned(), kind: resource.kind };
        let mut operation = self.operation(act, scope, format!("create a {}", resource.kind), Answer::Object(ty));
        operation.parameters = scope.parameters(None, parameters::WRITE);
        operation.body = Some(Body::object(ty));
        operation.codes = CREATED;
        operation
    }

    /// Subresources that take an object of their own kind: bindings, evictions, token requests.
    fn create_part(&self, resource: &Resource, scope: &Scope, part: &Subresource) -> Operation {
        let (group, version, kind) = part.kind.unwrap_or((resource.group, resource.version, resource.kind));
        let ty = kind_of(group, version, kind);
        let act = Act { action: "post", verb: "create", noun: noun(resource, Some(part)), kind };
        let description = format!("create {} of a {}", part.name, resource.kind);
        let mut operation = self.operation(act, scope, description, Answer::Object(ty));
        operation.subject = Some(Subject { action: "post", group, version, kind });
        operation.parameters = scope.parameters(Some(resource.kind), parameters::WRITE);
        operation.body = Some(Body::object(ty));
        operation.codes = CREATED;
        operation
    }

    fn read(&self, resource: &Resource, scope: &Scope, part: Option<&Subresource>) -> Operation {
        let is_log = part.is_some_and(|part| matches!(part.endpoint, Endpoint::Log));
        let answer = if is_log { Answer::Text } else { Answer::Object(self.kind(resource.kind)) };
        let act = Act { action: "get", verb: "read", noun: noun(resource, part), kind: resource.kind };
        let description = format!("read {}the specified {}", of(part), resource.kind);
        let mut operation = self.operation(act, scope, description, answer);
        operation.parameters = scope.parameters(Some(resource.kind), if is_log { parameters::LOG } else { &[] });
        operation
    }

    fn replace(&self, resource: &Resource, scope: &Scope, part: Option<&Subresource>) -> Operation {
        let ty = self.kind(resource.kind);
        let act = Act { action: "put", verb: "replace", noun: noun(resource, part), kind: resource.kind };
        let description = format!("replace {}the specified {}", of(part), resource.kind);
        let mut operation = self.operation(act, scope, description, Answer::Object(ty));
        operation.parameters = scope.parameters(Some(resource.kind), parameters::WRITE);
        operation.body = Some(Body::object(ty));
        operation.codes = WRITTEN;
        operation
    }

    fn patch(&self, resource: &Resource, scope: &Scope, part: Option<&Subresource>) -> Operation {
        let act = Act { action: "patch", verb: "patch", noun: noun(resource, part), kind: resource.kind };
        let description = format!("partially update {}the specified {}", of(part), resource.kind);
        let mut operation = self.operation(act, scope, description, Answer::Object(self.kind(resource.kind)));
        operation.parameters = scope.parameters(Some(resource.kind), parameters::PATCH);
        operation.body = Some(Body { ty: types::own("Patch"), required: true, is_patch: true });
        operation.codes = WRITTEN;
        operation
    }

    fn delete(&self, resource: &Resource, scope: &Scope) -> Operation {
        let with_object = resource.strategy.answers_delete_with_object();
        let ty = if with_object { self.kind(resource.kind) } else { named("Status") };
        let act = Act { action: "delete", verb: "delete", noun: resource.kind.to_owned(), kind: resource.kind };
        let mut operation = self.operation(act, scope, format!("delete a {}", resource.kind), Answer::Object(ty));
        operation.parameters = scope.parameters(Some(resource.kind), parameters::DELETE);
        operation.body = Some(Body { required: false, ..Body::object(named("DeleteOptions")) });
        operation.codes = DELETED;
        operation
    }

    fn delete_collection(&self, resource: &Resource, scope: &Scope) -> Operation {
        let act =
            Act { action: "deletecollection", verb: "delete", noun: resource.kind.to_owned(), kind: resource.kind };
        let description = format!("delete collection of {}", resource.kind);
        let mut operation = self.operation(act, scope, description, Answer::Object(named("Status")));
        operation.parameters = scope.parameters(None, parameters::DELETE_COLLECTION);
        operation.body = Some(Body { required: false, ..Body::object(named("DeleteOptions")) });
        operation
    }

    /// In a namespace and, for namespaced kinds, in all of them.
    fn lists(&self, resource: &Resource, scope: &Scope, paths: &mut Paths) {
        let kind = resource.kind;
        let ty = self.kind(&format!("{kind}List"));
        let list = |scope: &Scope, noun: String| {
            let act = Act { action: "list", verb: "list", noun, kind };
            let description = format!("list or watch objects of kind {kind}");
            let mut operation = self.operation(act, scope, description, Answer::Stream(ty));
            operation.parameters = scope.parameters(None, parameters::LIST);
            operation
        };
        let url = format!("{}{}/{}", self.url, scope.path, resource.plural);
        add(paths, url, "get", list(scope, kind.to_owned()));
        if resource.namespaced {
            let url = format!("{}/{}", self.url, resource.plural);
            add(paths, url, "get", list(&Scope::of(false), format!("{kind}ForAllNamespaces")));
        }
    }

    /// The deprecated paths below `/watch`.
    fn watches(&self, resource: &Resource, scope: &Scope, paths: &mut Paths) {
        let kind = resource.kind;
        let instead = "Deprecated: use the list operation with its watch parameter";
        let watch = |action, scope: &Scope, noun: String, name: Option<&str>| {
            let description = match name {
                None => format!("watch changes to a list of {kind}. {instead}."),
                Some(_) => format!("watch changes to one {kind}. {instead} and a fieldSelector."),
            };
            let act = Act { action, verb: "watch", noun, kind };
            let mut operation = self.operation(act, scope, description, Answer::Stream(types::own("WatchEvent")));
            operation.parameters = scope.parameters(name, parameters::LIST);
            operation
        };
        let url = format!("{}/watch{}/{}", self.url, scope.path, resource.plural);
        let item = format!("{url}/{{name}}");
        add(paths, url, "get", watch("watchlist", scope, format!("{kind}List"), None));
        add(paths, item, "get", watch("watch", scope, kind.to_owned(), Some(kind)));
        if resource.namespaced {
            let url = format!("{}/watch/{}", self.url, resource.plural);
            let noun = format!("{kind}ListForAllNamespaces");
            add(paths, url, "get", watch("watchlist", &Scope::of(false), noun, None));
        }
    }

    fn review(&self, review: &Review, paths: &mut Paths) {
        let scope = Scope::of(review.namespaced);
        let ty = self.kind(review.kind);
        let act = Act { action: "post", verb: "create", noun: review.kind.to_owned(), kind: review.kind };
        let mut operation = self.operation(act, &scope, format!("create a {}", review.kind), Answer::Object(ty));
        operation.parameters = scope.parameters(None, parameters::WRITE);
        operation.body = Some(Body::object(ty));
        operation.codes = CREATED;
        add(paths, format!("{}{}/{}", self.url, scope.path, review.plural), "post", operation);
    }

    /// An operation with what all of them have.
    fn operation(&self, act: Act, scope: &Scope, description: String, answer: Answer) -> Operation {
        let qualifier = if act.action == "deletecollection" { "Collection" } else { "" };
        let place = names::id_part(self.group, self.version);
        Operation {
            id: format!("{}{place}{qualifier}{}{}", act.verb, scope.id, act.noun),
            description,
            tag: names::tag(self.group, self.version),
            subject: Some(Subject { action: act.action, group: self.group, version: self.version, kind: act.kind }),
            parameters: Vec::new(),
            body: None,
            answer,
            codes: READ,
        }
    }

    fn kind(&self, kind: &str) -> &'static Type {
        kind_of(self.group, self.version, kind)
    }
}

/// What an operation does to what; the verb and noun make its id.
struct Act {
    /// `x-kubernetes-action`.
    action: &'static str,
    verb: &'static str,
    /// The kind, with what part of it or how many.
    noun: String,
    kind: &'static str,
}

impl Body {
    fn object(ty: &'static Type) -> Self {
        Self { ty, required: true, is_patch: false }
    }
}

/// Inside a namespace, or in the whole cluster.
struct Scope {
    path: &'static str,
    id: &'static str,
    namespaced: bool,
}

impl Scope {
    fn of(namespaced: bool) -> Self {
        if namespaced {
            Self { path: "/namespaces/{namespace}", id: "Namespaced", namespaced }
        } else {
            Self { path: "", id: "", namespaced }
        }
    }

    /// The parameters of an operation on a collection, or on one object of `named` kind.
    fn parameters(&self, named: Option<&str>, query: &[&str]) -> Vec<Parameter> {
        let mut all: Vec<Parameter> =
            query.iter().chain(parameters::PRETTY).map(|name| parameters::query(name)).collect();
        all.extend(named.map(parameters::name));
        if self.namespaced {
            all.push(parameters::namespace());
        }
        all.sort_by_key(|parameter| parameter.name);
        all
    }
}

fn discovery(id: String, description: &str, tag: String, ty: &str) -> Operation {
    Operation {
        id,
        description: description.to_owned(),
        tag,
        subject: None,
        parameters: Vec::new(),
        body: None,
        answer: Answer::Object(types::own(ty)),
        codes: READ,
    }
}

fn single(url: String, operation: Operation) -> Paths {
    let mut paths = Paths::new();
    add(&mut paths, url, "get", operation);
    paths
}

fn add(paths: &mut Paths, url: String, method: &'static str, operation: Operation) {
    paths.entry(url).or_default().operations.insert(method, operation);
}

/// `status of ` or nothing.
fn of(part: Option<&Subresource>) -> String {
    part.map_or_else(String::new, |part| format!("{} of ", part.name))
}

fn noun(resource: &Resource, part: Option<&Subresource>) -> String {
    format!("{}{}", resource.kind, part.map_or_else(String::new, |part| names::capitalized(part.name)))
}

/// The type of a served kind. The registry of resources names only types that exist; a test goes through them all.
fn kind_of(group: &str, version: &str, kind: &str) -> &'static Type {
    let api_version = names::api_version(group, version);
    registry().kind(&api_version, kind).unwrap_or_else(|| panic!("{api_version} has no kind {kind}"))
}

fn named(name: &str) -> &'static Type {
    types::find(name).unwrap_or_else(|| panic!("no type {name}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn ids(paths: &Paths) -> Vec<(String, &'static str, String)> {
        paths
            .iter()
            .flat_map(|(url, path)| {
                path.operations.iter().map(|(method, operation)| (url.clone(), *method, operation.id.clone()))
            })
            .collect()
    }

    #[test]
    fn operations_are_where_upstream_has_them() {
        let found = ids(&all());
        for (url, method, id) in [
            ("/apis/batch/v1/", "get", "getBatchV1APIResources"),
            ("/apis/batch/v1/jobs", "get", "listBatchV1JobForAllNamespaces"),
            ("/apis/batch/v1/namespaces/{namespace}/jobs", "post", "createBatchV1NamespacedJob"),
            ("/apis/batch/v1/namespaces/{namespace}/jobs", "delete", "deleteBatchV1CollectionNamespacedJob"),
            ("/apis/batch/v1/namespaces/{namespace}/jobs/{name}", "get", "readBatchV1NamespacedJob"),
            ("/apis/batch/v1/namespaces/{namespace}/jobs/{name}/status", "patch", "patchBatchV1NamespacedJobStatus"),
            ("/apis/batch/v1/watch/jobs", "get", "watchBatchV1JobListForAllNamespaces"),
            ("/api/v1/watch/nodes/{name}", "get", "watchCoreV1Node"),
            ("/api/v1/nodes", "delete", "deleteCoreV1CollectionNode"),
            ("/api/v1/namespaces/{name}/finalize", "put", "replaceCoreV1NamespaceFinalize"),
            ("/api/v1/namespaces/{namespace}/pods/{name}/eviction", "post", "createCoreV1NamespacedPodEviction"),
            ("/api/v1/namespaces/{namespace}/pods/{name}/log", "get", "readCoreV1NamespacedPodLog"),
            ("/apis/authentication.k8s.io/v1/tokenreviews", "post", "createAuthenticationV1TokenReview"),
            ("/version/", "get", "getCodeVersion"),
        ] {
            assert!(found.contains(&(url.to_owned(), method, id.to_owned())), "{method} {url} {id}");
        }
    }

    #[test]
    fn operation_ids_are_unique() {
        let found = ids(&all());
        let unique: HashSet<&String> = found.iter().map(|(_, _, id)| id).collect();
        assert_eq!(unique.len(), found.len());
    }

    #[test]
    fn path_parameters_are_those_of_the_url() {
        for (url, path) in all() {
            for operation in path.operations.values() {
                for name in ["name", "namespace"] {
                    let named = operation.parameters.iter().any(|parameter| parameter.name == name);
                    assert_eq!(named, url.contains(&format!("{{{name}}}")), "{}", operation.id);
                }
            }
        }
    }
}
