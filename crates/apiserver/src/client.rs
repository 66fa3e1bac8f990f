//! The in-process transport (design D1): a `kube::Client` whose connection is the server itself.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{FutureExt, future::Either};
use http::{HeaderValue, Method, Request, header};
use kube::client::Body;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::{JoinError, JoinHandle},
};
use tower::Service;

use crate::server::ApiServer;

/// What `managedFields` call the writer: the part before the slash.
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("tally/", env!("CARGO_PKG_VERSION")));

/// Marks requests that come from the same process; it cannot be sent over a network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InProcess;

impl ApiServer {
    /// A client that calls this server directly: no TCP, no TLS, no token.
    ///
    /// One task can have hundreds of writes under way, and where it polled them itself they would share its thread. So each
    /// is a task of its own, if there are threads to share. It ends with the caller's interest in it, as over a connection.
    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let threads =
            Handle::try_current().ok().filter(|runtime| runtime.runtime_flavor() != RuntimeFlavor::CurrentThread);
        let service = tower::service_fn(move |mut request: Request<Body>| {
            request.extensions_mut().insert(InProcess);
            request.headers_mut().entry(header::USER_AGENT).or_insert(USER_AGENT);
            let writes = *request.method() != Method::GET;
            let answer = server.clone().call(request);
            match threads.as_ref().filter(|_| writes) {
                Some(threads) => Either::Left(Own(threads.spawn(answer)).map(|joined| joined.map(|Ok(answer)| answer))),
                None => Either::Right(answer.map(|Ok(answer)| Ok::<_, JoinError>(answer))),
            }
        });
        kube::Client::new(service, "default")
    }
}

/// A task that nobody else waits for.
struct Own<T>(JoinHandle<T>);

impl<T> Future for Own<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(context)
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, PostParams};

    use super::*;
    use crate::{
        Environment, Options,
        storage::{self, ObjectStore},
    };

    async fn server() -> (ApiServer, ObjectStore) {
        let store = store::Store::open_in_memory(store::Options::default(), storage::attributes()).unwrap();
        let gates = batch_types::gates::Gates::DEFAULT;
        let options = Options { admin_token: None, gates, environment: Environment::system() };
        (ApiServer::new(store.clone(), options).await.unwrap(), store)
    }

    fn map() -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".to_owned());
        map.data = Some([("key".to_owned(), "value".to_owned())].into());
        map
    }

    #[tokio::test]
    async fn what_this_process_writes_bears_its_name() {
        let (server, _) = server().await;
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        let written = maps.create(&PostParams::default(), &map()).await.unwrap();
        let managers = written.metadata.managed_fields.unwrap();
        assert_eq!(managers[0].manager.as_deref(), Some("tally"));
        server.stop();
    }

    /// Where there are threads to share, a write goes its own way: nobody has to poll it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_write_needs_nobody_who_waits_for_it() {
        let (server, store) = server().await;
        let before = store.revision();
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        let (parameters, map) = (PostParams::default(), map());
        let mut call = std::pin::pin!(maps.create(&parameters, &map));
        // Now it is under way; perhaps it is over already.
        let first = futures_util::poll!(&mut call);
        store.wait_for_revision(before + 1, Duration::from_secs(30)).await.unwrap();
        assert!(store.get("configmaps/default/a").is_some());
        let written = match first {
            Poll::Ready(written) => written,
            Poll::Pending => call.await,
        };
        assert_eq!(written.unwrap().data, map.data);
        server.stop();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_nobody_waits_for_any_more_ends() {
        let (held, gone) = tokio::sync::oneshot::channel::<()>();
        let task = Own(tokio::spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        drop(task);
        assert!(tokio::time::timeout(Duration::from_secs(30), gone).await.expect("it goes").is_err());
    }
}
