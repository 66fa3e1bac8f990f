//! What a work queue measures: the `workqueue_` metrics of client-go, with label `name`.
//!
//! Upstream: k8s.io/component-base/metrics/prometheus/workqueue.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
};

use super::metrics::Metrics;

type Labels = [(&'static str, &'static str); 1];

/// The metrics of one queue.
#[derive(Debug, Clone)]
pub(super) struct QueueMetrics {
    pub(super) depth: Gauge,
    pub(super) adds: Counter,
    pub(super) queue_duration: Histogram,
    pub(super) work_duration: Histogram,
    pub(super) retries: Counter,
}

/// What a queue can say about work that is being done right now: since when, for each key.
pub(super) trait InFlight: Send + Sync {
    fn running(&self) -> Vec<Duration>;
}

impl QueueMetrics {
    pub(super) fn new(metrics: &Metrics, name: &'static str) -> Self {
        let labels: Labels = [("name", name)];
        let histograms = || Family::<Labels, Histogram>::new_with_constructor(histogram);
        let depth: Family<Labels, Gauge> = Family::default();
        let adds: Family<Labels, Counter> = Family::default();
        let retries: Family<Labels, Counter> = Family::default();
        let depth = metrics.register("workqueue_depth", "Current depth of workqueue", depth);
        let adds = metrics.register("workqueue_adds", "Total number of adds handled by workqueue", adds);
        let retries = metrics.register("workqueue_retries", "Total number of retries handled by workqueue", retries);
        let queue_duration = metrics.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            histograms(),
        );
        let work_duration = metrics.register(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            histograms(),
        );
        Self {
            depth: depth.get_or_create_owned(&labels),
            adds: adds.get_or_create_owned(&labels),
            queue_duration: queue_duration.get_or_create_owned(&labels),
            work_duration: work_duration.get_or_create_owned(&labels),
            retries: retries.get_or_create_owned(&labels),
        }
    }
}

/// Ten nanoseconds to a thousand seconds.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(10e-9, 10.0, 12))
}

/// The two gauges that depend on the time of the scrape.
#[derive(Clone, Default)]
struct Running {
    queues: Arc<Mutex<Vec<Queue>>>,
}

/// A queue's name, and the queue for as long as it exists.
type Queue = (&'static str, Weak<dyn InFlight>);

/// Lets the gauges of unfinished work look into a queue for as long as it exists.
pub(super) fn observe(metrics: &Metrics, name: &'static str, queue: Weak<dyn InFlight>) {
    let running = metrics.register_collector("workqueue_unfinished_work_seconds", Running::default);
    let mut queues = running.queues.lock();
    queues.retain(|(known, queue)| *known != name && queue.strong_count() > 0);
    queues.push((name, queue));
}

impl Collector for Running {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let seconds: Vec<(&str, f64, f64)> = self.queues.lock().iter().filter_map(measure).collect();
        let mut gauge = |metric: &str, help: &str, value: fn(&(&str, f64, f64)) -> f64| -> fmt::Result {
            let mut family = encoder.encode_descriptor(metric, help, None, MetricType::Gauge)?;
            for measured in &seconds {
                let labels = [("name", measured.0)];
                ConstGauge::new(value(measured)).encode(family.encode_family(&labels)?)?;
            }
            Ok(())
        };
        gauge(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
            |measured| measured.1,
        )?;
        gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            |measured| measured.2,
        )
    }
}

fn measure((name, queue): &Queue) -> Option<(&'static str, f64, f64)> {
    let running = queue.upgrade()?.running();
    let longest = running.iter().max().copied().unwrap_or_default();
    Some((name, running.iter().map(Duration::as_secs_f64).sum(), longest.as_secs_f64()))
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}
