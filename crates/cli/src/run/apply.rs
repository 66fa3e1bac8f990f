//! Brings the objects of manifests into a server: everything that Jobs need first, the Jobs last, and nothing at all if
//! one of them is refused.

use std::collections::HashMap;

use anyhow::{Context as _, anyhow};
use batch_types::constants::value::BUILT_IN_CONTROLLER;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::discovery::{Scope, oneshot};
use serde_json::Value;

use super::command_job::COMMAND_LINE;
use super::manifest::{Document, Origin};
use crate::failure::{Failure, plain};

/// In whose name fields are set.
const FIELD_MANAGER: &str = "tally-run";

const NAMESPACE_DEFAULT: &str = "default";

/// Objects that the server has agreed to.
#[derive(Debug)]
pub(crate) struct Checked {
    documents: Vec<(Document, Endpoint)>,
    /// The objects as the server would keep them.
    answers: Vec<Document>,
    namespace: String,
}

/// Where objects of a kind are sent.
#[derive(Debug, Clone)]
struct Endpoint {
    resource: ApiResource,
    scope: Scope,
}

/// Makes the namespaces that are named and asks the server about every object without keeping any.
///
/// A namespace that is named but not described is made too: a manifest from a cluster shall run as it is.
pub(crate) async fn check(
    client: &Client,
    documents: Vec<Document>,
    namespace: Option<&str>,
) -> Result<Checked, Failure> {
    let namespace = namespace.unwrap_or(NAMESPACE_DEFAULT).to_owned();
    refuse_the_same_job_twice(&documents, &namespace)?;
    let mut endpoints = HashMap::new();
    let mut known = Vec::new();
    for document in documents {
        let endpoint = find(client, &document, &mut endpoints).await?;
        refuse_what_nobody_runs(&document)?;
        known.push((document, endpoint));
    }
    known.sort_by_key(|(document, _)| rank(document));
    let mut checked = Checked { documents: known, answers: Vec::new(), namespace };
    for (document, endpoint) in &checked.documents {
        if document.kind() == "Namespace" {
            apply(client, document, endpoint, &checked.namespace).await?;
        }
    }
    make_namespaces(client, &checked).await?;
    for (document, endpoint) in &checked.documents {
        let object = create(client, document, endpoint, &checked.namespace, true).await?;
        checked.answers.push(Document { origin: document.origin.clone(), object });
    }
    Ok(checked)
}

impl Checked {
    /// What the server would keep.
    pub(crate) fn answers(&self) -> &[Document] {
        &self.answers
    }

    /// Keeps everything. The Jobs, as they are now, in the order of their manifests.
    pub(crate) async fn create(self, client: &Client) -> Result<Vec<Job>, Failure> {
        let mut jobs = Vec::new();
        for (document, endpoint) in &self.documents {
            if document.is("batch/v1", "Job") {
                let created = create(client, document, endpoint, &self.namespace, false).await?;
                jobs.push(serde_json::from_value(created).context("read the Job that was created")?);
            } else if document.kind() != "Namespace" {
                apply(client, document, endpoint, &self.namespace).await?;
            }
        }
        Ok(jobs)
    }
}

/// Namespaces first, Jobs last; what is between keeps its order.
fn rank(document: &Document) -> u8 {
    match document.kind() {
        "Namespace" => 0,
        "Job" => 2,
        _ => 1,
    }
}

async fn find(
    client: &Client,
    document: &Document,
    known: &mut HashMap<(String, String), Endpoint>,
) -> Result<Endpoint, Failure> {
    let key = (document.api_version().to_owned(), document.kind().to_owned());
    if let Some(endpoint) = known.get(&key) {
        return Ok(endpoint.clone());
    }
    let (group, version) = document.api_version().split_once('/').unwrap_or(("", document.api_version()));
    let kind = GroupVersionKind::gvk(group, version, document.kind());
    let (resource, capabilities) = oneshot::pinned_kind(client, &kind).await.map_err(|error| {
        tracing::debug!(%error, "look for a kind");
        let what = format!("there is no kind `{}` in `{}`", document.kind(), document.api_version());
        Failure::usage(anyhow!("{}: {what}", document.origin))
            .hint("tally runs Jobs, and knows what they use: ConfigMap, Secret, ServiceAccount, Namespace and the like")
    })?;
    let endpoint = Endpoint { resource, scope: capabilities.scope };
    known.insert(key, endpoint.clone());
    Ok(endpoint)
}

/// A Job that is handed to another controller would wait forever here.
fn refuse_what_nobody_runs(document: &Document) -> Result<(), Failure> {
    match document.object["spec"]["managedBy"].as_str() {
        Some(manager) if document.is("batch/v1", "Job") && manager != BUILT_IN_CONTROLLER => {
            let error = anyhow!("{}: spec.managedBy: no controller `{manager}` runs here", document.origin);
            Err(Failure::usage(error).hint("leave the field out to run this Job with `tally run`"))
        }
        _ => Ok(()),
    }
}

/// The server would refuse the second one when the first already runs.
fn refuse_the_same_job_twice(documents: &[Document], namespace: &str) -> Result<(), Failure> {
    let mut seen: HashMap<(&str, &str), &Origin> = HashMap::new();
    for document in documents.iter().filter(|document| document.is("batch/v1", "Job")) {
        let metadata = &document.object["metadata"];
        let Some(name) = metadata["name"].as_str() else { continue };
        let key = (metadata["namespace"].as_str().unwrap_or(namespace), name);
        if let Some(first) = seen.insert(key, &document.origin) {
            let error = anyhow!("{}: Job `{name}` is already in {first}", document.origin);
            return Err(Failure::usage(error)
                .hint("give one of them another name, or say `generateName` in its place; nothing was started"));
        }
    }
    Ok(())
}

async fn make_namespaces(client: &Client, checked: &Checked) -> Result<(), Failure> {
    let mut names: Vec<&str> = vec![&checked.namespace];
    for (document, endpoint) in &checked.documents {
        if endpoint.scope == Scope::Namespaced {
            names.extend(document.object["metadata"]["namespace"].as_str());
        }
    }
    names.sort_unstable();
    names.dedup();
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Namespace>(&());
    for name in names {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        match send(client, http::Method::POST, &path(&resource, None), "application/json", "", &object).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            other => {
                other.map_err(|error| {
                    let error = plain(error).context(format!("make the namespace `{name}`"));
                    Failure::usage(error).hint("name a namespace of lower case letters, digits and `-`")
                })?;
            }
        }
    }
    Ok(())
}

async fn create(
    client: &Client,
    document: &Document,
    endpoint: &Endpoint,
    namespace: &str,
    dry_run: bool,
) -> Result<Value, Failure> {
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    let query = format!("fieldManager={FIELD_MANAGER}&fieldValidation=Strict{dry_run}");
    let path = path(&endpoint.resource, namespace_of(document, endpoint, namespace));
    let sent = send(client, http::Method::POST, &path, "application/json", &query, &document.object).await;
    match sent {
        // Asked before it is applied, what exists is fine; a Job cannot be run a second time.
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" && document.kind() != "Job" => {
            Ok(document.object.clone())
        }
        sent => sent.map_err(|error| refusal(document, error)),
    }
}

async fn apply(client: &Client, document: &Document, endpoint: &Endpoint, namespace: &str) -> Result<(), Failure> {
    if document.object["metadata"]["name"].is_null() {
        create(client, document, endpoint, namespace, false).await?;
        return Ok(());
    }
    let query = format!("fieldManager={FIELD_MANAGER}&fieldValidation=Strict&force=true");
    let path = format!("{}/{}", path(&endpoint.resource, namespace_of(document, endpoint, namespace)), document.name());
    send(client, http::Method::PATCH, &path, "application/apply-patch+yaml", &query, &document.object)
        .await
        .map(|_| ())
        .map_err(|error| refusal(document, error))
}

fn namespace_of<'a>(document: &'a Document, endpoint: &Endpoint, default: &'a str) -> Option<&'a str> {
    let own = document.object["metadata"]["namespace"].as_str();
    (endpoint.scope == Scope::Namespaced).then(|| own.unwrap_or(default))
}

fn path(resource: &ApiResource, namespace: Option<&str>) -> String {
    let root = match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    match namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{}", resource.plural),
        None => format!("{root}/{}", resource.plural),
    }
}

async fn send(
    client: &Client,
    method: http::Method,
    path: &str,
    content_type: &str,
    query: &str,
    object: &Value,
) -> kube::Result<Value> {
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{path}?{query}"))
        .header(http::header::CONTENT_TYPE, content_type)
        .body(body)
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// What the server says about an object, field by field, with the place where it is written.
fn refusal(document: &Document, error: kube::Error) -> Failure {
    let named = format!("{} `{}`", document.kind(), document.name());
    let Document { origin, .. } = document;
    match error {
        kube::Error::Api(status) => {
            Failure::usage(anyhow!(refused(origin, &named, &status))).hint(hint(&status, origin))
        }
        other => Failure::new(plain(other).context(format!("{origin}: create {named}"))),
    }
}

fn refused(origin: &Origin, named: &str, status: &Status) -> String {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let fields: Vec<String> = causes
        .iter()
        .filter(|cause| !cause.field.is_empty())
        .map(|it| format!("{}: {}", it.field, it.message))
        .collect();
    match fields.as_slice() {
        [] => format!("{origin}: {named}: {}", status.message),
        [only] => format!("{origin}: {named}: {only}"),
        several => format!("{origin}: {named} has {} faults\n  {}", several.len(), several.join("\n  ")),
    }
}

fn hint(status: &Status, origin: &Origin) -> &'static str {
    match status.reason.as_str() {
        "AlreadyExists" if origin.file == COMMAND_LINE => {
            "it is there from an earlier run: give this one another name with `--name NAME`, or take another `--data` \
             directory"
        }
        "AlreadyExists" => {
            "it is there from an earlier run: take another `--data` directory, or say `generateName` in its place"
        }
        _ => "correct what is named and run again; nothing was started",
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};
    use serde_json::json;

    use super::*;

    fn document(kind: &str, spec: Value) -> Document {
        let object = json!({"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        Document { origin: Origin { file: "f.yaml".to_owned(), number: 2 }, object }
    }

    #[test]
    fn jobs_come_last_and_namespaces_first() {
        let mut documents: Vec<Document> =
            ["Job", "Secret", "Namespace", "ConfigMap"].map(|kind| document(kind, json!({}))).into();
        documents.sort_by_key(rank);
        assert_eq!(
            documents.iter().map(Document::kind).collect::<Vec<_>>(),
            ["Namespace", "Secret", "ConfigMap", "Job"]
        );
    }

    #[test]
    fn a_job_that_nobody_runs_is_refused() {
        refuse_what_nobody_runs(&document("Job", json!({}))).unwrap();
        refuse_what_nobody_runs(&document("Job", json!({"managedBy": "kubernetes.io/job-controller"}))).unwrap();
        let failure = refuse_what_nobody_runs(&document("Job", json!({"managedBy": "x.dev/y"}))).unwrap_err();
        assert_eq!(failure.error.to_string(), "f.yaml, document 2: spec.managedBy: no controller `x.dev/y` runs here");
    }

    #[test]
    fn a_refusal_names_place_and_fields() {
        let cause = |field: &str, message: &str| StatusCause {
            reason: String::new(),
            message: message.to_owned(),
            field: field.to_owned(),
        };
        let text = |causes: Vec<StatusCause>| {
            let details = Some(StatusDetails {
                name: String::new(),
                group: String::new(),
                kind: String::new(),
                uid: String::new(),
                causes,
                retry_after_seconds: 0,
            });
            let status = Status { message: "whole".to_owned(), details, ..Status::default() };
            refused(&document("Job", json!({})).origin, "Job `a`", &status)
        };
        assert_eq!(text(vec![]), "f.yaml, document 2: Job `a`: whole");
        assert_eq!(text(vec![cause("x.y", "wrong")]), "f.yaml, document 2: Job `a`: x.y: wrong");
        assert_eq!(
            text(vec![cause("x", "1"), cause("y", "2")]),
            "f.yaml, document 2: Job `a` has 2 faults\n  x: 1\n  y: 2"
        );
    }
    #[test]
    fn a_job_that_is_there_twice_is_refused_with_both_places() {
        let at = |number: usize, metadata: Value| Document {
            origin: Origin { file: "f.yaml".to_owned(), number },
            object: json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}),
        };
        let (mine, elsewhere) = (json!({"name": "a"}), json!({"name": "a", "namespace": "x"}));
        let any = json!({"generateName": "a"});
        let fine = [at(1, mine.clone()), at(2, elsewhere), at(3, any.clone()), at(4, any)];
        refuse_the_same_job_twice(&fine, "default").unwrap();
        let text = |documents: &[Document], namespace: &str| {
            refuse_the_same_job_twice(documents, namespace).unwrap_err().error.to_string()
        };
        assert_eq!(text(&fine, "x"), "f.yaml, document 2: Job `a` is already in f.yaml, document 1");
        let twice = [at(1, mine.clone()), at(5, mine)];
        assert_eq!(text(&twice, "default"), "f.yaml, document 5: Job `a` is already in f.yaml, document 1");
    }
}
