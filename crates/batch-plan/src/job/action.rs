//! What a plan does to pods, and how that can go.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Uid;
use super::events::Event;
use super::pod_view::FailureCounts;
use teeth::{Mutation, is};

/// A pod to call the API about. The UID goes along as a precondition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    pub name: Arc<str>,
    pub uid: Uid,
}

/// What to do about pods. Calls of one kind go out in parallel. A DELETE answers with the pod: if that has ended, nothing
/// more is done about it, and the outcome is [`CallOutcome::HadEnded`].
#[derive(Debug, Clone, PartialEq)]
pub enum PodAction {
    None,
    /// Create pods with the bodies that [`PodStencil`](super::PodStencil) gives, in batches one after the other. After a
    /// batch with a failure the rest is skipped. "Already exists" is [`CallOutcome::Done`] if the pod is the Job's.
    Create {
        pods: Vec<Creation>,
        batches: Vec<usize>,
    },
    /// Remove pods so that they count as nothing, because they are surplus or the Job has succeeded without them:
    /// `patches::mark_surplus`, DELETE, `patches::release_surplus`.
    Remove(Vec<PodRef>),
    /// DELETE pods because the Job fails. They keep their finalizer and are counted afterwards.
    End(Vec<PodRef>),
}

/// A pod to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    pub name: Arc<str>,
    pub index: Option<u32>,
    /// With `backoffLimitPerIndex`: the failures of the index so far.
    pub failure_counts: Option<FailureCounts>,
}

/// How the calls about one pod of a [`PodAction`] went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome {
    Done,
    /// The pod to remove or delete was not there any more.
    Gone,
    /// The pod was deleted, and had ended by itself before, which the cache does not show yet. It keeps its finalizer until
    /// the cache shows how it ended, and then counts as it should (INV-1).
    HadEnded,
    /// The pod to create exists and belongs to somebody else.
    NameTaken,
    /// The namespace is being deleted; not worth an error (JC-1009).
    NamespaceTerminating,
    /// Nobody knows whether the pod was created (INV-22).
    Unanswered(String),
    /// The creation or DELETE was refused.
    Failed(String),
    /// The patch before the DELETE of a surplus pod was refused: nothing has happened to it.
    MarkFailed(String),
    /// The patch after that DELETE was refused.
    ReleaseFailed(String),
    /// There is nothing to ask the server for, and nobody is told but the log (JC-1205).
    Unsent(String),
    /// Not tried, because an earlier batch had failed.
    Skipped,
}

/// How the removal of finalizers went. "Not found", and a conflict of UIDs, are successes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReleaseOutcome {
    /// The pods that still have their finalizer, and why.
    pub failed: BTreeMap<Uid, String>,
}

impl PodAction {
    /// The pods that an action takes away.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Uid> {
        let pods = match self {
            Self::Remove(pods) | Self::End(pods) => pods.as_slice(),
            Self::None | Self::Create { .. } => &[],
        };
        pods.iter().map(|pod| &pod.uid)
    }
}

impl CallOutcome {
    /// Why the call did not do what it should.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Unanswered(error)
            | Self::Failed(error)
            | Self::MarkFailed(error)
            | Self::ReleaseFailed(error)
            | Self::Unsent(error) => Some(error),
            Self::NameTaken => Some("the name is taken by a pod that is not the Job's"),
            Self::NamespaceTerminating if is(Mutation::C22) => Some("the namespace is being terminated"),
            Self::Done | Self::Gone | Self::HadEnded | Self::NamespaceTerminating | Self::Skipped => None,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Done | Self::Gone | Self::HadEnded)
    }

    pub(super) fn creation_event(&self, name: &str) -> Option<Event> {
        match self {
            Self::Done => Some(Event::pod_created(name)),
            Self::Failed(error) | Self::Unanswered(error) => Some(Event::create_failed(error)),
            _ => None,
        }
    }

    pub(super) fn deletion_event(&self, name: &str) -> Option<Event> {
        match self {
            Self::Done | Self::HadEnded => Some(Event::pod_deleted(name)),
            Self::Failed(error) | Self::Unanswered(error) => Some(Event::delete_failed(error)),
            _ => None,
        }
    }
}
