//! `serviceaccounts/token`: makes a token for a ServiceAccount (AS-65; upstream's `serviceaccount/storage/token.go`).

use batch_types::field::{Error, Path};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    admission,
    answer::Answer,
    auth::{
        service_account::{self, Found, Wanted},
        token::{ISSUER, Reference},
    },
    decode::{self, Expected},
    metadata, negotiate,
    options::WriteOptions,
    resources::values::{number, present, text, texts},
    route::Target,
    server::{ApiServer, Call, State},
    status::{Details, Status},
};

const GROUP: &str = "authentication.k8s.io";
const TOKEN_REQUEST: Expected<'static> =
    Expected { group: GROUP, version: "v1", kind: "TokenRequest", also_versions: &[] };

const SECONDS_DEFAULT: i64 = 3600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;
/// What admission asks for on behalf of pods. Clients that never look at their token again are given a year, and a
/// claim that tells how long they should have taken.
const SECONDS_OF_PODS: i64 = 3607;
const SECONDS_EXTENDED: i64 = 365 * 24 * 60 * 60;

pub(super) async fn create(server: &ApiServer, call: &mut Call, target: &Target) -> Result<Answer, Status> {
    let body_type = negotiate::body_type(&call.headers)?;
    let bytes = call.read_body().await?;
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let decoded = decode::object(&bytes, body_type, TOKEN_REQUEST, options.field_validation)?;
    call.warnings.extend(decoded.warnings);
    let mut request = decoded.value;
    super::create::scope(&mut request, target)?;
    admission::on_create_of_subresource(server, target)?;
    let state = &server.state;
    let uid = account(state, target, &request)?;
    let now = state.environment.now();
    complete(&mut request, target, &uid, now);
    validate(&request)?;
    let bound = bound(state, target, &request["spec"]["boundObjectRef"])?;
    let seconds = number(&request, "/spec/expirationSeconds");
    let audiences: Vec<String> = texts(&request, "/spec/audiences").into_iter().map(str::to_owned).collect();
    let extends = bound.pod.is_some() && seconds == SECONDS_OF_PODS && audiences == [ISSUER];
    let wanted = Wanted {
        namespace: target.namespace(),
        account: Reference { name: target.name().to_owned(), uid },
        audiences,
        seconds: if extends { SECONDS_EXTENDED } else { seconds },
        warn_after_seconds: extends.then_some(seconds),
        pod: bound.pod,
        secret: bound.secret,
        node: bound.node,
    };
    let token = service_account::issue(state, wanted, now)?;
    let ends = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    request["status"] = json!({"token": token, "expirationTimestamp": metadata::time(ends)});
    Ok(Answer::plain(201, request))
}

/// The uid of the account, which must be the one that the body means.
fn account(state: &State, target: &Target, request: &Value) -> Result<String, Status> {
    let given = metadata::text(request, "name");
    if !given.is_empty() && given != target.name() {
        let place = Path::new("metadata").child("name");
        let error = Error::invalid(&place, given, "must match the service account name if specified");
        return Err(Status::invalid("TokenRequest", GROUP, target.name(), &[error]));
    }
    let found = service_account::find(state, "serviceaccounts", target.namespace(), target.name())
        .ok_or_else(|| Status::not_found(target.resource, target.name()))?;
    let given = metadata::text(request, "uid");
    if !given.is_empty() && given != found.uid {
        let why = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({})",
            found.uid
        );
        return Err(conflict("TokenRequest", GROUP, target.name(), &why));
    }
    Ok(found.uid)
}

/// Fills in what the client left out, and forgets what it may not say.
fn complete(request: &mut Value, target: &Target, uid: &str, now: Timestamp) {
    let own = metadata::of(request);
    own.insert("name".to_owned(), json!(target.name()));
    own.insert("namespace".to_owned(), json!(target.namespace()));
    own.insert("uid".to_owned(), json!(uid));
    own.insert("creationTimestamp".to_owned(), metadata::time(now));
    if !request["spec"].is_object() {
        request["spec"] = json!({});
    }
    let spec = &mut request["spec"];
    if texts(spec, "/audiences").is_empty() {
        spec["audiences"] = json!([ISSUER]);
    }
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = json!(SECONDS_DEFAULT);
    }
    if spec.get("boundObjectRef").is_none() {
        spec["boundObjectRef"] = Value::Null;
    }
}

fn validate(request: &Value) -> Result<(), Status> {
    let seconds = number(request, "/spec/expirationSeconds");
    let detail = match seconds {
        ..SECONDS_MIN => "may not specify a duration less than 10 minutes",
        SECONDS_MIN..=SECONDS_MAX => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let error = Error::invalid(&Path::new("spec").child("expirationSeconds"), seconds, detail);
    Err(Status::invalid("TokenRequest", GROUP, "", &[error]))
}

/// What the token will be bound to.
#[derive(Default)]
struct BoundTo {
    pod: Option<Reference>,
    secret: Option<Reference>,
    node: Option<Reference>,
}

fn bound(state: &State, target: &Target, reference: &Value) -> Result<BoundTo, Status> {
    if present(reference, "").is_none() {
        return Ok(BoundTo::default());
    }
    let [kind, api_version, name, uid] =
        ["/kind", "/apiVersion", "/name", "/uid"].map(|member| text(reference, member));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let found = |plural: &str, namespace: &str| -> Result<Found, Status> {
        let resource = crate::resources::registry::find("", "v1", plural)
            .ok_or_else(|| Status::internal(format!("{plural} are not served")))?;
        let found = service_account::find(state, plural, namespace, name);
        let found = found.ok_or_else(|| Status::not_found(resource, name))?;
        if !uid.is_empty() && uid != found.uid {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might \
                 have been deleted and then recreated"
            );
            return Err(conflict(kind, "", name, &why));
        }
        Ok(found)
    };
    let named = |uid: String| Some(Reference { name: name.to_owned(), uid });
    match (group, kind) {
        ("", "Pod") => {
            let pod = found("pods", target.namespace())?;
            if pod.service_account != target.name() {
                let why = format!(
                    "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                    batch_types::field::quoted(target.name())
                );
                return Err(Status::bad_request(why));
            }
            Ok(BoundTo { node: node_of(state, &pod), pod: named(pod.uid), secret: None })
        }
        ("", "Secret") => {
            Ok(BoundTo { secret: named(found("secrets", target.namespace())?.uid), ..BoundTo::default() })
        }
        ("", "Node") => Ok(BoundTo { node: named(found("nodes", "")?.uid), ..BoundTo::default() }),
        _ => {
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            Err(Status::bad_request(why))
        }
    }
}

/// The node of a pod is told too; its name alone if nobody knows it.
fn node_of(state: &State, pod: &Found) -> Option<Reference> {
    let name = Some(pod.node.clone()).filter(|name| !name.is_empty())?;
    let uid = service_account::find(state, "nodes", "", &name).map(|node| node.uid).unwrap_or_default();
    Some(Reference { name, uid })
}

fn conflict(kind: &str, group: &str, name: &str, why: &str) -> Status {
    let details =
        Details { name: name.to_owned(), group: group.to_owned(), kind: kind.to_owned(), ..Details::default() };
    let subject = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    Status::conflict_on(&subject, details, why)
}
