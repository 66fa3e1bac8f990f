//! Role-based access control as pure functions: roles, bindings, a user and a wish in, a decision out (AS-60, AS-61).
//!
//! | module | what it does |
//! |---|---|
//! | `rule` | whether one rule allows a request, whether rules cover others |
//! | `policy` | all roles and bindings, indexed by whom they concern |
//! | `cache` | a policy that follows the store |
//! | `defaults` | the roles and bindings that exist from the first second |
//!
//! Who may write roles and bindings beyond that is in `escalation`, their validation in `resources`.

mod cache;
pub mod defaults;
mod policy;
mod rule;

pub use self::{
    cache::PolicyCache,
    policy::{Binding, Decision, Policy, Role, RoleRef},
    rule::{PolicyRule, missing, quoted_list},
};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
