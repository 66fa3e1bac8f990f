//! The served resources: one static description and one strategy of pure functions for each (style of upstream's
//! `pkg/registry`). The generic request path in `verbs/` asks the strategy; it knows no kind itself.

mod cidr;
mod configmap;
mod cronjob;
mod event;
mod job;
mod lease;
mod limitrange;
mod metadata;
mod namespace;
mod node;
mod pem;
mod pod;
pub mod priorityclass;
mod rbac;
pub mod registry;
mod resourcequota;
mod secret;
mod serviceaccount;
#[cfg(test)]
mod testing;
mod typed;
pub(crate) mod values;

use batch_types::{field, gates::Gates};
use jiff::Timestamp;
use serde_json::{Map, Value};

/// What a kind adds to the generic request path. Every method is pure: objects in, objects and findings out.
///
/// Objects are canonical values as `api_schema::json` makes them. Metadata that the server manages (uid, times,
/// generation of kinds that do not manage it, deletion marks) is already settled when a method is called.
pub trait Strategy: Send + Sync {
    /// Versioned defaults, applied whenever a body has been decoded (POST, PUT, result of a PATCH).
    fn default(&self, _object: &mut Value, _gates: &Gates) {}

    /// Whether [`Strategy::default_on_read`] does anything.
    fn defaults_on_read(&self) -> bool {
        false
    }

    /// Defaults that depend on what the strategy itself generated: upstream applies them whenever it reads from its
    /// store, after validation. Tells whether anything changed.
    fn default_on_read(&self, _object: &mut Value, _gates: &Gates) -> bool {
        false
    }

    /// Upstream stored this new object without what its reads default, so that the first write after its creation
    /// changes the stored bytes, whatever it says.
    fn is_completed_by_first_write(&self, _old: &Value) -> bool {
        false
    }

    /// Sets what clients may not choose: status, generation, generated labels.
    fn prepare_for_create(&self, _object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Everything wrong with a new object, in upstream's order, metadata included.
    fn validate(&self, _object: &Value, _cx: &Context<'_>) -> Vec<field::Error> {
        Vec::new()
    }

    fn warnings_on_create(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Errors of a new object or, when there are none, its warnings. Kinds that are read into a struct for both do so
    /// once.
    fn review_new(&self, object: &Value, cx: &Context<'_>) -> Result<Vec<String>, Vec<field::Error>> {
        let errors = self.validate(object, cx);
        if errors.is_empty() { Ok(self.warnings_on_create(object)) } else { Err(errors) }
    }

    /// Settles a new object that nothing is wrong with. True if it changed.
    fn settle_new(&self, _object: &mut Value) -> bool {
        false
    }

    /// Restores what an update of this endpoint may not change (status on the main resource, spec on `/status`).
    fn prepare_for_update(&self, _new: &mut Value, _old: &Value, _cx: &Context<'_>) {}

    /// Members that a merge or strategic merge patch may leave as the bytes they are: it does not name them, and no rule
    /// for what it does name looks at them. In the order of the type.
    ///
    /// Whatever this answers, such a write is judged without these members in both objects, unless
    /// [`Strategy::needs_set_aside`] says otherwise.
    fn may_set_aside(&self, _patch: &Map<String, Value>) -> &'static [&'static str] {
        &[]
    }

    /// Whether rules turn out to need what was set aside.
    fn needs_set_aside(&self, _new: &Value, _old: &Value) -> bool {
        false
    }

    fn validate_update(&self, _new: &Value, _old: &Value, _cx: &Context<'_>) -> Vec<field::Error> {
        Vec::new()
    }

    fn warnings_on_update(&self, _new: &Value, _old: &Value) -> Vec<String> {
        Vec::new()
    }

    /// PUT on a missing name creates it (AS-111).
    fn creates_on_update(&self) -> bool {
        false
    }

    /// PUT without a resourceVersion overwrites; the exceptions are in AS-110.
    fn updates_unconditionally(&self) -> bool {
        true
    }

    /// A removal is answered with the object instead of a Status (AS-147).
    fn answers_delete_with_object(&self) -> bool {
        false
    }

    /// Dependents are orphaned when a delete names no policy (AS-148), with this warning.
    fn orphans_by_default(&self) -> Option<&'static str> {
        None
    }

    /// Finalizers of garbage collection are never set on this kind (AS-146 step 2, events).
    fn ignores_propagation(&self) -> bool {
        false
    }
}

/// What a strategy may know besides the objects.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub now: Timestamp,
    pub gates: &'a Gates,
    /// The name came from `generateName` (JA-D4).
    pub name_was_generated: bool,
    /// The request named labels of its own, before any default (JA-D4).
    pub labels_were_given: bool,
}

/// A kind as clients see it.
pub struct Resource {
    /// `""` for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    /// In the order discovery prints them.
    pub verbs: &'static [&'static str],
    /// AS-40.
    pub storage_version_hash: &'static str,
    pub subresources: &'static [Subresource],
    /// The first segment of its keys in the store; two resources may share one (events, AS-1).
    pub topic: &'static str,
    /// Paths that field selectors may name, besides metadata.name and metadata.namespace (AS-94).
    pub selectable: &'static [Selectable],
    /// How an unknown field selector is refused.
    pub unknown_field: UnknownField,
    pub strategy: &'static dyn Strategy,
    /// Set when objects are stored in another version than this one is served in.
    pub conversion: Option<&'static dyn Conversion>,
}

/// A part of an object with an endpoint of its own, or an action on it.
pub struct Subresource {
    pub name: &'static str,
    /// Group, version and kind where they differ from the resource's (`pods/eviction`).
    pub kind: Option<(&'static str, &'static str, &'static str)>,
    pub verbs: &'static [&'static str],
    pub endpoint: Endpoint,
}

/// What a subresource does.
pub enum Endpoint {
    /// Reads and writes the same object under other rules (`/status`, `/finalize`, `/ephemeralcontainers`).
    Part(&'static dyn Strategy),
    Binding,
    Eviction,
    Log,
    Token,
}

/// One field that selectors may name.
#[derive(Debug)]
pub struct Selectable {
    /// As written in the selector: `status.successful`.
    pub label: &'static str,
    /// Where its value is in the stored object: `["status", "succeeded"]`.
    pub path: &'static [&'static str],
    /// The text of an absent value: `"0"` for numbers, `"false"` for booleans.
    pub absent: &'static str,
}

/// The three ways upstream words an unsupported field label (AS-94).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownField {
    /// `"x" is not a known field selector: only "metadata.name", "metadata.namespace"`
    Default,
    /// `field label not supported: x`
    Short,
    /// `field label "x" not supported for Job`
    WithKind,
}

/// Between the stored and the served version of an object.
pub trait Conversion: Send + Sync {
    fn served_form(&self, object: Value) -> Value;
    fn stored_form(&self, object: Value) -> Value;
    /// `(apiVersion, kind)` of the stored form.
    fn storage_kind(&self) -> (&'static str, &'static str);
}

impl Resource {
    /// `v1` or `batch/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods` or `jobs.batch`, as error texts say it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether upstream reads it through a watch cache, which differs from the store in what it says of versions (AS-87,
    /// AS-89). There are too many events for one.
    pub fn is_cached(&self) -> bool {
        self.kind != "Event"
    }

    /// The group that validation errors name. Both event APIs are one internal type upstream, which has none.
    pub fn validated_group(&self) -> &'static str {
        if self.kind == "Event" { "" } else { self.group }
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Part(_) => "Part",
            Self::Binding => "Binding",
            Self::Eviction => "Eviction",
            Self::Log => "Log",
            Self::Token => "Token",
        })
    }
}

impl std::fmt::Debug for Subresource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Subresource").field(&self.name).finish()
    }
}

impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Resource").field(&self.qualified()).finish()
    }
}
