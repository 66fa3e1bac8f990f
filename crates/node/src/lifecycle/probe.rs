//! Startup, liveness and readiness probes: when to ask, and what the answers mean (PL-58, PL-59).
//!
//! Asking itself, with its timeout, is the shell's work.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;

use crate::pod;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    pub fn of(self, container: &pod::Container) -> Option<&api::Probe> {
        match self {
            Self::Startup => container.startup_probe.as_deref(),
            Self::Liveness => container.liveness_probe.as_deref(),
            Self::Readiness => container.readiness_probe.as_deref(),
        }
    }

    /// As events spell it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    pub fn lower(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        }
    }
}

/// The probes of one running instance. Most containers have none, which costs one pointer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    active: Option<Box<[Worker; 3]>>,
}

/// What an answer led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Nothing,
    /// Startup or liveness failed too often: the container must be stopped.
    Condemned,
}

#[derive(Clone, Debug)]
struct Worker {
    kind: ProbeKind,
    settings: Option<Settings>,
    next_at: Duration,
    asking: bool,
    run: u32,
    run_of_success: bool,
    passed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    period: Duration,
    success_threshold: u32,
    failure_threshold: u32,
}

impl Probes {
    /// The probes of an instance that has just been started or found again.
    pub(crate) fn start(container: &pod::Container, now: Duration) -> Self {
        let workers = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness]
            .map(|kind| Worker::new(kind, kind.of(container), now));
        if workers.iter().all(|worker| worker.settings.is_none()) {
            return Self::default();
        }
        Self { active: Some(Box::new(workers)) }
    }

    /// An instance found again had started already, and may have been ready; asking anew would take that away.
    pub(crate) fn assume_started(&mut self, ready: bool) {
        for worker in self.active.iter_mut().flat_map(|workers| workers.iter_mut()) {
            worker.passed |= worker.kind == ProbeKind::Startup || (worker.kind == ProbeKind::Readiness && ready);
        }
    }

    pub(crate) fn has_started(&self) -> bool {
        self.passed(ProbeKind::Startup)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.passed(ProbeKind::Readiness)
    }

    fn passed(&self, kind: ProbeKind) -> bool {
        let Some(workers) = &self.active else { return true };
        workers.iter().all(|worker| worker.kind != kind || worker.settings.is_none() || worker.passed)
    }

    /// Kinds to ask now. While stopping only readiness is asked.
    pub(crate) fn due(&mut self, now: Duration, stopping: bool) -> Vec<ProbeKind> {
        let started = self.has_started();
        let Some(workers) = &mut self.active else { return Vec::new() };
        let mut due = Vec::new();
        for worker in workers.iter_mut().filter(|worker| worker.is_wanted(started, stopping)) {
            if !worker.asking && worker.next_at <= now {
                worker.ask(now);
                due.push(worker.kind);
            }
        }
        due
    }

    /// The next moment at which [`Self::due`] will name one.
    pub(crate) fn wake(&self, stopping: bool) -> Option<Duration> {
        let started = self.has_started();
        let workers = self.active.as_ref()?;
        let waiting = workers.iter().filter(|worker| worker.is_wanted(started, stopping) && !worker.asking);
        waiting.map(|worker| worker.next_at).min()
    }

    pub(crate) fn answered(&mut self, kind: ProbeKind, success: bool) -> Verdict {
        let Some(workers) = &mut self.active else { return Verdict::Nothing };
        workers
            .iter_mut()
            .find(|worker| worker.kind == kind)
            .map_or(Verdict::Nothing, |worker| worker.answered(success))
    }
}

impl Worker {
    fn new(kind: ProbeKind, probe: Option<&api::Probe>, now: Duration) -> Self {
        let positive = |value: Option<i32>, default: u32| match value {
            Some(value) if value > 0 => u32::try_from(value).unwrap_or(default),
            _ => default,
        };
        let settings = probe.map(|probe| Settings {
            period: Duration::from_secs(positive(probe.period_seconds, 10).into()),
            success_threshold: positive(probe.success_threshold, 1),
            failure_threshold: positive(probe.failure_threshold, 3),
        });
        let delay = probe.map_or(0, |probe| positive(probe.initial_delay_seconds, 0));
        Self {
            kind,
            settings,
            next_at: now + Duration::from_secs(delay.into()),
            asking: false,
            run: 0,
            run_of_success: false,
            passed: false,
        }
    }

    fn is_wanted(&self, started: bool, stopping: bool) -> bool {
        self.settings.is_some()
            && match self.kind {
                ProbeKind::Startup => !started && !stopping,
                ProbeKind::Liveness => started && !stopping,
                ProbeKind::Readiness => started,
            }
    }

    /// The next time is a period after this one was due, however long the answer takes (PL-59). What was not wanted, or
    /// not answered, for longer than that is not made up for.
    fn ask(&mut self, now: Duration) {
        self.asking = true;
        let period = self.settings.map_or(Duration::ZERO, |settings| settings.period);
        self.next_at = match self.next_at + period {
            next if next > now => next,
            _ => now + period,
        };
    }

    fn answered(&mut self, success: bool) -> Verdict {
        self.asking = false;
        let Some(settings) = self.settings else { return Verdict::Nothing };
        self.run = if self.run_of_success == success { self.run.saturating_add(1) } else { 1 };
        self.run_of_success = success;
        match success {
            true if self.run >= settings.success_threshold => self.passed = true,
            false if self.run >= settings.failure_threshold => {
                if self.kind != ProbeKind::Readiness {
                    return Verdict::Condemned;
                }
                self.passed = false;
            }
            _ => {}
        }
        Verdict::Nothing
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn probes(container: serde_json::Value) -> Probes {
        Probes::start(&serde_json::from_value(container).unwrap(), Duration::ZERO)
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn without_probes_all_is_well() {
        let probes = probes(json!({"name": "c"}));
        assert!(probes.has_started() && probes.is_ready());
        assert_eq!(probes.wake(false), None);
    }

    #[test]
    fn others_wait_for_the_startup_probe() {
        let exec = json!({"exec": {"command": ["true"]}, "initialDelaySeconds": 5});
        let mut probes = probes(json!({"startupProbe": exec, "livenessProbe": {"exec": {}}, "readinessProbe": {}}));
        assert_eq!(probes.due(at(4), false), []);
        assert_eq!(probes.wake(false), Some(at(5)));
        assert_eq!(probes.due(at(5), false), [ProbeKind::Startup]);
        assert_eq!(probes.due(at(5), false), [], "one question at a time");
        probes.answered(ProbeKind::Startup, true);
        assert!(probes.has_started() && !probes.is_ready());
        assert_eq!(probes.due(at(6), false), [ProbeKind::Liveness, ProbeKind::Readiness]);
    }

    #[test]
    fn liveness_condemns_after_three_failures_in_a_row() {
        let mut probes = probes(json!({"livenessProbe": {}}));
        let answers = [false, false, true, false, false, false];
        let verdicts = answers.map(|success| probes.answered(ProbeKind::Liveness, success));
        assert_eq!(verdicts[..5], [Verdict::Nothing; 5]);
        assert_eq!(verdicts[5], Verdict::Condemned);
    }

    #[test]
    fn readiness_comes_and_goes_with_its_thresholds() {
        let mut probes = probes(json!({"readinessProbe": {"successThreshold": 2, "failureThreshold": 1}}));
        let ready = [true, true, false, true, true].map(|success| {
            probes.answered(ProbeKind::Readiness, success);
            probes.is_ready()
        });
        assert_eq!(ready, [false, true, false, false, true]);
    }

    /// Of a probe with a period of ten seconds that is wanted from the fourth second on.
    #[test]
    fn periods_do_not_depend_on_how_long_answers_take() {
        let mut probes = probes(json!({"livenessProbe": {"initialDelaySeconds": 4}}));
        for (asked, answered, next) in [(4, 5, 14), (14, 23, 24), (24, 39, 34), (39, 40, 44), (60, 61, 70)] {
            assert_eq!(probes.due(at(asked), false), [ProbeKind::Liveness], "at {asked}");
            assert_eq!(probes.due(at(answered), false), [], "one question at a time");
            probes.answered(ProbeKind::Liveness, true);
            assert_eq!(probes.wake(false), Some(at(next)), "asked at {asked}, answered at {answered}");
        }
    }

    #[test]
    fn a_stopping_container_is_only_asked_for_readiness() {
        let mut probes = probes(json!({"livenessProbe": {}, "readinessProbe": {}}));
        assert_eq!(probes.due(at(0), true), [ProbeKind::Readiness]);
    }
}
