//! Whether a write fits the quotas of its namespace, and what they say afterwards. Pure.

use std::cmp::Ordering;

use api_schema::Quantity;
use serde_json::Value;

use super::{
    amounts::{self, Amounts, printed},
    scopes::Requirement,
    usage::{self, Usage},
};
use crate::{metadata, resources::Resource};

/// What admission reads of a ResourceQuota.
#[derive(Debug, Clone)]
pub(super) struct Quota {
    pub(super) name: String,
    /// Taken from the spec: a new limit holds from the moment it is stored.
    pub(super) hard: Amounts,
    pub(super) used: Amounts,
    pub(super) scopes: Vec<Requirement>,
}

impl Quota {
    pub(super) fn of(object: &Value) -> Self {
        Self {
            name: metadata::text(object, "name").to_owned(),
            hard: amounts::read(object.pointer("/spec/hard")),
            used: amounts::read(object.pointer("/status/used")),
            scopes: Requirement::all(object),
        }
    }

    /// The resources it limits that objects of this kind can use.
    fn limited<'a>(&'a self, resource: &Resource) -> impl Iterator<Item = &'a str> {
        self.hard.keys().map(String::as_str).filter(|name| usage::uses(resource, name))
    }

    /// What an object uses of what this quota limits.
    fn share(&self, usage: Option<&Usage>, name: &str) -> Quantity {
        let used = usage.filter(|usage| usage.is_in(&self.scopes)).and_then(|usage| usage.amounts.get(name));
        used.cloned().unwrap_or(Quantity::ZERO)
    }
}

/// A write, as quotas see it.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub(super) resource: &'static Resource,
    /// The object as it will be; `None` when it goes.
    pub(super) object: Option<&'a Value>,
    pub(super) before: Option<Usage>,
    pub(super) after: Option<Usage>,
}

impl<'a> Claim<'a> {
    pub(super) fn of(resource: &'static Resource, old: Option<&Value>, new: Option<&'a Value>) -> Self {
        let usage = |object| Usage::of(resource, object);
        Self { resource, object: new, before: old.map(usage), after: new.map(usage) }
    }

    /// Quotas refuse new objects, and pods that move into another scope; what frees or keeps is always allowed.
    fn can_be_refused(&self) -> bool {
        let deadline = |usage: &Usage| usage.pod.as_ref().is_some_and(|pod| pod.is_terminating);
        match (&self.before, &self.after) {
            (None, Some(_)) => true,
            (Some(before), Some(after)) => deadline(before) != deadline(after),
            _ => false,
        }
    }
}

/// The new `used` of every quota, `None` for those that a write does not change; or why it is refused, without the
/// name of the object.
pub(super) fn charge(quotas: &[Quota], claim: &Claim<'_>) -> Result<Vec<Option<Amounts>>, String> {
    if claim.can_be_refused() {
        for quota in quotas {
            check_known(quota, claim)?;
        }
    }
    quotas.iter().map(|quota| settle(quota, claim)).collect()
}

/// What must be known before anything is counted: the pod's own figures, and the quota's.
fn check_known(quota: &Quota, claim: &Claim<'_>) -> Result<(), String> {
    let limited: Vec<&str> = quota.limited(claim.resource).collect();
    if limited.is_empty() || !claim.after.as_ref().is_some_and(|after| after.is_in(&quota.scopes)) {
        return Ok(());
    }
    if claim.resource.kind == "Pod"
        && let Some(missing) = claim.object.and_then(|pod| usage::unspecified(pod, limited.iter().copied()))
    {
        return Err(format!("failed quota: {}: {missing}", quota.name));
    }
    if limited.iter().any(|name| !quota.used.contains_key(*name)) {
        return Err(format!("status unknown for quota: {}, resources: {}", quota.name, limited.join(",")));
    }
    Ok(())
}

fn settle(quota: &Quota, claim: &Claim<'_>) -> Result<Option<Amounts>, String> {
    let mut used = quota.used.clone();
    let mut exceeded: Vec<(&str, Quantity)> = Vec::new();
    let mut is_changed = false;
    for name in quota.limited(claim.resource) {
        let Some(total) = used.get_mut(name) else { continue };
        let mut delta = quota.share(claim.after.as_ref(), name);
        delta.sub(&quota.share(claim.before.as_ref(), name));
        let change = delta.cmp(&Quantity::ZERO);
        if change == Ordering::Equal {
            continue;
        }
        is_changed = true;
        total.add(&delta);
        if total.is_negative() {
            // Somebody wrote a smaller figure by hand; the next count is right again.
            *total = Quantity::ZERO;
        }
        if change == Ordering::Greater && claim.can_be_refused() && *total > quota.hard[name] {
            exceeded.push((name, delta));
        }
    }
    if exceeded.is_empty() {
        return Ok(is_changed.then_some(used));
    }
    let of = |list: &'_ Amounts| {
        let zero = Quantity::ZERO;
        printed(exceeded.iter().map(|(name, _)| (*name, list.get(*name).unwrap_or(&zero))))
    };
    Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.name,
        printed(exceeded.iter().map(|(name, delta)| (*name, delta))),
        of(&quota.used),
        of(&quota.hard)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::registry;

    fn quota(name: &str, hard: Value, used: Value) -> Quota {
        Quota::of(&json!({"metadata": {"name": name}, "spec": {"hard": hard}, "status": {"used": used}}))
    }

    fn pod(cpu: Option<&str>) -> Value {
        let resources = cpu.map_or(json!({}), |cpu| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}));
        json!({"spec": {"containers": [{"name": "c", "image": "a", "resources": resources}]}})
    }

    fn claim<'a>(plural: &str, old: Option<&Value>, new: Option<&'a Value>) -> Claim<'a> {
        let group = if plural == "jobs" { "batch" } else { "" };
        Claim::of(registry::find(group, "v1", plural).unwrap(), old, new)
    }

    fn shown(outcome: Result<Vec<Option<Amounts>>, String>) -> Result<Vec<Value>, String> {
        outcome.map(|all| all.iter().map(|used| used.as_ref().map_or(Value::Null, amounts::write)).collect())
    }

    /// AS-224.
    #[test]
    fn what_does_not_fit_is_refused_in_upstreams_words() {
        let object = pod(None);
        let full = [quota("q", json!({"pods": "2"}), json!({"pods": "2"}))];
        assert_eq!(
            shown(charge(&full, &claim("pods", None, Some(&object)))).unwrap_err(),
            "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
        );
        let job = json!({});
        let over = [quota("q", json!({"count/jobs.batch": "0"}), json!({"count/jobs.batch": "2"}))];
        assert_eq!(
            shown(charge(&over, &claim("jobs", None, Some(&job)))).unwrap_err(),
            "exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=2, limited: count/jobs.batch=0"
        );
        let compute = json!({"requests.cpu": "1", "limits.cpu": "1", "pods": "9"});
        let used = json!({"requests.cpu": "800m", "limits.cpu": "100m", "pods": "1"});
        assert_eq!(
            shown(charge(&[quota("c", compute, used)], &claim("pods", None, Some(&pod(Some("500m")))))).unwrap_err(),
            "exceeded quota: c, requested: requests.cpu=500m, used: requests.cpu=800m, limited: requests.cpu=1"
        );
    }

    #[test]
    fn what_fits_is_charged_to_every_quota_that_counts_it() {
        let object = pod(Some("500m"));
        let quotas = [
            quota("a", json!({"cpu": "2", "pods": "5"}), json!({"cpu": "1", "pods": "1"})),
            quota("b", json!({"secrets": "5"}), json!({"secrets": "1"})),
        ];
        assert_eq!(
            shown(charge(&quotas, &claim("pods", None, Some(&object)))),
            Ok(vec![json!({"cpu": "1500m", "pods": "2"}), Value::Null])
        );
    }

    #[test]
    fn unspecified_figures_are_refused_before_anything_is_counted() {
        let quotas = [
            quota("full", json!({"pods": "0"}), json!({"pods": "0"})),
            quota("q", json!({"limits.cpu": "4"}), json!({"limits.cpu": "0"})),
        ];
        assert_eq!(
            shown(charge(&quotas, &claim("pods", None, Some(&pod(None))))).unwrap_err(),
            "failed quota: q: must specify limits.cpu for: c"
        );
    }

    #[test]
    fn a_quota_that_was_never_counted_refuses() {
        let quotas = [quota("q", json!({"pods": "5", "count/pods": "5"}), json!({}))];
        let object = pod(None);
        assert_eq!(
            shown(charge(&quotas, &claim("pods", None, Some(&object)))).unwrap_err(),
            "status unknown for quota: q, resources: count/pods,pods"
        );
        // Nothing stands in the way of what goes.
        assert_eq!(shown(charge(&quotas, &claim("pods", Some(&object), None))), Ok(vec![Value::Null]));
    }

    #[test]
    fn what_ends_or_goes_is_given_back() {
        let quotas = [quota("q", json!({"pods": "2", "count/pods": "3"}), json!({"pods": "2", "count/pods": "3"}))];
        let running = pod(None);
        let mut ended = running.clone();
        ended["status"] = json!({"phase": "Succeeded"});
        assert_eq!(
            shown(charge(&quotas, &claim("pods", Some(&running), Some(&ended)))),
            Ok(vec![json!({"pods": "1", "count/pods": "3"})])
        );
        assert_eq!(
            shown(charge(&quotas, &claim("pods", Some(&running), None))),
            Ok(vec![json!({"pods": "1", "count/pods": "2"})])
        );
        assert_eq!(
            shown(charge(&quotas, &claim("pods", Some(&ended), None))),
            Ok(vec![json!({"pods": "2", "count/pods": "2"})])
        );
        let emptied = [quota("q", json!({"pods": "2"}), json!({"pods": "0"}))];
        assert_eq!(shown(charge(&emptied, &claim("pods", Some(&running), None))), Ok(vec![json!({"pods": "0"})]));
    }

    #[test]
    fn a_pod_that_gets_a_deadline_moves_to_the_other_scope() {
        let scoped = |name: &str, hard: &str, used: &str| {
            let status = json!({"used": {"pods": used}});
            let spec = json!({"hard": {"pods": hard}, "scopes": [name]});
            Quota::of(&json!({"metadata": {"name": name}, "spec": spec, "status": status}))
        };
        let before = pod(None);
        let mut after = before.clone();
        after["spec"]["activeDeadlineSeconds"] = json!(60);
        let moved = claim("pods", Some(&before), Some(&after));
        let quotas = [scoped("NotTerminating", "1", "1"), scoped("Terminating", "1", "0")];
        assert_eq!(shown(charge(&quotas, &moved)), Ok(vec![json!({"pods": "0"}), json!({"pods": "1"})]));
        assert_eq!(
            shown(charge(&[scoped("Terminating", "0", "0")], &moved)).unwrap_err(),
            "exceeded quota: Terminating, requested: pods=1, used: pods=0, limited: pods=0"
        );
    }
}
