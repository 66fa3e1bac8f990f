//! What a request is about, and the record of it.

use http::{Method, Request};
use jiff::Timestamp;

use super::fault::Fault;

/// A call that a controller has made.
#[derive(Debug, Clone)]
pub struct Call {
    /// Which process made it; the first is 0.
    pub life: u32,
    pub controller: &'static str,
    /// Method and resource, such as `PUT jobs/status`.
    pub kind: String,
    pub path: String,
    pub fault: Option<Fault>,
    /// The server's answer; 0 if it was never asked.
    pub code: u16,
    /// The newest revision when it was made.
    pub seen: u64,
    /// The newest revision after the call.
    pub revision: u64,
    pub at: Timestamp,
    /// Events of pods that the controllers had not been shown.
    pub unseen_pods: usize,
    /// Of a status write that met a fault: how many pods it lists as uncounted.
    pub uncounted: Option<usize>,
    /// Whether something came of its fault: a namesake was made, or what nobody heard of in time was carried out.
    pub took_effect: bool,
}

impl Call {
    /// Whether it only tells the world about something. Nothing that a controller does depends on that.
    pub fn is_event(&self) -> bool {
        self.kind.ends_with(" events")
    }
}

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) collection: String,
    pub(super) plural: String,
    pub(super) name: Option<String>,
    pub(super) part: Option<String>,
}

/// How the harness treats a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Manner {
    /// Counted, and a place where faults happen.
    Call(Target),
    List(String),
    Watch(String),
    /// Discovery and the like.
    Other,
}

impl Manner {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let Some(target) = Target::of(request.uri().path()) else { return Self::Other };
        let query = request.uri().query().unwrap_or_default();
        let reads = *request.method() == Method::GET;
        match target.name {
            None if reads && query.contains("watch=true") => Self::Watch(target.plural),
            None if reads && query.contains("limit=") => Self::List(target.plural),
            _ => Self::Call(target),
        }
    }
}

impl Target {
    pub(super) fn of(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let (head, rest) = match segments.as_slice() {
            ["api", _, rest @ ..] => (2, rest),
            ["apis", _, _, rest @ ..] => (3, rest),
            _ => return None,
        };
        let (head, rest) = match rest {
            ["namespaces", _, rest @ ..] if !rest.is_empty() => (head + 2, rest),
            rest => (head, rest),
        };
        let collection = format!("/{}", segments[..head].join("/"));
        let owned = |text: &&str| (*text).to_owned();
        let plural = rest.first().map(owned)?;
        let collection = format!("{collection}/{plural}");
        Some(Self { collection, plural, name: rest.get(1).map(owned), part: rest.get(2).map(owned) })
    }

    /// `PUT jobs/status`.
    pub(super) fn kind(&self, method: &Method) -> String {
        match &self.part {
            Some(part) => format!("{method} {}/{part}", self.plural),
            None => format!("{method} {}", self.plural),
        }
    }

    pub(super) fn is_event(&self) -> bool {
        self.plural == "events"
    }

    /// The address of the object, without the part of it.
    pub(super) fn object(&self) -> Option<String> {
        self.name.as_ref().map(|name| format!("{}/{name}", self.collection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let manner =
            |method: Method, uri: &str| Manner::of(&Request::builder().method(method).uri(uri).body(()).unwrap());
        let pods = "/api/v1/namespaces/default/pods";
        let list = manner(Method::GET, &format!("{pods}?limit=500"));
        assert_eq!(list, Manner::List("pods".to_owned()));
        assert_eq!(manner(Method::GET, "/api/v1/pods?watch=true&x=y"), Manner::Watch("pods".to_owned()));
        let Manner::Call(event) = manner(Method::POST, "/api/v1/namespaces/default/events") else { panic!() };
        assert!(event.is_event() && event.kind(&Method::POST) == "POST events");
        assert_eq!(manner(Method::GET, "/apis"), Manner::Other);
        let Manner::Call(job) = manner(Method::PUT, "/apis/batch/v1/namespaces/default/jobs/a/status") else {
            panic!()
        };
        assert_eq!(job.kind(&Method::PUT), "PUT jobs/status");
        assert_eq!(job.object().as_deref(), Some("/apis/batch/v1/namespaces/default/jobs/a"));
        let Manner::Call(named) = manner(Method::GET, &format!("{pods}?fieldSelector=metadata.name%3Da")) else {
            panic!()
        };
        assert_eq!((named.kind(&Method::GET).as_str(), named.object()), ("GET pods", None));
    }
}
