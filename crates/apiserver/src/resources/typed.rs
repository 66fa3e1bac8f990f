//! From canonical objects to the typed structs that the rules of `batch_types` read.

use api_schema::registry;
use batch_types::field::{self, Error, Path};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::times;

/// What a rule finds wrong with an object.
///
/// Canonical objects fit their types; one that does not is refused as an internal error and never panics.
pub(super) fn check<T: DeserializeOwned>(object: &Value, rule: impl FnOnce(&T) -> Vec<Error>) -> Vec<Error> {
    match read(object) {
        Ok(typed) => shown_as_sent(rule(&typed), object),
        Err(why) => vec![unreadable(&why)],
    }
}

/// What a rule finds wrong with a change.
pub(super) fn check_update<T: DeserializeOwned>(
    new: &Value,
    old: &Value,
    rule: impl FnOnce(&T, &T) -> Vec<Error>,
) -> Vec<Error> {
    match (read(new), read(old)) {
        (Ok(typed_new), Ok(typed_old)) => shown_as_sent(rule(&typed_new, &typed_old), new),
        (Err(why), _) | (_, Err(why)) => vec![unreadable(&why)],
    }
}

/// An object as a struct, for findings that are not errors; none when it does not fit.
pub(super) fn read<T: DeserializeOwned>(object: &Value) -> Result<T, serde_json::Error> {
    let read = T::deserialize(object);
    if read.is_ok() {
        return read;
    }
    // The only canonical values that a struct cannot hold are times.
    let text = |member: &str| object[member].as_str().unwrap_or_default();
    let Some(ty) = registry().kind(text("apiVersion"), text("kind")) else { return read };
    let mut moved = object.clone();
    if times::bring_within_range(ty, &mut moved) { T::deserialize(&moved) } else { read }
}

fn shown_as_sent(mut errors: Vec<Error>, object: &Value) -> Vec<Error> {
    field::show_as_sent(&mut errors, object);
    errors
}

pub(super) fn unreadable(why: &serde_json::Error) -> Error {
    Error::internal(&Path::default(), why.to_string())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    use super::*;
    use crate::resources::testing::texts;

    #[test]
    fn unreadable_objects_are_refused() {
        let (good, bad) = (json!({"spec": {"template": {}}}), json!({"spec": 7}));
        let never = |_: &Job| panic!("no rule sees an unreadable object");
        assert!(texts(check(&bad, never))[0].contains("Internal error: "));
        for (new, old) in [(&bad, &good), (&good, &bad)] {
            let errors = check_update(new, old, |_: &Job, _: &Job| panic!("no rule sees an unreadable object"));
            assert_eq!(errors.len(), 1);
        }
        assert!(check(&good, |_: &Job| Vec::new()).is_empty());
    }

    /// JA-R5: they are kept, so rules must be able to look at objects that have them.
    #[test]
    fn times_at_the_end_of_year_9999_are_readable() {
        let last = "9999-12-31T23:59:59Z";
        let metadata = json!({"creationTimestamp": last, "annotations": {"a": last}});
        let job = json!({
            "kind": "Job", "apiVersion": "batch/v1", "metadata": metadata, "status": {"startTime": last},
        });
        let errors = check(&job, |job: &Job| {
            assert_eq!(job.metadata.annotations.as_ref().unwrap()["a"], last);
            assert_eq!(job.status.as_ref().unwrap().start_time.as_ref().unwrap().0.to_string(), "9999-12-30T22:00:00Z");
            Vec::new()
        });
        assert_eq!(texts(errors), [""; 0]);
        assert!(crate::metadata::typed(&job).unwrap().creation_timestamp.is_some());
    }
}
