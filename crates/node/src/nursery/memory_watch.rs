//! Limits of memory where there are no control groups: the nursery looks itself.
//!
//! What counts is what a control group would not give back either: anonymous and shared memory, in the machine's memory
//! or swapped out, of the container's whole family of processes. Pages of files are not counted, the kernel drops them
//! when it needs the room. Between two looks a container can have more than its limit; the limit is a promise to the
//! other containers, not to the byte.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::family::Kinship;
use super::protocol::InstanceId;

/// A process that only writes to memory gets some 100 MB in this time.
const INTERVAL: Duration = Duration::from_millis(50);
/// A look that takes long is not repeated at once: this many times as long belongs to others.
const REST: u32 = 20;
/// Even then.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The containers whose memory is looked at. Without any there is nothing to wake up for.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    watched: HashMap<InstanceId, Watched>,
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Watched {
    leader: Pid,
    limit_bytes: u64,
    was_over: bool,
}

/// A container with more memory than it may have.
#[derive(Debug)]
pub(super) struct Offender {
    pub(super) id: InstanceId,
    pub(super) family: Vec<Pid>,
}

impl MemoryWatch {
    /// `leader` must not be waited for before [`Self::remove`]: until then its number is its own.
    pub(super) fn add(&mut self, id: &InstanceId, leader: Pid, limit_bytes: u64) {
        self.watched.insert(id.clone(), Watched { leader, limit_bytes, was_over: false });
        self.next_look.get_or_insert_with(|| Instant::now() + INTERVAL);
    }

    /// True: the container was over its limit.
    pub(super) fn remove(&mut self, id: &InstanceId) -> bool {
        let removed = self.watched.remove(id);
        if self.watched.is_empty() {
            self.next_look = None;
        }
        removed.is_some_and(|watched| watched.was_over)
    }

    /// How long until the next look.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        Some(self.next_look?.saturating_duration_since(now))
    }

    /// Those who are over their limit, if it is time to look. They are found again until they are gone.
    pub(super) fn look(&mut self, started: &HashSet<Pid>) -> Vec<Offender> {
        let begin = Instant::now();
        if self.next_look.is_none_or(|next| begin < next) {
            return Vec::new();
        }
        let kinship = Kinship::read();
        let orphans = kinship.orphans(started);
        let mut offenders = Vec::new();
        for (id, watched) in &mut self.watched {
            let instance = id.to_string();
            let orphans = orphans.iter().filter(|orphan| orphan.belongs_to(watched.leader, &instance));
            let family = kinship.family(std::iter::once(watched.leader).chain(orphans.map(|orphan| orphan.pid)));
            if is_over(watched.limit_bytes, || sum(&family, glance), || sum(&family, share)) {
                watched.was_over = true;
                offenders.push(Offender { id: id.clone(), family });
            }
        }
        let now = Instant::now();
        self.next_look = Some(now + pause(now - begin));
        offenders
    }
}

/// `glance` counts a page once for every process that has it, so it says too much rather than too little. Only where
/// that is over the limit, `share` is asked, which walks through page tables.
fn is_over(limit: u64, glance: impl FnOnce() -> u64, share: impl FnOnce() -> u64) -> bool {
    glance() > limit && share() > limit
}

/// Looking takes at most a twentieth of a processor, unless it would be left for too long.
fn pause(took: Duration) -> Duration {
    took.saturating_mul(REST).clamp(INTERVAL, INTERVAL_MAX)
}

fn sum(family: &[Pid], measure: fn(Pid) -> u64) -> u64 {
    family.iter().map(|pid| measure(*pid)).fold(0, u64::saturating_add)
}

/// All memory of a process. Nothing for one that has just ended.
fn glance(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    fields(&status, &["RssAnon:", "RssShmem:", "VmSwap:"]).unwrap_or(0)
}

/// The same with a page that several have, as forks do, divided between them.
fn share(pid: Pid) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    // Others may not look into processes that have changed their user.
    fields(&rollup, &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]).unwrap_or_else(|| glance(pid))
}

/// The sum of these lines, in bytes; `None` if one is missing.
fn fields(text: &str, names: &[&str]) -> Option<u64> {
    let field = |name: &&str| {
        let value = text.lines().find_map(|line| line.strip_prefix(*name))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    names.iter().map(field).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn shared_memory_does_not_count_twice() {
        let never = || panic!("nobody needs to know");
        assert!(!is_over(100, || 100, never), "the limit itself may be used");
        assert!(!is_over(100, || 300, || 60), "three forks of one process");
        assert!(!is_over(100, || 300, || 100));
        assert!(is_over(100, || 101, || 101));
    }

    #[test]
    fn what_a_control_group_would_count_is_counted() {
        let status =
            "Name:\tsh\nVmRSS:\t 1736 kB\nRssAnon:\t 112 kB\nRssFile:\t 1624 kB\nRssShmem:\t 8 kB\nVmSwap:\t 4 kB\n";
        assert_eq!(fields(status, &["RssAnon:", "RssShmem:", "VmSwap:"]), Some(124 * 1024));
        let ended = "Name:\tsh\nState:\tZ (zombie)\n";
        assert_eq!(fields(ended, &["RssAnon:", "RssShmem:", "VmSwap:"]), None);
        assert_eq!(fields("RssAnon:\t18446744073709551615 kB\n", &["RssAnon:"]), None);
    }

    #[test]
    fn a_look_that_takes_long_is_repeated_less_often() {
        assert_eq!(pause(Duration::ZERO), INTERVAL);
        assert_eq!(pause(Duration::from_millis(10)), Duration::from_millis(200));
        assert_eq!(pause(Duration::from_secs(3)), INTERVAL_MAX);
        assert_eq!(pause(Duration::MAX), INTERVAL_MAX);
    }

    #[test]
    fn this_kernel_says_what_is_read() {
        let own = rustix::process::getpid();
        assert!(glance(own) > 0);
        assert!(share(own) > 0);
        let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        assert!(fields(&rollup, &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]).is_some(), "{rollup}");
    }

    #[test]
    fn nothing_is_looked_at_when_nothing_is_watched() {
        let id = InstanceId { pod: "u".to_owned(), container: "c".to_owned(), attempt: 0 };
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let leader = Pid::from_child(&child);
        let started = HashSet::from([leader]);
        let mut watch = MemoryWatch::default();
        assert_eq!(watch.wait(Instant::now()), None);
        watch.add(&id, leader, 1);
        assert!(watch.wait(Instant::now()).is_some_and(|wait| wait <= INTERVAL));
        assert!(watch.look(&started).is_empty(), "it is not time yet");
        watch.next_look = Some(Instant::now());
        let offenders = watch.look(&started);
        assert!(offenders.len() == 1 && offenders[0].id == id && offenders[0].family == [leader], "{offenders:?}");
        assert!(watch.remove(&id), "it was over its limit");
        assert_eq!(watch.wait(Instant::now()), None);
        assert!(!watch.remove(&id));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
