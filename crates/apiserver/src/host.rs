//! Which host names a server answers to (BI-14, BI-23).
//!
//! A loopback address is reached from this machine only, but also by a browser on it that a foreign page has led here
//! under a name of its own (DNS rebinding). Such requests carry that name, and are refused whatever else they carry.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version, header, uri::Authority};
use http_body_util::Full;

use crate::{status::Status, tls};

/// The hosts of one listener.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// `None` serves every host: beyond loopback, names are the network's.
    names: Option<Vec<String>>,
}

impl Hosts {
    pub(crate) fn of(listens: Option<SocketAddr>) -> Self {
        let loopback = listens.map(|address| address.ip()).filter(IpAddr::is_loopback);
        Self { names: loopback.map(tls::server_names) }
    }

    /// The answer to a request that does not say, or says wrongly, whom it is for.
    pub(crate) fn refusal<B>(&self, request: &Request<B>) -> Option<Response<Full<Bytes>>> {
        let mut given = request.headers().get_all(header::HOST).iter();
        let from_header = given.next().map(HeaderValue::as_bytes);
        let is_http_1 = request.version() == Version::HTTP_11;
        if given.next().is_some() {
            return Some(malformed("too many Host headers"));
        }
        if is_http_1 && from_header.is_none() {
            return Some(malformed("missing required Host header"));
        }
        let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let host = authority.or(from_header)?;
        if self.serves(host) { None } else { Some(forbidden(&String::from_utf8_lossy(host))) }
    }

    fn serves(&self, host: &[u8]) -> bool {
        let Some(names) = &self.names else { return true };
        let Ok(authority) = Authority::try_from(host) else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        is_loopback || names.iter().any(|served| served.eq_ignore_ascii_case(name))
    }
}

/// As Go's server words it.
fn malformed(why: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("400 Bad Request: {why}")));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn forbidden(host: &str) -> Response<Full<Bytes>> {
    let why = format!("host {} is not served here", batch_types::field::quoted(host));
    let mut response = Response::new(Full::from(Status::new(403, "Forbidden", why).to_value().to_string()));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(hosts: &Hosts, version: Version, uri: &str, given: &[&str]) -> u16 {
        let mut request = Request::builder().version(version).uri(uri);
        for host in given {
            request = request.header(header::HOST, *host);
        }
        hosts.refusal(&request.body(()).unwrap()).map_or(200, |refusal| refusal.status().as_u16())
    }

    /// INV-51.
    #[test]
    fn on_loopback_only_own_names_are_served_bi_23() {
        let hosts = Hosts::of(Some("127.0.0.1:6443".parse().unwrap()));
        let served =
            ["localhost", "LOCALHOST:6443", "127.0.0.1:6443", "127.0.0.9", "[::1]:6443", "kubernetes.default.svc"];
        for host in served {
            assert_eq!(code(&hosts, Version::HTTP_11, "/version", &[host]), 200, "{host}");
        }
        for host in ["evil.example", "evil.example:6443", "localhost.evil.example", "169.254.169.254", "", "a b"] {
            assert_eq!(code(&hosts, Version::HTTP_11, "/version", &[host]), 403, "{host}");
        }
        assert_eq!(code(&hosts, Version::HTTP_2, "https://localhost:1/version", &[]), 200);
        assert_eq!(code(&hosts, Version::HTTP_2, "https://evil.example/version", &["localhost"]), 403);
    }

    #[test]
    fn beyond_loopback_every_host_is_served() {
        let hosts = Hosts::of(Some("192.0.2.1:6443".parse().unwrap()));
        assert_eq!(code(&hosts, Version::HTTP_11, "/version", &["anything.example"]), 200);
    }

    #[test]
    fn a_host_is_named_once_bi_14() {
        let hosts = Hosts::of(None);
        assert_eq!(code(&hosts, Version::HTTP_11, "/version", &[]), 400);
        assert_eq!(code(&hosts, Version::HTTP_11, "/version", &["a", "b"]), 400);
        assert_eq!(code(&hosts, Version::HTTP_10, "/version", &[]), 200);
    }
}
