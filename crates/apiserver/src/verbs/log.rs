//! `pods/log`: read from the node that runs the pod. Without a node there is nothing to read.

use crate::{answer::Answer, route::Target, server::ApiServer, status::Status, storage};

pub(super) fn get(server: &ApiServer, target: &Target) -> Result<Answer, Status> {
    let stored =
        server.state.store.get(&target.key()).ok_or_else(|| Status::not_found(target.resource, target.name()))?;
    let pod = storage::parse(&stored)?;
    match pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        None => Err(Status::bad_request(format!("pod {} does not have a host assigned", target.name()))),
        Some(node) => Err(Status::internal(format!("the node \"{node}\" of pod {} serves no logs", target.name()))),
    }
}
