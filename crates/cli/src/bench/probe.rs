//! Small Jobs beside the load: how long does one take while the controller is busy?

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures_util::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::time::{MissedTickBehavior, interval};

use super::load::{Load, failure};
use crate::failure::Failure;
use crate::job_view::{JobView, Outcome};

/// Adds the time of each probe that completes. Works until it is dropped; ends only with what keeps it from working.
pub(super) async fn run(load: &Load, every: Duration, times: &mut Vec<Duration>) -> Failure {
    let api: Api<Job> = Api::namespaced(load.cluster.client.clone(), &load.namespace);
    let config = watcher::Config::default().labels(&load.selector("probe"));
    let mut events = watcher(api.clone(), config).default_backoff().boxed();
    let mut begun: HashMap<String, Instant> = HashMap::new();
    let mut tick = interval(every.max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0_u64;
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let name = load.name("probe", number);
                number += 1;
                begun.insert(name.clone(), Instant::now());
                load.calls.count("create");
                let created = async {
                    let job = load.job(&name, "probe", 1, 1)?;
                    api.create(&PostParams::default(), &job).await.map_err(|error| load.refused(error))
                };
                if let Err(failure) = created.await {
                    return failure;
                }
            }
            event = events.next() => match event {
                Some(Ok(Event::Apply(job) | Event::InitApply(job))) => {
                    let view = JobView::of(&job);
                    match view.outcome {
                        None => {}
                        Some(Outcome::Complete) => times.extend(begun.remove(&view.name).map(|begin| begin.elapsed())),
                        Some(failed) => return failure(&view.name, &failed),
                    }
                }
                Some(_) => {}
                None => return Failure::new(anyhow!("the watch of probes ended")),
            }
        }
    }
}
