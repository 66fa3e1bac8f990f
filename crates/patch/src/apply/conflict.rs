//! What a conflict between managers says (AS-138).

use crate::error::Cause;

/// A field that another manager owns and that the applied configuration would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager as errors show it: `"alpha"`, `"poster" using v1`, `"x" with subresource "status" using batch/v1`.
    pub manager: String,
    /// `.spec.template.spec.containers[name="c"].image` (AS-141).
    pub field: String,
}

impl Conflict {
    pub(crate) fn cause(&self) -> Cause {
        Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict with {}", self.manager),
            field: self.field.clone(),
        }
    }
}

/// The message of all conflicts; those with one manager stand together.
pub(crate) fn message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
    }
    let lines: Vec<String> = conflicts
        .chunk_by(|one, next| one.manager == next.manager)
        .flat_map(|group| {
            let heading = format!("conflicts with {}:", group[0].manager);
            std::iter::once(heading).chain(group.iter().map(|conflict| format!("- {}", conflict.field)))
        })
        .collect();
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_grouped_by_manager() {
        let conflict = |manager: &str, field: &str| Conflict { manager: manager.into(), field: field.into() };
        let one = conflict(r#""m1""#, ".data.a");
        assert_eq!(message(std::slice::from_ref(&one)), r#"Apply failed with 1 conflict: conflict with "m1": .data.a"#);
        let all = [one, conflict(r#""m1""#, ".data.b"), conflict(r#""upd" using v1"#, ".data.c")];
        assert_eq!(
            message(&all),
            "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .data.a\n- .data.b\nconflicts with \"upd\" using v1:\n- .data.c"
        );
    }
}
