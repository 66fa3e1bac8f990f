//! GET of one object (AS-87).

use std::time::Duration;

use crate::{
    answer::{Answer, Document},
    options::resource_version,
    resources::Resource,
    route::Target,
    server::{ApiServer, Call},
    status::Status,
};

/// How long a read waits for a version that does not exist yet (AS-87).
pub(super) const FUTURE_VERSION_WAIT: Duration = Duration::from_secs(3);

pub(super) async fn get(server: &ApiServer, call: &Call, target: &Target) -> Result<Answer, Status> {
    if call.query.flag("export") {
        return Err(Status::bad_request("the export parameter, deprecated since v1.14, is no longer supported"));
    }
    let wanted = match resource_version(call.query.text("resourceVersion")) {
        Err(status) if !target.resource.is_cached() => {
            return Err(Status::bad_request(format!("invalid resource version: {}", status.message)));
        }
        wanted => wanted?,
    };
    if let Some(wanted) = wanted {
        reach(server, target.resource, wanted).await?;
    }
    let stored =
        server.state.store.get(&target.key()).ok_or_else(|| Status::not_found(target.resource, target.name()))?;
    Ok(Answer::object(200, target.resource, Document::Stored(stored)))
}

/// Waits until the store has reached a revision, for as long as upstream's cache does.
pub(super) async fn reach(server: &ApiServer, resource: &Resource, wanted: u64) -> Result<(), Status> {
    let store = &server.state.store;
    if store.revision() >= wanted {
        return Ok(());
    }
    if !resource.is_cached() {
        return Err(Status::future_version(wanted, store.revision(), 0));
    }
    match store.wait_for_revision(wanted, FUTURE_VERSION_WAIT).await {
        Ok(_) => Ok(()),
        Err(_) => Err(Status::future_version(wanted, store.revision(), 1)),
    }
}
