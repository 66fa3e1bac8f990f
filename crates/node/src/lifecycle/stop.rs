//! Stopping one container: preStop hook, SIGTERM, grace, SIGKILL (PL-39 to PL-42).

use std::time::Duration;

/// Between the stop signal and SIGKILL lies at least this much, however little grace is left (PL-39).
pub(crate) const GRACE_MIN: Duration = Duration::from_secs(2);

/// A stop under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// When the grace ends.
    deadline: Duration,
    hook: Hook,
    terminated_at: Option<Duration>,
    killed: bool,
    pub(crate) by_probe: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Running,
    Over,
}

/// The next thing to do to the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Terminate,
    Kill,
}

impl Stop {
    pub(crate) fn begin(now: Duration, grace: Duration, runs_hook: bool, by_probe: bool) -> Self {
        let hook = if runs_hook { Hook::Running } else { Hook::Over };
        Self { deadline: now + grace, hook, terminated_at: None, killed: false, by_probe }
    }

    /// Grace only ever shrinks (PL-43).
    pub(crate) fn shorten(&mut self, deadline: Duration) {
        self.deadline = self.deadline.min(deadline);
    }

    pub(crate) fn hook_finished(&mut self) {
        self.hook = Hook::Over;
    }

    /// `its_turn` is false for a sidecar that others still need (PL-42).
    pub(crate) fn step(&mut self, now: Duration, its_turn: bool) -> Option<Step> {
        let out_of_grace = now >= self.deadline;
        match self.terminated_at {
            None if out_of_grace || (its_turn && self.hook == Hook::Over) => {
                self.terminated_at = Some(now);
                Some(Step::Terminate)
            }
            Some(terminated_at) if !self.killed && now >= self.kill_at(terminated_at) => {
                self.killed = true;
                Some(Step::Kill)
            }
            _ => None,
        }
    }

    pub(crate) fn wake(&self) -> Option<Duration> {
        match self.terminated_at {
            None => Some(self.deadline),
            Some(terminated_at) => (!self.killed).then(|| self.kill_at(terminated_at)),
        }
    }

    fn kill_at(&self, terminated_at: Duration) -> Duration {
        self.deadline.max(terminated_at + GRACE_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a stop second by second and says when it terminates and when it kills.
    fn timeline(grace: u64, hook_takes: Option<u64>, turn_comes_at: u64) -> (Option<u64>, Option<u64>) {
        let mut stop = Stop::begin(Duration::ZERO, Duration::from_secs(grace), hook_takes.is_some(), false);
        let (mut terminated, mut killed) = (None, None);
        for second in 0..100 {
            if hook_takes == Some(second) {
                stop.hook_finished();
            }
            match stop.step(Duration::from_secs(second), second >= turn_comes_at) {
                Some(Step::Terminate) => terminated = Some(second),
                Some(Step::Kill) => killed = Some(second),
                None => {}
            }
        }
        (terminated, killed)
    }

    #[test]
    fn signals_come_when_grace_hooks_and_turn_say() {
        for (grace, hook, turn, terminated, killed) in [
            (30, None, 0, 0, 30),
            (3, None, 0, 0, 3),
            (1, None, 0, 0, 2),
            (10, Some(5), 0, 5, 10),
            (3, Some(30), 0, 3, 5),
            (10, None, 4, 4, 10),
            (10, None, 50, 10, 12),
        ] {
            let expected = (Some(terminated), Some(killed));
            assert_eq!(timeline(grace, hook, turn), expected, "grace {grace} hook {hook:?} turn {turn}");
        }
    }

    #[test]
    fn a_second_delete_shortens_the_grace() {
        let mut stop = Stop::begin(Duration::ZERO, Duration::from_secs(30), false, false);
        assert_eq!(stop.step(Duration::ZERO, true), Some(Step::Terminate));
        stop.shorten(Duration::from_secs(6));
        stop.shorten(Duration::from_secs(60));
        assert_eq!(stop.wake(), Some(Duration::from_secs(6)));
        assert_eq!(stop.step(Duration::from_secs(6), true), Some(Step::Kill));
        assert_eq!(stop.wake(), None);
    }
}
