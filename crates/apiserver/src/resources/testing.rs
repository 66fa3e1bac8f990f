//! What the tests of strategies share.

use batch_types::{field::Error, gates::Gates};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Context;

static GATES: Gates = Gates::DEFAULT;

/// A fixed moment, all gates on.
pub(super) fn context() -> Context<'static> {
    let now = Timestamp::from_second(1_714_557_600).expect("2024-05-01T10:00:00Z");
    Context { now, gates: &GATES, name_was_generated: false, labels_were_given: false }
}

/// A stored object named `demo` in namespace `ns` with these other members.
pub(super) fn object(api_version: &str, kind: &str, members: Value) -> Value {
    named(api_version, kind, "demo", members)
}

pub(super) fn named(api_version: &str, kind: &str, name: &str, members: Value) -> Value {
    let mut object = Map::new();
    object.insert("kind".to_owned(), json!(kind));
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("metadata".to_owned(), json!({"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "1"}));
    object.extend(members.as_object().expect("members").clone());
    Value::Object(object)
}

pub(super) fn texts(errors: Vec<Error>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
