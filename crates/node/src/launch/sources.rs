//! ConfigMaps and Secrets that pods refer to, read from the API and kept for a moment; tokens are in `tokens`.
//!
//! Thousands of pods of one Job refer to the same few objects; a copy that is a second old serves them all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use kube::Client;
use parking_lot::Mutex;
use serde::Deserialize;

use super::tokens::Tokens;

/// How old a copy may be.
const AGE_MAX: Duration = Duration::from_secs(1);
const COPIES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
}

impl Kind {
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }

    fn singular(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }

    /// As messages spell it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

/// The content of a ConfigMap or Secret. Its `Debug` shows no values (INV-53).
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) entries: BTreeMap<String, Vec<u8>>,
    /// Keys of `binaryData`, which are files but never variables.
    binary: BTreeSet<String>,
}

impl Content {
    /// What may be in an environment.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&String, &Vec<u8>)> {
        self.entries.iter().filter(|(key, _)| !self.binary.contains(*key))
    }

    pub(crate) fn variable(&self, key: &str) -> Option<&Vec<u8>> {
        self.entries.get(key).filter(|_| !self.binary.contains(key))
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.entries.keys()).finish()
    }
}

/// Why content cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Tolerated where the reference is optional.
    NotFound(String),
    Failed(String),
}

impl Missing {
    pub(crate) fn into_message(self) -> String {
        match self {
            Self::NotFound(message) | Self::Failed(message) => message,
        }
    }
}

/// Kind, namespace, name.
type Key = (Kind, String, String);
type Copies = HashMap<Key, (Instant, Arc<Content>)>;

/// Reads objects through the API. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sources {
    client: Client,
    copies: Arc<Mutex<Copies>>,
    tokens: Tokens,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sources")
    }
}

impl Sources {
    pub(crate) fn new(client: Client) -> Self {
        Self { tokens: Tokens::new(client.clone()), client, copies: Arc::default() }
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    pub(crate) async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Arc<Content>, Missing> {
        let key = (kind, namespace.to_owned(), name.to_owned());
        if let Some((read_at, content)) = self.copies.lock().get(&key)
            && read_at.elapsed() < AGE_MAX
        {
            return Ok(Arc::clone(content));
        }
        let content = Arc::new(self.read(kind, namespace, name).await?);
        let mut copies = self.copies.lock();
        if copies.len() >= COPIES_MAX {
            copies.retain(|_, (read_at, _)| read_at.elapsed() < AGE_MAX);
        }
        if copies.len() < COPIES_MAX {
            copies.insert(key, (Instant::now(), Arc::clone(&content)));
        }
        Ok(content)
    }

    async fn read(&self, kind: Kind, namespace: &str, name: &str) -> Result<Content, Missing> {
        let failed =
            |error: &dyn std::fmt::Display| Missing::Failed(format!("{} \"{name}\": {error}", kind.singular()));
        let path = format!("/api/v1/namespaces/{namespace}/{}/{name}", kind.plural());
        let request = Request::get(path).body(Vec::new()).map_err(|error| failed(&error))?;
        match self.client.request::<Object>(request).await {
            Ok(object) => object.into_content(kind).map_err(|error| failed(&error)),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Err(Missing::NotFound(format!("{} \"{name}\" not found", kind.singular())))
            }
            Err(error) => Err(failed(&error)),
        }
    }
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Object {
    data: BTreeMap<String, String>,
    binary_data: BTreeMap<String, String>,
}

impl Object {
    fn into_content(self, kind: Kind) -> Result<Content, base64::DecodeError> {
        let decoded = |map: BTreeMap<String, String>| {
            map.into_iter()
                .map(|(key, value)| Ok((key, STANDARD.decode(value)?)))
                .collect::<Result<BTreeMap<_, _>, _>>()
        };
        match kind {
            Kind::Secret => Ok(Content { entries: decoded(self.data)?, binary: BTreeSet::new() }),
            Kind::ConfigMap => {
                let mut entries = decoded(self.binary_data)?;
                let binary = entries.keys().cloned().collect();
                entries.extend(self.data.into_iter().map(|(key, value)| (key, value.into_bytes())));
                Ok(Content { entries, binary })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn binary_data_is_for_files_only() {
        let object: Object = serde_json::from_value(json!({"data": {"a": "1"}, "binaryData": {"b": "Mg=="}})).unwrap();
        let content = object.into_content(Kind::ConfigMap).unwrap();
        assert_eq!(content.entries.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(content.variables().map(|(key, _)| key).collect::<Vec<_>>(), ["a"]);
        assert_eq!((content.variable("a"), content.variable("b")), (Some(&b"1".to_vec()), None));
    }
}
