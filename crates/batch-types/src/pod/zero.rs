//! Absent means the zero value: Kubernetes' Go types cannot tell an absent string or list from an empty one.

/// The text, empty when absent.
pub(super) fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

/// The items, none when absent.
pub(super) fn list<T>(value: &Option<Vec<T>>) -> &[T] {
    value.as_deref().unwrap_or_default()
}

/// The flag, false when absent.
pub(super) fn flag(value: Option<bool>) -> bool {
    value.unwrap_or_default()
}
