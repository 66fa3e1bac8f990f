//! Which permissions the Job controller needs (JC-108), and whether it has them.
//!
//! Without one of them the controller would run and achieve nothing, or half of it; asking first lets it say what is
//! missing. `deploy/` grants exactly these.

use std::fmt;

use futures_util::{StreamExt, stream};
use kube::{Client, Error};
use serde::{Deserialize, Serialize};

use super::calls::bounded;
use crate::runtime::{Resource, requests};

/// Something that the controller must be allowed to do, in all namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    pub group: &'static str,
    /// `jobs` or, for a part of an object, `jobs/status`.
    pub resource: &'static str,
    pub verb: &'static str,
}

const fn may(verb: &'static str, group: &'static str, resource: &'static str) -> Permission {
    Permission { group, resource, verb }
}

/// Without these no Job gets anywhere.
pub const NEEDED: [Permission; 10] = [
    may("get", "batch", "jobs"),
    may("list", "batch", "jobs"),
    may("watch", "batch", "jobs"),
    may("update", "batch", "jobs/status"),
    may("update", "batch", "jobs/finalizers"),
    may("list", "", "pods"),
    may("watch", "", "pods"),
    may("create", "", "pods"),
    may("delete", "", "pods"),
    may("patch", "", "pods"),
];

/// Without these people are told less.
pub const WISHED: [Permission; 2] = [may("create", "", "events"), may("patch", "", "events")];

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, " ({})", self.group) }
    }
}

/// Those of `permissions` that the server says we do not have.
pub async fn missing(client: &Client, permissions: &[Permission]) -> Result<Vec<Permission>, Error> {
    let asked =
        permissions.iter().map(|permission| async move { Ok((*permission, is_granted(client, permission).await?)) });
    let answers: Vec<Result<(Permission, bool), Error>> = stream::iter(asked).buffered(4).collect().await;
    let mut missing = Vec::new();
    for answer in answers {
        let (permission, granted) = answer?;
        if !granted {
            missing.push(permission);
        }
    }
    Ok(missing)
}

async fn is_granted(client: &Client, permission: &Permission) -> Result<bool, Error> {
    const REVIEWS: Resource = Resource::of("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
    let (resource, subresource) = permission.resource.split_once('/').unwrap_or((permission.resource, ""));
    let review = Review {
        api_version: "authorization.k8s.io/v1",
        kind: "SelfSubjectAccessReview",
        spec: Spec {
            resource_attributes: Attributes { group: permission.group, resource, subresource, verb: permission.verb },
        },
    };
    let answer: Answer = bounded(requests::create(client, &REVIEWS.collection(None), &review)).await?;
    Ok(answer.status.allowed)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    resource_attributes: Attributes<'a>,
}

#[derive(Serialize)]
struct Attributes<'a> {
    group: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    verb: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    status: Verdict,
}

#[derive(Deserialize)]
struct Verdict {
    #[serde(default)]
    allowed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[tokio::test]
    async fn the_embedded_server_grants_its_own_controllers_everything() {
        let world = World::new().await;
        assert_eq!(missing(&world.client, &NEEDED).await.unwrap(), []);
        assert_eq!(missing(&world.client, &WISHED).await.unwrap(), []);
    }

    #[test]
    fn permissions_are_named_as_kubectl_names_them() {
        assert_eq!(NEEDED[3].to_string(), "update jobs/status (batch)");
        assert_eq!(WISHED[0].to_string(), "create events");
    }
}
