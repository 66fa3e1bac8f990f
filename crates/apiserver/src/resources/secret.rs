//! Secrets (AS-220; upstream's `ValidateSecret`).
//!
//! What the types mean to their users is not checked beyond the keys they need; a TLS pair that does not look like one is
//! only warned about.

use std::collections::BTreeMap;

use api_schema::json;
use base64::{Engine, engine::general_purpose::STANDARD};
use batch_types::{
    field::{Error, Path},
    gates::Gates,
    names::NameRule,
};
use serde_json::Value;

use super::{
    Context, Strategy,
    configmap::{SIZE_MAX, decoded_len, validate_key, validate_sealed},
    metadata::{self, Scope},
    pem,
    values::{copy, members, object_mut, remove, set, text},
};

/// The account that a token belongs to.
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// What errors show instead of content.
const REDACTED: &str = "<secret contents redacted>";

/// `secrets`.
#[derive(Debug)]
pub struct Secret;

impl Strategy for Secret {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        merge_string_data(object);
        if text(object, "/type").is_empty() {
            set(object, "type", "Opaque");
        }
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate(object)
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        warnings(object)
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        if text(new, "/type").is_empty() {
            copy(new, old, "type");
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_update(new, old);
        if text(new, "/type") != text(old, "/type") {
            errors.push(Error::invalid(&Path::new("type"), text(new, "/type"), "field is immutable"));
        }
        errors.extend(validate_sealed(new, old, &["data"]));
        errors.extend(validate(new));
        errors
    }

    fn warnings_on_update(&self, new: &Value, _old: &Value) -> Vec<String> {
        warnings(new)
    }
}

/// `stringData` is a way of writing `data`; it is never stored.
fn merge_string_data(object: &mut Value) {
    let Some(Value::Object(texts)) = remove(object, "stringData") else { return };
    if texts.is_empty() {
        return;
    }
    let Some(data) = object_mut(object, "data") else { return };
    for (key, value) in texts {
        data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
    }
}

fn validate(secret: &Value) -> Vec<Error> {
    let mut errors = metadata::validate(secret, Scope::Namespaced, NameRule::DnsSubdomain);
    let at = Path::new("data");
    let mut size = 0;
    for (key, value) in members(secret, "/data") {
        errors.extend(validate_key(&at, key));
        size += decoded_len(value);
    }
    if size > SIZE_MAX {
        errors.push(Error::too_long(&at, SIZE_MAX));
    }
    errors.extend(validate_type(secret, &at));
    errors
}

/// What each well-known type needs.
fn validate_type(secret: &Value, at: &Path) -> Vec<Error> {
    let data: BTreeMap<&str, &Value> = members(secret, "/data").map(|(key, value)| (key.as_str(), value)).collect();
    let missing = |keys: &[&str]| -> Vec<Error> {
        let absent = keys.iter().filter(|key| !data.contains_key(**key));
        absent.map(|key| Error::required(&at.key(key), "")).collect()
    };
    let docker_config = |key: &str| match data.get(key) {
        None => vec![Error::required(&at.key(key), "")],
        Some(config) => Vec::from_iter(validate_docker_config(config, &at.key(key))),
    };
    match text(secret, "/type") {
        "kubernetes.io/service-account-token" => Vec::from_iter(validate_account(secret)),
        "kubernetes.io/dockercfg" => docker_config(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker_config(".dockerconfigjson"),
        // One of the two is enough.
        "kubernetes.io/basic-auth" => match missing(&["username", "password"]) {
            both if both.len() == 2 => both,
            _ => Vec::new(),
        },
        "kubernetes.io/ssh-auth" => match data.get("ssh-privatekey") {
            Some(key) if decoded_len(key) > 0 => Vec::new(),
            _ => vec![Error::required(&at.key("ssh-privatekey"), "")],
        },
        "kubernetes.io/tls" => missing(&["tls.crt", "tls.key"]),
        _ => Vec::new(),
    }
}

/// A token secret names its account; a controller adds the rest.
fn validate_account(secret: &Value) -> Option<Error> {
    let annotations = secret.pointer("/metadata/annotations");
    let account = annotations.and_then(|all| all.get(SERVICE_ACCOUNT_NAME)).and_then(Value::as_str);
    account
        .is_none_or(str::is_empty)
        .then(|| Error::required(&Path::new("metadata").child("annotations").key(SERVICE_ACCOUNT_NAME), ""))
}

/// The content must be a JSON object; the error says why in Go's words, without showing it.
fn validate_docker_config(config: &Value, at: &Path) -> Option<Error> {
    let bytes = decode(config);
    let why = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return None,
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                _ => "bool",
            };
            format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
        }
        // Go accepts some things that serde does not, such as broken UTF-8.
        Err(_) => json::check_syntax(&bytes).err()?.to_string(),
    };
    Some(Error::invalid(at, REDACTED, why))
}

fn warnings(secret: &Value) -> Vec<String> {
    if text(secret, "/type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let content = |key: &str| secret.get("data").and_then(|data| data.get(key)).map(decode).unwrap_or_default();
    pem::key_pair_problem(&content("tls.crt"), &content("tls.key")).into_iter().collect()
}

fn decode(base64: &Value) -> Vec<u8> {
    // Canonical objects hold valid base64.
    base64.as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::testing::{context, object, texts};

    fn secret(members: Value) -> Value {
        let mut secret = object("v1", "Secret", members);
        Strategy::default(&Secret, &mut secret, context().gates);
        secret
    }

    fn check(members: Value) -> Vec<String> {
        texts(Secret.validate(&secret(members), &context()))
    }

    #[test]
    fn string_data_becomes_data() {
        let members = json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "b", "c": ""}});
        let secret = secret(members);
        assert_eq!(secret["data"], json!({"a": "Yg==", "b": "eQ==", "c": ""}));
        assert_eq!(secret.get("stringData"), None);
        assert_eq!(secret["type"], "Opaque");
    }

    /// AS-220; texts as recorded.
    #[test]
    fn types_need_their_keys() {
        let required =
            |keys: &[&str]| keys.iter().map(|key| format!("data[{key}]: Required value")).collect::<Vec<_>>();
        let cases = [
            ("example.com/odd", json!({}), vec![]),
            ("kubernetes.io/tls", json!({"tls.crt": "x"}), required(&["tls.key"])),
            ("kubernetes.io/tls", json!({}), required(&["tls.crt", "tls.key"])),
            ("kubernetes.io/basic-auth", json!({}), required(&["username", "password"])),
            ("kubernetes.io/basic-auth", json!({"username": ""}), vec![]),
            ("kubernetes.io/ssh-auth", json!({"ssh-privatekey": ""}), required(&["ssh-privatekey"])),
            ("kubernetes.io/ssh-auth", json!({"ssh-privatekey": "k"}), vec![]),
            ("kubernetes.io/dockercfg", json!({}), required(&[".dockercfg"])),
            ("kubernetes.io/dockercfg", json!({".dockercfg": "{}"}), vec![]),
            ("kubernetes.io/dockerconfigjson", json!({".dockercfg": "{}"}), required(&[".dockerconfigjson"])),
            (
                "kubernetes.io/dockerconfigjson",
                json!({".dockerconfigjson": "x"}),
                vec![
                    "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'x' \
                      looking for beginning of value"
                        .to_owned(),
                ],
            ),
            (
                "kubernetes.io/dockerconfigjson",
                json!({".dockerconfigjson": "[]"}),
                vec![
                    "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": json: cannot unmarshal \
                      array into Go value of type map[string]interface {}"
                        .to_owned(),
                ],
            ),
            (
                "kubernetes.io/service-account-token",
                json!({}),
                vec!["metadata.annotations[kubernetes.io/service-account.name]: Required value".to_owned()],
            ),
        ];
        for (secret_type, data, expected) in cases {
            assert_eq!(check(json!({"type": secret_type, "stringData": data})), expected, "{secret_type}");
        }
    }

    #[test]
    fn size_is_limited() {
        assert_eq!(check(json!({"stringData": {"a": "x".repeat(SIZE_MAX)}})), [""; 0]);
        let too_long = ["data: Too long: may not be more than 1048576 bytes"];
        assert_eq!(check(json!({"stringData": {"a": "x".repeat(SIZE_MAX), "b": "x"}})), too_long);
    }

    #[test]
    fn type_and_sealed_data_stay() {
        let old = secret(json!({"stringData": {"a": "b"}, "immutable": true}));
        let new = secret(json!({"stringData": {"a": "c"}, "immutable": true, "type": "example.com/odd"}));
        assert_eq!(
            texts(Secret.validate_update(&new, &old, &context())),
            [
                "type: Invalid value: \"example.com/odd\": field is immutable",
                "data: Forbidden: field is immutable when `immutable` is set"
            ]
        );
    }

    #[test]
    fn a_pair_that_is_none_is_warned_about() {
        let pair =
            |crt: &str| secret(json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": crt, "tls.key": ""}}));
        let expected = ["tls: failed to find any PEM data in certificate input"];
        assert_eq!(Secret.warnings_on_create(&pair("x")), expected);
        assert_eq!(Secret.warnings_on_create(&secret(json!({}))), [""; 0]);
    }
}
