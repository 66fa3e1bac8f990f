//! Questions about access (AS-62…AS-65): answered, never stored.

use serde_json::{Map, Value, json};

use batch_types::field::{Error, Path};

use crate::{
    answer::Answer,
    auth::User,
    decode::{self, Expected},
    environment::Environment,
    metadata, negotiate,
    options::WriteOptions,
    resources::registry::Review,
    route::Attributes,
    server::Call,
    status::Status,
};

pub(crate) async fn create(
    call: &mut Call,
    review: &'static Review,
    environment: &Environment,
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
        "SelfSubjectAccessReview" => access(&mut object, &call.user)?,
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let user = subject(&object);
            access(&mut object, &user)?;
        }
        "SelfSubjectRulesReview" => rules(&mut object, &call.user),
        "SelfSubjectReview" => myself(&mut object, &call.user, environment),
        "TokenReview" => token(&mut object),
        other => return Err(Status::internal(format!("nobody answers a {other}"))),
    }
    Ok(Answer::plain(201, object))
}

/// Exactly one kind of attributes, then the verdict.
fn access(object: &mut Value, user: &User) -> Result<(), Status> {
    let spec = &object["spec"];
    let (resource, path) = (spec["resourceAttributes"].clone(), spec["nonResourceAttributes"].clone());
    let refuse = |member: &str, value: Value, detail: &str| {
        let field = Path::new("spec").child(member);
        Err(Status::invalid("", "authorization.k8s.io", "", &[Error::invalid(&field, value, detail)]))
    };
    match (resource.is_null(), path.is_null()) {
        (true, true) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            return refuse("resourceAttributes", Value::Null, detail);
        }
        (false, false) => {
            return refuse("nonResourceAttributes", path, "cannot be specified in combination with resourceAttributes");
        }
        _ => {}
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let attributes = Attributes {
        verb: text(if path.is_null() { &resource["verb"] } else { &path["verb"] }),
        group: text(&resource["group"]),
        resource: text(&resource["resource"]),
        subresource: text(&resource["subresource"]),
        namespace: text(&resource["namespace"]),
        name: text(&resource["name"]),
        path: path["path"].as_str().map(str::to_owned),
    };
    object["status"] = json!({"allowed": user.authorize(&attributes).is_ok()});
    Ok(())
}

/// The user a SubjectAccessReview asks about.
fn subject(object: &Value) -> User {
    let spec = &object["spec"];
    let groups =
        spec["groups"].as_array().map(|groups| groups.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    User { name: spec["user"].as_str().unwrap_or_default().to_owned(), groups: groups.unwrap_or_default() }
}

fn rules(object: &mut Value, user: &User) {
    let public = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version"]});
    let (resources, paths) = if user.is_master() {
        let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        (vec![all], vec![json!({"verbs": ["*"], "nonResourceURLs": ["*"]}), public])
    } else {
        (Vec::new(), vec![public])
    };
    object["spec"] = json!({});
    object["status"] = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
}

fn myself(object: &mut Value, user: &User, environment: &Environment) {
    object["metadata"] = json!({"creationTimestamp": metadata::time(environment.now())});
    object["status"] = json!({"userInfo": {"username": user.name, "groups": user.groups}});
}

/// Tokens of others are not issued yet, so none can be vouched for.
fn token(object: &mut Value) {
    let mut status = Map::new();
    status.insert("user".to_owned(), json!({}));
    status.insert("error".to_owned(), json!("invalid bearer token"));
    object["status"] = Value::Object(status);
}
