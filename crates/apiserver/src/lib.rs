//! A Kubernetes-compatible API server on the embedded store.
//!
//! `decode → default → prepare → validate → one store transaction`, the same path for every kind: `verbs/` holds one
//! file per verb, `resources/` one strategy of pure functions per kind. Stored JSON is served as it is (design D3).
//! Nothing here reconciles anything; controllers are clients like everybody else.

mod activity;
mod admission;
mod answer;
mod attributes;
mod auth;
mod body;
mod bootstrap;
mod client;
mod decode;
mod discovery;
mod documents;
mod environment;
mod expiry;
mod host;
pub mod leftover;
mod limits;
pub mod logs;
mod metadata;
pub mod metrics;
mod negotiate;
mod openapi;
mod opening;
mod options;
mod owners_memo;
mod ownership;
mod query;
mod quota;
mod resources;
mod respond;
mod reviews;
mod route;
mod selection;
pub mod serve;
mod server;
mod set_aside;
mod status;
pub mod storage;
mod tables;
mod times;
pub mod tls;
mod verbs;
mod views;
mod warnings;

pub use auth::token::{IssuerError, TokenIssuer};
pub use body::ResponseBody;
pub use environment::Environment;
pub use server::{ApiServer, Options};
pub use status::Status;
