//! The in-process transport (design D1): a `kube::Client` whose connection is the server itself.

use http::Request;
use tower::ServiceExt;

use crate::server::ApiServer;

/// Marks requests that come from the same process; it cannot be sent over a network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InProcess;

impl ApiServer {
    /// A client that calls this server directly: no TCP, no TLS, no token.
    pub fn client(&self) -> kube::Client {
        let service = self.clone().map_request(|mut request: Request<kube::client::Body>| {
            request.extensions_mut().insert(InProcess);
            request
        });
        kube::Client::new(service, "default")
    }
}
