//! LimitRange: defaults and bounds for the resources of new pods (AS-221; upstream's LimitRanger plugin). Pure.
//!
//! Bounds on claims are not here, since PersistentVolumeClaims are not served.

use api_schema::Quantity;
use batch_types::pod;
use k8s_openapi::{api::core::v1::PodSpec, serde::Deserialize};
use serde_json::{Map, Value};

use crate::{
    metadata,
    quota::amounts::{self, Amounts},
    resources::values::{items, text},
};

/// Where a pod says what it was given.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Gives the containers of a new pod what they do not ask for themselves.
pub(crate) fn admit(limit_range: &Value, pod: &mut Value) {
    let (requests, limits) = defaults(limit_range);
    let mut told = Vec::new();
    for (list, described) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter(|container| container.is_object()) {
            let name = text(container, "/name").to_owned();
            for (what, defaults) in [("request", &requests), ("limit", &limits)] {
                let given = fill(container, &format!("{what}s"), defaults);
                if !given.is_empty() {
                    told.push(format!("{} {what} for {described} {name}", given.join(", ")));
                }
            }
        }
    }
    if told.is_empty() {
        return;
    }
    let annotations = metadata::of(pod).entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(ANNOTATION.to_owned(), format!("LimitRanger plugin set: {}", told.join("; ")).into());
    }
}

/// Everything that puts a pod out of bounds, in one text.
pub(crate) fn check(limit_range: &Value, pod: &Value) -> Result<(), String> {
    let mut problems = Vec::new();
    for limit in items(limit_range, "/spec/limits") {
        match text(limit, "/type") {
            "Container" => {
                for container in ["/spec/containers", "/spec/initContainers"].iter().flat_map(|list| items(pod, list)) {
                    let requests = amounts::read(container.pointer("/resources/requests"));
                    let limits = amounts::read(container.pointer("/resources/limits"));
                    Asked { per: "Container", requests, limits }.check(limit, &mut problems);
                }
            }
            "Pod" => {
                // A pod that passed validation fits its type.
                let spec = PodSpec::deserialize(&pod["spec"]).unwrap_or_default();
                Asked { per: "Pod", requests: pod::requests(&spec), limits: pod::limits(&spec) }
                    .check(limit, &mut problems);
            }
            _ => {}
        }
    }
    let mut distinct: Vec<String> = Vec::new();
    for problem in problems {
        if !distinct.contains(&problem) {
            distinct.push(problem);
        }
    }
    match distinct.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

/// Default requests and limits of containers; later entries win.
fn defaults(limit_range: &Value) -> (Map<String, Value>, Map<String, Value>) {
    let mut defaults = (Map::new(), Map::new());
    for limit in items(limit_range, "/spec/limits").iter().filter(|limit| text(limit, "/type") == "Container") {
        for (list, total) in [("defaultRequest", &mut defaults.0), ("default", &mut defaults.1)] {
            total.extend(limit[list].as_object().cloned().unwrap_or_default());
        }
    }
    defaults
}

/// Adds what a container's list lacks; the names of what was added, sorted.
fn fill(container: &mut Value, list: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let has = |name: &String| container["resources"][list].get(name).is_some();
    let mut missing: Vec<String> = defaults.keys().filter(|name| !has(name)).cloned().collect();
    missing.sort_unstable();
    for name in &missing {
        container["resources"][list][name] = defaults[name].clone();
    }
    missing
}

/// What a container or a pod asks for.
struct Asked {
    per: &'static str,
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn check(&self, limit: &Value, problems: &mut Vec<String>) {
        for (name, bound) in amounts::read(limit.get("min")) {
            problems.extend(self.below(&name, &bound));
        }
        for (name, bound) in amounts::read(limit.get("max")) {
            problems.extend(self.above(&name, &bound));
        }
        for (name, bound) in amounts::read(limit.get("maxLimitRequestRatio")) {
            problems.extend(self.stretched(&name, &bound));
        }
    }

    fn below(&self, name: &str, bound: &Quantity) -> Option<String> {
        let rule = format!("minimum {name} usage per {} is {bound}", self.per);
        match (self.requests.get(name), self.limits.get(name)) {
            (None, _) => Some(format!("{rule}.  No request is specified")),
            (Some(request), _) if request < bound => Some(format!("{rule}, but request is {request}")),
            (_, Some(limit)) if limit < bound => Some(format!("{rule}, but limit is {limit}")),
            _ => None,
        }
    }

    fn above(&self, name: &str, bound: &Quantity) -> Option<String> {
        let rule = format!("maximum {name} usage per {} is {bound}", self.per);
        match (self.limits.get(name), self.requests.get(name)) {
            (None, _) => Some(format!("{rule}.  No limit is specified")),
            (Some(limit), _) if limit > bound => Some(format!("{rule}, but limit is {limit}")),
            (_, Some(request)) if request > bound => Some(format!("{rule}, but request is {request}")),
            _ => None,
        }
    }

    fn stretched(&self, name: &str, bound: &Quantity) -> Option<String> {
        let rule = format!("{name} max limit to request ratio per {} is {bound}", self.per);
        let positive = |list: &Amounts| list.get(name).map(thousandths).filter(|amount| *amount != 0.0);
        let Some(request) = positive(&self.requests) else {
            return Some(format!("{rule}, but no request is specified or request is 0"));
        };
        let Some(limit) = positive(&self.limits) else {
            return Some(format!("{rule}, but no limit is specified or limit is 0"));
        };
        let ratio = limit / request;
        (ratio * 1000.0 > thousandths(bound)).then(|| format!("{rule}, but provided ratio is {ratio:.6}"))
    }
}

/// Ratios are floating point numbers upstream too.
fn thousandths(amount: &Quantity) -> f64 {
    amount.milli_value() as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limit_range(limits: Value) -> Value {
        json!({"spec": {"limits": limits}})
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "a", "resources": resources}]}})
    }

    #[test]
    fn containers_get_what_they_do_not_ask_for() {
        let range = limit_range(json!([
            {"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}},
            {"type": "Pod", "default": {"cpu": "9"}},
        ]));
        let mut object = pod(json!({"limits": {"memory": "2Gi"}}));
        object["spec"]["initContainers"] = json!([{"name": "first"}]);
        admit(&range, &mut object);
        assert_eq!(
            object["spec"]["containers"][0]["resources"],
            json!({"limits": {"memory": "2Gi", "cpu": "500m"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(
            object["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c; cpu request for init \
             container first; cpu, memory limit for init container first"
        );
    }

    #[test]
    fn nothing_to_give_leaves_no_trace() {
        let mut object = pod(json!({}));
        let before = object.clone();
        admit(&limit_range(json!([{"type": "Container", "max": {"cpu": "1"}}])), &mut object);
        assert_eq!(object, before);
    }

    #[test]
    fn bounds_are_told_in_upstreams_words() {
        let container = |key: &str, bound: Value| json!([{"type": "Container", key: bound}]);
        let asked = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}});
        let cases = [
            (container("min", json!({"cpu": "100m"})), asked.clone(), ""),
            (
                container("min", json!({"cpu": "200m"})),
                asked.clone(),
                "minimum cpu usage per Container is 200m, but request is 100m",
            ),
            (
                container("min", json!({"memory": "1Mi"})),
                asked.clone(),
                "minimum memory usage per Container is 1Mi.  No request is specified",
            ),
            (
                container("max", json!({"cpu": "500m"})),
                asked.clone(),
                "maximum cpu usage per Container is 500m, but limit is 1",
            ),
            (
                container("max", json!({"memory": "1Gi"})),
                asked.clone(),
                "maximum memory usage per Container is 1Gi.  No limit is specified",
            ),
            (
                container("maxLimitRequestRatio", json!({"cpu": "4"})),
                asked.clone(),
                "cpu max limit to request ratio per Container is 4, but provided ratio is 10.000000",
            ),
            (
                container("maxLimitRequestRatio", json!({"memory": "2"})),
                asked.clone(),
                "memory max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
            (
                json!([{"type": "Pod", "max": {"cpu": "500m"}, "min": {"cpu": "200m"}}]),
                asked.clone(),
                "[minimum cpu usage per Pod is 200m, but request is 100m, maximum cpu usage per Pod is 500m, but limit \
                 is 1]",
            ),
            (json!([{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]), asked, ""),
        ];
        for (limits, resources, expected) in cases {
            let problem = check(&limit_range(limits.clone()), &pod(resources)).err().unwrap_or_default();
            assert_eq!(problem, expected, "{limits}");
        }
    }

    #[test]
    fn a_pod_is_bounded_by_all_its_containers_together() {
        let mut object = pod(json!({"limits": {"cpu": "1"}}));
        let sidecar = json!({"name": "side", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}});
        object["spec"]["initContainers"] = json!([sidecar]);
        let range = limit_range(json!([{"type": "Pod", "max": {"cpu": "1500m"}}]));
        assert_eq!(check(&range, &object).unwrap_err(), "maximum cpu usage per Pod is 1500m, but limit is 2");
    }
}
