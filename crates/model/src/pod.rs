//! A pod in four bytes, and as the plan sees it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use batch_plan::job::{Controller, ExitCode, FailureCounts, Phase, PodRef, PodView, Restarts, Uid};

use crate::job::{job_uid, pod_name};

/// How many pod objects a history may have.
pub(crate) const PODS: usize = 8;

/// A pod object, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Pod(u32);

const EXISTS: u32 = 1;
const DELETING: u32 = 1 << 5;
const FINALIZER: u32 = 1 << 6;
const SURPLUS: u32 = 1 << 7;
const OWNED: u32 = 1 << 8;
const MATCHES: u32 = 1 << 10;

/// What a pod is called: which Job's, which index, which number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Name {
    pub(crate) generation: u8,
    /// 3 stands for none.
    pub(crate) index: u8,
    pub(crate) number: u8,
}

/// The index of pods that have none.
pub(crate) const NO_INDEX: u8 = 3;
/// Numbers that a name can have.
pub(crate) const NUMBERS: u8 = 16;

impl Name {
    pub(crate) fn index(self) -> Option<u32> {
        (self.index != NO_INDEX).then_some(u32::from(self.index))
    }

    fn bits(self) -> u32 {
        u32::from(self.generation) << 9 | u32::from(self.index) << 11 | u32::from(self.number) << 13
    }
}

/// How a container ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    Success,
    Plain,
    Ignored,
    FailsJob,
    FailsIndex,
}

impl Exit {
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::Plain => 1,
            Self::Ignored => 7,
            Self::FailsIndex => 13,
            Self::FailsJob => 42,
        }
    }
}

impl Pod {
    /// A pod as its Job creates it.
    pub(crate) fn created(name: Name, failures: FailureCounts, running: bool) -> Self {
        let counts = failures.counted.min(3) << 17 | failures.ignored.min(3) << 19;
        let phase = if running { 1 << 1 } else { 0 };
        Self(EXISTS | FINALIZER | OWNED | MATCHES | name.bits() | counts | phase)
    }

    /// Only a name: a pod that a cache does not show yet.
    pub(crate) fn only_name(name: Name) -> Self {
        Self(name.bits())
    }

    pub(crate) fn exists(self) -> bool {
        self.has(EXISTS)
    }

    pub(crate) fn name(self) -> Name {
        Name { generation: (self.0 >> 9 & 1) as u8, index: (self.0 >> 11 & 3) as u8, number: (self.0 >> 13 & 15) as u8 }
    }

    pub(crate) fn phase(self) -> Phase {
        match self.0 >> 1 & 3 {
            0 => Phase::Pending,
            1 => Phase::Running,
            2 => Phase::Succeeded,
            _ => Phase::Failed,
        }
    }

    pub(crate) fn is_terminal(self) -> bool {
        self.phase().is_terminal()
    }

    /// Exists and has not ended.
    pub(crate) fn is_live(self) -> bool {
        self.exists() && !self.is_terminal()
    }

    /// Live and not being deleted.
    pub(crate) fn is_active(self) -> bool {
        self.is_live() && !self.is_deleting()
    }

    pub(crate) fn is_deleting(self) -> bool {
        self.has(DELETING)
    }

    pub(crate) fn is_tracked(self) -> bool {
        self.exists() && self.has(FINALIZER)
    }

    pub(crate) fn is_surplus(self) -> bool {
        self.has(SURPLUS)
    }

    pub(crate) fn matches(self) -> bool {
        self.has(MATCHES)
    }

    /// Whether the Job of that generation controls it.
    pub(crate) fn belongs_to(self, generation: u8) -> bool {
        self.exists() && self.has(OWNED) && self.name().generation == generation
    }

    pub(crate) fn is_owned(self) -> bool {
        self.exists() && self.has(OWNED)
    }

    pub(crate) fn exit(self) -> Exit {
        match (self.phase(), self.0 >> 3 & 3) {
            (Phase::Succeeded, _) => Exit::Success,
            (_, 0) => Exit::Plain,
            (_, 1) => Exit::Ignored,
            (_, 2) => Exit::FailsJob,
            _ => Exit::FailsIndex,
        }
    }

    pub(crate) fn run(&mut self) {
        self.0 |= 1 << 1;
    }

    pub(crate) fn end(&mut self, exit: Exit) {
        let bits = match exit {
            Exit::Success => 2 << 1,
            Exit::Plain => 3 << 1,
            Exit::Ignored => 3 << 1 | 1 << 3,
            Exit::FailsJob => 3 << 1 | 2 << 3,
            Exit::FailsIndex => 3 << 1 | 3 << 3,
        };
        self.0 = self.0 & !(0b11110) | bits;
    }

    pub(crate) fn delete(&mut self) {
        self.0 |= DELETING;
    }

    pub(crate) fn release(&mut self) {
        self.0 &= !FINALIZER;
    }

    pub(crate) fn mark_surplus(&mut self) {
        self.0 |= SURPLUS;
    }

    pub(crate) fn release_surplus(&mut self) {
        self.0 &= !(FINALIZER | SURPLUS);
    }

    pub(crate) fn disown(&mut self) {
        self.0 &= !(FINALIZER | OWNED);
    }

    pub(crate) fn adopt(&mut self) {
        self.0 |= FINALIZER | OWNED;
    }

    pub(crate) fn relabel(&mut self) {
        self.0 ^= MATCHES;
    }

    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    fn failures(self) -> FailureCounts {
        FailureCounts { counted: self.0 >> 17 & 3, ignored: self.0 >> 19 & 3 }
    }
}

impl fmt::Debug for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name { generation, index, number } = self.name();
        if self.0 == 0 {
            return f.write_str("-");
        }
        let index = if index == NO_INDEX { String::new() } else { index.to_string() };
        write!(f, "{}{index}#{number}", ["", "'"][usize::from(generation)])?;
        if !self.exists() {
            return f.write_str("(unseen)");
        }
        write!(f, "{:?}", self.phase())?;
        if self.phase() == Phase::Failed {
            write!(f, "({})", self.exit().code())?;
        }
        let marks = [
            (self.is_deleting(), "!"),
            (!self.is_tracked(), "-"),
            (self.is_surplus(), "+"),
            (!self.matches(), "~"),
            (!self.has(OWNED), "?"),
        ];
        marks.iter().filter(|(is_set, _)| *is_set).try_for_each(|(_, mark)| f.write_str(mark))
    }
}

/// The UID of the pod in a slot.
pub(crate) fn pod_uid(slot: usize) -> Uid {
    Uid::new(&format!("00000000-0000-4000-8000-0000000000{slot:02x}"))
}

/// The slot of a UID as it is written in a status.
pub(crate) fn slot_of(uid: &str) -> usize {
    uid.get(34..).and_then(|digits| usize::from_str_radix(digits, 16).ok()).expect("a UID that this model gave")
}

pub(crate) fn pod_ref(slot: usize, pod: Pod) -> PodRef {
    PodRef { name: pod_name(pod.name()), uid: pod_uid(slot) }
}

/// The pod in a slot as the plan sees it. There are few different ones, so they are made once.
pub(crate) fn view(slot: usize, pod: Pod) -> Rc<PodView> {
    thread_local! {
        static VIEWS: RefCell<HashMap<(usize, u32), Rc<PodView>>> = RefCell::default();
    }
    VIEWS.with_borrow_mut(|views| views.entry((slot, pod.0)).or_insert_with(|| Rc::new(make_view(slot, pod))).clone())
}

fn make_view(slot: usize, pod: Pod) -> PodView {
    let name = pod.name();
    let exit = pod.exit().code();
    let controller = Controller {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: "a".to_owned(),
        uid: job_uid(name.generation),
    };
    let labels = if pod.matches() { BTreeMap::from([("job".to_owned(), "a".to_owned())]) } else { BTreeMap::new() };
    PodView {
        namespace: "ns".to_owned(),
        name: pod_name(name).to_string(),
        generate_name: String::new(),
        uid: pod_uid(slot),
        resource_version: String::new(),
        labels,
        controller: pod.has(OWNED).then_some(controller),
        finalizer: pod.is_tracked(),
        deleting: pod.is_deleting(),
        surplus: pod.is_surplus(),
        created: None,
        index: name.index(),
        failure_counts: pod.failures(),
        assigned: pod.phase() != Phase::Pending,
        phase: pod.phase(),
        ready: false,
        ready_since: None,
        restarts: Restarts::default(),
        finished: None,
        exit_codes: (exit != 0 && pod.is_terminal())
            .then(|| ExitCode { container: "main".to_owned(), code: exit })
            .into_iter()
            .collect(),
        conditions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_keeps_what_it_is_told() {
        let name = Name { generation: 1, index: 2, number: 5 };
        let mut pod = Pod::created(name, FailureCounts { counted: 2, ignored: 1 }, false);
        assert_eq!((pod.name(), pod.phase(), pod.failures().total()), (name, Phase::Pending, 3));
        pod.run();
        assert!(pod.is_active() && pod.is_tracked() && pod.belongs_to(1) && !pod.belongs_to(0));
        pod.delete();
        for exit in [Exit::Plain, Exit::Ignored, Exit::FailsJob, Exit::FailsIndex, Exit::Success] {
            pod.end(exit);
            assert_eq!((pod.exit(), pod.name(), pod.is_deleting()), (exit, name, true));
        }
        pod.mark_surplus();
        pod.release_surplus();
        assert!(!pod.is_tracked() && !pod.is_surplus());
        assert_eq!((Pod::only_name(name).name(), Pod::only_name(name).exists()), (name, false));
    }

    #[test]
    fn uids_lead_back_to_their_slot() {
        for slot in 0..PODS {
            assert_eq!(slot_of(&pod_uid(slot).to_string()), slot);
        }
    }
}
