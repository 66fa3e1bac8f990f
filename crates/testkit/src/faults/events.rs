//! Where Events go.
//!
//! They are kept here and not by the server, so that revisions stay those of what Events tell about: what a cache or a list
//! lags behind is counted in revisions. A name is given once, as the server would have it.

use std::collections::HashMap;

use http::Method;
use serde_json::Value;

/// What Events have told of, by their names.
#[derive(Debug, Default)]
pub(super) struct EventBox {
    told: HashMap<String, Told>,
}

/// What an Event says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) reason: String,
    /// The object it is about.
    pub(super) uid: String,
}

impl EventBox {
    /// Answers a request with a code, and says what the world was told by it. An Event is made the first time, and changed
    /// when the same is told again.
    pub(super) fn take(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Option<Told>) {
        let event: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match *method {
            Method::POST => {
                let name = text(&event["metadata"]["name"]);
                if self.told.contains_key(&name) {
                    return (409, None);
                }
                let told = Told { reason: text(&event["reason"]), uid: text(&event["involvedObject"]["uid"]) };
                self.told.insert(name, told.clone());
                (201, Some(told))
            }
            Method::PATCH => match self.told.get(last_segment(path)) {
                Some(told) => (200, Some(told.clone())),
                None => (404, None),
            },
            _ => (404, None),
        }
    }

    /// Somebody else has an Event under the name that one has, or is about to get. Says whether it is another one now.
    pub(super) fn make_namesake(&mut self, method: &Method, path: &str, body: &[u8]) -> bool {
        let event: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = match *method {
            Method::POST => event["metadata"]["name"].as_str().unwrap_or_default(),
            _ => last_segment(path),
        };
        self.told.insert(name.to_owned(), Told::default()) != Some(Told::default())
    }
}

fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EVENTS: &str = "/api/v1/namespaces/default/events";

    fn event() -> Vec<u8> {
        json!({"metadata": {"name": "a.1"}, "reason": "Completed", "involvedObject": {"uid": "u"}}).to_string().into()
    }

    #[test]
    fn the_world_is_told_once_by_each_name_and_again_by_changes() {
        let mut events = EventBox::default();
        let (one, other) = (format!("{EVENTS}/a.1"), format!("{EVENTS}/a.2"));
        let told = || Some(Told { reason: "Completed".to_owned(), uid: "u".to_owned() });
        assert_eq!(events.take(&Method::PATCH, &one, b"{}"), (404, None));
        assert_eq!(events.take(&Method::POST, EVENTS, &event()), (201, told()));
        assert_eq!(events.take(&Method::POST, EVENTS, &event()), (409, None));
        assert_eq!(events.take(&Method::PATCH, &one, b"{}"), (200, told()));
        assert_eq!(events.take(&Method::PATCH, &other, b"{}"), (404, None));
    }

    #[test]
    fn a_namesake_takes_the_name() {
        let mut events = EventBox::default();
        assert!(events.make_namesake(&Method::POST, EVENTS, &event()));
        assert!(!events.make_namesake(&Method::POST, EVENTS, &event()), "it has it already");
        assert_eq!(events.take(&Method::POST, EVENTS, &event()), (409, None));
    }
}
