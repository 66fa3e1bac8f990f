//! API calls by verb: those made here, and those of everybody as the server counts them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::time::timeout;

/// The server's own figures are worth waiting for, but not for long.
const FIGURES_MAX: Duration = Duration::from_secs(5);

/// Verbs that are used here.
const VERBS: [&str; 2] = ["create", "patch"];

/// Counts the calls of this process. Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnCalls {
    counts: Arc<[AtomicU64; 2]>,
    is_answered: Arc<AtomicBool>,
}

impl OwnCalls {
    pub(super) fn count(&self, verb: &str) {
        for (known, count) in VERBS.iter().zip(self.counts.iter()) {
            if *known == verb {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The server has done something that it was asked for.
    pub(super) fn answered(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        VERBS.into_iter().zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed))).collect()
    }
}

/// `apiserver_request_total` by verb; empty where the server does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerCalls {
    pub(super) by_verb: BTreeMap<String, u64>,
}

impl ServerCalls {
    pub(super) async fn read(client: &Client) -> Self {
        let Ok(request) = http::Request::get("/metrics").body(Vec::new()) else { return Self::default() };
        match timeout(FIGURES_MAX, client.request_text(request)).await {
            Ok(Ok(text)) => Self::parse(&text),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the server does not tell its metrics");
                Self::default()
            }
            Err(_) => {
                tracing::debug!("the server does not tell its metrics in time");
                Self::default()
            }
        }
    }

    fn parse(text: &str) -> Self {
        let mut by_verb = BTreeMap::new();
        for line in text.lines() {
            let Some((labels, value)) =
                line.strip_prefix("apiserver_request_total{").and_then(|rest| rest.rsplit_once("} "))
            else {
                continue;
            };
            let verb = labels.split(',').find_map(|label| label.strip_prefix("verb=\"")?.strip_suffix('"'));
            let count = value.split(' ').next().and_then(|number| number.parse::<f64>().ok());
            if let (Some(verb), Some(count)) = (verb, count) {
                *by_verb.entry(verb.to_ascii_lowercase()).or_default() += count.max(0.0) as u64;
            }
        }
        Self { by_verb }
    }

    /// Calls since then.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (verb, count) in &mut self.by_verb {
            *count = count.saturating_sub(before.by_verb.get(verb).copied().unwrap_or_default());
        }
        self.by_verb.retain(|_, count| *count > 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_counts_are_summed_by_verb() {
        let text = "# HELP x\napiserver_request_total{code=\"200\",verb=\"GET\",resource=\"pods\"} 3\n\
                    apiserver_request_total{code=\"404\",verb=\"GET\",resource=\"jobs\"} 2\n\
                    apiserver_request_total{code=\"201\",verb=\"POST\"} 5\nother{verb=\"GET\"} 9\n";
        let calls = ServerCalls::parse(text);
        assert_eq!(calls.by_verb, BTreeMap::from([("get".to_owned(), 5), ("post".to_owned(), 5)]));
        let before = ServerCalls { by_verb: BTreeMap::from([("get".to_owned(), 1), ("post".to_owned(), 5)]) };
        assert_eq!(calls.since(&before).by_verb, BTreeMap::from([("get".to_owned(), 4)]));
    }

    #[test]
    fn own_calls_are_counted_together() {
        let calls = OwnCalls::default();
        let clones = [calls.clone(), calls];
        clones.iter().for_each(|calls| calls.count("patch"));
        assert_eq!(clones[0].counts(), [("create", 0), ("patch", 2)]);
    }
}
