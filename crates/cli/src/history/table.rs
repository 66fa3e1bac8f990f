//! Records as a table, in kubectl's manner.

use std::collections::HashMap;
use std::time::Duration;

use ::history::{Found, Record};
use jiff::Timestamp;

use crate::text::duration_text;

/// Messages are cut in a table; `-o json` has them whole.
const MESSAGE_MAX: usize = 120;

/// The records, oldest first, one line each.
pub(super) fn render(found: &[Found], now: Timestamp, is_wide: bool) -> String {
    let several = found.windows(2).any(|pair| pair[0].record.namespace != pair[1].record.namespace);
    let mut columns: Vec<&str> = vec!["ENDED", "JOB", "INDEX", "ATTEMPT", "EXIT", "REASON", "DURATION", "POD"];
    if several || is_wide {
        columns.insert(1, "NAMESPACE");
    }
    if is_wide {
        columns.extend(["CONTAINER", "NODE", "LOG", "MESSAGE"]);
    }
    let mut rows: Vec<Vec<String>> = vec![columns.iter().map(|column| (*column).to_owned()).collect()];
    for (found, attempt) in found.iter().zip(attempts(found)) {
        rows.push(columns.iter().map(|column| cell(column, &found.record, attempt, now)).collect());
    }
    align(&rows)
}

/// Which attempt each run was: of its index, else of its container.
///
/// Indexes are tried again by new pods, so their runs are counted in the order of their ends, among those that are on
/// record. Pods without an index have nothing in common but their Job, and only restarts are counted.
pub(super) fn attempts(found: &[Found]) -> Vec<u32> {
    let mut counts: HashMap<(&str, u32, Option<&str>), u32> = HashMap::new();
    let mut numbers = Vec::with_capacity(found.len());
    for Found { record, .. } in found {
        numbers.push(match (&record.job_uid, record.index) {
            (Some(job), Some(index)) => {
                let count = counts.entry((job, index, record.container.as_deref())).or_default();
                *count += 1;
                *count
            }
            _ => record.restart_count.saturating_add(1),
        });
    }
    numbers
}

fn cell(column: &str, record: &Record, attempt: u32, now: Timestamp) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "<none>".to_owned());
    match column {
        "ENDED" => format!("{} ago", duration_text(between(record.ended_at(), now))),
        "NAMESPACE" => record.namespace.clone(),
        "JOB" => or_none(record.job_name.clone()),
        "INDEX" => or_none(record.index.map(|index| index.to_string())),
        "ATTEMPT" => attempt.to_string(),
        "EXIT" => or_none(record.exit_code.map(|code| code.to_string())),
        "REASON" => reason(record),
        "DURATION" => {
            or_none(record.started_at.zip(record.finished_at).map(|(start, end)| duration_text(between(start, end))))
        }
        "POD" => record.pod_name.clone(),
        "CONTAINER" => or_none(record.container.clone()),
        "NODE" => record.node.clone(),
        "LOG" => format!("{}{}", record.log_bytes, if record.log_truncated { "+" } else { "" }),
        "MESSAGE" => or_none(record.message.as_deref().map(message)),
        _ => String::new(),
    }
}

/// `Error`, `Error (SIGTERM, Deleted)`.
fn reason(record: &Record) -> String {
    let signal = record.signal.map(|signal| match signal {
        2 => "SIGINT".to_owned(),
        6 => "SIGABRT".to_owned(),
        9 => "SIGKILL".to_owned(),
        11 => "SIGSEGV".to_owned(),
        15 => "SIGTERM".to_owned(),
        other => format!("signal {other}"),
    });
    // A container that could not be started fails its pod for the same reason, which is said once.
    let of_pod = record.pod_reason.clone().filter(|reason| *reason != record.reason);
    let more: Vec<String> = signal.into_iter().chain(of_pod).collect();
    match more.is_empty() {
        true => record.reason.clone(),
        false => format!("{} ({})", record.reason, more.join(", ")),
    }
}

/// One line without control characters, which could play tricks on a terminal.
fn message(text: &str) -> String {
    let plain: String = text.trim().chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    match plain.len() > MESSAGE_MAX {
        true => format!("{}…", &plain[..plain.floor_char_boundary(MESSAGE_MAX)]),
        false => plain,
    }
}

fn between(start: Timestamp, end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(start)).unwrap_or_default()
}

fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}   "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once() {
        let of = |own: &str, signal: Option<i32>, pod: Option<&str>| {
            let pod_reason = pod.map(str::to_owned);
            reason(&Record { reason: own.to_owned(), signal, pod_reason, ..Record::default() })
        };
        assert_eq!(of("Error", None, None), "Error");
        assert_eq!(of("Error", Some(15), Some("Deleted")), "Error (SIGTERM, Deleted)");
        assert_eq!(of("CommandRequired", None, Some("CommandRequired")), "CommandRequired");
    }
}
