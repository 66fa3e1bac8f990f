//! The in-process transport (design D1): a `kube::Client` whose connection is the server itself.

use http::{HeaderValue, Request, header};
use tower::ServiceExt;

use crate::server::ApiServer;

/// What `managedFields` call the writer: the part before the slash.
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("tally/", env!("CARGO_PKG_VERSION")));

/// Marks requests that come from the same process; it cannot be sent over a network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InProcess;

impl ApiServer {
    /// A client that calls this server directly: no TCP, no TLS, no token.
    pub fn client(&self) -> kube::Client {
        let service = self.clone().map_request(|mut request: Request<kube::client::Body>| {
            request.extensions_mut().insert(InProcess);
            request.headers_mut().entry(header::USER_AGENT).or_insert(USER_AGENT);
            request
        });
        kube::Client::new(service, "default")
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, PostParams};

    use super::*;
    use crate::{Environment, Options, storage};

    #[tokio::test]
    async fn what_this_process_writes_bears_its_name() {
        let store = store::Store::open_in_memory(store::Options::default(), storage::attributes()).unwrap();
        let gates = batch_types::gates::Gates::DEFAULT;
        let options = Options { admin_token: None, gates, environment: Environment::system() };
        let server = ApiServer::new(store, options).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".to_owned());
        map.data = Some([("key".to_owned(), "value".to_owned())].into());
        let written = maps.create(&PostParams::default(), &map).await.unwrap();
        let managers = written.metadata.managed_fields.unwrap();
        assert_eq!(managers[0].manager.as_deref(), Some("tally"));
        server.stop();
    }
}
