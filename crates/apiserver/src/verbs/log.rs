//! `pods/log` (PL-120…PL-125): checked here, read by the node that runs the pod.

use crate::{
    answer::{Answer, Content},
    body::ResponseBody,
    logs::LogOptions,
    route::Target,
    server::{ApiServer, Call},
    status::Status,
    storage,
};

pub(super) fn get(server: &ApiServer, call: &Call, target: &Target) -> Result<Answer, Status> {
    let mut options = LogOptions::parse(&call.query, target.name(), server.state.environment.now())?;
    let stored =
        server.state.store.get(&target.key()).ok_or_else(|| Status::not_found(target.resource, target.name()))?;
    let pod = storage::parse(&stored)?;
    options.choose_container(&pod, target.name())?;
    let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
        return Ok(Answer { code: 204, content: Content::Text(ResponseBody::empty()) });
    };
    match server.state.logs.get().filter(|logs| logs.serves(node)) {
        // Upstream names the node as if it were a pod.
        None => Err(Status::not_found(target.resource, node)),
        Some(logs) => {
            let stream = logs.read(&pod, &options)?;
            Ok(Answer { code: 200, content: Content::Text(ResponseBody::Stream(stream)) })
        }
    }
}
