//! Who owns which field: the server's side of `managedFields` (AS-82, AS-86, AS-131…AS-136).

use api_schema::{Type, json};
use bytes::Bytes;
use http::{HeaderMap, header};
use patch::apply::{self, Difference, Manager};
use serde_json::{Map, Value, json};

use crate::{
    metadata,
    owners_memo::{Memo, Remembered},
    resources::Resource,
    route::Target,
    server::ApiServer,
};

/// The writer of a request, as managedFields will name it.
#[derive(Debug, Clone)]
pub struct Writer {
    name: String,
    api_version: String,
    subresource: &'static str,
    now: String,
    reset_fields: &'static [&'static [&'static str]],
}

impl Writer {
    /// `field_manager`, or else the program's name from its User-Agent (AS-132).
    pub fn of(server: &ApiServer, target: &Target, headers: &HeaderMap, field_manager: &str) -> Self {
        let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let name = if field_manager.is_empty() { agent.split('/').next().unwrap_or_default() } else { field_manager };
        let subresource = target.subresource.map_or("", |subresource| subresource.name);
        Self {
            name: name.to_owned(),
            api_version: target.resource.api_version(),
            subresource,
            now: metadata::time(server.state.environment.now()).as_str().unwrap_or_default().to_owned(),
            reset_fields: reset_fields(target.resource, subresource),
        }
    }

    pub fn manager(&self) -> Manager<'_> {
        Manager {
            name: &self.name,
            api_version: &self.api_version,
            subresource: self.subresource,
            now: &self.now,
            reset_fields: self.reset_fields,
        }
    }

    /// Records what this writer changed in an object whose owners are set aside; both objects come without them.
    pub(crate) fn record_aside(
        &self,
        memo: &Memo,
        ty: &'static Type,
        (old, new): (&Value, &Value),
        stored: &Bytes,
    ) -> Remembered {
        let difference = Difference::between(ty, old, new, &self.manager());
        memo.record(stored, &difference, &self.manager())
    }

    /// Records what this writer changed.
    pub fn record(&self, ty: &'static Type, old: Option<&Value>, new: &mut Value) {
        apply::update_managed_fields(ty, old, new, &self.manager());
    }
}

/// What an endpoint never changes and so nobody owns through it (AS-133).
fn reset_fields(resource: &Resource, subresource: &str) -> &'static [&'static [&'static str]] {
    match (resource.kind, subresource) {
        ("Pod", "status") => &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
        (_, "status") => &[&["spec"]],
        (_, "") if resource.subresource("status").is_some() => &[&["status"]],
        _ => &[],
    }
}

/// Whether a patch speaks of managedFields.
pub fn is_named(patch: &Map<String, Value>) -> bool {
    patch.get("metadata").is_some_and(|metadata| metadata.get("managedFields").is_some())
}

/// Asks to forget all owners: an empty list, which canonical objects cannot tell from none (AS-136).
pub fn forget(object: &mut Value) {
    metadata::of(object).insert("managedFields".to_owned(), json!([]));
}

/// Forgets all owners if the body, as it was sent, asks for it. It is only parsed again when it speaks of
/// managedFields at all.
pub fn forget_if_asked(sent: &[u8], object: &mut Value) {
    const MEMBER: &[u8] = b"\"managedFields\"";
    if sent.windows(MEMBER.len()).any(|window| window == MEMBER)
        && json::parse(sent).is_ok_and(|sent| apply::resets_managed_fields(&sent))
    {
        forget(object);
    }
}

/// Leaves owners as they were, for writes that are nobody's in particular (bindings, evictions).
pub fn keep(old: &Value, new: &mut Value) {
    match old["metadata"].get("managedFields") {
        Some(entries) => metadata::of(new).insert("managedFields".to_owned(), entries.clone()),
        None => metadata::of(new).shift_remove("managedFields"),
    };
}
