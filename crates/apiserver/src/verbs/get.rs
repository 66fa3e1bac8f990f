//! GET of one object (AS-87).

use std::time::Duration;

use crate::{
    answer::{Answer, Document},
    options::resource_version,
    route::Target,
    server::{ApiServer, Call},
    status::Status,
};

/// How long a read waits for a version that does not exist yet (AS-87).
pub(super) const FUTURE_VERSION_WAIT: Duration = Duration::from_secs(3);

pub(super) async fn get(server: &ApiServer, call: &Call, target: &Target) -> Result<Answer, Status> {
    if let Some(wanted) = resource_version(call.query.text("resourceVersion"))? {
        reach(server, wanted).await?;
    }
    let stored =
        server.state.store.get(&target.key()).ok_or_else(|| Status::not_found(target.resource, target.name()))?;
    Ok(Answer::object(200, target.resource, Document::Stored(stored)))
}

/// Waits until the store has reached a revision, for as long as upstream does.
pub(super) async fn reach(server: &ApiServer, wanted: u64) -> Result<(), Status> {
    let store = &server.state.store;
    if store.revision() >= wanted || store.wait_for_revision(wanted, FUTURE_VERSION_WAIT).await.is_ok() {
        return Ok(());
    }
    Err(Status::future_version(wanted, store.revision()))
}
