//! `pods/eviction`: a delete that says why (AS-216). Disruption budgets are not served, so none can object.

use serde_json::{Value, json};

use super::{
    delete,
    update::{Owners, Reading, Write, apply},
};
use crate::{
    answer::Answer,
    decode::{self, Expected},
    metadata, negotiate,
    options::{DeleteOptions, WriteOptions},
    resources::Strategy,
    route::Target,
    server::{ApiServer, Call},
    status::{Status, success},
};

const EVICTION: Expected<'static> =
    Expected { group: "policy", version: "v1", kind: "Eviction", also_versions: &["policy/v1beta1"] };

struct EvictionStrategy;

impl Strategy for EvictionStrategy {}

pub(super) async fn create(server: &ApiServer, call: &mut Call, target: &Target) -> Result<Answer, Status> {
    let body_type = negotiate::body_type(&call.headers)?;
    let bytes = call.read_body().await?;
    let write_options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let decoded = decode::object(&bytes, body_type, EVICTION, write_options.field_validation)?;
    call.warnings.extend(decoded.warnings);
    let mut eviction = decoded.value;
    super::create::scope(&mut eviction, target)?;
    if metadata::text(&eviction, "name") != target.name() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = match &eviction["deleteOptions"] {
        Value::Null => DeleteOptions::default(),
        value => DeleteOptions::from_value(value)?,
    };
    options.dry_run |= write_options.dry_run;
    let pod = Target { subresource: None, ..target.clone() };
    if !options.dry_run {
        mark_disrupted(server, call, &pod, &options).await?;
    }
    delete::remove(server, &pod, &options).await?;
    Ok(Answer::plain(201, success(None, Some(201))))
}

/// One status write that tells why the pod is about to go.
async fn mark_disrupted(
    server: &ApiServer,
    call: &mut Call,
    pod: &Target,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let write = Write {
        target: pod,
        strategy: &EvictionStrategy,
        expected_version: None,
        expected_uid: None,
        owners: Owners::Kept,
        dry_run: false,
        reading: Reading::Whole,
    };
    let time = metadata::time(server.state.environment.now());
    let wanted = options.clone();
    apply(server, call, &write, &mut |old, _| {
        delete::check_preconditions(pod, &wanted, old)?;
        Ok(disrupted(old, &time))
    })
    .await?;
    Ok(())
}

fn disrupted(pod: &Value, time: &Value) -> Value {
    let mut marked = pod.clone();
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": time,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    if !marked["status"]["conditions"].is_array() {
        marked["status"]["conditions"] = json!([]);
    }
    if let Some(conditions) = marked["status"]["conditions"].as_array_mut() {
        match conditions.iter_mut().find(|condition| condition["type"] == "DisruptionTarget") {
            Some(existing) if existing["status"] == "True" => {}
            Some(existing) => *existing = condition,
            None => conditions.push(condition),
        }
    }
    marked
}
