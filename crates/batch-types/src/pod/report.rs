//! Where a problem is and the list of problems found, both cheap while nothing is wrong.
//!
//! A valid pod costs no allocation: a [`Place`] is a chain of borrowed steps on the stack and becomes a
//! [`field::Path`] only when an error is recorded. What the errors say is in `field`.

use serde_json::Value;

use crate::field::{self, Error};

/// A field being looked at, as steps from a root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root(&'a field::Path),
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Place<'a> {
    pub(super) fn root(path: &'a field::Path) -> Self {
        Self { parent: None, step: Step::Root(path) }
    }

    /// `self.name`.
    pub(super) fn child(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Child(name) }
    }

    /// `self[at]`.
    pub(super) fn index(&'a self, at: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(at) }
    }

    /// `self[key]`, for maps.
    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }

    /// The path in full.
    pub(super) fn path(&self) -> field::Path {
        let parent = || self.parent.map(Place::path).unwrap_or_default();
        match self.step {
            Step::Root(path) => path.clone(),
            Step::Child(name) => parent().child(name),
            Step::Index(at) => parent().index(at),
            Step::Key(key) => parent().key(key),
        }
    }
}

/// The problems found so far, in the order upstream reports them.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Error>);

impl Report {
    pub(super) fn into_errors(self) -> Vec<Error> {
        self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn extend(&mut self, errors: impl IntoIterator<Item = Error>) {
        self.0.extend(errors);
    }

    pub(super) fn required(&mut self, at: &Place<'_>, detail: impl Into<String>) {
        self.0.push(Error::required(&at.path(), detail));
    }

    pub(super) fn invalid(&mut self, at: &Place<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.0.push(Error::invalid(&at.path(), value, detail));
    }

    /// One error for each message about the same value.
    pub(super) fn each_invalid(&mut self, at: &Place<'_>, value: &str, messages: Vec<String>) {
        for message in messages {
            self.invalid(at, value, message);
        }
    }

    pub(super) fn forbidden(&mut self, at: &Place<'_>, detail: impl Into<String>) {
        self.0.push(Error::forbidden(&at.path(), detail));
    }

    /// Of a value whose Go type is made for the ones supported, as most are.
    pub(super) fn not_supported(&mut self, at: &Place<'_>, value: &str, supported: &[&str]) {
        self.0.push(Error::not_supported(&at.path(), value, supported).named());
    }

    /// Of a value whose Go type is a plain string.
    pub(super) fn not_supported_text(&mut self, at: &Place<'_>, value: &str, supported: &[&str]) {
        self.0.push(Error::not_supported(&at.path(), value, supported));
    }

    pub(super) fn duplicate(&mut self, at: &Place<'_>, value: impl Into<Value>) {
        self.0.push(Error::duplicate(&at.path(), value));
    }

    pub(super) fn not_found(&mut self, at: &Place<'_>, value: &str) {
        self.0.push(Error::not_found(&at.path(), value));
    }

    pub(super) fn not_found_because(&mut self, at: &Place<'_>, value: &str, detail: impl Into<String>) {
        self.0.push(Error { detail: detail.into(), ..Error::not_found(&at.path(), value) });
    }

    pub(super) fn too_long(&mut self, at: &Place<'_>, max: usize) {
        self.0.push(Error::too_long(&at.path(), max));
    }

    pub(super) fn too_many(&mut self, at: &Place<'_>, actual: usize, max: usize) {
        self.0.push(Error::too_many(&at.path(), actual, max));
    }

    /// A value that must be one of a list: required when empty, unsupported when unknown.
    pub(super) fn one_of(&mut self, at: &Place<'_>, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(at, "");
        } else if !supported.contains(&value) {
            self.not_supported(at, value, supported);
        }
    }

    /// The error every count and duration shares when it is below zero.
    pub(super) fn non_negative(&mut self, at: &Place<'_>, value: i64) {
        if value < 0 {
            self.invalid(at, value, "must be greater than or equal to 0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_renders_every_kind_of_step() {
        let root = field::Path::new("spec.template");
        let root = Place::root(&root);
        let containers = root.child("containers");
        let container = containers.index(2);
        let limits = container.child("limits");
        assert_eq!(limits.key("cpu").path().to_string(), "spec.template.containers[2].limits[cpu]");
    }
}
