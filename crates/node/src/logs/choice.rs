//! Which instance of a container a log request means, from the pod's status (PL-122).

use serde_json::Value;

/// The instance whose log to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceChoice {
    pub pod_uid: String,
    pub container: String,
    pub attempt: u32,
}

/// Picks from a whole pod object. The error is the message of a 400 answer.
pub fn choose_instance(pod: &Value, container: &str, previous: bool) -> Result<InstanceChoice, String> {
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |what: &str| format!("container \"{container}\" in pod \"{pod_name}\" {what}");
    let Some(status) = status_of(pod, container) else { return Err(refuse("is not available")) };
    let last = &status["lastState"]["terminated"];
    if previous {
        return instance(&last["containerID"])
            .ok_or_else(|| format!("previous terminated container \"{container}\" in pod \"{pod_name}\" not found"));
    }
    let state = &status["state"];
    if state.get("running").is_some_and(|running| !running.is_null()) {
        return instance(&status["containerID"]).ok_or_else(|| refuse("is not available"));
    }
    let terminated = &state["terminated"];
    if !terminated.is_null() {
        return instance(&terminated["containerID"])
            .or_else(|| instance(&last["containerID"]))
            .ok_or_else(|| refuse("is terminated"));
    }
    if !last.is_null() {
        return instance(&last["containerID"]).ok_or_else(|| refuse("is terminated"));
    }
    Err(refuse(&match state["waiting"]["reason"].as_str() {
        Some("ErrImagePull") => "is waiting to start: image can't be pulled".to_owned(),
        Some("ImagePullBackOff") => "is waiting to start: trying and failing to pull image".to_owned(),
        Some(reason) => format!("is waiting to start: {reason}"),
        None => "is not available".to_owned(),
    }))
}

fn status_of<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]
        .iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten()
        .find(|status| status["name"] == container)
}

/// Reads an id as [`crate::lifecycle::container_id`] writes it.
fn instance(id: &Value) -> Option<InstanceChoice> {
    let (_, rest) = id.as_str()?.split_once("://")?;
    let mut parts = rest.split('/');
    let (pod_uid, container, attempt) = (parts.next()?, parts.next()?, parts.next()?);
    let attempt = attempt.parse().ok()?;
    parts.next().is_none().then(|| InstanceChoice {
        pod_uid: pod_uid.to_owned(),
        container: container.to_owned(),
        attempt,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn choose(status: Value, previous: bool) -> String {
        let mut status = status;
        status["name"] = json!("c");
        let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}});
        match choose_instance(&pod, "c", previous) {
            Ok(choice) => choice.attempt.to_string(),
            Err(message) => message,
        }
    }

    #[test]
    fn the_instance_follows_from_the_status() {
        let ended =
            |attempt: u32| json!({"terminated": {"exitCode": 1, "containerID": format!("tally://u/c/{attempt}")}});
        let running = json!({"state": {"running": {}}, "containerID": "tally://u/c/4", "lastState": ended(3)});
        assert_eq!(choose(running.clone(), false), "4");
        assert_eq!(choose(running, true), "3");
        assert_eq!(choose(json!({"state": ended(2), "lastState": {}}), false), "2");
        assert_eq!(
            choose(json!({"state": ended(2), "lastState": {}}), true),
            "previous terminated container \"c\" in pod \"p\" not found"
        );
        let crashing = json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended(1)});
        assert_eq!(choose(crashing, false), "1");
        for (reason, text) in [
            ("ContainerCreating", "ContainerCreating"),
            ("ErrImagePull", "image can't be pulled"),
            ("ImagePullBackOff", "trying and failing to pull image"),
        ] {
            let message = choose(json!({"state": {"waiting": {"reason": reason}}, "lastState": {}}), false);
            assert_eq!(message, format!("container \"c\" in pod \"p\" is waiting to start: {text}"));
        }
        let lost = json!({"state": {"terminated": {"exitCode": 137}}, "lastState": {}});
        assert_eq!(choose(lost, false), "container \"c\" in pod \"p\" is terminated");
    }

    #[test]
    fn a_container_without_status_is_not_available() {
        let pod = json!({"metadata": {"name": "p"}, "status": {}});
        let message = choose_instance(&pod, "c", false).unwrap_err();
        assert_eq!(message, "container \"c\" in pod \"p\" is not available");
    }
}
