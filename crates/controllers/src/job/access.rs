//! Which permissions the Job controller needs (JC-108), and whether it has them.
//!
//! Without one of them the controller would run and achieve nothing, or half of it; asking first lets it say what is
//! missing. `deploy/` grants exactly these.

use std::fmt;

use futures_util::{StreamExt, stream};
use kube::{Client, Error};
use serde::{Deserialize, Serialize};

use crate::runtime::{Backoff, Environment, Resource, requests};

/// One answer that gets lost must not end the process before it has begun; a server that is not there is no secret for long.
const ATTEMPTS: u32 = 3;

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
    let (collection, environment, mut backoff) = (REVIEWS.collection(None), Environment::system(), Backoff::default());
    let asked = async {
        loop {
            match requests::create::<Answer>(client, &collection, &review).await {
                Ok(answer) => return Ok(answer.status.allowed),
                Err(error) if matches!(error, Error::Api(_)) || backoff.failures() + 1 == ATTEMPTS => {
                    return Err(error);
                }
                Err(_) => tokio::time::sleep(backoff.next(&environment)).await,
            }
        }
    };
    requests::in_time(asked).await
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
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http::Request;
    use kube::client::Body;

    use super::*;
    use crate::testing::World;

    #[tokio::test]
    async fn the_embedded_server_grants_its_own_controllers_everything() {
        let world = World::new().await;
        assert_eq!(missing(&world.client, &NEEDED).await.unwrap(), []);
        assert_eq!(missing(&world.client, &WISHED).await.unwrap(), []);
    }

    /// As the first answers of a server that is just starting may.
    #[tokio::test]
    async fn a_lost_answer_is_asked_for_again_and_a_server_that_is_gone_is_not_for_ever() {
        let world = World::new().await;
        let lossy = |lost: usize| {
            let (client, sent) = (world.client.clone(), Arc::new(AtomicUsize::new(0)));
            let counted = sent.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let (client, number) = (client.clone(), counted.fetch_add(1, Ordering::Relaxed));
                async move {
                    let answer = client.send(request).await?;
                    if number < lost { Err(Error::Service("the connection was lost".into())) } else { Ok(answer) }
                }
            });
            (Client::new(service, "default"), sent)
        };
        let (client, sent) = lossy(2);
        assert_eq!(missing(&client, &NEEDED[..1]).await.unwrap(), []);
        assert_eq!(sent.load(Ordering::Relaxed), 3);
        let (client, sent) = lossy(usize::MAX);
        assert!(missing(&client, &NEEDED[..1]).await.is_err());
        assert_eq!(sent.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn permissions_are_named_as_kubectl_names_them() {
        assert_eq!(NEEDED[3].to_string(), "update jobs/status (batch)");
        assert_eq!(WISHED[0].to_string(), "create events");
    }
}
