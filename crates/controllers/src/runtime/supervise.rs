//! Tasks that somebody waits for: if one dies, the whole hears of it.

use std::{any::Any, time::Duration};

use tokio::task::JoinSet;

/// Asks tasks to end. Cloned freely; `child_token()` gives one that can be cancelled on its own.
pub type Shutdown = tokio_util::sync::CancellationToken;

/// How long tasks get to end after they were asked to, before they are dropped where they stand.
pub const GRACE: Duration = Duration::from_secs(10);

/// A group of tasks that live and end together. Dropping it aborts them.
#[derive(Debug)]
pub struct Supervisor {
    shutdown: Shutdown,
    tasks: JoinSet<&'static str>,
    names: Vec<(tokio::task::Id, &'static str)>,
}

/// A task that ended although nobody had asked it to.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("task `{0}` ended by itself")]
    Ended(&'static str),
    #[error("task `{name}` panicked: {message}")]
    Panicked { name: &'static str, message: String },
}

impl Supervisor {
    /// The tasks are asked to end through `shutdown`, which they must watch themselves.
    pub fn new(shutdown: Shutdown) -> Self {
        Self { shutdown, tasks: JoinSet::new(), names: Vec::new() }
    }

    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Starts a task that is expected to run until shutdown.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.tasks.spawn(async move {
            task.await;
            name
        });
        self.names.push((handle.id(), name));
    }

    /// Waits until shutdown is asked for or a task dies, then ends all of them.
    ///
    /// The first task that ended unasked is the error; the others are then asked to end too.
    pub async fn run(mut self) -> Result<(), TaskError> {
        let mut failure = None;
        while !self.tasks.is_empty() && failure.is_none() {
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                Some(ended) = self.tasks.join_next() => failure = self.unexpected(ended),
            }
        }
        self.shutdown.cancel();
        let late = self.join_all().await;
        match failure.or(late) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// A panic during the end is still an error; ending is what was asked.
    async fn join_all(&mut self) -> Option<TaskError> {
        let mut failure = None;
        let deadline = tokio::time::Instant::now() + GRACE;
        loop {
            match tokio::time::timeout_at(deadline, self.tasks.join_next()).await {
                Ok(None) => return failure,
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => failure = failure.or_else(|| self.panicked(error)),
                Err(_) => {
                    tracing::warn!(remaining = self.tasks.len(), "tasks did not end in time and are dropped");
                    self.tasks.shutdown().await;
                    return failure;
                }
            }
        }
    }

    /// A task that ends at the same moment as shutdown is asked for is no failure.
    fn unexpected(&self, ended: Result<&'static str, tokio::task::JoinError>) -> Option<TaskError> {
        match ended {
            Ok(_) if self.shutdown.is_cancelled() => None,
            Ok(name) => Some(TaskError::Ended(name)),
            Err(error) => self.panicked(error),
        }
    }

    fn panicked(&self, error: tokio::task::JoinError) -> Option<TaskError> {
        let id = error.id();
        let name = self.names.iter().find(|(known, _)| *known == id).map_or("unknown", |(_, name)| name);
        let message = panic_message(error.try_into_panic().ok()?.as_ref());
        Some(TaskError::Panicked { name, message })
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_unasked_ends_the_others() {
        let shutdown = Shutdown::new();
        let mut supervisor = Supervisor::new(shutdown.clone());
        let waits = shutdown.clone();
        supervisor.spawn("steady", async move { waits.cancelled().await });
        supervisor.spawn("short", async {});
        assert!(matches!(supervisor.run().await, Err(TaskError::Ended("short"))));
        assert!(shutdown.is_cancelled());
    }

    #[tokio::test]
    async fn a_panic_is_reported_with_its_task() {
        let mut supervisor = Supervisor::new(Shutdown::new());
        supervisor.spawn("fragile", async { panic!("broken {}", 1) });
        let error = supervisor.run().await.unwrap_err();
        assert_eq!(error.to_string(), "task `fragile` panicked: broken 1");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_ignore_shutdown_are_dropped_after_the_grace_period() {
        let shutdown = Shutdown::new();
        let mut supervisor = Supervisor::new(shutdown.clone());
        supervisor.spawn("deaf", std::future::pending());
        shutdown.cancel();
        assert!(supervisor.run().await.is_ok());
    }
}
