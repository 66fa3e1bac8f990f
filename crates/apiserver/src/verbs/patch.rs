//! PATCH: JSON, merge and strategic merge patches (AS-115…AS-127).

use api_schema::{Type, json};
use patch::{PatchError, Rejection, json::Patched};
use serde_json::{Map, Value};

use super::{
    create::scope,
    expected, schema, strategy,
    update::{Owners, Reading, Write, apply, check_name},
};
use crate::{
    answer::Answer,
    decode::{expected_type, set_type_meta},
    negotiate::{self, PatchType},
    options::{FieldValidation, WriteOptions},
    ownership::{self, Writer},
    route::Target,
    server::{ApiServer, Call},
    status::{Cause, Details, Status},
};

pub(super) async fn patch(server: &ApiServer, call: &mut Call, target: &Target) -> Result<Answer, Status> {
    let patch_type = negotiate::patch_type(&call.headers)?;
    let bytes = call.read_body().await?;
    let options = WriteOptions::parse(&call.query, "PatchOptions", patch_type == PatchType::Apply)?;
    let writer = Writer::of(server, target, &call.headers, &options.field_manager);
    if patch_type == PatchType::Apply {
        return super::apply::apply(server, call, target, &bytes, &options, writer).await;
    }
    if server.state.store.get(&target.key()).is_none() {
        return Err(Status::not_found(target.resource, target.name()));
    }
    let ty = schema(target.resource)?;
    let strategy = strategy(target);
    let (body, duplicates) = parse(patch_type, &bytes)?;
    let reading = match &body {
        Value::Object(members)
            if patch_type != PatchType::Json
                && target.resource.conversion.is_none()
                && !ownership::is_named(members) =>
        {
            Reading::Without(strategy.may_set_aside(members))
        }
        _ => Reading::Whole,
    };
    let write = Write {
        target,
        strategy,
        expected_version: None,
        expected_uid: None,
        owners: Owners::RecordedFor(writer),
        dry_run: options.dry_run,
        reading,
    };
    let is_spec_aside = matches!(reading, Reading::Without(members) if members.contains(&"spec"));
    let convert = if patch_type == PatchType::Strategic { json::convert_unstructured } else { json::convert };
    let gates = server.state.gates;
    apply(server, call, &write, &mut |old, call| {
        let Patched { object, strict_errors } = patched(ty, patch_type, old.clone(), &body).map_err(refusal)?;
        // Only refusals show the object, and they are rare: it is made again for them instead of kept for all.
        let again = || patched_in_order(ty, patch_type, old.clone(), &body).map_err(refusal);
        let shown = || match patch_type {
            PatchType::Strategic => patch::strategic::patch_text(&body),
            _ => again().map_or_else(|_| String::new(), |object| text(&object)),
        };
        let forgets_owners = patch::apply::resets_managed_fields(&object);
        let decoded = match convert(ty, object) {
            Ok(decoded) if decoded.strict.is_empty() => Ok(decoded),
            // What is found first, and in which order, depends on how upstream writes the object.
            _ => convert(ty, again()?),
        };
        let decoded = decoded.map_err(|error| refusal(PatchError::invalid(shown(), error.to_string())))?;
        let mut found = [duplicates.as_slice(), &strict_errors].concat();
        found.extend(decoded.strict.iter().map(ToString::to_string));
        match options.field_validation {
            FieldValidation::Strict if !found.is_empty() => {
                let why = format!("strict decoding error: {}", found.join(", "));
                return Err(refusal(PatchError::invalid(shown(), why)));
            }
            FieldValidation::Warn => call.warnings.extend(found),
            _ => {}
        }
        let mut value = decoded.value;
        // A strategic merge works on an object whose type is settled: what it says about its kind is not looked at.
        if patch_type != PatchType::Strategic {
            let expected = expected(target.resource);
            let sent = |member: &str| value[member].as_str().unwrap_or_default();
            if sent("apiVersion").is_empty() {
                // Upstream then reads the object as one of its internal version, in which no member has the same name.
                value = Value::Object(Map::new());
            } else {
                let kind = if sent("kind").is_empty() { expected.kind } else { sent("kind") };
                expected_type(sent("apiVersion"), kind, expected)
                    .map_err(|why| refusal(PatchError::invalid(shown(), why)))?;
            }
        }
        // Whatever a patch does to them: lists count on these being there, and first.
        set_type_meta(&mut value, &expected(target.resource).api_version(), target.resource.kind);
        scope(&mut value, target)?;
        check_name(&value, target)?;
        if forgets_owners {
            ownership::forget(&mut value);
        }
        // What is set aside was stored with its defaults.
        if old.get("spec").is_some() || !is_spec_aside {
            strategy.default(&mut value, &gates);
        }
        Ok(value)
    })
    .await
}

/// The body of a patch is JSON whatever its type.
///
/// Members that it gives twice are told like unknown fields (AS-118).
fn parse(patch_type: PatchType, bytes: &[u8]) -> Result<(Value, Vec<String>), Status> {
    let prefix = if patch_type == PatchType::Strategic { "" } else { "error decoding patch: " };
    let (body, duplicates) =
        json::parse_noting_duplicates(bytes).map_err(|error| Status::bad_request(format!("{prefix}{error}")))?;
    // Those of operations are told apart from those of the object.
    let told_as = if patch_type == PatchType::Json { "json patch " } else { "" };
    Ok((body, duplicates.iter().map(|duplicate| format!("{told_as}{duplicate}")).collect()))
}

fn patched(ty: &'static Type, patch_type: PatchType, old: Value, body: &Value) -> Result<Patched, PatchError> {
    let whole = |object| Patched { object, strict_errors: Vec::new() };
    match patch_type {
        PatchType::Json => patch::json::apply(old, body),
        PatchType::Merge => patch::merge::apply(old, body).map(whole),
        _ => patch::strategic::apply(old, body, ty).map(whole),
    }
}

/// The patched object with its members in the order in which upstream decodes them again.
fn patched_in_order(ty: &'static Type, patch_type: PatchType, old: Value, body: &Value) -> Result<Value, PatchError> {
    match patch_type {
        PatchType::Json => patch::json::apply_in_order(old, body).map(|patched| patched.object),
        PatchType::Merge => patch::merge::apply_in_order(old, body),
        _ => patch::strategic::apply(old, body, ty),
    }
}

fn text(object: &Value) -> String {
    let mut text = Vec::new();
    json::encode(object, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

pub(super) fn refusal(error: PatchError) -> Status {
    let Rejection { code, reason, message, causes } = error.rejection();
    let status = Status::new(code, reason.unwrap_or_default(), message);
    match causes {
        None => status,
        Some(causes) => {
            let causes = causes
                .into_iter()
                .map(|cause| Cause { reason: cause.reason.to_owned(), message: cause.message, field: cause.field })
                .collect();
            status.with_details(Details { causes, ..Details::default() })
        }
    }
}
