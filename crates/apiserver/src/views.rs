//! Other views of objects: Table and PartialObjectMetadata (AS-159…AS-161).

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{answer::IncludeObject, attributes, negotiate::MetaVersion, resources::Resource, tables};

/// An object reduced to its metadata.
pub fn partial(object: &Value, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// The same of stored bytes, which are not read any further than to the end of the metadata.
pub fn partial_bytes(object: &Bytes, version: MetaVersion) -> Vec<u8> {
    let metadata = attributes::metadata_bytes(object);
    let mut bytes = partial_opening(version).into_bytes();
    bytes.extend_from_slice(&metadata);
    bytes.push(b'}');
    bytes
}

/// What comes before the metadata; a brace follows them.
pub fn partial_opening(version: MetaVersion) -> String {
    format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{}\",\"metadata\":", version.api_version())
}

/// A Table with a row for each object.
pub fn table<'a>(
    resource: &Resource,
    objects: impl IntoIterator<Item = &'a Value>,
    list_metadata: Value,
    form: TableForm,
) -> Value {
    let rows: Vec<Value> = objects.into_iter().map(|object| row(resource, object, form)).collect();
    // Upstream's default converter makes no list of nothing (AS-160).
    let rows = if rows.is_empty() && tables::is_default(resource) { Value::Null } else { Value::from(rows) };
    let columns = if form.columns { Value::from(tables::columns(resource)) } else { Value::Null };
    json!({
        "kind": "Table",
        "apiVersion": form.version.api_version(),
        "metadata": list_metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

/// How a Table is written.
#[derive(Debug, Clone, Copy)]
pub struct TableForm {
    pub version: MetaVersion,
    pub include: IncludeObject,
    /// Only the first event of a watch has column definitions (AS-161).
    pub columns: bool,
    pub now: Timestamp,
}

/// The metadata of a Table that holds one object: its resource version.
pub fn metadata_of_one(object: &Value) -> Value {
    json!({"resourceVersion": object["metadata"]["resourceVersion"].as_str().unwrap_or_default()})
}

/// A bookmark in a Table watch: one row of empty cells that carries the version (AS-106).
pub fn bookmark_row(resource: &Resource, bookmark: &Value, form: TableForm) -> Value {
    let columns = tables::columns(resource);
    let cells: Vec<Value> = columns.iter().map(|_| Value::Null).collect();
    json!({
        "kind": "Table",
        "apiVersion": form.version.api_version(),
        "metadata": metadata_of_one(bookmark),
        "columnDefinitions": if form.columns { Value::from(columns) } else { Value::Null },
        "rows": [{"cells": cells, "object": attached(bookmark, form)}],
    })
}

fn row(resource: &Resource, object: &Value, form: TableForm) -> Value {
    let mut row = match tables::row(resource, object, form.now) {
        Value::Object(row) => row,
        _ => Map::new(),
    };
    row.insert("object".to_owned(), attached(object, form));
    Value::Object(row)
}

fn attached(object: &Value, form: TableForm) -> Value {
    match form.include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial(object, form.version),
        IncludeObject::Object => object.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_taken_from_bytes_are_those_of_the_object() {
        for object in [
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"x": "}\""}}, "spec": {}}),
            json!({"kind": "Pod", "apiVersion": "v1", "spec": {"metadata": {"name": "b"}}}),
        ] {
            let bytes = Bytes::from(object.to_string());
            let read: Value = serde_json::from_slice(&partial_bytes(&bytes, MetaVersion::V1)).unwrap();
            assert_eq!(read, partial(&object, MetaVersion::V1));
        }
    }
}
