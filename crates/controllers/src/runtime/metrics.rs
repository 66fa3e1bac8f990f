//! The metrics registry of a process, and its text exposition.
//!
//! Names, labels and buckets are upstream's where upstream has them. What a controller measures is defined beside that
//! controller; serving the text over HTTP is in `endpoint`.

use std::{any::Any, collections::HashMap, fmt, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::text,
    registry::{Metric, Registry},
};

/// All metrics of a process. Cheap to clone; all clones are one registry.
#[derive(Clone, Default)]
pub struct Metrics {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    registry: Registry,
    /// Every metric by name, so that a controller that starts a second time finds the ones of its first time.
    known: HashMap<&'static str, Box<dyn Any + Send>>,
}

/// The two texts that a scraper can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' own text format 0.0.4, what kube components serve by default.
    Prometheus,
    OpenMetrics,
}

impl Exposition {
    /// The one that a scraper's `Accept` header asks for.
    pub fn accepted(accept: Option<&str>) -> Self {
        match accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Metrics {
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a metric, or returns the one that was registered under this name before.
    ///
    /// `name` is without the suffix `_total` of counters: the encoding adds it.
    pub fn register<M: Metric + Clone>(&self, name: &'static str, help: &str, metric: M) -> M {
        let mut inner = self.inner.lock();
        if let Some(known) = inner.known.get(name).and_then(|known| known.downcast_ref::<M>()) {
            return known.clone();
        }
        inner.registry.register(name, help.trim_end_matches('.'), metric.clone());
        inner.known.insert(name, Box::new(metric.clone()));
        metric
    }

    /// Registers values that are computed when somebody asks.
    pub fn register_collector<C: Collector + Clone>(&self, name: &'static str, collector: impl FnOnce() -> C) -> C {
        let mut inner = self.inner.lock();
        if let Some(known) = inner.known.get(name).and_then(|known| known.downcast_ref::<C>()) {
            return known.clone();
        }
        let collector = collector();
        inner.registry.register_collector(Box::new(collector.clone()));
        inner.known.insert(name, Box::new(collector.clone()));
        collector
    }

    /// All metrics as text.
    pub fn encode(&self, exposition: Exposition) -> String {
        let mut text = String::new();
        // Writing to a string fails only when an encoder does, and then what was written so far is still of use.
        if let Err(error) = text::encode(&mut text, &self.inner.lock().registry) {
            tracing::error!(%error, "encode metrics");
        }
        match exposition {
            Exposition::OpenMetrics => text,
            Exposition::Prometheus => prometheus(&text),
        }
    }
}

/// The older format names a counter with its suffix in the comments too, and has no end mark.
fn prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help: Option<&str> = None;
    for line in open_metrics.lines().filter(|line| *line != "# EOF") {
        if line.starts_with("# HELP ") {
            help = Some(line);
            continue;
        }
        let counter = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter"));
        if let Some(help) = help.take() {
            push_line(&mut text, counter.map_or_else(|| help.to_owned(), |name| suffixed(help, name)).as_str());
        }
        match counter {
            Some(name) => push_line(&mut text, &format!("# TYPE {name}_total counter")),
            None => push_line(&mut text, line),
        }
    }
    text
}

fn suffixed(help: &str, name: &str) -> String {
    help.replacen(name, &format!("{name}_total"), 1)
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

    use super::*;

    #[test]
    fn both_expositions_are_what_scrapers_expect() {
        let metrics = Metrics::new();
        let counter: Counter = metrics.register("job_syncs", "How many syncs.", Counter::default());
        counter.inc();
        let _: Gauge = metrics.register("depth", "How deep", Gauge::default());
        let open = metrics.encode(Exposition::OpenMetrics);
        assert!(open.contains("# TYPE job_syncs counter\njob_syncs_total 1\n"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
        let plain = metrics.encode(Exposition::Prometheus);
        let counter = "# HELP job_syncs_total How many syncs.\n# TYPE job_syncs_total counter\njob_syncs_total 1\n";
        assert_eq!(plain, format!("{counter}# HELP depth How deep.\n# TYPE depth gauge\ndepth 0\n"));
    }

    #[test]
    fn a_second_registration_is_the_first_metric() {
        let metrics = Metrics::new();
        let first: Counter = metrics.register("starts", "Starts", Counter::default());
        first.inc();
        let second: Counter = metrics.register("starts", "Starts", Counter::default());
        assert_eq!(second.get(), 1);
        assert_eq!(metrics.encode(Exposition::Prometheus).matches("# TYPE").count(), 1);
    }
}
