//! The CronJob controller against the real API server on an in-memory store.

mod cached;
mod handlers;
mod scene;
mod schedule;
