//! `pods/eviction`: a delete that says why (AS-216). Disruption budgets are not served, so none can object.

use batch_types::field::{Error, Path};
use serde_json::{Value, json};

use super::{
    delete,
    update::{Owners, Reading, Write, apply},
};
use crate::{
    admission,
    answer::{Answer, Content, Document},
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
    admission::on_create_of_subresource(server, target)?;
    if metadata::text(&eviction, "name") != target.name() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    const BREAKING: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if eviction["deleteOptions"][BREAKING] == true {
        let detail = "can not be set for pod eviction, try after removing the option";
        let error = Error::invalid(&Path::new("deleteOptions").child(BREAKING), true, detail);
        return Err(Status::invalid(EVICTION.kind, EVICTION.group, target.name(), &[error]));
    }
    let mut options = match &eviction["deleteOptions"] {
        Value::Null => DeleteOptions::default(),
        value => DeleteOptions::from_value(value)?,
    };
    options.dry_run |= write_options.dry_run;
    let pod = Target { subresource: None, ..target.clone() };
    if !options.dry_run {
        let marked = mark_disrupted(server, call, &pod, &options).await?;
        if options.resource_version.is_some() {
            // The one who asked meant the version before the mark.
            options.resource_version = Some(marked);
        }
    }
    delete::remove(server, &pod, &options).await?;
    Ok(Answer::plain(201, success(None, Some(201))))
}

/// One status write that tells why the pod is about to go. Answers the pod's version after it.
async fn mark_disrupted(
    server: &ApiServer,
    call: &mut Call,
    pod: &Target,
    options: &DeleteOptions,
) -> Result<String, Status> {
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
    let stated = |precondition: &Option<String>| precondition.clone().filter(|text| !text.is_empty());
    let wanted = DeleteOptions {
        uid: stated(&options.uid),
        resource_version: stated(&options.resource_version),
        ..DeleteOptions::default()
    };
    let answer = apply(server, call, &write, &mut |old, _| {
        delete::check_preconditions(pod, &wanted, old)?;
        Ok(disrupted(old, &time))
    })
    .await?;
    match answer.content {
        Content::Object { document: Document::Stored(stored), .. } => Ok(stored.revision.to_string()),
        Content::Object { document: Document::Value(last), .. } => {
            Ok(metadata::text(&last, "resourceVersion").to_owned())
        }
        _ => Err(Status::internal("a write was not answered with the object")),
    }
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
    set_condition(&mut marked, condition);
    marked
}

/// Sets a pod's condition as upstream's `podutil.UpdatePodCondition` does: its time moves only with its status.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value) {
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = pod["status"]["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|existing| existing["type"] == condition["type"]) {
        Some(existing) => {
            if existing["status"] == condition["status"] {
                condition["lastTransitionTime"] = existing["lastTransitionTime"].take();
            }
            *existing = condition;
        }
        None => conditions.push(condition),
    }
}
