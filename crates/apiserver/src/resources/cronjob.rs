//! CronJobs: the rules of `batch_types::cronjob` as strategies (AS-225).

use batch_types::{cronjob, field::Error, gates::Gates};
use serde_json::Value;

use super::{Context, Strategy, typed};

/// `cronjobs`.
#[derive(Debug)]
pub struct CronJob;
/// `cronjobs/status`.
#[derive(Debug)]
pub struct Status;

impl Strategy for CronJob {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        cronjob::default(object);
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        cronjob::prepare_for_create(object);
        Vec::new()
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        typed::check(object, cronjob::validate)
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        typed::read(object).map(|cron_job| cronjob::warnings_on_create(&cron_job)).unwrap_or_default()
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        cronjob::prepare_for_update(new, old);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        typed::check_update(new, old, cronjob::validate_update)
    }

    fn warnings_on_update(&self, new: &Value, old: &Value) -> Vec<String> {
        match (typed::read(new), typed::read(old)) {
            (Ok(new), Ok(old)) => cronjob::warnings_on_update(&new, &old),
            _ => Vec::new(),
        }
    }
}

impl Strategy for Status {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        cronjob::default(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        cronjob::prepare_for_status_update(new, old);
    }
}
