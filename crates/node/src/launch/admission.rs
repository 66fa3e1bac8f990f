//! Pods that this node cannot run are refused when they arrive, with a reason that says what to do (PL-22).

use k8s_openapi::api::core::v1::ResourceRequirements;

use super::downward::PodFacts;
use crate::nursery::protocol::Abilities;
use crate::pod::{Container, PodSpec};

/// Why a pod is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

/// Can the process runtime run this pod?
pub(crate) fn check(spec: &PodSpec, abilities: Abilities) -> Result<(), Rejection> {
    let containers = || spec.init_containers.iter().chain(&spec.containers);
    if let Some(container) = containers().find(|container| container.command.is_empty()) {
        let text = format!(
            "container \"{}\" has no command; this node runs commands of its own machine and does not use images, so \
             set `command`",
            container.name
        );
        return Err(Rejection { reason: "CommandRequired", text });
    }
    let volumes = || spec.volumes.iter().filter(|volume| !volume.is_api_access());
    if let Some((volume, kind)) = volumes().find_map(|volume| Some((volume, volume.unsupported_kind()?))) {
        let text = format!("volume \"{}\" is of kind {kind}, which this node does not have", volume.name);
        return Err(Rejection { reason: "UnsupportedVolume", text });
    }
    if !abilities.mounts
        && let Some(container) = containers().find(|container| needs_mounts(container, spec))
    {
        let text = format!(
            "container \"{}\" mounts volumes, which on this machine needs root or user namespaces",
            container.name
        );
        return Err(Rejection { reason: "MountsNotPermitted", text });
    }
    containers().try_for_each(|container| check_user(container, spec, abilities))
}

/// What a pod asks for and runs without, if anything. Limits of memory are always enforced, by whatever means there are.
pub(crate) fn unenforced(spec: &PodSpec, abilities: Abilities) -> Option<String> {
    let is_limited = |resources: &Option<Box<ResourceRequirements>>| {
        let limits = resources.as_ref().and_then(|resources| resources.limits.as_ref());
        limits.is_some_and(|limits| limits.contains_key("cpu"))
    };
    if abilities.limits {
        return None;
    }
    let container = spec.init_containers.iter().chain(&spec.containers).find(|it| is_limited(&it.resources));
    let whose = match container {
        Some(container) => format!("container \"{}\"", container.name),
        None if is_limited(&spec.resources) => "the pod".to_owned(),
        None => return None,
    };
    Some(format!(
        "{whose} has a limit of cpu, which this node cannot enforce; see its condition tally.dev/ResourceLimits"
    ))
}

/// Why pods are refused while the node goes down.
pub(crate) fn node_shutdown() -> Rejection {
    Rejection { reason: "NodeShutdown", text: "Pod was rejected as the node is shutting down.".to_owned() }
}

/// Volumes that admission added to every pod do not count.
pub(crate) fn needs_mounts(container: &Container, spec: &PodSpec) -> bool {
    container
        .volume_mounts
        .iter()
        .any(|mount| !spec.volumes.iter().any(|volume| volume.name == mount.name && volume.is_api_access()))
}

/// The user and group a container asks for.
pub(crate) fn user_of(container: &Container, spec: &PodSpec) -> (Option<i64>, Option<i64>) {
    let own = container.security_context.as_deref();
    let pod = spec.security_context.as_deref();
    let user = own.and_then(|it| it.run_as_user).or_else(|| pod?.run_as_user);
    let group = own.and_then(|it| it.run_as_group).or_else(|| pod?.run_as_group);
    (user, group)
}

/// The supplementary groups of a pod's processes.
pub(crate) fn groups_of(spec: &PodSpec) -> Vec<u32> {
    let Some(context) = spec.security_context.as_deref() else { return Vec::new() };
    let fs_group = context.fs_group.filter(|group| !context.supplemental_groups.contains(group));
    context.supplemental_groups.iter().copied().chain(fs_group).filter_map(|group| u32::try_from(group).ok()).collect()
}

fn check_user(container: &Container, spec: &PodSpec, abilities: Abilities) -> Result<(), Rejection> {
    let (user, group) = user_of(container, spec);
    let own_user = i64::from(rustix::process::geteuid().as_raw());
    let own_group = i64::from(rustix::process::getegid().as_raw());
    let differs = user.is_some_and(|user| user != own_user) || group.is_some_and(|group| group != own_group);
    if differs && !abilities.users {
        let text = format!(
            "container \"{}\" wants to run as another user or group, which needs the node to run as root",
            container.name
        );
        return Err(Rejection { reason: "RunAsUserNotPermitted", text });
    }
    Ok(())
}

/// A container that must not run as root and would is not refused: it waits to be told otherwise (PL-13). The error is
/// that of the kubelet's `verifyRunAsNonRoot`, except that there is no image to blame.
pub(crate) fn check_non_root(container: &Container, spec: &PodSpec, facts: &PodFacts) -> Result<(), String> {
    let own = container.security_context.as_deref().and_then(|it| it.run_as_non_root);
    let non_root = own.or_else(|| spec.security_context.as_deref()?.run_as_non_root);
    if non_root != Some(true) {
        return Ok(());
    }
    let problem = match user_of(container, spec).0 {
        Some(0) => "container's runAsUser breaks non-root policy",
        None if rustix::process::geteuid().is_root() => "container has runAsNonRoot and node will run it as root",
        _ => return Ok(()),
    };
    let PodFacts { name, namespace, uid, .. } = facts;
    Err(format!("{problem} (pod: \"{name}_{namespace}({uid})\", container: {})", container.name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ALL: Abilities = Abilities { mounts: true, limits: true, users: true };

    fn reason(spec: Value, abilities: Abilities) -> Option<&'static str> {
        check(&serde_json::from_value(spec).unwrap(), abilities).err().map(|rejection| rejection.reason)
    }

    #[test]
    fn limits_that_do_nothing_are_mentioned() {
        let limited = json!({"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
        let watched = json!({"name": "c", "resources": {"limits": {"memory": "1Gi"}}});
        let said = |spec: Value, abilities| unenforced(&serde_json::from_value(spec).unwrap(), abilities).is_some();
        assert!(said(json!({"containers": [limited]}), Abilities::default()));
        assert!(said(json!({"initContainers": [limited], "containers": [{"name": "d"}]}), Abilities::default()));
        let whole = json!({"resources": {"limits": {"cpu": "1"}}, "containers": [watched]});
        assert!(said(whole.clone(), Abilities::default()));
        assert!(!said(whole, ALL));
        assert!(!said(json!({"containers": [limited]}), ALL));
        assert!(!said(json!({"containers": [watched]}), Abilities::default()));
        assert!(!said(json!({"containers": [{"name": "c"}]}), Abilities::default()));
    }

    #[test]
    fn what_cannot_run_is_refused_at_once() {
        let runs = json!({"name": "c", "command": ["true"]});
        let none = Abilities::default();
        let volume = json!([{"name": "v", "emptyDir": {}}]);
        let mounting = json!({"name": "c", "command": ["true"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        let token =
            json!([{"name": "kube-api-access-1", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]);
        let with_token = json!({"name": "c", "command": ["true"], "volumeMounts": [{"name": "kube-api-access-1", "mountPath": "/t"}]});
        for (spec, abilities, expected) in [
            (json!({"containers": [runs]}), none, None),
            (json!({"containers": [{"name": "c", "args": ["x"]}]}), ALL, Some("CommandRequired")),
            (json!({"initContainers": [{"name": "i"}], "containers": [runs]}), ALL, Some("CommandRequired")),
            (json!({"containers": [runs], "volumes": [{"name": "n", "nfs": {}}]}), ALL, Some("UnsupportedVolume")),
            (json!({"containers": [mounting], "volumes": volume}), none, Some("MountsNotPermitted")),
            (json!({"containers": [mounting], "volumes": volume}), ALL, None),
            (json!({"containers": [with_token], "volumes": token}), none, None),
            (
                json!({"containers": [runs], "securityContext": {"runAsUser": 12345}}),
                none,
                Some("RunAsUserNotPermitted"),
            ),
            (json!({"containers": [runs], "securityContext": {"runAsUser": 12345}}), ALL, None),
            (json!({"containers": [runs], "securityContext": {"runAsUser": 0, "runAsNonRoot": true}}), ALL, None),
        ] {
            assert_eq!(reason(spec.clone(), abilities), expected, "{spec}");
        }
    }

    #[test]
    fn who_must_not_run_as_root_is_not_run_as_root() {
        let facts =
            PodFacts { name: "p".to_owned(), namespace: "ns".to_owned(), uid: "u".to_owned(), ..PodFacts::default() };
        let check = |pod: Value, own: Value| {
            let spec = json!({"securityContext": pod, "containers": [{"name": "c", "securityContext": own}]});
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            check_non_root(&spec.containers[0], &spec, &facts)
        };
        let broken = "container's runAsUser breaks non-root policy (pod: \"p_ns(u)\", container: c)";
        assert_eq!(check(json!({"runAsUser": 0, "runAsNonRoot": true}), json!({})), Err(broken.to_owned()));
        assert_eq!(check(json!({"runAsNonRoot": true}), json!({"runAsUser": 0})), Err(broken.to_owned()));
        assert_eq!(check(json!({"runAsUser": 0, "runAsNonRoot": true}), json!({"runAsUser": 1000})), Ok(()));
        assert_eq!(check(json!({"runAsUser": 0, "runAsNonRoot": true}), json!({"runAsNonRoot": false})), Ok(()));
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(check(json!({"runAsNonRoot": true}), json!({})).is_err(), is_root);
    }
}
