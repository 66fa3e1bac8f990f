//! Nodes (AS-218; upstream's `ValidateNode` and `ValidateNodeUpdate`).
//!
//! Unlike other kinds a node may be created with a status: the node agent registers itself with what it knows.

use std::collections::HashSet;

use api_schema::json as api_json;
use batch_types::{
    annotation_json,
    field::{Error, Path},
    gates::Gates,
    names::{self, NameRule},
    resource_names,
};
use serde_json::{Value, json};

use super::{
    Context, Strategy, cidr,
    metadata::{self, Scope},
    values::{copy, items, members, object_mut, present, remove, set, text, texts},
};

/// New nodes get no pods until somebody has seen them ready (upstream's TaintNodesByCondition admission).
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// Where taints were before they were a field.
const TAINTS_ANNOTATION: &str = "scheduler.alpha.kubernetes.io/taints";
const TAINT_MEMBERS: [annotation_json::Member; 4] =
    [("Key", "string"), ("Value", "string"), ("Effect", "core.TaintEffect"), ("TimeAdded", "v1.Time")];
/// Controllers whose pods a node would rather not have.
const AVOIDED_PODS_ANNOTATION: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
/// The longest name of a declared feature.
const FEATURE_NAME_MAX: usize = names::SUBDOMAIN_MAX;

/// `nodes`.
#[derive(Debug)]
pub struct Node;
/// `nodes/status`.
#[derive(Debug)]
pub struct Status;

impl Strategy for Node {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        default(object);
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        drop_config(object);
        add_not_ready_taint(object);
        Vec::new()
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate(object)
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        warnings(object)
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        copy(new, old, "status");
        drop_config(new);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = validate(new);
        errors.extend(validate_update(new, old));
        errors
    }

    fn warnings_on_update(&self, new: &Value, _old: &Value) -> Vec<String> {
        warnings(new)
    }
}

impl Strategy for Status {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        default(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        copy(new, old, "spec");
        drop_config(new);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate_update(new, old)
    }
}

fn default(object: &mut Value) {
    settle_pod_cidrs(object);
    if present(object, "/status/allocatable").is_none()
        && let Some(capacity) = present(object, "/status/capacity").cloned()
        && let Some(status) = object.get_mut("status")
    {
        set(status, "allocatable", capacity);
    }
}

/// `podCIDR` is the first of `podCIDRs`; where they differ, the older member wins.
fn settle_pod_cidrs(object: &mut Value) {
    let one = text(object, "/spec/podCIDR").to_owned();
    let first = texts(object, "/spec/podCIDRs").first().map(|first| (*first).to_owned()).unwrap_or_default();
    let Some(spec) = object.get_mut("spec") else { return };
    if one.is_empty() && !first.is_empty() {
        set(spec, "podCIDR", first);
    } else if one != first {
        set(spec, "podCIDRs", json!([one]));
    }
}

/// Dynamic kubelet configuration is gone; its members are dropped (upstream keeps those that old objects have, and no
/// object here ever had them).
fn drop_config(object: &mut Value) {
    for (part, member) in [("spec", "configSource"), ("status", "config")] {
        if let Some(part) = object.get_mut(part) {
            remove(part, member);
        }
    }
}

fn add_not_ready_taint(object: &mut Value) {
    let is_not_ready = |taint: &Value| text(taint, "/key") == NOT_READY_TAINT && text(taint, "/effect") == "NoSchedule";
    if items(object, "/spec/taints").iter().any(is_not_ready) {
        return;
    }
    let Some(spec) = object_mut(object, "spec") else { return };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    if taints.is_null() {
        *taints = json!([]);
    }
    if let Some(taints) = taints.as_array_mut() {
        taints.push(json!({"key": NOT_READY_TAINT, "effect": "NoSchedule"}));
    }
}

fn warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if !text(object, "/spec/externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    let list = Path::new("spec").child("podCIDRs");
    for (at, cidr) in texts(object, "/spec/podCIDRs").into_iter().enumerate() {
        warnings.extend(cidr::warning(&list.index(at), cidr));
    }
    warnings
}

fn validate(node: &Value) -> Vec<Error> {
    let mut errors = metadata::validate(node, Scope::Cluster, NameRule::DnsSubdomain);
    errors.extend(validate_annotations(node));
    errors.extend(validate_taints(node));
    errors.extend(validate_resources(node));
    errors.extend(validate_swap(node));
    errors.extend(validate_declared_features(node));
    errors.extend(validate_pod_cidrs(node));
    errors
}

fn validate_update(new: &Value, old: &Value) -> Vec<Error> {
    let mut errors = metadata::validate_update(new, old);
    errors.extend(validate_annotations(new));
    errors.extend(validate_resources(new));
    errors.extend(validate_declared_features(new));
    errors.extend(validate_addresses(new));
    errors.extend(validate_pod_cidrs_kept(new, old));
    let spec = Path::new("spec");
    let [old_provider, new_provider] = [old, new].map(|node| text(node, "/spec/providerID"));
    if !old_provider.is_empty() && old_provider != new_provider {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(Error::forbidden(&spec.child("providerID"), detail));
    }
    errors.extend(validate_taints(new));
    if text(new, "/spec/externalID") != text(old, "/spec/externalID") {
        errors.push(Error::forbidden(&spec.child("externalID"), "may not be updated"));
    }
    errors
}

/// Annotations that were fields once, or became ones (upstream's `ValidateNodeSpecificAnnotations`).
fn validate_annotations(node: &Value) -> Vec<Error> {
    let at = Path::new("metadata").child("annotations");
    let annotation = |key: &str| node["metadata"]["annotations"][key].as_str().filter(|text| !text.is_empty());
    let mut errors = Vec::new();
    if let Some(text) = annotation(TAINTS_ANNOTATION) {
        match annotation_json::list(text, "core.Taint", &TAINT_MEMBERS) {
            Ok(taints) => errors.extend(validate_taint_list(&taints, &at.child(TAINTS_ANNOTATION))),
            Err(why) => errors.push(Error::invalid(&at, TAINTS_ANNOTATION, why)),
        }
    }
    if let Some(text) = annotation(AVOIDED_PODS_ANNOTATION) {
        match avoided_pods(text) {
            Ok(entries) => errors.extend(validate_avoided_pods(&entries, &at.child(AVOIDED_PODS_ANNOTATION))),
            Err(why) => errors.push(Error::invalid(&at.child("AvoidPods"), AVOIDED_PODS_ANNOTATION, why)),
        }
    }
    errors
}

/// The entries of [`AVOIDED_PODS_ANNOTATION`]; of what stands in them only the controller matters.
fn avoided_pods(text: &str) -> Result<Vec<Value>, String> {
    let unreadable =
        |value: &Value, into: &str| Err(format!("json: cannot unmarshal {} into Go {into}", api_json::kind_of(value)));
    let mut members = match api_json::parse(text.as_bytes()).map_err(|error| error.to_string())? {
        Value::Null => return Ok(Vec::new()),
        Value::Object(members) => members,
        other => return unreadable(&other, "value of type v1.AvoidPods"),
    };
    match members.swap_remove("preferAvoidPods") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(entries)) => Ok(entries),
        Some(other) => unreadable(&other, "struct field AvoidPods.preferAvoidPods of type []v1.PreferAvoidPodsEntry"),
    }
}

fn validate_avoided_pods(entries: &[Value], list: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let at = list.index(index).child("PodSignature");
        match present(entry, "/podSignature/podController") {
            None => errors.push(Error::required(&at, "")),
            Some(controller) if controller["controller"] == false => {
                let at = at.child("PodController").child("Controller");
                errors.push(Error::invalid(&at, false, "must point to a controller"));
            }
            Some(_) => {}
        }
    }
    errors
}

/// Upstream reports taints below `metadata`, where they once were an annotation.
fn validate_taints(node: &Value) -> Vec<Error> {
    validate_taint_list(items(node, "/spec/taints"), &Path::new("metadata").child("taints"))
}

fn validate_taint_list(taints: &[Value], list: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let at = list.index(index);
        let [key, value, effect] = ["/key", "/value", "/effect"].map(|member| text(taint, member));
        let key_at = at.child("key");
        errors.extend(names::qualified_name(key).into_iter().map(|message| Error::invalid(&key_at, key, message)));
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.push(Error::invalid(&at.child("value"), value, problems.join(";")));
        }
        errors.extend(validate_taint_effect(effect, &at.child("effect")));
        if !seen.insert((key, effect)) {
            let shown = json!({
                "Key": key, "Value": value, "Effect": effect,
                "TimeAdded": present(taint, "/timeAdded").cloned().unwrap_or_default(),
            });
            let detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(Error { detail, ..Error::duplicate(&at, shown) });
        }
    }
    errors
}

fn validate_taint_effect(effect: &str, at: &Path) -> Option<Error> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    match effect {
        "" => Some(Error::required(at, "")),
        known if EFFECTS.contains(&known) => None,
        other => Some(Error::not_supported(at, other, &EFFECTS)),
    }
}

/// Quantities are not negative, and whole where they count things.
fn validate_resources(node: &Value) -> Vec<Error> {
    let mut errors = Vec::new();
    for part in ["capacity", "allocatable"] {
        let all = Path::new("status").child(part);
        for (name, quantity) in members(node, &format!("/status/{part}")) {
            let quantity = quantity.as_str().unwrap_or_default();
            let at = all.child(name);
            if quantity.starts_with('-') {
                errors.push(Error::invalid(&at, quantity, "must be greater than or equal to 0"));
            }
            if resource_names::is_whole(name) && is_fraction(quantity) {
                errors.push(Error::invalid(&at, quantity, "must be an integer"));
            }
        }
    }
    errors
}

/// In canonical form only these suffixes and a negative exponent stand for less than one.
fn is_fraction(quantity: &str) -> bool {
    quantity.ends_with(['m', 'u', 'n']) || quantity.contains("e-") || quantity.contains("E-")
}

fn validate_swap(node: &Value) -> Option<Error> {
    let capacity = present(node, "/status/nodeInfo/swap/capacity")?.as_i64()?;
    let at = Path::new("metadata").child("nodeSwapStatus").child("capacity");
    (capacity <= 0).then(|| Error::invalid(&at, capacity, "must be greater than zero"))
}

/// Sorted names such as `MyFeature/mySubFeature`.
fn validate_declared_features(node: &Value) -> Vec<Error> {
    let mut errors = Vec::new();
    let list = Path::new("status").child("declaredFeatures");
    let features = texts(node, "/status/declaredFeatures");
    for (at, &feature) in features.iter().enumerate() {
        if let Err(why) = feature_name(feature) {
            errors.push(Error::invalid(&list.index(at), feature, why));
        }
        match features.get(at + 1) {
            Some(&next) if next == feature => errors.push(Error::duplicate(&list.index(at + 1), next)),
            Some(&next) if next < feature => {
                errors.push(Error::invalid(&list.index(at + 1), next, "list must be sorted alphabetically"));
            }
            _ => {}
        }
    }
    errors
}

fn feature_name(name: &str) -> Result<(), String> {
    let shown = batch_types::field::quoted(name);
    if name.len() > FEATURE_NAME_MAX {
        return Err(format!("invalid feature name {shown}: must be no more than {FEATURE_NAME_MAX} characters"));
    }
    let is_segment = |(at, segment): (usize, &str)| {
        let starts_right = |c: char| if at == 0 { c.is_ascii_uppercase() } else { c.is_ascii_alphabetic() };
        segment.starts_with(starts_right) && segment.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    if name.split('/').enumerate().all(is_segment) {
        return Ok(());
    }
    Err(format!(
        "invalid feature name {shown}: must start with an UpperCamelCase segment, with subsequent segments separated by \
         '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
    ))
}

/// At most one range for each family of addresses.
fn validate_pod_cidrs(node: &Value) -> Vec<Error> {
    let cidrs = texts(node, "/spec/podCIDRs");
    let list = Path::new("spec").child("podCIDRs");
    let mut errors: Vec<Error> =
        cidrs.iter().enumerate().filter_map(|(at, cidr)| cidr::validate(&list.index(at), cidr)).collect();
    if cidrs.len() > 1 {
        let families = cidr::families(&cidrs);
        if let Err(why) = &families {
            let detail = format!("invalid PodCIDRs. failed to check with dual stack with error:{why}");
            errors.push(Error::internal(&list, detail));
        }
        if families != Ok(cidr::Families::Both) || cidrs.len() > 2 {
            errors.push(Error::invalid(&list, json!(cidrs), "may specify no more than one CIDR for each IP family"));
        }
    }
    errors
}

/// Ranges are given once and kept.
fn validate_pod_cidrs_kept(new: &Value, old: &Value) -> Vec<Error> {
    let [new, old] = [new, old].map(|node| texts(node, "/spec/podCIDRs"));
    if old.is_empty() {
        return Vec::new();
    }
    let changes = if new.len() == old.len() { new.iter().zip(&old).filter(|(new, old)| new != old).count() } else { 1 };
    let detail = "node updates may not change podCIDR except from \"\" to valid";
    vec![Error::forbidden(&Path::new("spec").child("podCIDRs"), detail); changes]
}

fn validate_addresses(node: &Value) -> Vec<Error> {
    let list = Path::new("status").child("addresses");
    let pair = |address: &Value| (text(address, "/type").to_owned(), text(address, "/address").to_owned());
    let addresses: Vec<(String, String)> = items(node, "/status/addresses").iter().map(pair).collect();
    let repeated = addresses.iter().enumerate().filter(|(at, address)| addresses[..*at].contains(address));
    repeated
        .map(|(at, (kind, address))| Error::duplicate(&list.index(at), json!({"Type": kind, "Address": address})))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::testing::{context, object};

    fn node(members: Value) -> Value {
        let mut node = object("v1", "Node", members);
        remove(&mut node["metadata"], "namespace");
        node
    }

    fn errors(errors: Vec<Error>) -> Vec<String> {
        crate::resources::testing::texts(errors)
    }

    /// AS-218.
    #[test]
    fn new_nodes_are_tainted() {
        let taint = json!({"key": NOT_READY_TAINT, "effect": "NoSchedule"});
        let other = json!({"key": NOT_READY_TAINT, "effect": "NoExecute"});
        let cases = [
            (json!({}), json!([taint])),
            (json!({"taints": [other]}), json!([other, taint])),
            (json!({"taints": [taint]}), json!([taint])),
        ];
        for (spec, expected) in cases {
            let mut node = node(json!({"spec": spec}));
            Node.prepare_for_create(&mut node, &context());
            assert_eq!(node["spec"]["taints"], expected);
        }
    }

    #[test]
    fn allocatable_defaults_to_capacity() {
        let mut fresh = node(json!({"status": {"capacity": {"cpu": "2"}}}));
        Strategy::default(&Node, &mut fresh, context().gates);
        assert_eq!(fresh["status"]["allocatable"], json!({"cpu": "2"}));
        let mut given = node(json!({"status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "1"}}}));
        Strategy::default(&Node, &mut given, context().gates);
        assert_eq!(given["status"]["allocatable"], json!({"cpu": "1"}));
    }

    #[test]
    fn pod_cidr_is_the_first_pod_cidrs() {
        let cases = [
            (json!({}), json!({})),
            (json!({"podCIDR": "a"}), json!({"podCIDR": "a", "podCIDRs": ["a"]})),
            (json!({"podCIDRs": ["a", "b"]}), json!({"podCIDRs": ["a", "b"], "podCIDR": "a"})),
            (json!({"podCIDR": "c", "podCIDRs": ["a", "b"]}), json!({"podCIDR": "c", "podCIDRs": ["c"]})),
            (json!({"podCIDR": "a", "podCIDRs": ["a", "b"]}), json!({"podCIDR": "a", "podCIDRs": ["a", "b"]})),
        ];
        for (spec, expected) in cases {
            let mut node = node(json!({"spec": spec}));
            Strategy::default(&Node, &mut node, context().gates);
            assert_eq!(node["spec"], expected);
        }
    }

    #[test]
    fn taints_are_unique_and_well_formed() {
        let taints = json!([
            {"key": "a", "effect": "NoSchedule"},
            {"key": "a", "effect": "NoExecute"},
            {"key": "a", "value": "x", "effect": "NoSchedule"},
            {"key": "b", "effect": "Never"},
            {"key": "c", "value": "-"},
        ]);
        let label = names::label_value("-").remove(0);
        assert_eq!(
            errors(Node.validate(&node(json!({"spec": {"taints": taints}})), &context())),
            [
                "metadata.taints[2]: Duplicate value: {\"Key\":\"a\",\"Value\":\"x\",\"Effect\":\"NoSchedule\",\
                 \"TimeAdded\":null}: taints must be unique by key and effect pair",
                "metadata.taints[3].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \
                 \"PreferNoSchedule\", \"NoExecute\"",
                &format!("metadata.taints[4].value: Invalid value: \"-\": {label}"),
                "metadata.taints[4].effect: Required value",
            ]
        );
    }

    #[test]
    fn resources_are_amounts() {
        let cases = [
            ("cpu", "500m", None),
            ("cpu", "-1", Some("Invalid value: \"-1\": must be greater than or equal to 0")),
            ("pods", "110", None),
            ("pods", "1500m", Some("Invalid value: \"1500m\": must be an integer")),
            ("example.com/gpu", "1500m", Some("Invalid value: \"1500m\": must be an integer")),
            ("requests.example.com/gpu", "1500m", None),
            ("kubernetes.io/thing", "1500m", None),
        ];
        for (name, quantity, expected) in cases {
            let node = node(json!({"status": {"capacity": {name: quantity}}}));
            let expected: Vec<String> =
                expected.iter().map(|expected| format!("status.capacity.{name}: {expected}")).collect();
            assert_eq!(errors(Node.validate(&node, &context())), expected, "{name}={quantity}");
        }
    }

    #[test]
    fn pod_cidrs_are_one_for_each_family() {
        let one = "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one CIDR for \
                   each IP family";
        let cases = [
            (json!(["10.0.0.0/24"]), vec![]),
            (json!(["10.0.0.0/24", "fd00::/64"]), vec![]),
            (json!(["10.0.0.0/24", "10.0.1.0/24"]), vec![one]),
            (
                json!(["10.0.0.0/24", "x"]),
                vec![
                    "spec.podCIDRs[1]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or \
                     2001:db8::/64)",
                    "spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid \
                     CIDR[1]: <nil> (invalid CIDR address: x)",
                    "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"x\"]: may specify no more than one CIDR for each IP \
                     family",
                ],
            ),
        ];
        for (cidrs, expected) in cases {
            let node = node(json!({"spec": {"podCIDRs": cidrs}}));
            assert_eq!(errors(Node.validate(&node, &context())), expected, "{cidrs}");
        }
    }

    #[test]
    fn some_members_are_set_once() {
        let old = node(json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "p"}}));
        let new = node(json!({"spec": {"podCIDRs": ["10.0.1.0/24"], "providerID": "q", "externalID": "e"}}));
        assert_eq!(
            errors(Node.validate_update(&new, &old, &context())),
            [
                "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
                "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
                "spec.externalID: Forbidden: may not be updated",
            ]
        );
        assert!(Node.validate_update(&old, &node(json!({})), &context()).is_empty());
    }

    #[test]
    fn annotations_with_a_meaning_are_read() {
        let found = |key: &str, text: &str| {
            let key = format!("scheduler.alpha.kubernetes.io/{key}");
            let mut node = node(json!({}));
            node["metadata"]["annotations"] = json!({key: text});
            let new = errors(Node.validate(&node, &context()));
            assert_eq!(new, errors(Status.validate_update(&node, &node, &context())));
            new
        };
        for (key, text) in [
            ("taints", ""),
            ("taints", "null"),
            ("taints", r#"[{"KEY":"a","effect":"NoExecute"}]"#),
            ("preferAvoidPods", "null"),
            ("preferAvoidPods", r#"{"preferAvoidPods":[{"podSignature":{"podController":{"controller":true}}}]}"#),
        ] {
            assert_eq!(found(key, text), [""; 0], "{key} {text}");
        }
        for (key, text, error) in [
            (
                "taints",
                "[{",
                "metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/taints\": unexpected end of JSON \
                 input",
            ),
            (
                "taints",
                r#"[{"key":"a","effect":"x"}]"#,
                "metadata.annotations.scheduler.alpha.kubernetes.io/taints[0].effect: Unsupported value: \"x\": \
                 supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            ),
            (
                "preferAvoidPods",
                "x",
                "metadata.annotations.AvoidPods: Invalid value: \"scheduler.alpha.kubernetes.io/preferAvoidPods\": \
                 invalid character 'x' looking for beginning of value",
            ),
            (
                "preferAvoidPods",
                r#"{"preferAvoidPods":[{}]}"#,
                "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature: Required value",
            ),
        ] {
            assert_eq!(found(key, text), [error], "{key} {text}");
        }
    }

    #[test]
    fn addresses_are_unique() {
        let addresses = json!([{"type": "InternalIP", "address": "a"}, {"type": "InternalIP", "address": "a"}]);
        let new = node(json!({"status": {"addresses": addresses}}));
        assert_eq!(
            errors(Status.validate_update(&new, &node(json!({})), &context())),
            ["status.addresses[1]: Duplicate value: {\"Type\":\"InternalIP\",\"Address\":\"a\"}"]
        );
    }

    #[test]
    fn declared_features_are_sorted_names() {
        let features = json!(["B", "A", "A", "lower", "My/sub"]);
        let found = errors(Node.validate(&node(json!({"status": {"declaredFeatures": features}})), &context()));
        assert_eq!(found[0], "status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted alphabetically");
        assert_eq!(found[1], "status.declaredFeatures[2]: Duplicate value: \"A\"");
        assert!(
            found[2]
                .starts_with("status.declaredFeatures[3]: Invalid value: \"lower\": invalid feature name \"lower\":")
        );
        assert_eq!(
            found[3],
            "status.declaredFeatures[4]: Invalid value: \"My/sub\": list must be sorted alphabetically"
        );
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn each_endpoint_keeps_the_other_part() {
        let old = node(json!({"spec": {"unschedulable": true}, "status": {"phase": "x"}}));
        let sent = node(json!({"spec": {"configSource": {}}, "status": {"config": {}}}));
        let mut main = sent.clone();
        Node.prepare_for_update(&mut main, &old, &context());
        assert_eq!((&main["spec"], &main["status"]), (&json!({}), &old["status"]));
        let mut status = sent;
        Status.prepare_for_update(&mut status, &old, &context());
        assert_eq!((&status["spec"], &status["status"]), (&old["spec"], &json!({})));
    }
}
