//! The tables of the specification's appendix A that are about whole syncs. Tables about one function are tested beside
//! that function.

mod around;
mod indexes;
mod sync;
mod tracking;
mod verdict;

use super::super::CallOutcome;

/// Calls whose names begin like that fail.
fn failing(what: &'static str) -> impl Fn(&str) -> CallOutcome {
    move |call| match call.starts_with(what) {
        true => CallOutcome::Failed("no".to_owned()),
        false => CallOutcome::Done,
    }
}
