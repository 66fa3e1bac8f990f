//! Who owns which field: the server's side of `managedFields` (AS-82, AS-86, AS-131…AS-136).

use api_schema::{Type, json};
use bytes::Bytes;
use http::{HeaderMap, header};
use patch::apply::{self, Manager};
use serde_json::{Map, Value, json};

use crate::{
    metadata,
    owners_memo::{Memo, Remembered, Versions},
    resources::Resource,
    route::Target,
    server::ApiServer,
};

/// The longest name that a manager can have.
const MANAGER_BYTES_MAX: usize = 128;

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
        let agent = || headers.get(header::USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        let name = if field_manager.is_empty() {
            agent().map(|agent| program(&agent)).unwrap_or_default()
        } else {
            field_manager.to_owned()
        };
        let subresource = target.subresource.map_or("", |subresource| subresource.name);
        Self {
            name,
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
        memo.record(stored, Versions { ty, old: Some(old), new }, &self.manager())
    }

    /// Everything in a new object is its writer's; the object comes without owners.
    pub(crate) fn record_new(&self, memo: &Memo, ty: &'static Type, new: &Value) -> Option<Bytes> {
        const NOBODY: Bytes = Bytes::from_static(b"[]");
        let recorded = memo.record(&NOBODY, Versions { ty, old: None, new }, &self.manager());
        recorded.managed_fields.filter(|list| list != &NOBODY)
    }

    /// Records what this writer changed.
    pub fn record(&self, ty: &'static Type, old: Option<&Value>, new: &mut Value) {
        apply::update_managed_fields(ty, old, new, &self.manager());
    }
}

/// What a User-Agent says before its first slash, as far as a manager's name can be so long.
fn program(agent: &str) -> String {
    let printable = agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control());
    let mut name = String::new();
    for letter in printable {
        if name.len() + letter.len_utf8() > MANAGER_BYTES_MAX {
            break;
        }
        name.push(letter);
    }
    name
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

/// Whether an object or a patch speaks of managedFields.
pub fn is_named(object: &Map<String, Value>) -> bool {
    object.get("metadata").is_some_and(|metadata| metadata.get("managedFields").is_some())
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

#[cfg(test)]
mod tests {
    use api_schema::registry;

    use super::*;

    /// AS-132.
    #[test]
    fn a_program_is_named_by_what_it_says_before_the_slash() {
        assert_eq!(program("kubectl/v1.36.4 (linux/amd64)"), "kubectl");
        assert_eq!(program("a\u{7}b"), "ab");
        assert_eq!(program(""), "");
        assert_eq!(program(&"x".repeat(200)), "x".repeat(128));
        assert_eq!(program(&format!("{}é", "x".repeat(127))), "x".repeat(127), "no letter is cut in two");
    }

    /// AS-86: what is recorded for a new object without reading a list is what is recorded in the object.
    #[test]
    fn a_new_object_is_its_writers() {
        let objects = [
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"app": "x"}, "finalizers": ["b/c"]},
                "spec": {"containers": [{"name": "main", "image": "a", "env": [{"name": "A"}, {"name": "B", "value": "1"}]}]}}),
            // Nobody owns a name, so nobody owns anything.
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "default"}}),
            // Items that cannot be told apart.
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"},
                "spec": {"containers": [{"image": "a"}, {"image": "b"}]}}),
        ];
        let memo = Memo::default();
        for object in objects {
            let ty = registry().kind("v1", object["kind"].as_str().unwrap()).unwrap();
            let writer = Writer {
                name: "maker".to_owned(),
                api_version: "v1".to_owned(),
                subresource: "",
                now: "2026-11-16T00:00:00Z".to_owned(),
                reset_fields: &[&["status"]],
            };
            let mut whole = object.clone();
            writer.record(ty, None, &mut whole);
            for _ in 0..2 {
                let aside = writer.record_new(&memo, ty, &object);
                let aside = aside.map(|list| serde_json::from_slice::<Value>(&list).unwrap());
                assert_eq!(aside.as_ref(), whole["metadata"].get("managedFields"), "{object}");
            }
        }
    }
}
