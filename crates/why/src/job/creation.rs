//! Pods that the API refuses to create.

use super::case::Case;
use super::hold::Hold;
use crate::answer::{Evidence, State};
use crate::events;
use crate::snapshot::objects;
use crate::words::{clause, counted, foreign, listed};

/// The last attempt to create a pod was refused.
pub(super) fn refused(case: &Case<'_>, missing: u64) -> Option<Hold> {
    let last = events::last(&case.events, &["FailedCreate", "SuccessfulCreate"])?;
    if last.reason != "FailedCreate" {
        return None;
    }
    // With equal times the pods decide: some that came later than the refusal mean that it is over.
    let newest = case.pods.iter().filter_map(|pod| pod.view.created).max();
    if newest.zip(last.at).is_some_and(|(newest, refused)| newest > refused) {
        return None;
    }
    let message = last.message.strip_prefix("Error creating: ").unwrap_or(last.message);
    let refusal = Refusal::of(message);
    let pods = format!("{} cannot be created", counted(missing, "pod"));
    let sentence = format!("{pods}: {} {} it: {}.", refusal.who, refusal.verb, clause(message));
    let first = case.events.iter().find(|event| event.reason == "FailedCreate").and_then(|event| event.first_at);
    Some(
        Hold::new(State::PodsRefused, sentence)
            .since(first)
            .next("the controller tries again by itself, less and less often", None)
            .action(refusal.remedy)
            .evidence([last.evidence()])
            .evidence(quotas(case, message)),
    )
}

struct Refusal {
    who: String,
    verb: &'static str,
    remedy: String,
}

impl Refusal {
    fn of(message: &str) -> Self {
        let new = |who: &str, remedy: &str| Self { who: who.to_owned(), verb: "refuses", remedy: remedy.to_owned() };
        let named = |after: &str| {
            let rest = &message[message.find(after)? + after.len()..];
            Some(foreign(rest.split(['"', ',', ' ']).next()?)).filter(|name| !name.is_empty())
        };
        if let Some(name) = named("admission webhook \"") {
            return new(
                &format!("webhook `{name}`"),
                &format!("ask who runs webhook `{name}`, or change the pod template to what it accepts"),
            );
        }
        if let Some(name) = named("failed calling webhook \"") {
            let remedy =
                format!("repair webhook `{name}`, or remove its configuration: nothing is created while it fails");
            return Self { who: format!("webhook `{name}`"), verb: "does not answer for", remedy };
        }
        if let Some(name) = named("exceeded quota: ") {
            return new(
                &format!("quota `{name}`"),
                "raise the quota, lower the pod template's requests, or wait for other pods to end",
            );
        }
        if message.contains("failed quota: ") {
            return new(
                "a quota",
                "give every container of the pod template the requests and limits that the quota asks for",
            );
        }
        if message.contains("violates PodSecurity") {
            return new(
                "the namespace's pod security level",
                "change the pod template's securityContext to what the level allows",
            );
        }
        if message.contains("error looking up service account") || message.contains("serviceaccount") {
            return new(
                "the API server",
                "create the service account, or correct `serviceAccountName` of the pod template",
            );
        }
        if ["minimum", "maximum"]
            .iter()
            .any(|word| message.contains(&format!("{word} cpu")) || message.contains(&format!("{word} memory")))
        {
            return new(
                "a LimitRange",
                "bring the pod template's requests and limits into the range: kubectl describe limits",
            );
        }
        if message.contains("ValidatingAdmissionPolicy") {
            return new("an admission policy", "change the pod template to what the policy accepts");
        }
        new("the API server", "correct the pod template; it cannot be changed in place, so create the Job again")
    }
}

/// Used up quotas of the namespace: the named one, else all.
fn quotas(case: &Case<'_>, message: &str) -> Vec<Evidence> {
    let all = objects(case.snapshot.quotas.as_ref()).filter(|_| message.contains("quota"));
    let lines = all.filter_map(|quota| {
        let hard = quota.at("/status/hard")?.0.as_object()?;
        let used = quota.at("/status/used")?.0.as_object()?;
        let named = message.contains(quota.name());
        let full: Vec<String> = hard
            .iter()
            .filter(|(resource, limit)| named || used.get(*resource) == Some(*limit))
            .filter_map(|(resource, limit)| {
                Some(foreign(&format!("{resource} {} of {}", used.get(resource)?.as_str()?, limit.as_str()?)))
            })
            .collect();
        let text = format!("{} used", listed(&full));
        (!full.is_empty()).then(|| Evidence::new(format!("resourcequota/{}", foreign(quota.name())), text, None))
    });
    lines.take(5).collect()
}
