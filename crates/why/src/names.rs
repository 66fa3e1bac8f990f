//! What a name that does not exist may have meant.

/// At most this many suggestions; more are no help.
const SUGGESTIONS_MAX: usize = 3;

/// The candidates that look most like the name, best first.
pub fn similar<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let tolerance = (name.chars().count() / 3).clamp(1, 4);
    let mut found: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter(|candidate| *candidate != name)
        .filter_map(|candidate| Some((distance(name, candidate, tolerance)?, candidate)))
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(SUGGESTIONS_MAX).map(|(_, candidate)| candidate).collect()
}

/// How far two names are apart; `None` if they are not alike.
fn distance(name: &str, candidate: &str, tolerance: usize) -> Option<usize> {
    // One is the beginning of the other: a forgotten or an extra suffix.
    let is_prefix = name.len() >= 3 && (candidate.starts_with(name) || name.starts_with(candidate));
    let edits = edits(name, candidate);
    if edits <= tolerance {
        Some(edits)
    } else if is_prefix && !candidate.is_empty() {
        Some(tolerance + 1)
    } else {
        None
    }
}

/// Levenshtein's distance. Names are at most 253 characters, texts beyond that are not compared.
fn edits(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().take(253).collect(), right.chars().take(253).collect());
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, from) in left.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], above + 1);
        for (column, to) in right.iter().enumerate() {
            let best = (diagonal + usize::from(from != to)).min(row[column] + 1).min(row[column + 1] + 1);
            diagonal = std::mem::replace(&mut row[column + 1], best);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_and_forgotten_suffixes_are_found() {
        let names = ["render-frames", "render-frames-2", "pi", "backup-29384756", "other"];
        assert_eq!(similar("render-frame", names), ["render-frames", "render-frames-2"]);
        assert_eq!(similar("backup", names), ["backup-29384756"]);
        assert_eq!(similar("po", names), ["pi"]);
        assert!(similar("something", names).is_empty());
    }
}
