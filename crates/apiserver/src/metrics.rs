//! What the server counts about its requests, under upstream's names, and how `/metrics` is answered.
//!
//! Labels come from the table of served resources and never from a path, so that their number is bounded whatever
//! clients send: what names no resource is counted under empty labels. Upstream: apiserver/pkg/endpoints/metrics.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, Method, Response, StatusCode, header};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::body::ResponseBody;
use crate::documents::page_not_found;
use crate::query::Query;
use crate::respond::raw;
use crate::route::Target;
use crate::verbs::Verb;

/// Upstream's buckets of `apiserver_request_duration_seconds`.
const DURATION_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// All metrics of the process as text, and the media type of it, for what a scraper accepts.
pub type Exposition = dyn Fn(Option<&str>) -> (&'static str, String) + Send + Sync;

/// Counts requests. Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    total: Family<Answered, Counter>,
    duration: Family<Request, Histogram, fn() -> Histogram>,
    in_flight: Family<[(&'static str, &'static str); 1], Gauge>,
}

/// What a request was about.
#[derive(Clone, Debug, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Request {
    verb: &'static str,
    dry_run: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    #[prometheus(flatten)]
    request: Request,
    code: u32,
}

impl Hash for Request {
    /// By what differs most: it is looked up with every request.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.verb, self.resource, self.subresource).hash(state);
    }
}

impl Request {
    /// A request for a served resource.
    pub(crate) fn of(target: &Target, verb: Verb, headers: &HeaderMap, query: &Query) -> Self {
        let scope = match (target.name.is_some() || verb == Verb::Create, target.namespace.is_some()) {
            (true, _) => "resource",
            (false, true) => "namespace",
            (false, false) => "cluster",
        };
        Self {
            verb: verb_label(verb, headers),
            // The only value that is not refused.
            dry_run: if query.get("dryRun").is_some_and(|value| !value.is_empty()) { "All" } else { "" },
            group: target.resource.group,
            version: target.resource.version,
            resource: target.resource.plural,
            subresource: target.subresource.map_or("", |subresource| subresource.name),
            scope,
            component: "apiserver",
        }
    }

    /// One for anything else, or one that was refused before it was known what it is for.
    fn other(method: &Method) -> Self {
        let verb = match *method {
            Method::GET | Method::HEAD => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let empty = "";
        Self {
            verb,
            dry_run: empty,
            group: empty,
            version: empty,
            resource: empty,
            subresource: empty,
            scope: empty,
            component: "apiserver",
        }
    }
}

fn verb_label(verb: Verb, headers: &HeaderMap) -> &'static str {
    let is_apply = || {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        content_type.is_some_and(|value| value.starts_with("application/apply-patch"))
    };
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch if is_apply() => "APPLY",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
    }
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            total: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            in_flight: Family::default(),
        }
    }
}

impl RequestMetrics {
    /// A request is being worked on until the answer is dropped.
    pub(crate) fn enter(&self, method: &Method) -> InFlight {
        let kind = if matches!(*method, Method::GET | Method::HEAD) { "readOnly" } else { "mutating" };
        let gauge = self.in_flight.get_or_create_owned(&[("request_kind", kind)]);
        gauge.inc();
        InFlight(gauge)
    }

    /// A request was answered. A watch counts when it begins, and has no duration.
    pub(crate) fn answered(&self, request: Option<Request>, method: &Method, code: StatusCode, took: Duration) {
        let request = request.unwrap_or_else(|| Request::other(method));
        if request.verb != "WATCH" {
            self.duration.get_or_create(&request).observe(took.as_secs_f64());
        }
        self.total.get_or_create(&Answered { request, code: code.as_u16().into() }).inc();
    }
}

/// Counts a request as being worked on.
#[derive(Debug)]
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Collector for RequestMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, \
                    scope, component, and HTTP response code.";
        self.total.encode(encoder.encode_descriptor("apiserver_request", help, None, Counter::<u64>::TYPE)?)?;
        let help = "Response latency distribution in seconds for each verb, dry run value, group, version, resource, \
                    subresource, scope and component.";
        let name = "apiserver_request_duration_seconds";
        self.duration.encode(encoder.encode_descriptor(name, help, None, Histogram::TYPE)?)?;
        let help = "Number of requests that are being worked on, by request kind.";
        let name = "apiserver_current_inflight_requests";
        self.in_flight.encode(encoder.encode_descriptor(name, help, None, Gauge::<i64>::TYPE)?)
    }
}

/// Where `/metrics` comes from: whoever runs the server has all metrics of the process, also those of others.
#[derive(Default)]
pub(crate) struct MetricsSource {
    exposition: OnceLock<Arc<Exposition>>,
}

impl MetricsSource {
    /// The first one stays.
    pub(crate) fn set(&self, exposition: Arc<Exposition>) {
        let _ = self.exposition.set(exposition);
    }

    pub(crate) fn answer(&self, headers: &HeaderMap) -> Response<ResponseBody> {
        let Some(exposition) = self.exposition.get() else { return page_not_found() };
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let (media_type, text) = exposition(accept);
        raw(200, media_type, text.into_bytes().into())
    }
}
