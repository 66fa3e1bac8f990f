//! `Warning` headers (AS-156): each text once, all of them together bounded.
//!
//! Up to a total length texts are sent as they are. The first one beyond it makes all of them, itself included, start
//! over cut short, and ends the list if they still are too long together (upstream's `filters.WithWarningRecorder`).

use std::collections::HashSet;

use http::{HeaderMap, HeaderValue, header};

/// How long all texts may be together before they are cut, in characters.
const TOTAL_CHARS_MAX: usize = 4 * 1024;
/// What is left of a text that is cut.
const CUT_CHARS_MAX: usize = 256;

pub fn add(headers: &mut HeaderMap, warnings: &[String]) {
    for text in sent(warnings) {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            headers.append(header::WARNING, value);
        }
    }
}

/// The texts that are sent.
fn sent(warnings: &[String]) -> Vec<&str> {
    let mut known: Vec<&str> = Vec::new();
    // Beside the list: of texts that are left out there may be any number.
    let mut seen: HashSet<&str> = HashSet::new();
    let mut sent: Vec<&str> = Vec::new();
    let mut length = 0;
    let mut cuts = false;
    for text in warnings.iter().map(String::as_str) {
        if (cuts && length >= TOTAL_CHARS_MAX) || text.is_empty() || !seen.insert(text) {
            continue;
        }
        known.push(text);
        // A header cannot hold such a text, and upstream leaves it out rather than change it.
        if text.contains(char::is_control) {
            continue;
        }
        let shown = if cuts { cut(text) } else { text };
        let chars = shown.chars().count();
        if !cuts && length + chars > TOTAL_CHARS_MAX {
            cuts = true;
            sent = known.iter().copied().filter(|text| !text.contains(char::is_control)).map(cut).collect();
            length = sent.iter().map(|text| text.chars().count()).sum();
            continue;
        }
        length += chars;
        sent.push(shown);
    }
    sent
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(CUT_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(warnings: &[String]) -> Vec<usize> {
        sent(warnings).iter().map(|text| text.chars().count()).collect()
    }

    fn texts(count: usize, length: usize) -> Vec<String> {
        (0..count).map(|at| format!("{at:0>length$}")).collect()
    }

    #[test]
    fn texts_are_sent_once_and_whole_while_they_fit_together() {
        let warnings = ["a".to_owned(), "b".to_owned(), "a".to_owned(), String::new(), "two\nlines".to_owned()];
        assert_eq!(sent(&warnings), ["a", "b"]);
        assert_eq!(lengths(&texts(4, 1024)), [1024; 4]);
    }

    #[test]
    fn beyond_the_bound_all_are_cut_and_the_list_ends() {
        assert_eq!(lengths(&texts(1, 5000)), [256]);
        assert_eq!(lengths(&texts(5, 1024)), [256; 5]);
        assert_eq!(lengths(&texts(60, 300)), [256; 16]);
        // Forty of these fit whole, the next does not, and cutting does not make any of them shorter.
        assert_eq!(lengths(&texts(60, 100)), [100; 41]);
        assert_eq!(sent(&["ä".repeat(5000)]), ["ä".repeat(256)]);
    }

    #[test]
    fn quotes_and_backslashes_are_escaped() {
        let mut headers = HeaderMap::new();
        add(&mut headers, &[r#"unknown field "a\b" ä"#.to_owned()]);
        assert_eq!(headers[header::WARNING].as_bytes(), r#"299 - "unknown field \"a\\b\" ä""#.as_bytes());
    }
}
