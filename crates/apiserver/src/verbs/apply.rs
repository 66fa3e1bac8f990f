//! Server-side apply (AS-128…AS-141): a patch that says what its manager wants, and creates what is missing.

use api_schema::{
    json::{self, DecodeError},
    yaml,
};
use patch::PatchError;
use serde_json::Value;

use super::{
    create::{self, New, scope},
    patch::refusal,
    schema, strategy,
    update::{self, Owners, Reading, Write, check_name},
};
use crate::{
    answer::Answer,
    metadata,
    options::{FieldValidation, WriteOptions},
    ownership::Writer,
    route::Target,
    server::{ApiServer, Call},
    status::Status,
};

/// An object that is created or deleted under our feet is looked at again this often.
const ATTEMPTS_MAX: usize = 5;

pub(super) async fn apply(
    server: &ApiServer,
    call: &mut Call,
    target: &Target,
    bytes: &[u8],
    options: &WriteOptions,
    writer: Writer,
) -> Result<Answer, Status> {
    if target.subresource.is_some() && server.state.store.get(&target.key()).is_none() {
        return Err(Status::not_found(target.resource, target.name()));
    }
    let config = parse(bytes)?;
    for _ in 0..ATTEMPTS_MAX {
        let exists = server.state.store.get(&target.key()).is_some();
        let outcome = if exists || target.subresource.is_some() {
            to_existing(server, call, target, &config, options, &writer).await
        } else {
            to_missing(server, call, target, &config, options, &writer).await
        };
        match outcome {
            Err(status) if exists && status.code == 404 => {}
            Err(status) if !exists && status.reason == "AlreadyExists" => {}
            outcome => return outcome,
        }
    }
    Err(Status::stale(target.resource, target.name()))
}

/// What a manager wants, as it was sent.
struct Configuration {
    value: Value,
    /// Keys given twice, each as a warning tells it. Nothing is said of them unless the configuration can be applied.
    duplicates: Vec<String>,
    /// What a strict reading says about all of them together.
    strict_error: Option<String>,
}

/// The applied configuration: the first YAML document, JSON being YAML.
fn parse(bytes: &[u8]) -> Result<Configuration, Status> {
    let refused = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    let in_yaml = |why: String| format!("error converting YAML to JSON: {why}");
    // Programs send JSON; it is YAML, but its own parser is faster.
    if let Ok((value @ Value::Object(_), duplicates)) = json::parse_noting_duplicates(bytes)
        && duplicates.is_empty()
    {
        return Ok(Configuration { value, duplicates: Vec::new(), strict_error: None });
    }
    let converted = yaml::to_json(bytes).map_err(|why| refused(in_yaml(why)))?;
    let value = json::parse(&converted.json).map_err(|error| refused(format!("error unmarshaling JSON: {error}")))?;
    let found = match &value {
        Value::Object(_) | Value::Null => None,
        Value::Array(_) => Some("array"),
        Value::String(_) => Some("string"),
        Value::Number(_) => Some("number"),
        Value::Bool(_) => Some("bool"),
    };
    if let Some(found) = found {
        return Err(refused(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
             map[string]interface {{}}"
        )));
    }
    let strict_error = converted.strict_error().map(in_yaml);
    Ok(Configuration { value, duplicates: converted.duplicates, strict_error })
}

async fn to_existing(
    server: &ApiServer,
    call: &mut Call,
    target: &Target,
    config: &Configuration,
    options: &WriteOptions,
    writer: &Writer,
) -> Result<Answer, Status> {
    let strategy = strategy(target);
    let write = Write {
        target,
        strategy,
        expected_version: super::list::object_version(metadata::text(&config.value, "resourceVersion"))?,
        expected_uid: None,
        owners: Owners::Settled,
        dry_run: options.dry_run,
        reading: Reading::Whole,
    };
    let gates = server.state.gates;
    update::apply(server, call, &write, &mut |old, call| {
        let mut value = merged(call, target, Some(old), config, options, writer)?;
        strategy.default(&mut value, &gates);
        Ok(value)
    })
    .await
}

async fn to_missing(
    server: &ApiServer,
    call: &mut Call,
    target: &Target,
    config: &Configuration,
    options: &WriteOptions,
    writer: &Writer,
) -> Result<Answer, Status> {
    let uid = metadata::text(&config.value, "uid");
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Status::conflict(target.resource, target.name(), &why));
    }
    server.authorize_create(call, target)?;
    let mut object = merged(call, target, None, config, options, writer)?;
    // A version in the configuration is about an object that is not there (AS-129).
    metadata::of(&mut object).shift_remove("resourceVersion");
    let new = New { target, writer: None, dry_run: options.dry_run };
    create::store_new(server, call, &new, object).await
}

/// The live object with the configuration applied.
fn merged(
    call: &mut Call,
    target: &Target,
    live: Option<&Value>,
    config: &Configuration,
    options: &WriteOptions,
    writer: &Writer,
) -> Result<Value, Status> {
    let ty = schema(target.resource)?;
    let force = options.force.unwrap_or(false);
    let merged = patch::apply::apply(ty, live, &config.value, &writer.manager(), force).map_err(refusal)?;
    match (options.field_validation, &config.strict_error) {
        (FieldValidation::Strict, Some(why)) => {
            return Err(Status::bad_request(format!("error strict decoding YAML: {why}")));
        }
        (FieldValidation::Warn, _) => call.warnings.extend_from_slice(&config.duplicates),
        _ => {}
    }
    let decoded = json::convert_unstructured(ty, merged).map_err(|error| unconvertible(&config.value, &error))?;
    let mut value = decoded.value;
    scope(&mut value, target)?;
    check_name(&value, target)?;
    Ok(value)
}

/// A value that fits the schema but not its type, such as 1.5 where a count is wanted: upstream has no better word for it
/// than a plain error.
fn unconvertible(config: &Value, error: &DecodeError) -> Status {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&config["apiVersion"]), text(&config["kind"]));
    let slash = if api_version.contains('/') { "" } else { "/" };
    let version_kind = format!("{slash}{api_version}, Kind={kind}");
    let (namespace, name) = (text(&config["metadata"]["namespace"]), text(&config["metadata"]["name"]));
    refusal(PatchError::Internal(format!(
        "failed to convert new object ({namespace}/{name}; {version_kind}) to proper version: unable to convert \
         unstructured object to {version_kind}: {error}"
    )))
}
