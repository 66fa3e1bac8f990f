//! Whether and when a container that ended is started again (PL-31 to PL-33).

use std::time::Duration;

use super::container::Kind;
use crate::pod::{Container, RestartPolicy};

/// The first wait; it doubles with every restart (PL-33).
const BACKOFF_INITIAL: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// A container that ran this long after a restart starts with a clean slate: twice the longest wait.
const BACKOFF_FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Is a container of this kind started again after this exit code? An init container that exited 0 has done its work,
/// whatever the policy (PL-23).
pub(crate) fn restarts(kind: Kind, container: &Container, pod_policy: RestartPolicy, code: i32) -> bool {
    match kind {
        Kind::Sidecar => true,
        Kind::Init if code == 0 => false,
        Kind::Init | Kind::Regular => restarts_after_exit(container, pod_policy, code),
    }
}

/// The same by the policies alone.
fn restarts_after_exit(container: &Container, pod_policy: RestartPolicy, code: i32) -> bool {
    if container.restart_policy.is_some()
        && container.restart_policy_rules.iter().any(|rule| matches_code(rule.exit_codes.as_ref(), code))
    {
        // The only actions are Restart and RestartAllContainers; either restarts this container.
        return true;
    }
    match container.restart_policy.unwrap_or(pod_policy) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => code != 0,
        RestartPolicy::Never => false,
    }
}

/// Is a container that a probe condemned started again? There is no exit code yet, so rules do not apply (PL-32).
pub(crate) fn restarts_after_probe(container: &Container, pod_policy: RestartPolicy) -> bool {
    container.restart_policy.unwrap_or(pod_policy) != RestartPolicy::Never
}

fn matches_code(rule: Option<&crate::pod::ExitCodes>, code: i32) -> bool {
    rule.is_some_and(|rule| match rule.operator.as_str() {
        "In" => rule.values.contains(&code),
        "NotIn" => !rule.values.contains(&code),
        _ => false,
    })
}

/// The memory of crash-loop back-off of one container. Times are [`crate::Moment::elapsed`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    entry: Option<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    wait: Duration,
    restarted_at: Duration,
}

impl Backoff {
    /// When a container that ended at `ended_at` may start again, and how long the whole wait is. `None`: at once.
    pub(crate) fn wait_after(&self, ended_at: Duration) -> Option<(Duration, Duration)> {
        let entry = self.entry.filter(|entry| !entry.is_forgotten(ended_at))?;
        Some((ended_at + entry.wait, entry.wait))
    }

    /// The container is being started again after an exit at `ended_at`.
    pub(crate) fn restarted(&mut self, ended_at: Duration, now: Duration) {
        let wait = match self.entry.filter(|entry| !entry.is_forgotten(ended_at)) {
            Some(entry) => (entry.wait * 2).min(BACKOFF_MAX),
            None => BACKOFF_INITIAL,
        };
        self.entry = Some(Entry { wait, restarted_at: now });
    }
}

impl Entry {
    fn is_forgotten(&self, ended_at: Duration) -> bool {
        ended_at.saturating_sub(self.restarted_at) > BACKOFF_FORGOTTEN_AFTER
    }
}

/// A duration of whole seconds as Go prints it: `40s`, `1m20s`, `5m0s`.
pub(crate) fn go_seconds(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_policy_decides_without_a_container_policy() {
        use RestartPolicy::{Always, Never, OnFailure};
        let plain = Container::default();
        for (policy, code, restarts) in
            [(Always, 0, true), (Always, 1, true), (OnFailure, 0, false), (OnFailure, 1, true), (Never, 1, false)]
        {
            assert_eq!(restarts_after_exit(&plain, policy, code), restarts, "{policy:?} {code}");
        }
    }

    #[test]
    fn rules_come_before_the_container_policy() {
        let container: Container = serde_json::from_value(json!({
            "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
        }))
        .unwrap();
        assert!(restarts_after_exit(&container, RestartPolicy::Never, 42));
        assert!(!restarts_after_exit(&container, RestartPolicy::Never, 1));
        assert!(!restarts_after_probe(&container, RestartPolicy::Always));
    }

    #[test]
    fn waits_double_from_ten_seconds_to_five_minutes() {
        let mut backoff = Backoff::default();
        let mut now = Duration::from_secs(1);
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(backoff.wait_after(now).map_or(0, |(_, wait)| wait.as_secs()));
            let start = backoff.wait_after(now).map_or(now, |(at, _)| at);
            backoff.restarted(now, start);
            now = start + Duration::from_secs(1);
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn a_long_run_forgets_earlier_crashes() {
        let mut backoff = Backoff::default();
        backoff.restarted(Duration::ZERO, Duration::ZERO);
        assert!(backoff.wait_after(Duration::from_secs(600)).is_some());
        assert!(backoff.wait_after(Duration::from_secs(601)).is_none());
    }

    #[test]
    fn waits_are_printed_as_go_prints_them() {
        for (seconds, text) in [(10, "10s"), (80, "1m20s"), (300, "5m0s")] {
            assert_eq!(go_seconds(Duration::from_secs(seconds)), text);
        }
    }
}
