//! Questions about access (AS-62…AS-65): answered, never stored.

use std::collections::BTreeMap;

use batch_types::{
    field::{Error, Path},
    names,
};
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    auth::{User, token::ISSUER},
    decode::{self, Expected},
    metadata, negotiate,
    options::WriteOptions,
    resources::{
        registry::Review,
        values::{items, members, present, text, texts},
    },
    route::Attributes,
    server::{Call, State},
    status::Status,
};

/// Answers a review; `namespace` is that of the URL.
pub(crate) async fn create(
    state: &State,
    call: &mut Call,
    review: &'static Review,
    namespace: &str,
) -> Result<Answer, Status> {
    if call.method != http::Method::POST {
        return Err(Status::method_not_allowed());
    }
    let body_type = negotiate::body_type(&call.headers)?;
    let bytes = call.read_body().await?;
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let expected = Expected { group: review.group, version: review.version, kind: review.kind, also_versions: &[] };
    let decoded = decode::object(&bytes, body_type, expected, options.field_validation)?;
    call.warnings.extend(decoded.warnings);
    let mut object = decoded.value;
    match review.kind {
        "SelfSubjectAccessReview" => {
            let mut errors = attributes_errors(&object);
            errors.extend(selector_errors(&object));
            errors.extend(metadata_errors(&object, "must be empty"));
            refuse(errors)?;
            access(state, &mut object, &call.user)?;
        }
        "SubjectAccessReview" => {
            let mut errors = subject_errors(&object);
            errors.extend(metadata_errors(&object, "must be empty"));
            refuse(errors)?;
            let user = subject(&object);
            access(state, &mut object, &user)?;
        }
        "LocalSubjectAccessReview" => {
            let given = metadata::text(&object, "namespace");
            if !given.is_empty() && given != namespace {
                let why = "the namespace of the provided object does not match the namespace sent on the request";
                return Err(Status::bad_request(why));
            }
            metadata::of(&mut object).insert("namespace".to_owned(), json!(namespace));
            refuse(local_errors(&object))?;
            let user = subject(&object);
            access(state, &mut object, &user)?;
        }
        "SelfSubjectRulesReview" => rules(state, &mut object, &call.user)?,
        "SelfSubjectReview" => myself(&mut object, &call.user, state),
        "TokenReview" => token(state, &mut object)?,
        other => return Err(Status::internal(format!("nobody answers a {other}"))),
    }
    Ok(Answer::plain(201, object))
}

/// Upstream names no kind in these refusals.
fn refuse(errors: Vec<Error>) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("", "authorization.k8s.io", "", &errors)) }
}

/// Exactly one kind of attributes.
fn attributes_errors(object: &Value) -> Vec<Error> {
    let spec = Path::new("spec");
    let about = |member: &str| present(object, &format!("/spec/{member}"));
    let mut errors = Vec::new();
    match (about("resourceAttributes"), about("nonResourceAttributes")) {
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(Error::invalid(&spec.child("resourceAttributes"), Value::Null, detail));
        }
        (Some(_), Some(path)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(Error::invalid(&spec.child("nonResourceAttributes"), path.clone(), detail));
        }
        _ => {}
    }
    errors
}

fn subject_errors(object: &Value) -> Vec<Error> {
    let mut errors = attributes_errors(object);
    if text(object, "/spec/user").is_empty() && items(object, "/spec/groups").is_empty() {
        let detail = "at least one of user or group must be specified";
        errors.push(Error::invalid(&Path::new("spec").child("user"), "", detail));
    }
    errors.extend(selector_errors(object));
    errors
}

/// A review is nobody's object: it has no name, labels or anything else that an object has.
fn metadata_errors(object: &Value, detail: &str) -> Option<Error> {
    // What the server would set is not looked at, and neither is a namespace: it has been settled.
    const IGNORED: [&str; 7] = [
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
    ];
    let given = members(object, "/metadata").any(|(member, _)| !IGNORED.contains(&member.as_str()));
    given.then(|| Error::invalid(&Path::new("metadata"), object["metadata"].clone(), detail))
}

/// Selectors that a list or watch would be limited by: either as text or in parts.
fn selector_errors(object: &Value) -> Vec<Error> {
    let mut errors = Vec::new();
    for member in ["fieldSelector", "labelSelector"] {
        let Some(selector) = present(object, &format!("/spec/resourceAttributes/{member}")) else { continue };
        let path = Path::new("spec.resourceAttributes").child(member);
        let (raw, requirements) = (text(selector, "/rawSelector"), items(selector, "/requirements"));
        match (raw, requirements) {
            ("", []) => {
                let detail = format!("when {path} is specified, requirements or rawSelector is required");
                errors.push(Error::required(&path.child("requirements"), detail));
            }
            ("", _) | (_, []) => {}
            _ => {
                let detail = "may not specified at the same time as requirements";
                errors.push(Error::invalid(&path.child("rawSelector"), raw, detail));
            }
        }
        for (at, requirement) in requirements.iter().enumerate() {
            let path = path.child("requirements").index(at);
            errors.extend(requirement_errors(requirement, &path, member == "labelSelector"));
        }
    }
    errors
}

/// One part of a selector. Operators that nobody here knows are let pass: newer clients may.
fn requirement_errors(requirement: &Value, path: &Path, of_labels: bool) -> Vec<Error> {
    let (key, values) = (text(requirement, "/key"), texts(requirement, "/values"));
    let mut errors = Vec::new();
    if !of_labels && key.is_empty() {
        errors.push(Error::required(&path.child("key"), "must be specified"));
    }
    match text(requirement, "/operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(Error::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&path.child("values"), detail));
        }
        _ => {}
    }
    if of_labels {
        let invalid = |path: &Path, value: &str, message: String| Error::invalid(path, value, message);
        let at = path.child("key");
        errors.extend(names::qualified_name(key).into_iter().map(|message| invalid(&at, key, message)));
        for (index, value) in values.iter().enumerate() {
            let at = path.child("values").index(index);
            errors.extend(names::label_value(value).into_iter().map(|message| invalid(&at, value, message)));
        }
    }
    errors
}

fn local_errors(object: &Value) -> Vec<Error> {
    let mut errors = subject_errors(object);
    errors.extend(metadata_errors(object, "must be empty except for namespace"));
    let namespace = text(object, "/spec/resourceAttributes/namespace");
    if present(object, "/spec/resourceAttributes").is_some() && namespace != metadata::text(object, "namespace") {
        let path = Path::new("spec.resourceAttributes.namespace");
        errors.push(Error::invalid(&path, namespace, "must match metadata.namespace"));
    }
    if let Some(path) = present(object, "/spec/nonResourceAttributes") {
        let detail = "disallowed on this kind of request";
        errors.push(Error::invalid(&Path::new("spec.nonResourceAttributes"), path.clone(), detail));
    }
    errors
}

/// The verdict: a reason only where there is one.
fn access(state: &State, object: &mut Value, user: &User) -> Result<(), Status> {
    let decision = state.decide(user, &attributes(&object["spec"]))?;
    let mut status = json!({"allowed": decision.is_allowed()});
    if !decision.reason().is_empty() {
        status["reason"] = json!(decision.reason());
    }
    object["status"] = status;
    Ok(())
}

fn attributes(spec: &Value) -> Attributes {
    if let Some(path) = present(spec, "/nonResourceAttributes") {
        let [verb, path] = ["/verb", "/path"].map(|member| text(path, member).to_owned());
        return Attributes { verb, path: Some(path), ..Attributes::default() };
    }
    let member = |name: &str| text(&spec["resourceAttributes"], name).to_owned();
    Attributes {
        verb: member("/verb"),
        group: member("/group"),
        resource: member("/resource"),
        subresource: member("/subresource"),
        namespace: member("/namespace"),
        name: member("/name"),
        path: None,
    }
}

/// The user a SubjectAccessReview asks about.
fn subject(object: &Value) -> User {
    let list = |values: &[Value]| values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let extra: BTreeMap<String, Vec<String>> =
        members(object, "/spec/extra").map(|(key, values)| (key.clone(), list(items(values, "")))).collect();
    User {
        name: text(object, "/spec/user").to_owned(),
        uid: text(object, "/spec/uid").to_owned(),
        groups: list(items(object, "/spec/groups")),
        extra,
    }
}

fn rules(state: &State, object: &mut Value, user: &User) -> Result<(), Status> {
    let namespace = text(object, "/spec/namespace");
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (rules, unresolved) = state.rules_for(user, namespace)?;
    let about = |is_path: bool| {
        let chosen = rules.iter().filter(move |rule| rule.resources.is_empty() == is_path);
        chosen.map(|rule| json!(rule)).collect::<Vec<Value>>()
    };
    object["spec"] = json!({});
    let mut status = json!({"resourceRules": about(false), "nonResourceRules": about(true), "incomplete": false});
    if let Some(unresolved) = unresolved {
        status["evaluationError"] = json!(unresolved);
    }
    object["status"] = status;
    Ok(())
}

fn myself(object: &mut Value, user: &User, state: &State) {
    object["metadata"] = json!({"creationTimestamp": metadata::time(state.environment.now())});
    object["status"] = json!({"userInfo": user.to_value()});
}

/// Whose token it is. The token itself is in the answer too, as upstream has it: whoever asks knows it.
fn token(state: &State, object: &mut Value) -> Result<(), Status> {
    let token = text(object, "/spec/token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences: Vec<String> = texts(object, "/spec/audiences").into_iter().map(str::to_owned).collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    object["status"] = match state.authenticator.review(token, &audiences, state) {
        Ok(authenticated) => {
            json!({"authenticated": true, "user": authenticated.user.to_value(), "audiences": authenticated.audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(errors: Vec<Error>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    /// AS-62: upstream's `pkg/apis/authorization/validation`.
    #[test]
    fn selectors_and_metadata_of_reviews_are_refused_in_upstreams_words() {
        let review = |attributes: Value| json!({"metadata": {}, "spec": {"resourceAttributes": attributes}});
        let at = "spec.resourceAttributes";
        let cases = [
            (json!({"verb": "get"}), vec![]),
            (json!({"fieldSelector": {"rawSelector": "a=b"}}), vec![]),
            (
                json!({"fieldSelector": {}}),
                vec![format!(
                    "{at}.fieldSelector.requirements: Required value: when {at}.fieldSelector is specified, \
                     requirements or rawSelector is required"
                )],
            ),
            (
                json!({"labelSelector": {"rawSelector": "a", "requirements": [{"key": "a", "operator": "In"}]}}),
                vec![
                    format!(
                        "{at}.labelSelector.rawSelector: Invalid value: \"a\": may not specified at the same time as \
                         requirements"
                    ),
                    format!(
                        "{at}.labelSelector.requirements[0].values: Required value: must be specified when `operator` \
                         is 'In' or 'NotIn'"
                    ),
                ],
            ),
            (
                json!({"fieldSelector": {"requirements": [{"operator": "Exists", "values": ["x"]}, {"key": "k", "operator": "New"}]}}),
                vec![
                    format!("{at}.fieldSelector.requirements[0].key: Required value: must be specified"),
                    format!(
                        "{at}.fieldSelector.requirements[0].values: Forbidden: may not be specified when `operator` \
                         is 'Exists' or 'DoesNotExist'"
                    ),
                ],
            ),
        ];
        for (attributes, expected) in cases {
            assert_eq!(shown(selector_errors(&review(attributes.clone()))), expected, "{attributes}");
        }
        let named = json!({"metadata": {"name": "x", "uid": "u"}});
        let refused = metadata_errors(&named, "must be empty").map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some(r#"metadata: Invalid value: {"name":"x","uid":"u"}: must be empty"#));
        assert_eq!(metadata_errors(&json!({"metadata": {"uid": "u"}}), "must be empty"), None);
    }
}
