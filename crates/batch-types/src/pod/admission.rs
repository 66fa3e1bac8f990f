//! What admission adds to pods before validation (AS-221…AS-223), as functions on the pod and the facts they need.
//!
//! Looking up service accounts and priority classes is the API server's; limits and quotas are not here.

use serde_json::{Value, json};

use super::annotations::MIRROR;
use super::defaults::text;
use crate::field::quoted;
use crate::json::{at, copy_field, items_mut, object_or_new};

const TOLERATION_SECONDS: i64 = 300;
const NODE_PROBLEMS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";
const TOKEN_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and seven seconds: recognisable as automatic, so that tools can tell these tokens from requested ones.
const TOKEN_SECONDS: i64 = 3607;
const DEFAULT_ACCOUNT: &str = "default";

/// A pod stays five minutes on a node that is not ready or unreachable, unless it says otherwise (AS-223). For creates
/// and updates.
pub fn admit_default_tolerations(pod: &mut Value) {
    let tolerations =
        at(pod, &["spec", "tolerations"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let tolerates = |taint: &str| {
        tolerations.iter().any(|toleration| {
            matches!(text(toleration, &["effect"]), "" | "NoExecute")
                && [taint, ""].contains(&text(toleration, &["key"]))
        })
    };
    let added: Vec<Value> = NODE_PROBLEMS
        .into_iter()
        .filter(|taint| !tolerates(taint))
        .map(|taint| {
            json!({
                "key": taint,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS,
            })
        })
        .collect();
    if added.is_empty() {
        return;
    }
    let Some(spec) = pod.as_object_mut().and_then(|pod| object_or_new(pod, "spec")) else { return };
    match spec.get_mut("tolerations").and_then(Value::as_array_mut) {
        Some(tolerations) => tolerations.extend(added),
        None => _ = spec.insert("tolerations".to_owned(), added.into()),
    }
}

/// What priority admission needs to know of a PriorityClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorityFacts {
    pub name: String,
    pub value: i32,
    /// Absent only in classes written without defaulting.
    pub preemption_policy: Option<String>,
}

/// Gives a new pod the priority of its class (AS-223): `class` is the one it names, or the global default if it names
/// none. Answers what is wrong, to be prefixed with `pods "<name>" is forbidden: `.
pub fn admit_priority(pod: &mut Value, class: Option<&PriorityFacts>) -> Result<(), String> {
    let named = text(pod, &["spec", "priorityClassName"]);
    let (name, value, policy) = match class {
        Some(class) => (class.name.clone(), class.value, class.preemption_policy.clone()),
        None if !named.is_empty() => return Err(format!("no PriorityClass with name {named} was found")),
        None => (String::new(), 0, Some("PreemptLowerPriority".to_owned())),
    };
    if let Some(given) =
        at(pod, &["spec", "priority"]).and_then(Value::as_i64).filter(|given| *given != i64::from(value))
    {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        ));
    }
    let given = at(pod, &["spec", "preemptionPolicy"]).and_then(Value::as_str);
    if let (Some(given), Some(policy)) = (given, &policy)
        && given != policy
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        ));
    }
    let Some(spec) = pod.as_object_mut().and_then(|pod| object_or_new(pod, "spec")) else { return Ok(()) };
    if !name.is_empty() {
        spec.insert("priorityClassName".to_owned(), name.into());
    }
    spec.insert("priority".to_owned(), value.into());
    if let Some(policy) = policy {
        spec.insert("preemptionPolicy".to_owned(), policy.into());
    }
    Ok(())
}

/// An update that leaves out what [`admit_priority`] set on create keeps it.
pub fn admit_priority_update(new: &mut Value, old: &Value) {
    let (Some(new), Some(old)) = (new.get_mut("spec"), old.get("spec")) else { return };
    for key in ["priority", "preemptionPolicy"] {
        if at(new, &[key]).is_none() && at(old, &[key]).is_some() {
            copy_field(new, old, key);
        }
    }
}

/// A pod cannot ask for a RuntimeClass, since there are none here to define one. Before validation.
pub fn admit_runtime_class(pod: &Value) -> Result<(), String> {
    match at(pod, &["spec", "runtimeClassName"]).and_then(Value::as_str) {
        Some(class) => Err(format!("pod rejected: RuntimeClass {} not found", quoted(class))),
        None => Ok(()),
    }
}

/// Overhead is a RuntimeClass's to set. After validation.
pub fn admit_overhead(pod: &Value) -> Result<(), String> {
    match at(pod, &["spec", "overhead"]) {
        Some(_) => Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned()),
        None => Ok(()),
    }
}

/// What service account admission needs to know of a ServiceAccount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceAccountFacts {
    pub automount_token: Option<bool>,
    pub image_pull_secrets: Vec<String>,
}

/// The service account a new pod will run as, `default` unless it names one (AS-222); none for mirror pods, which
/// cannot have one.
pub fn service_account_name(pod: &Value) -> Option<&str> {
    if at(pod, &["metadata", "annotations", MIRROR]).is_some() {
        return None;
    }
    Some(match text(pod, &["spec", "serviceAccountName"]) {
        "" => DEFAULT_ACCOUNT,
        name => name,
    })
}

/// Lets a new pod run as that account: names it, mounts its token, lends it the account's pull secrets (AS-222).
/// `suffix` makes the name of the token volume unique.
pub fn admit_service_account(pod: &mut Value, account: &ServiceAccountFacts, suffix: &str) {
    let Some(name) = service_account_name(pod).map(str::to_owned) else { return };
    let automount = at(pod, &["spec", "automountServiceAccountToken"]).and_then(Value::as_bool);
    if automount.or(account.automount_token).unwrap_or(true) {
        mount_token(pod, suffix);
    }
    let Some(spec) = pod.as_object_mut().and_then(|pod| object_or_new(pod, "spec")) else { return };
    for key in ["serviceAccountName", "serviceAccount"] {
        spec.insert(key.to_owned(), name.as_str().into());
    }
    let has_secrets = spec.get("imagePullSecrets").and_then(Value::as_array).is_some_and(|secrets| !secrets.is_empty());
    if !has_secrets && !account.image_pull_secrets.is_empty() {
        let secrets = account.image_pull_secrets.iter().map(|name| json!({"name": name}));
        spec.insert("imagePullSecrets".to_owned(), secrets.collect());
    }
}

fn mount_token(pod: &mut Value, suffix: &str) {
    let volumes = at(pod, &["spec", "volumes"]).and_then(Value::as_array).into_iter().flatten();
    let mut names = volumes.map(|volume| text(volume, &["name"]));
    let present = names.find(|name| name.starts_with(TOKEN_VOLUME_PREFIX)).map(str::to_owned);
    let has_volume = present.is_some();
    let volume = present.unwrap_or_else(|| format!("{TOKEN_VOLUME_PREFIX}{suffix}"));
    let mut needs_volume = false;
    for list in ["initContainers", "containers"] {
        for container in items_mut(pod, &["spec", list]) {
            needs_volume |= mount_token_in(container, &volume);
        }
    }
    if has_volume || !needs_volume {
        return;
    }
    let Some(spec) = pod.as_object_mut().and_then(|pod| object_or_new(pod, "spec")) else { return };
    let volume = json!({"name": volume, "projected": token_source()});
    match spec.get_mut("volumes").and_then(Value::as_array_mut) {
        Some(volumes) => volumes.push(volume),
        None => _ = spec.insert("volumes".to_owned(), json!([volume])),
    }
}

/// Mounts the token unless something else is mounted in its place; says whether it did.
fn mount_token_in(container: &mut Value, volume: &str) -> bool {
    let taken = items_mut(container, &["volumeMounts"]).any(|mount| text(mount, &["mountPath"]) == TOKEN_MOUNT_PATH);
    let Some(container) = container.as_object_mut().filter(|_| !taken) else { return false };
    let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_MOUNT_PATH});
    match container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
        Some(mounts) => mounts.push(mount),
        None => _ = container.insert("volumeMounts".to_owned(), json!([mount])),
    }
    true
}

fn token_source() -> Value {
    json!({
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ],
        "defaultMode": 420,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{edited, pod};

    /// AS-223.
    #[test]
    fn pods_tolerate_node_problems_for_five_minutes() {
        let admitted = |tolerations: Value| {
            let mut pod = edited(pod(), &json!({"spec": {"tolerations": tolerations}}));
            admit_default_tolerations(&mut pod);
            let tolerations = pod["spec"]["tolerations"].as_array().unwrap().clone();
            tolerations.iter().map(|toleration| text(toleration, &["key"]).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(admitted(Value::Null), NODE_PROBLEMS);
        assert_eq!(admitted(json!([{"key": "a"}])), ["a", NODE_PROBLEMS[0], NODE_PROBLEMS[1]]);
        assert_eq!(admitted(json!([{"operator": "Exists"}])), [""]);
        assert_eq!(admitted(json!([{"key": NODE_PROBLEMS[0], "effect": "NoExecute"}])), NODE_PROBLEMS);
        assert_eq!(
            admitted(json!([{"key": NODE_PROBLEMS[0], "effect": "NoSchedule"}])),
            [NODE_PROBLEMS[0], NODE_PROBLEMS[0], NODE_PROBLEMS[1]]
        );
    }

    #[test]
    fn priority_comes_from_the_class() {
        let class = PriorityFacts { name: "high".to_owned(), value: 1000, preemption_policy: Some("Never".to_owned()) };
        let admitted = |spec: Value, class: Option<&PriorityFacts>| {
            let mut pod = edited(pod(), &json!({"spec": spec}));
            admit_priority(&mut pod, class).map(|()| {
                let spec = &pod["spec"];
                json!([spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]])
            })
        };
        assert_eq!(admitted(json!({}), None), Ok(json!([null, 0, "PreemptLowerPriority"])));
        assert_eq!(admitted(json!({"priority": 0}), None), Ok(json!([null, 0, "PreemptLowerPriority"])));
        assert_eq!(admitted(json!({"priorityClassName": "high"}), Some(&class)), Ok(json!(["high", 1000, "Never"])));
        assert_eq!(admitted(json!({}), Some(&class)), Ok(json!(["high", 1000, "Never"])));
        let refused = [
            (json!({"priorityClassName": "nope"}), None, "no PriorityClass with name nope was found"),
            (
                json!({"priorityClassName": "high", "priority": 5}),
                Some(&class),
                "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed \
                 1000 from the given PriorityClass name",
            ),
            (
                json!({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"}),
                Some(&class),
                "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority \
                 admission controller computed Never from the given PriorityClass name",
            ),
        ];
        for (spec, class, problem) in refused {
            assert_eq!(admitted(spec, class), Err(problem.to_owned()));
        }
    }

    #[test]
    fn an_update_keeps_the_priority() {
        let old = edited(pod(), &json!({"spec": {"priority": 7, "preemptionPolicy": "Never"}}));
        let mut new = edited(pod(), &json!({"spec": {"priority": 8}}));
        admit_priority_update(&mut new, &old);
        assert_eq!((&new["spec"]["priority"], &new["spec"]["preemptionPolicy"]), (&json!(8), &json!("Never")));
    }

    #[test]
    fn there_are_no_runtime_classes() {
        let with = |spec: Value| edited(pod(), &json!({"spec": spec}));
        assert_eq!((admit_runtime_class(&pod()), admit_overhead(&pod())), (Ok(()), Ok(())));
        assert_eq!(
            admit_runtime_class(&with(json!({"runtimeClassName": "none-such"}))),
            Err("pod rejected: RuntimeClass \"none-such\" not found".to_owned())
        );
        assert_eq!(
            admit_overhead(&with(json!({"overhead": {"cpu": "1"}}))),
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned())
        );
    }

    /// AS-222.
    #[test]
    fn pods_run_as_an_account() {
        let account = ServiceAccountFacts { automount_token: None, image_pull_secrets: vec!["s".to_owned()] };
        let mut new = pod();
        admit_service_account(&mut new, &account, "abcde");
        let spec = &new["spec"];
        assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "s"}]));
        assert_eq!(spec["volumes"][0]["name"], "kube-api-access-abcde");
        assert_eq!(
            spec["containers"][0]["volumeMounts"],
            json!([{"name": "kube-api-access-abcde", "readOnly": true, "mountPath": TOKEN_MOUNT_PATH}])
        );

        let mut off =
            edited(pod(), &json!({"spec": {"automountServiceAccountToken": false, "serviceAccountName": "me"}}));
        admit_service_account(&mut off, &ServiceAccountFacts::default(), "abcde");
        assert_eq!((off["spec"].get("volumes"), &off["spec"]["serviceAccount"]), (None, &json!("me")));

        let mount = json!([{"name": "own", "mountPath": TOKEN_MOUNT_PATH}]);
        let mut own = edited(pod(), &json!({"spec": {"containers": [{"volumeMounts": mount}]}}));
        admit_service_account(&mut own, &ServiceAccountFacts::default(), "abcde");
        assert_eq!((own["spec"].get("volumes"), &own["spec"]["containers"][0]["volumeMounts"]), (None, &mount));

        let mirror = edited(pod(), &json!({"metadata": {"annotations": {MIRROR: "x"}}}));
        assert_eq!(service_account_name(&mirror), None);
    }
}
