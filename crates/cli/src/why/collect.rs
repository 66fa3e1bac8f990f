//! Reads an object and what surrounds it. What may not be read is noted, and the answer does without.

use std::collections::BTreeSet;

use ::why::{Kind, Snapshot};
use batch_types::constants::label;
use futures_util::{StreamExt as _, stream};
use http::Request;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::subject::Subject;
use crate::cluster::Cluster;
use crate::failure::plain;

const PAGE: usize = 500;
/// More of a kind are not read: an answer about ten thousand pods is the same as about five thousand.
const PAGES_MAX: usize = 10;
/// Events are read of this many pods, those in trouble first.
const PODS_WITH_EVENTS_MAX: usize = 20;
/// Requests at the same time.
const REQUESTS_MAX: usize = 8;

pub(crate) struct Collector<'a> {
    cluster: &'a Cluster,
}

/// A list, and why it is not whole.
struct Listed {
    items: Option<Vec<Value>>,
    unseen: Option<String>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        Self { cluster }
    }

    /// `None` if there is no such object.
    pub(crate) async fn object(&self, kind: Kind, name: &str) -> Result<Option<Value>, kube::Error> {
        match self.get(&format!("{}/{name}", self.path(kind))).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn surroundings(&self, kind: Kind, object: Value) -> Snapshot {
        let mut snapshot = Snapshot::new(kind, object, Timestamp::now());
        // Schedules without a zone follow the clock of whoever runs them, which for a server here is this one.
        if is_local(&self.cluster.server) {
            snapshot.zone = TimeZone::system();
        }
        match kind {
            Kind::Job => self.around_job(&mut snapshot).await,
            Kind::CronJob => self.around_cron_job(&mut snapshot).await,
            Kind::Pod => {
                let name = name_of(&snapshot.object).to_owned();
                snapshot.events = self.events(&mut snapshot.unseen, "Pod", [name]).await;
                self.nodes(&mut snapshot).await;
            }
        }
        snapshot.now = Timestamp::now();
        snapshot
    }

    async fn around_job(&self, snapshot: &mut Snapshot) {
        let selector = format!("labelSelector={}", pod_selector(&snapshot.object));
        let namespace = &self.cluster.namespace;
        let pods = self.list(&format!("/api/v1/namespaces/{namespace}/pods"), &selector).await;
        snapshot.pods = note(pods, &mut snapshot.unseen, "pods");
        let name = name_of(&snapshot.object).to_owned();
        let mut events = self.events(&mut snapshot.unseen, "Job", [name]).await;
        if let Some(events) = &mut events {
            let troubled = in_trouble(snapshot.pods.as_deref().unwrap_or_default());
            events.extend(self.events(&mut snapshot.unseen, "Pod", troubled).await.unwrap_or_default());
        }
        let is_refused = |event: &Value| event.get("reason").and_then(Value::as_str) == Some("FailedCreate");
        if events.iter().flatten().any(is_refused) {
            let quotas = self.list(&format!("/api/v1/namespaces/{namespace}/resourcequotas"), "").await;
            snapshot.quotas = note(quotas, &mut snapshot.unseen, "resource quotas");
        }
        snapshot.events = events;
        self.nodes(snapshot).await;
        if snapshot.object.pointer("/status/startTime").is_none() {
            snapshot.leases = self.leases(&mut snapshot.unseen).await;
        }
    }

    async fn around_cron_job(&self, snapshot: &mut Snapshot) {
        let namespace = &self.cluster.namespace;
        let jobs = self.list(&format!("/apis/batch/v1/namespaces/{namespace}/jobs"), "").await;
        snapshot.jobs = note(jobs, &mut snapshot.unseen, "jobs");
        let name = name_of(&snapshot.object).to_owned();
        snapshot.events = self.events(&mut snapshot.unseen, "CronJob", [name]).await;
    }

    /// Events about these objects.
    async fn events(
        &self,
        unseen: &mut Vec<String>,
        kind: &str,
        names: impl IntoIterator<Item = String>,
    ) -> Option<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{}/events", self.cluster.namespace);
        let lists = names.into_iter().map(|name| {
            let selector = format!("fieldSelector=involvedObject.kind%3D{kind}%2CinvolvedObject.name%3D{name}");
            let path = &path;
            async move { self.list(path, &selector).await }
        });
        let mut lists = stream::iter(lists).buffered(REQUESTS_MAX);
        let mut all = Some(Vec::new());
        while let Some(list) = lists.next().await {
            match note(list, unseen, "events") {
                Some(items) => all.iter_mut().for_each(|all| all.extend(items.iter().cloned())),
                None => all = None,
            }
        }
        all
    }

    /// The nodes, those of the pods in question in any case.
    async fn nodes(&self, snapshot: &mut Snapshot) {
        let listed = self.list("/api/v1/nodes", "").await;
        let Some(mut nodes) = note(listed, &mut snapshot.unseen, "nodes") else { return };
        let pods = snapshot.pods.iter().flatten().chain(std::iter::once(&snapshot.object));
        let wanted: BTreeSet<&str> =
            pods.filter_map(|pod| pod.pointer("/spec/nodeName")?.as_str()).filter(|name| !name.is_empty()).collect();
        let known: BTreeSet<String> = nodes.iter().map(|node| name_of(node).to_owned()).collect();
        let missing = wanted.into_iter().filter(|name| !known.contains(*name)).take(PODS_WITH_EVENTS_MAX);
        for name in missing {
            // One that does not exist is the answer to some questions, so only those that do are added.
            if batch_types::names::dns_subdomain(name).is_empty()
                && let Ok(node) = self.get(&format!("/api/v1/nodes/{name}")).await
            {
                nodes.push(node);
            }
        }
        snapshot.nodes = Some(nodes);
    }

    /// Leases but those of nodes: of all namespaces, or of the one where controllers usually have theirs.
    async fn leases(&self, unseen: &mut Vec<String>) -> Option<Vec<Value>> {
        let all = "/apis/coordination.k8s.io/v1/leases";
        let listed = self.list(all, "fieldSelector=metadata.namespace%21%3Dkube-node-lease").await;
        if listed.items.is_some() {
            return note(listed, unseen, "leases");
        }
        let usual = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        note(self.list(usual, "").await, unseen, "leases")
    }

    /// Names of objects of the kinds in question.
    pub(crate) async fn names(&self, subject: &Subject) -> Vec<String> {
        let mut names = Vec::new();
        for kind in subject.kinds() {
            let listed = self.list(&self.path(*kind), "").await;
            names.extend(listed.items.unwrap_or_default().iter().map(|object| name_of(object).to_owned()));
        }
        names
    }

    /// Namespaces that have an object of the name in question.
    pub(crate) async fn namespaces_with(&self, subject: &Subject) -> Vec<String> {
        let selector = format!("fieldSelector=metadata.name%3D{}", subject.name);
        let mut namespaces = Vec::new();
        for kind in subject.kinds() {
            let listed = self.list(all_of(*kind), &selector).await;
            let found = listed.items.unwrap_or_default();
            namespaces.extend(
                found.iter().filter_map(|object| {
                    object.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned)
                }),
            );
        }
        namespaces.retain(|namespace| *namespace != self.cluster.namespace);
        namespaces
    }

    fn path(&self, kind: Kind) -> String {
        let namespace = &self.cluster.namespace;
        match kind {
            Kind::Job => format!("/apis/batch/v1/namespaces/{namespace}/jobs"),
            Kind::CronJob => format!("/apis/batch/v1/namespaces/{namespace}/cronjobs"),
            Kind::Pod => format!("/api/v1/namespaces/{namespace}/pods"),
        }
    }

    /// A list, page by page.
    async fn list(&self, path: &str, query: &str) -> Listed {
        let mut items = Vec::new();
        let mut token = String::new();
        for _ in 0..PAGES_MAX {
            let page = format!("{path}?limit={PAGE}&{query}&continue={token}");
            let mut list = match self.get(&page).await {
                Ok(list) => list,
                // A server without the kind has none of its objects.
                Err(kube::Error::Api(status)) if status.code == 404 => break,
                Err(error) => return Listed { items: None, unseen: Some(plain(error).to_string()) },
            };
            if let Some(Value::Array(page)) = list.get_mut("items").map(Value::take) {
                items.extend(page);
            }
            match list.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => token = escaped(next),
                _ => return Listed { items: Some(items), unseen: None },
            }
        }
        let unseen = (!token.is_empty()).then(|| format!("more than the first {}", items.len()));
        Listed { items: Some(items), unseen }
    }

    async fn get(&self, path: &str) -> Result<Value, kube::Error> {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.cluster.client.request(request).await
    }
}

fn all_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Job => "/apis/batch/v1/jobs",
        Kind::CronJob => "/apis/batch/v1/cronjobs",
        Kind::Pod => "/api/v1/pods",
    }
}

/// The list without what is wrong with it, which is said once.
fn note(listed: Listed, unseen: &mut Vec<String>, what: &str) -> Option<Vec<Value>> {
    if let Some(why) = listed.unseen {
        let line = format!("{what}: {why}");
        if !unseen.contains(&line) {
            unseen.push(line);
        }
    }
    listed.items
}

/// Pods that do not simply run or succeed; their events say why.
fn in_trouble(pods: &[Value]) -> Vec<String> {
    let is_well = |pod: &&Value| {
        let ready = pod.pointer("/status/containerStatuses").and_then(Value::as_array).is_some_and(|all| {
            !all.is_empty() && all.iter().all(|status| status.get("ready") == Some(&Value::Bool(true)))
        });
        match pod.pointer("/status/phase").and_then(Value::as_str) {
            Some("Succeeded" | "Failed") => true,
            Some("Running") => ready && pod.pointer("/metadata/deletionTimestamp").is_none(),
            _ => false,
        }
    };
    pods.iter().filter(|pod| !is_well(pod)).map(|pod| name_of(pod).to_owned()).take(PODS_WITH_EVENTS_MAX).collect()
}

/// The labels of a Job's pods, as a query has them; usually the Job's uid.
fn pod_selector(job: &Value) -> String {
    let labels = job.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    let mut pairs: Vec<String> = pairs.map(|(key, value)| escaped(&format!("{key}={value}"))).collect();
    if pairs.is_empty() {
        let uid = job.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        pairs.push(escaped(&format!("{}={uid}", label::CONTROLLER_UID)));
    }
    pairs.join("%2C")
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Tokens are texts of the server; only what may stand in a query stays as it is.
fn escaped(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn is_local(server: &str) -> bool {
    let host = server.split_once("://").map_or(server, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|local| host.starts_with(local))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_survive_a_query() {
        assert_eq!(escaped("aZ9-_.~"), "aZ9-_.~");
        assert_eq!(escaped("a+b/c="), "a%2Bb%2Fc%3D");
    }

    #[test]
    fn servers_of_this_machine_are_known() {
        for (server, local) in
            [("https://127.0.0.1:6443", true), ("https://[::1]:1", true), ("https://10.0.0.1", false)]
        {
            assert_eq!(is_local(server), local, "{server}");
        }
    }

    #[test]
    fn pods_are_found_by_the_jobs_own_selector() {
        let job = json!({"metadata": {"uid": "u"}, "spec": {"selector": {"matchLabels": {"a": "b", "c/d": "e"}}}});
        assert_eq!(pod_selector(&job), "a%3Db%2Cc%2Fd%3De");
        assert_eq!(pod_selector(&json!({"metadata": {"uid": "u"}})), "batch.kubernetes.io%2Fcontroller-uid%3Du");
    }

    #[test]
    fn pods_that_run_need_no_explanation() {
        let pod = |name: &str, phase: &str, ready: bool| {
            let statuses = json!([{"ready": ready}]);
            json!({"metadata": {"name": name}, "status": {"phase": phase, "containerStatuses": statuses}})
        };
        let pods = [pod("a", "Running", true), pod("b", "Running", false), pod("c", "Pending", false), json!(null)];
        assert_eq!(in_trouble(&pods), ["b", "c", ""]);
    }
}
