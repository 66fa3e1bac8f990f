//! Jobs: the rules of `batch_types::job` as strategies (AS-148, AS-225).

use batch_types::{
    constants::label,
    field::Error,
    gates::Gates,
    job::{self, CreateFacts, Defaulted},
};
use serde_json::Value;

use super::{
    Context, Strategy, typed,
    values::{members, text},
};

/// `jobs`.
#[derive(Debug)]
pub struct Job;
/// `jobs/status`.
#[derive(Debug)]
pub struct Status;

impl Strategy for Job {
    fn default(&self, object: &mut Value, gates: &Gates) {
        job::default(object, gates);
    }

    fn defaults_on_read(&self) -> bool {
        true
    }

    fn default_on_read(&self, object: &mut Value, gates: &Gates) -> bool {
        // Labels that the strategy generated for the template become the Job's own when it has none (JA-D4).
        let had_labels = members(object, "/metadata/labels").next().is_some();
        if !had_labels {
            job::default(object, gates);
        }
        !had_labels
    }

    fn is_completed_by_first_write(&self, old: &Value) -> bool {
        // Exactly the generated labels, on Job and template alike: neither had labels of its own (JA-D4).
        const GENERATED: usize = 4;
        let labels = &old["metadata"]["labels"];
        labels.as_object().is_some_and(|labels| labels.len() == GENERATED && labels.contains_key(label::CONTROLLER_UID))
            && *labels == old["spec"]["template"]["metadata"]["labels"]
    }

    fn prepare_for_create(&self, object: &mut Value, cx: &Context<'_>) -> Vec<String> {
        // A Job that has labels without having been given any got them from its template (JA-D4).
        let has_labels = members(object, "/metadata/labels").next().is_some();
        let defaulted = Defaulted { labels_from_template: has_labels && !cx.labels_were_given };
        let uid = text(object, "/metadata/uid").to_owned();
        let facts = CreateFacts { uid: &uid, generated_name: cx.name_was_generated, defaulted, gates: cx.gates };
        job::prepare_for_create(object, &facts);
        Vec::new()
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        typed::check(object, job::validate)
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        typed::read(object).map(|job| job::warnings_on_create(&job)).unwrap_or_default()
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, cx: &Context<'_>) {
        job::prepare_for_update(new, old, cx.gates);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        typed::check_update(new, old, job::validate_update)
    }

    fn warnings_on_update(&self, new: &Value, old: &Value) -> Vec<String> {
        match (typed::read(new), typed::read(old)) {
            (Ok(new), Ok(old)) => job::warnings_on_update(&new, &old),
            _ => Vec::new(),
        }
    }

    fn orphans_by_default(&self) -> Option<&'static str> {
        Some(job::ORPHAN_BY_DEFAULT_WARNING)
    }
}

impl Strategy for Status {
    fn default(&self, object: &mut Value, gates: &Gates) {
        job::default(object, gates);
    }

    fn defaults_on_read(&self) -> bool {
        true
    }

    fn default_on_read(&self, object: &mut Value, gates: &Gates) -> bool {
        Job.default_on_read(object, gates)
    }

    fn is_completed_by_first_write(&self, old: &Value) -> bool {
        Job.is_completed_by_first_write(old)
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        job::prepare_for_status_update(new, old);
    }

    fn validate_update(&self, new: &Value, old: &Value, cx: &Context<'_>) -> Vec<Error> {
        typed::check_update(new, old, |new, old| job::validate_status_update(new, old, cx.gates))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::testing::{context, object, texts};

    fn created(metadata_labels: Value, template_labels: Value) -> Value {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "a:1"}]});
        let template = json!({"metadata": {"labels": template_labels}, "spec": pod});
        let mut job = object("batch/v1", "Job", json!({"spec": {"template": template}, "status": {"active": 9}}));
        let labels_were_given = metadata_labels != json!({});
        job["metadata"]["labels"] = metadata_labels;
        Strategy::default(&Job, &mut job, context().gates);
        Job.prepare_for_create(&mut job, &Context { labels_were_given, ..context() });
        job
    }

    /// JA-D4: labels taken from the template grow with it, equal labels that the user gave do not.
    #[test]
    fn labels_from_the_template_are_told_from_equal_ones() {
        let app = json!({"app": "x"});
        let taken = created(json!({}), app.clone());
        assert_eq!(taken["metadata"]["labels"], taken["spec"]["template"]["metadata"]["labels"]);
        assert_eq!(taken["metadata"]["labels"].as_object().map(|labels| labels.len()), Some(5));
        let given = created(app.clone(), app.clone());
        assert_eq!(given["metadata"]["labels"], app);
    }

    #[test]
    fn a_minimal_job_is_complete_and_valid() {
        let job = created(json!({}), json!({}));
        assert_eq!(job["metadata"]["generation"], 1);
        assert_eq!(job["status"], json!({}));
        assert_eq!(job["spec"]["backoffLimit"], 6);
        assert_eq!(texts(Job.validate(&job, &context())), [""; 0]);
        assert_eq!(Job.warnings_on_create(&job), [""; 0]);
    }

    /// AS-112: each endpoint keeps the other's part.
    #[test]
    fn updates_keep_what_is_not_theirs() {
        let old = created(json!({}), json!({}));
        let mut sent = old.clone();
        sent["spec"]["parallelism"] = json!(2);
        sent["status"] = json!({"active": 1});
        let mut main = sent.clone();
        Job.prepare_for_update(&mut main, &old, &context());
        assert_eq!((&main["status"], &main["metadata"]["generation"]), (&json!({}), &json!(2)));
        assert_eq!(texts(Job.validate_update(&main, &old, &context())), [""; 0]);
        let mut status = sent;
        Status.prepare_for_update(&mut status, &old, &context());
        assert_eq!((&status["spec"], &status["status"]), (&old["spec"], &json!({"active": 1})));
    }
}
