//! ResourceQuotas: what the objects of a namespace may use together (upstream's `ValidateResourceQuota`).
//!
//! What they do to other objects, and who keeps their figures, is in `quota`.

use std::collections::BTreeSet;

use batch_types::{
    field::{Error, Path},
    gates::Gates,
    names::NameRule,
    resource_names,
};
use serde_json::{Value, json};

use super::{
    Context, Strategy,
    metadata::{self, Scope},
    values::{copy, items, present, set, text, texts},
};
use crate::quota::amounts::{self, Amounts};

const IMMUTABLE: &str = "field is immutable";
const POD_COUNTS: [&str; 1] = ["pods"];
const POD_COMPUTE: [&str; 6] = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
const EXISTS_ONLY: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                           ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                           ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";

/// `resourcequotas`.
#[derive(Debug)]
pub struct ResourceQuota;

/// `resourcequotas/status`.
#[derive(Debug)]
pub struct Status;

impl Strategy for ResourceQuota {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        default(object);
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        set(object, "status", json!({}));
        Vec::new()
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate(object, Scope::Namespaced, NameRule::DnsSubdomain);
        errors.extend(validate_spec(object));
        errors
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        warnings(&amounts::read(object.pointer("/spec/hard")))
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        copy(new, old, "status");
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_update(new, old);
        errors.extend(validate_spec(new));
        let scopes = |object| texts(object, "/spec/scopes").into_iter().collect::<BTreeSet<_>>();
        if scopes(new) != scopes(old) {
            errors.push(Error::invalid(&path(&["spec", "scopes"]), shown_scopes(new), IMMUTABLE));
        }
        errors
    }

    fn answers_delete_with_object(&self) -> bool {
        true
    }
}

impl Strategy for Status {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        default(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        copy(new, old, "spec");
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_update(new, old);
        for list in ["hard", "used"] {
            errors.extend(validate_list(new, &["status", list]));
        }
        errors
    }
}

fn default(object: &mut Value) {
    for list in ["/spec/hard", "/status/hard", "/status/used"] {
        amounts::round_up(object.pointer_mut(list));
    }
}

fn validate_spec(object: &Value) -> Vec<Error> {
    let mut errors = validate_list(object, &["spec", "hard"]);
    let hard = amounts::read(object.pointer("/spec/hard"));
    errors.extend(validate_scopes(object, &hard));
    if present(object, "/spec/scopeSelector").is_some() {
        errors.extend(validate_selector(object, &hard));
    }
    errors
}

fn validate_list(object: &Value, steps: &[&str; 2]) -> Vec<Error> {
    let at = path(steps);
    let list = object.pointer(&format!("/{}", steps.join("/")));
    let mut errors = Vec::new();
    for (name, amount) in amounts::read(list) {
        let at = at.key(&name);
        errors.extend(resource_names::validate_for_quota(&name, &at));
        if amount.is_negative() {
            errors.push(Error::invalid(&at, amount.to_string(), "must be greater than or equal to 0"));
        }
        if resource_names::is_whole(&name) && amount.milli_value() % 1000 != 0 {
            errors.push(Error::invalid(&at, amount.to_string(), "must be an integer"));
        }
    }
    errors
}

fn validate_scopes(object: &Value, hard: &Amounts) -> Vec<Error> {
    let at = path(&["spec", "scopes"]);
    let scopes = texts(object, "/spec/scopes");
    let invalid = |detail| Error::invalid(&at, shown_scopes(object), detail);
    let mut errors = Vec::new();
    for scope in &scopes {
        if !is_standard(scope) {
            errors.push(invalid("unsupported scope"));
        }
        errors.extend(misplaced(scope, hard).map(|_| invalid("unsupported scope applied to resource")));
    }
    errors.extend(contradictions(&scopes).map(|()| invalid("conflicting scopes")));
    errors
}

fn validate_selector(object: &Value, hard: &Amounts) -> Vec<Error> {
    let at = path(&["spec", "scopeSelector"]).child("matchExpressions");
    let expressions = items(object, "/spec/scopeSelector/matchExpressions");
    let mut errors = Vec::new();
    for expression in expressions {
        let (scope, operator) = (text(expression, "/scopeName"), text(expression, "/operator"));
        if !is_standard(scope) {
            errors.push(Error::invalid(&at.child("scopeName"), scope, "unsupported scope"));
        }
        errors.extend(
            misplaced(scope, hard)
                .map(|_| Error::invalid(&at, shown_selector(expressions), "unsupported scope applied to resource")),
        );
        if !matches!(scope, "PriorityClass" | "VolumeAttributesClass") && is_standard(scope) && operator != "Exists" {
            errors.push(Error::invalid(&at.child("operator"), operator, EXISTS_ONLY));
        }
        let values = texts(expression, "/values");
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.push(Error::required(
                &at.child("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(Error::invalid(
                &at.child("values"),
                json!(values),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(Error::invalid(&at.child("operator"), operator, "not a valid selector operator")),
        }
    }
    let scopes: Vec<&str> = expressions.iter().map(|expression| text(expression, "/scopeName")).collect();
    // Upstream shows the other list here.
    errors.extend(contradictions(&scopes).map(|()| Error::invalid(&at, shown_scopes(object), "conflicting scopes")));
    errors
}

fn is_standard(scope: &str) -> bool {
    matches!(
        scope,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "CrossNamespacePodAffinity"
            | "VolumeAttributesClass"
    )
}

/// The limited resources that a scope says nothing about.
fn misplaced<'a>(scope: &'a str, hard: &'a Amounts) -> impl Iterator<Item = &'a str> {
    let fits = move |name: &str| match scope {
        "BestEffort" => POD_COUNTS.contains(&name),
        "VolumeAttributesClass" => CLAIMS.contains(&name),
        scope if is_standard(scope) => POD_COUNTS.contains(&name) || POD_COMPUTE.contains(&name),
        _ => true,
    };
    hard.keys().map(String::as_str).filter(move |name| resource_names::is_standard_for_quota(name) && !fits(name))
}

fn contradictions(scopes: &[&str]) -> impl Iterator<Item = ()> {
    let both = |pair: [&str; 2]| pair.iter().all(|scope| scopes.contains(scope));
    [both(["BestEffort", "NotBestEffort"]), both(["Terminating", "NotTerminating"])]
        .into_iter()
        .filter(|both| *both)
        .map(drop)
}

/// The list as upstream's internal type prints it.
fn shown_scopes(object: &Value) -> Value {
    match present(object, "/spec/scopes") {
        Some(scopes) => scopes.clone(),
        None => Value::Null,
    }
}

/// The selector as upstream's internal type prints it, whose members have no JSON names.
fn shown_selector(expressions: &[Value]) -> Value {
    let shown: Vec<Value> = expressions
        .iter()
        .map(|expression| {
            json!({
                "ScopeName": expression["scopeName"],
                "Operator": expression["operator"],
                "Values": expression["values"],
            })
        })
        .collect();
    json!({ "MatchExpressions": shown })
}

/// Requests that could never be used up, because limits are reached first.
fn warnings(hard: &Amounts) -> Vec<String> {
    let mut warnings = Vec::new();
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let mut request_name = format!("requests.{resource}");
        if !hard.contains_key(&request_name) && matches!(resource, "cpu" | "memory") {
            resource.clone_into(&mut request_name);
        }
        let limit_name = format!("limits.{resource}");
        if let (Some(request), Some(limit)) = (hard.get(&request_name), hard.get(&limit_name))
            && request > limit
        {
            warnings
                .push(format!("ResourceQuota {request_name} ({request}) should be less than {limit_name} ({limit})"));
        }
    }
    warnings
}

fn path(steps: &[&str; 2]) -> Path {
    Path::new(steps[0]).child(steps[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::testing::{context, object, texts as shown};

    fn quota(spec: Value) -> Value {
        object("v1", "ResourceQuota", json!({ "spec": spec }))
    }

    fn created(spec: Value) -> Vec<String> {
        shown(ResourceQuota.validate(&quota(spec), &context()))
    }

    #[test]
    fn limits_are_of_known_resources() {
        let cases: [(Value, &[&str]); 6] = [
            (json!({}), &[]),
            (
                json!({"pods": "2", "count/jobs.batch": "3", "requests.example.com/gpu": "1", "limits.cpu": "1500m"}),
                &[],
            ),
            (
                json!({"apples": "1"}),
                &[
                    "spec.hard[apples]: Invalid value: \"apples\": must be a standard resource type or fully qualified",
                    "spec.hard[apples]: Invalid value: \"apples\": must be a standard resource for quota",
                ],
            ),
            (
                json!({"storage": "1"}),
                &["spec.hard[storage]: Invalid value: \"storage\": must be a standard resource for quota"],
            ),
            (json!({"cpu": "-1"}), &["spec.hard[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"]),
            (json!({"pods": "1500m"}), &["spec.hard[pods]: Invalid value: \"1500m\": must be an integer"]),
        ];
        for (hard, expected) in cases {
            assert_eq!(created(json!({ "hard": hard })), expected, "{hard}");
        }
    }

    #[test]
    fn scopes_fit_what_is_limited() {
        let cases: [(Value, &[&str]); 5] = [
            (json!({"hard": {"pods": "1"}, "scopes": ["BestEffort", "Terminating"]}), &[]),
            (
                json!({"hard": {"pods": "1", "cpu": "1"}, "scopes": ["BestEffort"]}),
                &["spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource"],
            ),
            (
                json!({"hard": {"pods": "1"}, "scopes": ["Terminating", "NotTerminating"]}),
                &["spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes"],
            ),
            (json!({"scopes": ["Odd"]}), &["spec.scopes: Invalid value: [\"Odd\"]: unsupported scope"]),
            (
                json!({"hard": {"secrets": "1"}, "scopes": ["NotBestEffort"]}),
                &["spec.scopes: Invalid value: [\"NotBestEffort\"]: unsupported scope applied to resource"],
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(created(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn selectors_are_well_formed() {
        let selector = |scope: &str, operator: &str, values: Value| {
            let expression = json!({"scopeName": scope, "operator": operator, "values": values});
            created(json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [expression]}}))
        };
        let at = "spec.scopeSelector.matchExpressions";
        assert_eq!(selector("PriorityClass", "In", json!(["high"])), [""; 0]);
        assert_eq!(selector("BestEffort", "Exists", json!(null)), [""; 0]);
        assert_eq!(
            selector("BestEffort", "In", json!(["x"])),
            [format!("{at}.operator: Invalid value: \"In\": {EXISTS_ONLY}")]
        );
        assert_eq!(
            selector("PriorityClass", "NotIn", json!([])),
            [format!(
                "{at}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope \
                 selector"
            )]
        );
        assert_eq!(
            selector("PriorityClass", "Exists", json!(["a"])),
            [format!(
                "{at}.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for \
                 scope selector"
            )]
        );
        assert_eq!(
            selector("PriorityClass", "Like", json!(["a"])),
            [format!("{at}.operator: Invalid value: \"Like\": not a valid selector operator")]
        );
    }

    #[test]
    fn scopes_are_final_and_limits_are_not() {
        let old = quota(json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]}));
        let new = quota(json!({"hard": {"pods": "5"}, "scopes": ["BestEffort"]}));
        assert_eq!(shown(ResourceQuota.validate_update(&new, &old, &context())), [""; 0]);
        let moved = quota(json!({"hard": {"pods": "5"}, "scopes": ["NotBestEffort"]}));
        assert_eq!(
            shown(ResourceQuota.validate_update(&moved, &old, &context())),
            ["spec.scopes: Invalid value: [\"NotBestEffort\"]: field is immutable"]
        );
    }

    #[test]
    fn clients_write_spec_and_status_at_their_own_doors() {
        let mut new =
            object("v1", "ResourceQuota", json!({"spec": {"hard": {"pods": "1"}}, "status": {"used": {"pods": "9"}}}));
        ResourceQuota.prepare_for_create(&mut new, &context());
        assert_eq!(new["status"], json!({}));
        let old = new.clone();
        new["spec"]["hard"]["pods"] = json!("7");
        new["status"]["used"] = json!({"apples": "1"});
        let mut written = new.clone();
        Status.prepare_for_update(&mut written, &old, &context());
        assert_eq!(written["spec"], old["spec"]);
        assert_eq!(Status.validate_update(&written, &old, &context()).len(), 2);
        ResourceQuota.prepare_for_update(&mut new, &old, &context());
        assert_eq!(new["status"], old["status"]);
    }

    #[test]
    fn requests_beyond_limits_are_warned_about() {
        let object =
            quota(json!({"hard": {"cpu": "2", "limits.cpu": "1", "requests.memory": "1Gi", "limits.memory": "2Gi"}}));
        assert_eq!(
            ResourceQuota.warnings_on_create(&object),
            ["ResourceQuota cpu (2) should be less than limits.cpu (1)"]
        );
    }
}
