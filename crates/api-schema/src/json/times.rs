//! The times in a value, wherever its type has them.

use serde_json::Value;

use crate::model::{Shape, Type};

/// Shows every time of a value that fits its type.
pub fn for_each_time(ty: &'static Type, value: &mut Value, see: &mut dyn FnMut(&mut String)) {
    visit(&Shape::Struct(ty), value, see);
}

/// Goes no deeper than the type does.
fn visit(shape: &Shape, value: &mut Value, see: &mut dyn FnMut(&mut String)) {
    match (shape, value) {
        (Shape::Time | Shape::MicroTime, Value::String(text)) => see(text),
        (Shape::Struct(ty), Value::Object(members)) => {
            for (name, member) in members {
                if let Some(field) = ty.field(name) {
                    visit(&field.shape, member, see);
                }
            }
        }
        (Shape::List(element), Value::Array(items)) => items.iter_mut().for_each(|item| visit(element, item, see)),
        (Shape::Map(element), Value::Object(members)) => {
            members.values_mut().for_each(|member| visit(element, member, see));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry;

    #[test]
    fn times_are_found_by_type_and_not_by_look() {
        let time = "2024-01-01T00:00:00Z";
        let mut job = json!({
            "metadata": {"creationTimestamp": time, "annotations": {"startTime": time}, "name": 7},
            "status": {"startTime": time, "conditions": [{"lastProbeTime": null, "lastTransitionTime": time}, 1]},
        });
        let mut seen = 0;
        for_each_time(registry().kind("batch/v1", "Job").unwrap(), &mut job, &mut |text| {
            seen += 1;
            *text = format!("{seen}");
        });
        assert_eq!(
            job,
            json!({
                "metadata": {"creationTimestamp": "1", "annotations": {"startTime": time}, "name": 7},
                "status": {"startTime": "2", "conditions": [{"lastProbeTime": null, "lastTransitionTime": "3"}, 1]},
            })
        );
    }
}
