//! The limit on nesting that keeps every recursive walk of this crate (and of its callers) off the end of the stack.

use serde_json::Value;

/// How deep a live object, a patch or a patched object may nest. It is the depth to which `serde_json` reads text, and
/// several times what the deepest API type needs; upstream's decoder stops at 10,000.
pub const DEPTH_MAX: usize = 128;

/// The nesting of a value (a scalar is 1), or `None` when it exceeds `limit`.
pub(crate) fn depth(value: &Value, limit: usize) -> Option<usize> {
    let limit = limit.checked_sub(1)?;
    let deepest = match value {
        Value::Array(items) => deepest_of(items.iter(), limit)?,
        Value::Object(members) => deepest_of(members.values(), limit)?,
        _ => 0,
    };
    Some(deepest + 1)
}

fn deepest_of<'a>(mut values: impl Iterator<Item = &'a Value>, limit: usize) -> Option<usize> {
    values.try_fold(0, |deepest, value| Some(deepest.max(depth(value, limit)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn depth_counts_levels_and_stops_at_the_limit() {
        assert_eq!(depth(&json!(1), 1), Some(1));
        assert_eq!(depth(&json!({"a": [{"b": 1}, 2]}), 4), Some(4));
        assert_eq!(depth(&json!({"a": [{"b": 1}, 2]}), 3), None);
        assert_eq!(depth(&json!({}), 0), None);
    }
}
