//! Tokens of ServiceAccounts for the pods that run here, asked of the API and renewed in time.
//!
//! A token is bound to its pod and ends with it. The files it is written to are the business of `volumes`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, header};
use k8s_openapi::api::core::v1::ServiceAccountTokenProjection;
use kube::Client;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use super::downward::PodFacts;

/// How long a token is asked for if the pod does not say.
const SECONDS_DEFAULT: i64 = 3600;
/// A token is renewed after this part of its time, and at the latest after a day, as a kubelet does.
const RENEWED_AFTER_PERCENT: u64 = 80;
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// More tokens than this are not kept, only asked for again.
const KEPT_MAX: usize = 4096;

/// Pod, audience, seconds.
type Key = (String, String, i64);

/// Asks for tokens and keeps them until they are to be renewed. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tokens {
    client: Client,
    kept: Arc<Mutex<HashMap<Key, Kept>>>,
}

struct Kept {
    token: String,
    renewed_at: Instant,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, kept: Arc::default() }
    }

    /// The token that a pod wants, or why there is none.
    pub(crate) async fn get(&self, pod: &PodFacts, wanted: &ServiceAccountTokenProjection) -> Result<String, String> {
        let seconds = wanted.expiration_seconds.unwrap_or(SECONDS_DEFAULT);
        let audience = wanted.audience.clone().unwrap_or_default();
        let key = (pod.uid.clone(), audience, seconds);
        if let Some(kept) = self.kept.lock().get(&key)
            && Instant::now() < kept.renewed_at
        {
            return Ok(kept.token.clone());
        }
        let token = self.request(pod, &key.1, seconds).await?;
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_MAX {
            let now = Instant::now();
            kept.retain(|_, kept| now < kept.renewed_at);
        }
        if kept.len() < KEPT_MAX {
            kept.insert(key, Kept { token: token.clone(), renewed_at: Instant::now() + renewed_after(seconds) });
        }
        Ok(token)
    }

    async fn request(&self, pod: &PodFacts, audience: &str, seconds: i64) -> Result<String, String> {
        let PodFacts { name, namespace, uid, service_account, .. } = pod;
        let failed = |error: &dyn std::fmt::Display| format!("failed to fetch token: {error}");
        let audiences = if audience.is_empty() { json!([]) } else { json!([audience]) };
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid},
            },
        });
        let request = Request::post(format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| failed(&error))?;
        match self.client.request::<TokenRequest>(request).await {
            Ok(answer) => Ok(answer.status.token),
            Err(kube::Error::Api(status)) => Err(failed(&status.message)),
            Err(error) => Err(failed(&error)),
        }
    }
}

fn renewed_after(seconds: i64) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    Duration::from_secs(seconds.saturating_mul(RENEWED_AFTER_PERCENT) / 100).min(AGE_MAX)
}

#[derive(Deserialize)]
struct TokenRequest {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_well_before_they_end() {
        for (seconds, after) in [(3600, 2880), (600, 480), (1 << 32, 86_400), (-1, 0)] {
            assert_eq!(renewed_after(seconds), Duration::from_secs(after), "{seconds}");
        }
    }
}
