//! The quality of service class: how much a pod is promised of what it may use (AS-173).

use std::collections::BTreeMap;

use api_schema::Quantity;
use serde_json::{Map, Value};

use crate::json::at;

/// `BestEffort` with no cpu or memory asked for at all, `Guaranteed` if all is limited to what is requested,
/// `Burstable` in between.
pub fn qos_class(pod: &Value) -> &'static str {
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
    let mut guaranteed = true;
    if let Some(resources) = at(pod, &["spec", "resources"]) {
        add(&mut requests, list(resources, "requests"));
        let pod_limits = list(resources, "limits");
        add(&mut limits, pod_limits);
        guaranteed = pod_limits.is_none_or(|limits| limits.is_empty() || limits_both(limits));
    } else {
        for container in
            ["containers", "initContainers"].iter().filter_map(|key| at(pod, &["spec", key])).flat_map(items)
        {
            let empty = Value::Null;
            let resources = container.get("resources").unwrap_or(&empty);
            add(&mut requests, list(resources, "requests"));
            add(&mut limits, list(resources, "limits"));
            guaranteed &= list(resources, "limits").is_some_and(limits_both);
        }
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Amounts above zero of the two resources that count.
type Amounts = BTreeMap<&'static str, Quantity>;

fn positive(list: &Map<String, Value>, name: &str) -> Option<Quantity> {
    let amount = Quantity::parse(list.get(name)?.as_str()?).ok()?;
    (amount > Quantity::ZERO).then_some(amount)
}

fn limits_both(limits: &Map<String, Value>) -> bool {
    ["cpu", "memory"].iter().all(|name| positive(limits, name).is_some())
}

fn add(total: &mut Amounts, list: Option<&Map<String, Value>>) {
    let Some(list) = list else { return };
    for name in ["cpu", "memory"] {
        if let Some(amount) = positive(list, name) {
            total.entry(name).or_insert(Quantity::ZERO).add(&amount);
        }
    }
}

fn list<'a>(resources: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    resources.get(key).and_then(Value::as_object)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_follow_from_cpu_and_memory() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let cases = [
            (json!({"containers": [{}]}), "BestEffort"),
            (json!({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}), "BestEffort"),
            (json!({"containers": [{"resources": {"limits": {"example.com/gpu": "1"}}}]}), "BestEffort"),
            (json!({"containers": [{"resources": {"requests": both, "limits": both}}]}), "Guaranteed"),
            (
                json!({"containers": [{"resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": both}}]}),
                "Guaranteed",
            ),
            (json!({"containers": [{"resources": {"requests": both, "limits": both}}, {}]}), "Burstable"),
            (json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}), "Burstable"),
            (json!({"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}), "Burstable"),
            (
                json!({
                    "containers": [{"resources": {"requests": both, "limits": both}}],
                    "initContainers": [{"resources": {"requests": {"cpu": "1"}}}],
                }),
                "Burstable",
            ),
            (json!({"containers": [{}], "resources": {"requests": both, "limits": both}}), "Guaranteed"),
            (json!({"containers": [{}], "resources": {"requests": {"cpu": "1"}}}), "Burstable"),
            (json!({"containers": [{"resources": {"limits": both}}], "resources": {}}), "BestEffort"),
        ];
        for (spec, class) in cases {
            assert_eq!(qos_class(&json!({"spec": spec})), class, "{spec}");
        }
    }
}
