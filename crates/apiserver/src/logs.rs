//! Where the logs of pods come from.
//!
//! The server checks the request (PL-121); what was written, and which instance of a container is meant, only the node
//! knows. In one process the node hands in a [`LogSource`]; without one there are no logs to read.

use std::pin::Pin;

use api_schema::time::{self, Precision};
use batch_types::field::{self, Path};
use bytes::Bytes;
use futures_util::Stream;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{query::Query, status::Status};

/// What of a log is wanted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogOptions {
    pub container: String,
    pub follow: bool,
    /// The instance before the current one.
    pub previous: bool,
    pub since: Option<Timestamp>,
    pub timestamps: bool,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
}

/// A log as it is read.
pub type LogStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The node's side of `pods/log`.
pub trait LogSource: Send + Sync {
    /// Whether pods of this node are run here.
    fn serves(&self, node_name: &str) -> bool;

    /// Begins to read.
    fn read(&self, pod: &Value, options: &LogOptions) -> Result<LogStream, LogRefusal>;
}

/// Why there is no log to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogRefusal {
    /// The container has none, or none yet: 400 (PL-122).
    NotAvailable(String),
    /// There is something in its place that is not read: 500 (BI-89).
    Unreadable(String),
}

impl From<LogRefusal> for Status {
    fn from(refusal: LogRefusal) -> Self {
        match refusal {
            LogRefusal::NotAvailable(why) => Self::bad_request(why),
            LogRefusal::Unreadable(why) => Self::internal(why),
        }
    }
}

/// A time as Go reads it. One that is beyond our own range is after or before everything that was ever written.
fn instant(text: &str) -> Result<Timestamp, Status> {
    let time::Timestamp { seconds, nanos } =
        time::Timestamp::parse(text, Precision::Seconds).map_err(Status::bad_request)?;
    let nearest = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Ok(Timestamp::new(seconds, nanos.cast_signed()).unwrap_or(nearest))
}

impl LogOptions {
    /// Reads and checks the parameters, all complaints together.
    pub fn parse(query: &Query, pod_name: &str, now: Timestamp) -> Result<Self, Status> {
        let (tail, limit, since) =
            (query.integer("tailLines")?, query.integer("limitBytes")?, query.integer("sinceSeconds")?);
        // Old clients write what they leave out.
        let since_time =
            query.get("sinceTime").filter(|text| !matches!(*text, "" | "null")).map(instant).transpose()?;
        let mut errors = Vec::new();
        if let Some(lines) = tail.filter(|&lines| lines < 0) {
            errors.push(field::Error::invalid(&Path::new("tailLines"), lines, "must be greater than or equal to 0"));
        }
        if let Some(bytes) = limit.filter(|&bytes| bytes < 1) {
            errors.push(field::Error::invalid(&Path::new("limitBytes"), bytes, "must be greater than 0"));
        }
        if let Some(seconds) = since.filter(|&seconds| seconds < 1) {
            errors.push(field::Error::invalid(&Path::new("sinceSeconds"), seconds, "must be greater than 0"));
        }
        if since.is_some() && since_time.is_some() {
            let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(field::Error::forbidden(&Path::new("[]"), detail));
        }
        if query.get("stream").is_some() {
            errors.push(field::Error::forbidden(&Path::new("stream"), "may not be specified"));
        }
        if !errors.is_empty() {
            return Err(Status::invalid("PodLogOptions", "", pod_name, &errors));
        }
        let ago = |seconds| now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
        Ok(Self {
            container: query.text("container").to_owned(),
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            since: since_time.or_else(|| since.map(ago)),
            timestamps: query.flag("timestamps"),
            tail_lines: tail.and_then(|lines| u64::try_from(lines).ok()),
            limit_bytes: limit.and_then(|bytes| u64::try_from(bytes).ok()),
        })
    }

    /// Settles which container is meant (PL-121).
    pub fn choose_container(&mut self, pod: &Value, pod_name: &str) -> Result<(), Status> {
        let names = |list: &str| -> Vec<String> {
            let items = pod["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().filter_map(|item| item["name"].as_str()).map(str::to_owned).collect()
        };
        let all = [names("initContainers"), names("containers"), names("ephemeralContainers")].concat();
        if self.container.is_empty() {
            return match names("containers").as_slice() {
                // Init containers and sidecars beside it leave no doubt.
                [only] => {
                    self.container.clone_from(only);
                    Ok(())
                }
                _ => Err(Status::bad_request(format!(
                    "a container name must be specified for pod {pod_name}, choose one of: [{}]",
                    all.join(" ")
                ))),
            };
        }
        if all.contains(&self.container) {
            return Ok(());
        }
        Err(Status::bad_request(format!("container {} is not valid for pod {pod_name}", self.container)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-11-15T10:00:00Z".parse().unwrap()
    }

    fn parse(query: &str) -> Result<LogOptions, Status> {
        LogOptions::parse(&Query::parse(Some(query)), "p", now())
    }

    #[test]
    fn parameters_are_checked_together_pl_121() {
        let refused = parse("tailLines=-1&limitBytes=0&sinceSeconds=5&sinceTime=2026-11-15T09:00:00Z").unwrap_err();
        assert_eq!(
            refused.message,
            "PodLogOptions \"p\" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, limitBytes: Invalid value: 0: must be greater than 0, []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified]"
        );
        let options = parse("sinceSeconds=60&tailLines=0&follow=abc").unwrap();
        assert_eq!(options.since.unwrap().to_string(), "2026-11-15T09:59:00Z");
        assert_eq!((options.tail_lines, options.follow), (Some(0), true));
        let refused = parse("sinceTime=foo&tailLines=-1").unwrap_err();
        let why = "parsing time \"foo\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"foo\" as \"2006\"";
        assert_eq!((refused.code, refused.message.as_str()), (400, why));
        assert_eq!(parse("sinceTime=null").unwrap().since, None);
        for (text, since) in [
            ("2026-11-15T09:00:00.25%2B01:00", "2026-11-15T08:00:00.25Z"),
            ("9999-12-31T23:59:59Z", "9999-12-30T22:00:00.999999999Z"),
        ] {
            assert_eq!(parse(&format!("sinceTime={text}")).unwrap().since.unwrap().to_string(), since);
        }
    }

    #[test]
    fn the_container_is_chosen_or_asked_for_pl_121() {
        let one = json!({"spec": {"containers": [{"name": "a"}]}});
        let with_init = json!({"spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}});
        let two = json!({"spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b"}]}});
        let choose = |pod: &Value, container: &str| {
            let mut options = LogOptions { container: container.to_owned(), ..LogOptions::default() };
            options.choose_container(pod, "p").map(|()| options.container).map_err(|status| status.message.clone())
        };
        assert_eq!(choose(&one, ""), Ok("a".to_owned()));
        assert_eq!(choose(&with_init, ""), Ok("a".to_owned()));
        assert_eq!(choose(&with_init, "i"), Ok("i".to_owned()));
        let several = "a container name must be specified for pod p, choose one of: [i a b]";
        assert_eq!(choose(&two, "").unwrap_err(), several);
        assert_eq!(choose(&one, "zz").unwrap_err(), "container zz is not valid for pod p");
    }
}
