//! What ServiceAccount tokens are worth: making one for an account, and finding out whether one still counts (AS-58).
//!
//! A token ends with its time, with its account and, if it is bound to a pod, secret or node, with that.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{
    rbac::quoted_list,
    token::{Claims, ISSUER, Kubernetes, Reference},
    user::{self, User},
};
use crate::{resources::registry, route, server::State, status::Status, storage::Stored};

/// Clocks differ, and work that has begun should end: tokens and deletions take effect this much later.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A user, and the audiences its token shares with the one who asks.
#[derive(Debug)]
pub struct Authenticated {
    pub user: Arc<User>,
    pub audiences: Vec<String>,
}

/// Whose token it is, or why nobody's. The reasons are upstream's; only TokenReviews and logs show them.
pub(super) fn authenticate(token: &str, audiences: &[String], state: &State) -> Result<Authenticated, String> {
    const UNKNOWN: &str = "invalid bearer token";
    let issuer = state.issuer().map_err(|_| UNKNOWN.to_owned())?;
    let claims = issuer.verify(token).ok_or_else(|| UNKNOWN.to_owned())?;
    let shared: Vec<String> = claims.aud.iter().filter(|own| audiences.contains(own)).cloned().collect();
    if shared.is_empty() {
        return Err(format!(
            "token audiences {} is invalid for the target audiences {}",
            quoted_list(&claims.aud),
            quoted_list(audiences)
        ));
    }
    let now = state.environment.now();
    check_time(&claims, now)?;
    check_objects(&claims.kubernetes, state, now)?;
    Ok(Authenticated { user: Arc::new(user_of(&claims)), audiences: shared })
}

fn check_time(claims: &Claims, now: Timestamp) -> Result<(), String> {
    let now = now.as_second();
    let leeway = LEEWAY.as_secs();
    if now + leeway < claims.nbf {
        return Err("service account token is not valid yet".to_owned());
    }
    if now - leeway > claims.exp {
        return Err("service account token has expired".to_owned());
    }
    if now + leeway < claims.iat {
        return Err("service account token is issued in the future".to_owned());
    }
    Ok(())
}

/// The account and what the token is bound to must still be the same objects.
fn check_objects(claims: &Kubernetes, state: &State, now: Timestamp) -> Result<(), String> {
    let Kubernetes { namespace, serviceaccount, pod, secret, node, .. } = claims;
    let find = |plural: &str, namespace: &str, reference: &Reference| find(state, plural, namespace, &reference.name);
    let Some(account) = find("serviceaccounts", namespace, serviceaccount) else {
        return Err(format!("serviceaccounts \"{}\" not found", serviceaccount.name));
    };
    if account.uid != serviceaccount.uid {
        return Err(format!("service account UID ({}) does not match claim ({})", account.uid, serviceaccount.uid));
    }
    if account.is_gone(now) {
        return Err(format!("service account {namespace}/{} has been deleted", serviceaccount.name));
    }
    // A pod's node is only told; it does not bind (upstream's `Validate`).
    let node = node.as_ref().filter(|_| pod.is_none());
    let bound = [
        ("pods", "pod", namespace.as_str(), pod.as_ref()),
        ("secrets", "secret", namespace.as_str(), secret.as_ref()),
        ("nodes", "node", "", node),
    ];
    for (plural, kind, namespace, reference) in bound {
        let Some(reference) = reference else { continue };
        const INVALIDATED: &str = "service account token has been invalidated";
        let object = find(plural, namespace, reference).ok_or_else(|| INVALIDATED.to_owned())?;
        if object.uid != reference.uid {
            let Reference { uid, .. } = reference;
            let titled = if kind == "secret" { "Secret" } else { kind };
            return Err(format!(
                "{titled} UID ({}) does not match service account {kind} ref claim ({uid})",
                object.uid
            ));
        }
        if object.is_gone(now) {
            return Err(INVALIDATED.to_owned());
        }
    }
    Ok(())
}

fn user_of(claims: &Claims) -> User {
    let Kubernetes { namespace, serviceaccount, pod, node, .. } = &claims.kubernetes;
    let mut extra = BTreeMap::new();
    let mut tell = |name: &str, value: String| extra.insert(name.to_owned(), vec![value]);
    if !claims.jti.is_empty() {
        tell(CREDENTIAL_ID, format!("JTI={}", claims.jti));
    }
    if let Some(Reference { name, uid }) = pod {
        tell(POD_NAME, name.clone());
        tell(POD_UID, uid.clone());
    }
    if let Some(Reference { name, uid }) = node {
        tell(NODE_NAME, name.clone());
        if !uid.is_empty() {
            tell(NODE_UID, uid.clone());
        }
    }
    User {
        name: user::service_account_name(namespace, &serviceaccount.name),
        uid: serviceaccount.uid.clone(),
        groups: user::service_account_groups(namespace),
        extra,
    }
}

/// For whom and how long a token is to be made.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) account: Reference,
    pub(crate) audiences: Vec<String>,
    pub(crate) seconds: i64,
    pub(crate) warn_after_seconds: Option<i64>,
    pub(crate) pod: Option<Reference>,
    pub(crate) secret: Option<Reference>,
    pub(crate) node: Option<Reference>,
}

/// Makes a token.
pub(crate) fn issue(state: &State, wanted: Wanted<'_>, now: Timestamp) -> Result<String, Status> {
    let now = now.as_second();
    let claims = Claims {
        aud: wanted.audiences,
        exp: now.saturating_add(wanted.seconds),
        iat: now,
        iss: ISSUER.to_owned(),
        jti: state.environment.uid(),
        nbf: now,
        sub: user::service_account_name(wanted.namespace, &wanted.account.name),
        kubernetes: Kubernetes {
            namespace: wanted.namespace.to_owned(),
            node: wanted.node,
            pod: wanted.pod,
            secret: wanted.secret,
            serviceaccount: wanted.account,
            warnafter: wanted.warn_after_seconds.map(|seconds| now.saturating_add(seconds)),
        },
    };
    let failed = |error| Status::internal(format!("failed to generate token: {error}"));
    state.issuer().map_err(failed)?.sign(&claims).map_err(failed)
}

/// What of an object decides whether tokens that name it count.
#[derive(Debug, Deserialize)]
pub(crate) struct Bound {
    metadata: BoundMetadata,
    #[serde(default)]
    spec: BoundSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BoundMetadata {
    uid: String,
    #[serde(default)]
    deletion_timestamp: Option<Timestamp>,
}

/// Of pods; other kinds have other specs or none.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BoundSpec {
    service_account_name: String,
    node_name: String,
}

/// An object that a token may be bound to.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) uid: String,
    pub(crate) service_account: String,
    pub(crate) node: String,
    deleted_at: Option<Timestamp>,
}

impl Found {
    fn is_gone(&self, now: Timestamp) -> bool {
        self.deleted_at.is_some_and(|at| at < now - LEEWAY)
    }
}

/// The object of the core group that goes by this name.
pub(crate) fn find(state: &State, plural: &str, namespace: &str, name: &str) -> Option<Found> {
    let resource = registry::find("", "v1", plural)?;
    let stored: Stored = state.store.get(&route::key(resource, namespace, name))?;
    let Bound { metadata, spec } = serde_json::from_slice(&stored.value())
        .inspect_err(|error| tracing::error!(key = %stored.key, %error, "a stored object does not parse"))
        .ok()?;
    Some(Found {
        uid: metadata.uid,
        service_account: spec.service_account_name,
        node: spec.node_name,
        deleted_at: metadata.deletion_timestamp,
    })
}
