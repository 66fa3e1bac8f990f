//! Who is calling, and what they may do (AS-56…AS-66).
//!
//! | module | what it does |
//! |---|---|
//! | `authenticator` | from credentials to a user |
//! | `token`, `service_account` | tokens of ServiceAccounts: their form, and what they are worth |
//! | `impersonation` | from one user to another who it may pretend to be |
//! | `authorizer` | whether a user may do something, and how it is told that it may not |
//! | `rbac` | the rules that decide |
//! | `escalation` | that nobody grants what they do not have |

mod authenticator;
mod authorizer;
pub(crate) mod escalation;
mod impersonation;
pub(crate) mod rbac;
pub(crate) mod service_account;
pub mod token;
pub(crate) mod user;

pub(crate) use self::{authenticator::Authenticator, impersonation::impersonate, user::User};
