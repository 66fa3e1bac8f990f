//! A CronJob: when it runs next, and what keeps it from running.

use batch_plan::cronjob::{Due, Times, next_runs};
use batch_types::constants::{condition, value};
use batch_types::cron::{self, Schedule, zone};
use jiff::{SignedDuration, Timestamp};

use crate::answer::{Answer, Evidence, State};
use crate::events::{self, Event};
use crate::object::Object;
use crate::pod::namespace_flag;
use crate::snapshot::{Snapshot, objects};
use crate::words::{clause, counted, foreign, instant, listed, seconds, verb};

/// A run that is later than this is late for a reason.
const LATE_SECS: i64 = 60;

/// A starting deadline below this misses runs by the controller's own delays (CJ-34).
const DEADLINE_MIN_SECS: i64 = 10;

struct Case<'a> {
    snapshot: &'a Snapshot,
    cron_job: Object<'a>,
    events: Vec<Event<'a>>,
    now: Timestamp,
}

pub(crate) fn explain(snapshot: &Snapshot) -> Answer {
    let cron_job = snapshot.subject();
    let case = Case { snapshot, cron_job, events: events::about(snapshot, "CronJob", cron_job), now: snapshot.now };
    let answer = case.answer();
    let answer = answer.evidence(case.past()).evidence(case.last_jobs());
    answer.in_order()
}

impl Case<'_> {
    fn about(&self) -> String {
        format!("cronjob/{}", foreign(self.cron_job.name()))
    }

    fn argument(&self) -> String {
        format!("{}{}", self.about(), namespace_flag(self.cron_job))
    }

    fn new_answer(&self, state: State, summary: impl Into<String>) -> Answer {
        Answer::new(self.snapshot, state, summary)
    }

    fn answer(&self) -> Answer {
        let cron_job = self.cron_job;
        if cron_job.is_deleting() {
            return self.deleting();
        }
        let text = cron_job.text("/spec/schedule").unwrap_or("");
        let zone_name = cron_job.text("/spec/timeZone");
        if let Some(error) = zone_name.and_then(|name| zone::load(name).err()) {
            let summary = format!("It never runs: `spec.timeZone` is wrong: {error}.");
            return self
                .new_answer(State::InvalidSchedule, summary)
                .action("use a name of the tz database, for example `Europe/Berlin`");
        }
        let schedule = match cron::parse_in_zone(text, zone_name) {
            Ok(schedule) => schedule,
            Err(error) => {
                let summary = format!("It never runs: its schedule `{}` cannot be read: {error}.", foreign(text));
                return self
                    .new_answer(State::InvalidSchedule, summary)
                    .action("correct `spec.schedule`: minute hour day month weekday");
            }
        };
        self.scheduled(&schedule, &foreign(text))
    }

    fn deleting(&self) -> Answer {
        let finalizers: Vec<String> = self.cron_job.finalizers().into_iter().map(foreign).collect();
        let summary = match finalizers.is_empty() {
            true => "It is being deleted and is about to go.".to_owned(),
            false => format!("It is being deleted and waits for finalizers {}.", listed(&finalizers)),
        };
        self.new_answer(State::Deleting, summary).since(self.cron_job.time("/metadata/deletionTimestamp"))
    }

    fn scheduled(&self, schedule: &Schedule, text: &str) -> Answer {
        let last = self.cron_job.time("/status/lastScheduleTime");
        let since = last.or(self.cron_job.created()).unwrap_or(self.now);
        let deadline = self.cron_job.int("/spec/startingDeadlineSeconds");
        let times = Times { schedule, zone: &self.snapshot.zone, since, starting_deadline_seconds: deadline };
        let next = times.next(self.now);
        if self.cron_job.flag("/spec/suspend") {
            return self.suspended(&times, next);
        }
        let Ok(due) = times.due(self.now) else {
            let summary = format!("It never runs: no date ever matches its schedule `{text}`.");
            return self
                .new_answer(State::NeverScheduled, summary)
                .action("correct `spec.schedule`: the day does not occur in the month");
        };
        if let Some(limit) = deadline.filter(|limit| *limit < DEADLINE_MIN_SECS) {
            let summary = format!(
                "It may never run: startingDeadlineSeconds is {limit}, and a run that starts later than that is skipped."
            );
            let answer = self.new_answer(State::DeadlineTooShort, summary);
            return with_next(answer, next).action("set startingDeadlineSeconds to 10 or more, or leave it out");
        }
        let active = self.active();
        let policy = self.cron_job.text("/spec/concurrencyPolicy").unwrap_or(value::CONCURRENCY_ALLOW);
        match due {
            Some(due) if policy == value::CONCURRENCY_FORBID && !active.is_empty() => self.blocked(due, &active, next),
            Some(due) if self.late_since(&times).is_some() => self.overdue(due, self.late_since(&times), next),
            _ => self.waiting(text, &active, next),
        }
    }

    /// The first time that was missed, if everybody has had the time to notice.
    fn late_since(&self, times: &Times<'_>) -> Option<Timestamp> {
        let first = next_runs(times.schedule, times.zone, times.since).next()?;
        (self.now.duration_since(first).as_secs() > LATE_SECS).then_some(first)
    }

    fn suspended(&self, times: &Times<'_>, next: Option<Timestamp>) -> Answer {
        let missed = missed(times, self.now);
        let catches_up = match times.due(self.now) {
            Ok(Some(due)) => format!("when it is resumed, the run of {} is made up for at once", instant(due.time)),
            _ => "when it is resumed, it runs at its next time".to_owned(),
        };
        let skipped = match missed {
            0 => String::new(),
            count => format!(" {} {} been skipped.", counted(count, "run"), verb(count, "has", "have")),
        };
        let next_time = next.map(|next| Evidence::new(self.about(), "would run next", Some(next)));
        self.new_answer(State::Suspended, format!("It is suspended: `spec.suspend` is true.{skipped}"))
            .next(catches_up, None)
            .action(format!("kubectl patch {} -p '{{\"spec\":{{\"suspend\":false}}}}'", self.argument()))
            .evidence(next_time)
    }

    /// CJ-25.
    fn blocked(&self, due: Due, active: &[String], next: Option<Timestamp>) -> Answer {
        let names: Vec<String> = active.iter().map(|name| format!("job/{name}")).collect();
        let summary = format!(
            "The run of {} waits: concurrencyPolicy is Forbid and {} still {}.",
            instant(due.time),
            listed(&names),
            verb(active.len() as u64, "runs", "run")
        );
        let skipped = match self.cron_job.int("/spec/startingDeadlineSeconds") {
            Some(limit) => {
                let latest = due.time.checked_add(SignedDuration::from_secs(limit)).ok();
                (format!("the waiting run is skipped: startingDeadlineSeconds ({}) is over", seconds(limit)), latest)
            }
            None => ("the waiting run starts when that Job has finished".to_owned(), None),
        };
        let answer = self.new_answer(State::Blocked, summary).since(Some(due.time)).next(skipped.0, skipped.1);
        let flag = namespace_flag(self.cron_job);
        let answer = names.iter().take(1).fold(answer, |answer, name| answer.action(format!("tally why {name}{flag}")));
        with_next(answer, next)
            .action("or set concurrencyPolicy to Allow or Replace")
            .evidence(events::last(&self.events, &["JobAlreadyActive"]).map(|event| event.evidence()))
    }

    /// A run should have started and has not.
    fn overdue(&self, due: Due, since: Option<Timestamp>, next: Option<Timestamp>) -> Answer {
        let many = if due.many_missed { " More than 100 runs were missed." } else { "" };
        let refused = events::last(&self.events, &["FailedCreate", "FailedGet"]).filter(|event| event.at >= since);
        let answer = match refused {
            Some(event) => {
                let summary =
                    format!("The run of {} could not be started: {}.{many}", instant(due.time), clause(event.message));
                self.new_answer(State::PodsRefused, summary)
                    .next("the controller tries again by itself", None)
                    .evidence([event.evidence()])
            }
            None => {
                let summary = format!(
                    "The run of {} is overdue and nothing says why; the CronJob controller may not be running.{many}",
                    instant(due.time)
                );
                self.new_answer(State::Overdue, summary)
                    .action("check that the CronJob controller runs (kube-controller-manager, or `tally up`)")
            }
        };
        with_next(answer.since(since), next)
    }

    fn waiting(&self, text: &str, active: &[String], next: Option<Timestamp>) -> Answer {
        let names: Vec<String> = active.iter().map(|name| format!("job/{name}")).collect();
        let running = match active.len() as u64 {
            0 => String::new(),
            count => format!(" {} {} now.", listed(&names), verb(count, "runs", "run")),
        };
        let Some(at) = next else {
            return self.new_answer(
                State::NeverScheduled,
                format!("No date of the coming years matches its schedule `{text}`."),
            );
        };
        let summary = format!("It waits for its next run, {} (schedule `{text}`).{running}", instant(at));
        let answer = with_next(self.new_answer(State::Scheduled, summary), next);
        let flag = namespace_flag(self.cron_job);
        let name = foreign(self.cron_job.name());
        answer.action(format!("to run it now: kubectl create job {name}-now --from={}{flag}", self.about()))
    }

    /// Names of Jobs that run.
    fn active(&self) -> Vec<String> {
        self.cron_job.list("/status/active").filter_map(|job| job.text("/name")).map(foreign).take(5).collect()
    }

    fn past(&self) -> Vec<Evidence> {
        let facts = [("/status/lastScheduleTime", "last started"), ("/status/lastSuccessfulTime", "last succeeded")];
        let fact =
            |(pointer, text): (&str, &str)| Some(Evidence::new(self.about(), text, Some(self.cron_job.time(pointer)?)));
        facts.into_iter().filter_map(fact).collect()
    }

    /// The newest Jobs, which explain a CronJob that runs and achieves nothing.
    fn last_jobs(&self) -> Vec<Evidence> {
        let mut jobs: Vec<Object<'_>> = objects(self.snapshot.jobs.as_ref())
            .filter(|job| job.controller() == Some(("CronJob", self.cron_job.name())))
            .collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.created()));
        jobs.into_iter()
            .take(3)
            .map(|job| {
                let text = match (job.is_true(condition::COMPLETE), job.is_true(condition::FAILED)) {
                    (Some(_), _) => "complete".to_owned(),
                    (None, Some(failed)) => format!("failed: {}", foreign(failed.reason)),
                    _ => "not finished".to_owned(),
                };
                Evidence::new(format!("job/{}", foreign(job.name())), text, job.created())
            })
            .collect()
    }
}

fn with_next(answer: Answer, next: Option<Timestamp>) -> Answer {
    match next {
        Some(at) => answer.next("next run", Some(at)),
        None => answer,
    }
}

/// Runs that were due and did not start; counted up to a hundred.
fn missed(times: &Times<'_>, now: Timestamp) -> u64 {
    next_runs(times.schedule, times.zone, times.since).take_while(|time| *time <= now).take(100).count() as u64
}
