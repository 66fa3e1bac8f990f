//! ConfigMaps (AS-220; upstream's `ValidateConfigMap`).

use batch_types::{
    field::{Error, Path},
    names::{self, NameRule},
};
use serde_json::{Map, Value};

use super::{
    Context, Strategy,
    metadata::{self, Scope},
    values::{flag, members},
};

/// ConfigMaps and Secrets hold at most a mebibyte, so that etcd could hold them.
pub(super) const SIZE_MAX: usize = 1 << 20;
/// The refusal of every change to a ConfigMap or Secret that was sealed.
pub(super) const SEALED: &str = "field is immutable when `immutable` is set";

/// `configmaps`.
#[derive(Debug)]
pub struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate(object)
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_update(new, old);
        errors.extend(validate_sealed(new, old, &["data", "binaryData"]));
        errors.extend(validate(new));
        errors
    }
}

/// Once `immutable` is true, neither it nor the data can change.
pub(super) fn validate_sealed(new: &Value, old: &Value, data_members: &[&str]) -> Vec<Error> {
    let mut errors = Vec::new();
    if !flag(old, "/immutable") {
        return errors;
    }
    if !flag(new, "/immutable") {
        errors.push(Error::forbidden(&Path::new("immutable"), SEALED));
    }
    for member in data_members {
        if map(new, member) != map(old, member) {
            errors.push(Error::forbidden(&Path::new(*member), SEALED));
        }
    }
    errors
}

/// Bytes that a base64 text stands for.
pub(super) fn decoded_len(base64: &Value) -> usize {
    let text = base64.as_str().unwrap_or_default();
    let padding = text.bytes().rev().take_while(|&byte| byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// Problems of one key of the data.
pub(super) fn validate_key(at: &Path, key: &str) -> Vec<Error> {
    names::config_key(key).into_iter().map(|message| Error::invalid(&at.key(key), key, message)).collect()
}

fn validate(object: &Value) -> Vec<Error> {
    let mut errors = metadata::validate(object, Scope::Namespaced, NameRule::DnsSubdomain);
    let (data, binary_data) = (Path::new("data"), Path::new("binaryData"));
    let mut size = 0;
    for (key, value) in members(object, "/data") {
        errors.extend(validate_key(&data, key));
        if map(object, "binaryData").is_some_and(|binary| binary.contains_key(key)) {
            let detail = "duplicate of key present in binaryData";
            errors.push(Error::invalid(&data.key(key), key.as_str(), detail));
        }
        size += value.as_str().unwrap_or_default().len();
    }
    for (key, value) in members(object, "/binaryData") {
        errors.extend(validate_key(&binary_data, key));
        size += decoded_len(value);
    }
    if size > SIZE_MAX {
        // The error is about the object as a whole; upstream's empty path prints as brackets.
        errors.push(Error::too_long(&Path::default().key(""), SIZE_MAX));
    }
    errors
}

/// A member as a map; an empty map is as good as none.
fn map<'a>(object: &'a Value, member: &str) -> Option<&'a Map<String, Value>> {
    object.get(member).and_then(Value::as_object).filter(|map| !map.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::testing::{context, object, texts};

    fn created(members: Value) -> Vec<String> {
        texts(ConfigMap.validate(&object("v1", "ConfigMap", members), &context()))
    }

    fn updated(old: Value, new: Value) -> Vec<String> {
        let [new, old] = [new, old].map(|members| object("v1", "ConfigMap", members));
        texts(ConfigMap.validate_update(&new, &old, &context()))
    }

    #[test]
    fn keys_are_file_names() {
        let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
        let cases = [
            (json!({}), vec![]),
            (json!({"data": {"a.B_c-1": ""}}), vec![]),
            (json!({"data": {"a/b": "c"}}), vec![format!("data[a/b]: Invalid value: \"a/b\": {rule}")]),
            (json!({"data": {"": "c"}}), vec![format!("data[]: Invalid value: \"\": {rule}")]),
            (json!({"binaryData": {"..": ""}}), vec!["binaryData[..]: Invalid value: \"..\": must not be '..'".into()]),
            (
                json!({"data": {"color": "blue"}, "binaryData": {"color": "aGVsbG8="}}),
                vec!["data[color]: Invalid value: \"color\": duplicate of key present in binaryData".into()],
            ),
        ];
        for (members, expected) in cases {
            assert_eq!(created(members.clone()), expected, "{members}");
        }
    }

    /// AS-220: text counts as it is, binary data decoded.
    #[test]
    fn size_is_limited() {
        let too_long = ["[]: Too long: may not be more than 1048576 bytes"];
        let text = |size: usize| "x".repeat(size);
        assert_eq!(created(json!({"data": {"a": text(SIZE_MAX)}})), [""; 0]);
        assert_eq!(created(json!({"data": {"a": text(SIZE_MAX), "b": "x"}})), too_long);
        // Four characters stand for three bytes; `eA==` for one.
        let binary = text(SIZE_MAX / 3 * 4);
        assert_eq!(created(json!({"binaryData": {"a": binary, "b": "eA=="}})), [""; 0]);
        assert_eq!(created(json!({"binaryData": {"a": binary, "b": "eHg="}})), too_long);
    }

    #[test]
    fn sealed_content_stays() {
        let sealed = json!({"data": {"color": "blue"}, "immutable": true});
        let cases = [
            (json!({"data": {"color": "red"}, "immutable": true}), vec!["data"]),
            (json!({"data": {"color": "blue"}}), vec!["immutable"]),
            (json!({"data": {"color": "blue"}, "immutable": false}), vec!["immutable"]),
            (json!({"data": {"color": "blue"}, "binaryData": {"x": "eA=="}, "immutable": true}), vec!["binaryData"]),
            (json!({"immutable": false}), vec!["immutable", "data"]),
            (json!({"data": {"color": "blue"}, "binaryData": {}, "immutable": true}), vec![]),
        ];
        for (new, fields) in cases {
            let expected: Vec<String> = fields.iter().map(|field| format!("{field}: Forbidden: {SEALED}")).collect();
            assert_eq!(updated(sealed.clone(), new.clone()), expected, "{new}");
        }
        assert_eq!(updated(json!({"data": {"color": "blue"}}), sealed), [""; 0]);
    }
}
