//! The recorded answers of real Kubernetes, replayed by the kit that lies beside the checkout.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::counts::Counts;
use crate::expectations::{Results, complaints, listed};
use crate::project::{self, Profile};
use crate::stage::Outcome;

pub(crate) fn run() -> Result<bool> {
    project::build(Profile::Debug)?;
    let outcome = against_server()?;
    if let Outcome::Skipped(why) = &outcome {
        println!("skipped: {why}");
    }
    Ok(!matches!(outcome, Outcome::Failed(_)))
}

/// Runs chosen cases and prints their differences.
pub(crate) fn show(only: &[String]) -> Result<bool> {
    project::build(Profile::Debug)?;
    let scratch = tempfile::tempdir().context("make a folder for the kubeconfig")?;
    let mut command = kit_command(&scratch.path().join("kubeconfig"));
    for glob in only {
        command.args(["--only", glob]);
    }
    Ok(command.status().context("run the kit")?.success())
}

/// Runs the whole kit and compares with what is expected; the stage of `cargo xtask test`.
pub(crate) fn against_server() -> Result<Outcome> {
    if !kit().exists() {
        return Ok(Outcome::Skipped("there is no conformance kit beside the checkout".to_owned()));
    }
    let scratch = tempfile::tempdir().context("make a folder for the results")?;
    let (summary, report) = (scratch.path().join("summary.json"), project::target().join("conformance.txt"));
    let status = kit_command(&scratch.path().join("kubeconfig"))
        .arg("--json")
        .stdout(File::create(&summary).context("make a file for the summary")?)
        .stderr(File::create(&report).context("make a file for the differences")?)
        .status()
        .context("run the kit")?;
    let differences = fs::read_to_string(&report).context("read the differences")?;
    // The kit exits with 1 when cases fail, which is a matter of expectations; anything else is trouble.
    let Some(results) = fs::read(&summary).ok().and_then(|json| parse(&json)) else {
        println!("{differences}");
        anyhow::bail!("the kit ended with {status} and without a summary");
    };
    judge(&results, &differences)
}

fn judge(results: &Results, differences: &str) -> Result<Outcome> {
    let document = fs::read_to_string(project::root().join("docs/compatibility.md")).context("read the list")?;
    let mut wrong = complaints(results, &listed(&document));
    if differences.contains("the server panicked") {
        wrong.push("the server panicked".to_owned());
    }
    let broken = unexpected_500s(differences);
    wrong.extend(broken.iter().map(|case| format!("`{case}` answers 500, and Kubernetes does not")));
    for (area, (passed, failed)) in &results.areas {
        println!("{area:<12} {passed:>4} passed {failed:>4} failed");
    }
    println!("differences are in `{}`", project::target().join("conformance.txt").display());
    for complaint in &wrong {
        println!("error: {complaint}");
    }
    let sum = |pick: fn(&(u64, u64)) -> u64| results.areas.values().map(pick).sum();
    let counts = Counts { passed: sum(|counts| counts.0), failed: sum(|counts| counts.1) };
    Ok(if wrong.is_empty() { Outcome::Passed(counts) } else { Outcome::Failed(counts) })
}

fn kit() -> PathBuf {
    project::root().join("../shared/conformance/run")
}

fn kit_command(kubeconfig: &std::path::Path) -> Command {
    let mut command = project::with_tally(Profile::Debug, kubeconfig);
    command.arg("python3").arg(kit()).args(["api", "--kubeconfig"]).arg(kubeconfig);
    command
}

fn parse(json: &[u8]) -> Option<Results> {
    let summary: Value = serde_json::from_slice(json).ok()?;
    let mut results = Results::default();
    for (area, counts) in summary.get("areas")?.as_object()? {
        results.areas.insert(area.clone(), (counts.get("passed")?.as_u64()?, counts.get("failed")?.as_u64()?));
    }
    for failure in summary.get("failures")?.as_array()? {
        results.failures.insert(failure.as_str()?.to_owned());
    }
    Some(results)
}

/// Cases whose differences show a 500 that was answered and not expected.
fn unexpected_500s(differences: &str) -> Vec<&str> {
    let (mut case, mut found) = ("", Vec::new());
    for line in differences.lines() {
        if let Some(name) = line.strip_prefix("FAIL ") {
            case = name;
        }
        let answered = line.trim_start().strip_prefix('+').map(str::trim).unwrap_or_default();
        if answered.trim_end_matches(',') == r#""status": 500"# && found.last() != Some(&case) {
            found.push(case);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_the_kit_is_read() {
        let json = br#"{"suite": "api", "passed": 3, "failed": 1,
            "areas": {"verbs": {"passed": 3, "failed": 1}}, "failures": ["verbs/x"]}"#;
        let results = parse(json).unwrap();
        assert_eq!(results.areas["verbs"], (3, 1));
        assert!(results.failures.contains("verbs/x"));
        assert!(parse(b"Traceback").is_none());
    }

    #[test]
    fn answered_500s_are_told_from_expected_ones() {
        let differences = "FAIL verbs/a\n    -  \"status\": 500,\n    +  \"status\": 400,\nFAIL verbs/b\n    +  \"status\": 500,\n    +  \"status\": 500";
        assert_eq!(unexpected_500s(differences), ["verbs/b"]);
    }
}
