//! LimitRanges: defaults and bounds for what pods ask for (upstream's `ValidateLimitRange`).
//!
//! What they do to pods is in `limits`.

use std::collections::{BTreeSet, HashSet};

use api_schema::{Format, Quantity};
use batch_types::{
    field::{Error, Path},
    gates::Gates,
    names::{self, NameRule},
    resource_names,
};
use serde_json::{Map, Value};

use super::{
    Context, Strategy,
    metadata::{self, Scope},
    values::{items, text},
};
use crate::quota::amounts::{self, Amounts};

const NOT_FOR_PODS: &str = "may not be specified when `type` is 'Pod'";

/// `limitranges`.
#[derive(Debug)]
pub struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        let limits = object.pointer_mut("/spec/limits").and_then(Value::as_array_mut);
        for limit in limits.into_iter().flatten().filter(|limit| limit.is_object()) {
            default_container(limit);
            for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                amounts::round_up(limit.get_mut(list));
            }
        }
    }

    /// A LimitRange without a name gets one nobody else has.
    fn prepare_for_create(&self, object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        if text(object, "/metadata/name").is_empty() {
            let unique = text(object, "/metadata/uid").to_owned();
            crate::metadata::of(object).insert("name".to_owned(), Value::from(unique));
        }
        Vec::new()
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate(object)
    }

    /// Upstream does not compare with the old object.
    fn validate_update(&self, new: &Value, _old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate(new)
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

/// Default limits follow from the maximum, default requests from default limits or else from the minimum.
fn default_container(limit: &mut Value) {
    if text(limit, "/type") != "Container" {
        return;
    }
    let list = |name: &str| limit[name].as_object().cloned().unwrap_or_default();
    let default = filled(list("default"), list("max"));
    let request = filled(filled(list("defaultRequest"), default.clone()), list("min"));
    for (name, list) in [("default", default), ("defaultRequest", request)] {
        if !list.is_empty() {
            limit[name] = Value::Object(list);
        }
    }
}

fn filled(mut list: Map<String, Value>, from: Map<String, Value>) -> Map<String, Value> {
    for (name, amount) in from {
        list.entry(name).or_insert(amount);
    }
    list
}

fn validate(object: &Value) -> Vec<Error> {
    let mut errors = metadata::validate(object, Scope::Namespaced, NameRule::DnsSubdomain);
    let at = Path::new("spec").child("limits");
    let mut seen = HashSet::new();
    for (index, limit) in items(object, "/spec/limits").iter().enumerate() {
        let at = at.index(index);
        let kind = text(limit, "/type");
        errors.extend(validate_type(kind, &at.child("type")));
        if !seen.insert(kind) {
            errors.push(Error::duplicate(&at.child("type"), kind));
        }
        let bounds = Bounds::of(limit, kind);
        errors.extend(bounds.validate_names(limit, &at));
        for name in bounds.names() {
            errors.extend(bounds.validate(name, &at));
        }
    }
    errors
}

fn validate_type(kind: &str, at: &Path) -> Vec<Error> {
    let mut errors: Vec<Error> =
        names::qualified_name(kind).into_iter().map(|message| Error::invalid(at, kind, message)).collect();
    let is_standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
    if errors.is_empty() && !kind.contains('/') && !is_standard {
        errors.push(Error::invalid(at, kind, "must be a standard limit type or fully qualified"));
    }
    errors
}

/// The lists of one limit that are allowed for its type.
struct Bounds<'a> {
    kind: &'a str,
    min: Amounts,
    max: Amounts,
    default: Amounts,
    request: Amounts,
    ratio: Amounts,
}

impl<'a> Bounds<'a> {
    fn of(limit: &Value, kind: &'a str) -> Self {
        let list = |name| amounts::read(limit.get(name));
        let for_containers = |name| if kind == "Pod" { Amounts::new() } else { list(name) };
        Self {
            kind,
            min: list("min"),
            max: list("max"),
            default: for_containers("default"),
            request: for_containers("defaultRequest"),
            ratio: list("maxLimitRequestRatio"),
        }
    }

    fn names(&self) -> BTreeSet<&String> {
        [&self.min, &self.max, &self.default, &self.request, &self.ratio].into_iter().flat_map(Amounts::keys).collect()
    }

    /// Names of resources, list by list, and lists that do not belong.
    fn validate_names(&self, limit: &Value, at: &Path) -> Vec<Error> {
        let names = |list: &Amounts, member: &str| -> Vec<Error> {
            let at = at.child(member);
            list.keys().flat_map(|name| validate_name(self.kind, name, &at.key(name))).collect()
        };
        let mut errors = names(&self.max, "max");
        errors.extend(names(&self.min, "min"));
        if self.kind == "Pod" {
            for member in ["default", "defaultRequest"] {
                if limit[member].as_object().is_some_and(|list| !list.is_empty()) {
                    errors.push(Error::forbidden(&at.child(member), NOT_FOR_PODS));
                }
            }
        }
        errors.extend(names(&self.default, "default"));
        errors.extend(names(&self.request, "defaultRequest"));
        if self.kind == "PersistentVolumeClaim"
            && ![&self.min, &self.max].iter().any(|list| list.contains_key("storage"))
        {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(Error::required(&at.child("limits"), detail));
        }
        errors.extend(names(&self.ratio, "maxLimitRequestRatio"));
        errors
    }

    /// The amounts of one resource against each other.
    fn validate(&self, name: &str, at: &Path) -> Vec<Error> {
        let (min, max) = (self.min.get(name), self.max.get(name));
        let (default, request, ratio) = (self.default.get(name), self.request.get(name), self.ratio.get(name));
        let mut errors = Vec::new();
        let mut invalid = |member: &str, shown: &Quantity, detail: String| {
            errors.push(Error::invalid(&at.child(member).key(name), shown.to_string(), detail));
        };
        if let Some((min, max)) = exceeds(min, max) {
            invalid("min", min, format!("min value {min} is greater than max value {max}"));
        }
        if let Some((min, request)) = exceeds(min, request) {
            let detail = format!("min value {min} is greater than default request value {request}");
            invalid("defaultRequest", request, detail);
        }
        if let Some((request, max)) = exceeds(request, max) {
            let detail = format!("default request value {request} is greater than max value {max}");
            invalid("defaultRequest", request, detail);
        }
        if let Some((request, default)) = exceeds(request, default) {
            let detail = format!("default request value {request} is greater than default limit value {default}");
            invalid("defaultRequest", request, detail);
        }
        // Upstream shows the bound here, not what breaks it.
        if let Some((min, default)) = exceeds(min, default) {
            invalid("default", min, format!("min value {min} is greater than default value {default}"));
        }
        if let Some((default, max)) = exceeds(default, max) {
            invalid("default", max, format!("default value {default} is greater than max value {max}"));
        }
        if let Some(ratio) = ratio {
            if *ratio < Quantity::new(1, Format::DecimalSI) {
                invalid("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
            }
            if let (Some(min), Some(max)) = (min, max) {
                let possible = max.milli_value() as f64 / min.milli_value() as f64;
                if ratio.milli_value() as f64 / 1000.0 > possible {
                    let detail = format!("ratio {ratio} is greater than max/min = {possible:.6}");
                    invalid("maxLimitRequestRatio", ratio, detail);
                }
            }
        }
        if let (Some(default), Some(request)) = (default, request)
            && !resource_names::is_overcommit_allowed(name)
            && default != request
        {
            let detail = format!("default value {default} must equal to defaultRequest value {request} in {name}");
            invalid("defaultRequest", request, detail);
        }
        errors
    }
}

fn exceeds<'a>(one: Option<&'a Quantity>, other: Option<&'a Quantity>) -> Option<(&'a Quantity, &'a Quantity)> {
    one.zip(other).filter(|(one, other)| one > other)
}

fn validate_name(kind: &str, name: &str, at: &Path) -> Vec<Error> {
    match kind {
        "Pod" | "Container" => resource_names::validate_for_container(name, at),
        _ => resource_names::validate(name, at),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::testing::{context, object, texts};

    fn limit_range(limits: Value) -> Value {
        object("v1", "LimitRange", json!({"spec": {"limits": limits}}))
    }

    fn defaulted(limit: Value) -> Value {
        let mut object = limit_range(json!([limit]));
        LimitRange.default(&mut object, &Gates::DEFAULT);
        object["spec"]["limits"][0].take()
    }

    #[test]
    fn defaults_follow_from_bounds() {
        assert_eq!(
            defaulted(json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Mi"}})),
            json!({
                "type": "Container",
                "max": {"cpu": "2"},
                "min": {"cpu": "1", "memory": "1Mi"},
                "default": {"cpu": "2"},
                "defaultRequest": {"cpu": "2", "memory": "1Mi"},
            })
        );
        let given = json!({"type": "Pod", "max": {"cpu": "2"}});
        assert_eq!(defaulted(given.clone()), given);
    }

    #[test]
    fn bounds_must_agree() {
        let at = "spec.limits[0]";
        let cases: [(Value, Vec<String>); 8] = [
            (json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}), vec![]),
            (
                json!({"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "2"}}),
                vec![format!("{at}.min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1")],
            ),
            (json!({"type": "Pod", "default": {"cpu": "1"}}), vec![format!("{at}.default: Forbidden: {NOT_FOR_PODS}")]),
            (
                json!({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}),
                vec![format!(
                    "{at}.defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default \
                     limit value 1"
                )],
            ),
            (
                json!({"type": "Odd"}),
                vec![format!("{at}.type: Invalid value: \"Odd\": must be a standard limit type or fully qualified")],
            ),
            (
                json!({"type": "PersistentVolumeClaim"}),
                vec![format!(
                    "{at}.limits: Required value: either minimum or maximum storage value is required, but neither was \
                     provided"
                )],
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}}),
                vec![format!("{at}.maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1")],
            ),
            (
                json!({"type": "Pod", "max": {"cpu": "2"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "3"}}),
                vec![format!(
                    "{at}.maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000"
                )],
            ),
        ];
        for (limit, expected) in cases {
            assert_eq!(texts(LimitRange.validate(&limit_range(json!([limit])), &context())), expected, "{limit}");
        }
    }

    #[test]
    fn types_appear_once() {
        let twice = limit_range(json!([{"type": "Pod"}, {"type": "Pod"}]));
        assert_eq!(texts(LimitRange.validate(&twice, &context())), ["spec.limits[1].type: Duplicate value: \"Pod\""]);
    }

    #[test]
    fn a_name_is_made_when_there_is_none() {
        let mut object = limit_range(json!([]));
        object["metadata"]["name"] = json!("");
        LimitRange.prepare_for_create(&mut object, &context());
        assert_eq!(object["metadata"]["name"], "u");
    }
}
