//! Server-side apply (AS-128…AS-141): a patch that says what its manager wants, and creates what is missing.

use api_schema::json;
use patch::PatchError;
use serde_json::Value;

use super::{
    create::{self, New, scope},
    patch::refusal,
    schema, strategy,
    update::{self, Owners, Write, check_name},
};
use crate::{
    answer::Answer,
    decode, metadata,
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
    let config = parse(bytes, options.field_validation, call)?;
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

/// The applied configuration: the first YAML document, JSON being YAML.
fn parse(bytes: &[u8], validation: FieldValidation, call: &mut Call) -> Result<Value, Status> {
    let invalid = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    let (config, duplicates) = match json::parse_noting_duplicates(bytes) {
        Ok(parsed) => parsed,
        // Not JSON, so YAML.
        Err(_) => {
            let json = decode::yaml_to_json(bytes).map_err(invalid)?;
            json::parse_noting_duplicates(&json).map_err(|error| invalid(error.to_string()))?
        }
    };
    let duplicates: Vec<String> = duplicates.iter().map(ToString::to_string).collect();
    match validation {
        FieldValidation::Strict if !duplicates.is_empty() => {
            Err(Status::bad_request(format!("error strict decoding YAML: {}", duplicates.join(", "))))
        }
        FieldValidation::Warn => {
            call.warnings.extend(duplicates);
            Ok(config)
        }
        _ => Ok(config),
    }
}

async fn to_existing(
    server: &ApiServer,
    call: &mut Call,
    target: &Target,
    config: &Value,
    options: &WriteOptions,
    writer: &Writer,
) -> Result<Answer, Status> {
    let strategy = strategy(target);
    let write = Write {
        target,
        strategy,
        expected_version: super::list::object_version(metadata::text(config, "resourceVersion"))?,
        expected_uid: None,
        owners: Owners::Settled,
        dry_run: options.dry_run,
        set_aside: &[],
    };
    let gates = server.state.gates;
    update::apply(server, call, &write, &mut |old, _| {
        let mut value = merged(target, Some(old), config, options, writer)?;
        strategy.default(&mut value, &gates);
        Ok(value)
    })
    .await
}

async fn to_missing(
    server: &ApiServer,
    call: &mut Call,
    target: &Target,
    config: &Value,
    options: &WriteOptions,
    writer: &Writer,
) -> Result<Answer, Status> {
    let uid = metadata::text(config, "uid");
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Status::conflict(target.resource, target.name(), &why));
    }
    server.authorize_create(call, target)?;
    let mut object = merged(target, None, config, options, writer)?;
    // A version in the configuration is about an object that is not there (AS-129).
    metadata::of(&mut object).shift_remove("resourceVersion");
    let new = New { target, writer: None, dry_run: options.dry_run };
    create::store_new(server, call, &new, object).await
}

/// The live object with the configuration applied.
fn merged(
    target: &Target,
    live: Option<&Value>,
    config: &Value,
    options: &WriteOptions,
    writer: &Writer,
) -> Result<Value, Status> {
    let ty = schema(target.resource)?;
    let force = options.force.unwrap_or(false);
    let merged = patch::apply::apply(ty, live, config, &writer.manager(), force).map_err(refusal)?;
    let decoded = json::convert_unstructured(ty, merged)
        .map_err(|error| refusal(PatchError::invalid(String::new(), error.to_string())))?;
    let mut value = decoded.value;
    check_name(&value, target)?;
    scope(&mut value, target)?;
    Ok(value)
}
