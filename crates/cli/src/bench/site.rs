//! Where the load is put, and how all of it is taken away again.

use std::cell::Cell;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use tokio::time::timeout;

use super::load::RUN;
use crate::cluster::Cluster;
use crate::failure::{Failure, plain};
use crate::output::tell;

/// A server that takes longer to accept one request is not waited for at the end; nor, for long, one that has never
/// answered.
const DELETE_MAX: Duration = Duration::from_secs(5);
const DELETE_MAX_UNANSWERED: Duration = Duration::from_secs(1);

/// A place on a cluster that is used for one run.
pub(super) struct Site<'a> {
    cluster: &'a Cluster,
    /// Tells this run from all others.
    pub(super) run: String,
    pub(super) namespace: String,
    /// The namespace is this run's own, and goes with it.
    is_own: bool,
    /// There may be something to take away.
    is_used: Cell<bool>,
}

impl<'a> Site<'a> {
    /// The namespace that was asked for, else one of its own.
    pub(super) fn new(cluster: &'a Cluster, asked: Option<&str>, run: String) -> Self {
        let namespace = asked.map_or_else(|| format!("tally-bench-{run}"), str::to_owned);
        Self { cluster, run, namespace, is_own: asked.is_none(), is_used: Cell::new(false) }
    }

    /// Makes the namespace, unless it is somebody's.
    pub(super) async fn prepare(&self) -> Result<(), Failure> {
        // Before the answer: it may never come, and the request be carried out all the same.
        self.is_used.set(true);
        if !self.is_own {
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        let metadata = ObjectMeta { name: Some(self.namespace.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.map(drop).map_err(|error| {
            self.is_used.set(!matches!(error, kube::Error::Api(_)));
            refused(error, self.cluster)
        })
    }

    /// Deletes what was made. Nobody waits for its end: that takes as long as there are pods in it.
    pub(super) async fn clear(&self, is_answered: bool) {
        if !self.is_used.get() {
            return;
        }
        let patience = if is_answered { DELETE_MAX } else { DELETE_MAX_UNANSWERED };
        let why = match timeout(patience, self.delete()).await {
            Ok(Ok(())) => return,
            // It was never made.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return,
            // Whoever could not be reached has not made anything either.
            Ok(Err(_)) if !is_answered => return,
            Ok(Err(error)) => plain(error).to_string(),
            Err(_) => "the server does not answer".to_owned(),
        };
        tell(&format!("note: {}: {why}", self.leftover(is_answered)));
    }

    async fn delete(&self) -> kube::Result<()> {
        let client = self.cluster.client.clone();
        if self.is_own {
            let namespaces: Api<Namespace> = Api::all(client);
            return namespaces.delete(&self.namespace, &DeleteParams::default()).await.map(drop);
        }
        let jobs: Api<Job> = Api::namespaced(client, &self.namespace);
        let ours = ListParams::default().labels(&self.label());
        jobs.delete_collection(&DeleteParams::background(), &ours).await.map(drop)
    }

    /// What everything of this run has.
    pub(super) fn label(&self) -> String {
        format!("{RUN}={}", self.run)
    }

    /// What is still there, and how to take it away.
    fn leftover(&self, is_answered: bool) -> String {
        let verb = if is_answered { "is" } else { "may be" };
        let namespace = &self.namespace;
        match self.is_own {
            true => format!("namespace `{namespace}` {verb} left behind"),
            false => {
                format!("what `kubectl delete jobs -n {namespace} -l {}` deletes {verb} left behind", self.label())
            }
        }
    }
}

fn refused(error: kube::Error, cluster: &Cluster) -> Failure {
    let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
    let failure = cluster.failure(error, format!("make a namespace on {}", cluster.server));
    if is_forbidden { failure.hint("name one that exists with `-n NAMESPACE`") } else { failure }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Request, Response, StatusCode};
    use http_body_util::Full;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A server that gives every request this answer, and what it was asked for.
    fn server(code: u16) -> (Cluster, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            let (status, reason) = if code < 400 { ("Success", "") } else { ("Failure", "R") };
            let body = json!({"kind": "Status", "status": status, "reason": reason, "message": "m", "code": code});
            let answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
            async move { Ok::<_, Infallible>(answer.body(Full::from(body.to_string())).unwrap()) }
        });
        let (server, namespace) = ("https://example.com".to_owned(), "default".to_owned());
        (Cluster { client: Client::new(service, "default"), server, namespace, data_flag: String::new() }, asked)
    }

    #[tokio::test]
    async fn in_somebodys_namespace_only_jobs_of_this_run_are_deleted() {
        let (cluster, asked) = server(200);
        let site = Site::new(&cluster, Some("theirs"), "r1".to_owned());
        site.clear(true).await;
        assert!(asked.lock().unwrap().is_empty(), "nothing was made yet");
        site.prepare().await.unwrap();
        site.clear(true).await;
        let asked = asked.lock().unwrap();
        assert!(asked[0].starts_with("DELETE /apis/batch/v1/namespaces/theirs/jobs?"), "{asked:?}");
        assert!(asked[0].contains("labelSelector=tally.dev%2Fbench-run%3Dr1"), "{asked:?}");
    }

    #[tokio::test]
    async fn another_namespace_helps_only_who_may_not_make_one() {
        for (code, is_named) in [(403, true), (401, false), (500, false)] {
            let (cluster, asked) = server(code);
            let site = Site::new(&cluster, None, "r1".to_owned());
            let failure = site.prepare().await.unwrap_err();
            assert_eq!(failure.hint.contains("-n NAMESPACE"), is_named, "{code}: {failure:?}");
            site.clear(true).await;
            assert_eq!(asked.lock().unwrap().len(), 1, "there is nothing to take away");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answered_is_not_waited_for() {
        let silent = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
        let (cluster, _) = server(200);
        let cluster = Cluster { client: Client::new(silent, "default"), ..cluster };
        let site = Site::new(&cluster, None, "r1".to_owned());
        assert!(timeout(Duration::from_secs(3), site.prepare()).await.is_err());
        let begin = tokio::time::Instant::now();
        site.clear(false).await;
        assert_eq!(begin.elapsed(), DELETE_MAX_UNANSWERED);
        assert_eq!(site.leftover(false), "namespace `tally-bench-r1` may be left behind");
    }
}
