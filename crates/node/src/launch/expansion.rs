//! `$(NAME)` in commands, arguments, values and paths (PL-109).

/// Replaces `$(NAME)` by what `lookup` knows; unknown names stay as they are, and `$$` is a dollar sign.
pub(crate) fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find('$') {
        result.push_str(&rest[..position]);
        rest = &rest[position + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => result.push_str(value),
                None => {
                    result.push_str("$(");
                    result.push_str(name);
                    result.push(')');
                }
            }
            rest = after;
        } else {
            // Not a reference: the dollar and what follows it are text.
            result.push('$');
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_are_replaced_and_everything_else_is_left() {
        let lookup = |name: &str| match name {
            "A" => Some("1"),
            "B" => Some("$(A)"),
            "" => Some("empty"),
            _ => None,
        };
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)2", "12"),
            ("$(D)", "$(D)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(B)", "$(A)"),
            ("$A ${A} $", "$A ${A} $"),
            ("$(A", "$(A"),
            ("$()", "empty"),
            ("$($(A))", "$($(A))"),
            ("é$(A)é", "é1é"),
        ] {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_without_references_does_not_change(text in "[^$]*") {
            prop_assert_eq!(expand(&text, |_| Some("x")), text);
        }

        #[test]
        fn any_text_can_be_expanded(text in ".*") {
            expand(&text, |_| Some("x"));
        }
    }
}
