//! `tally run -- COMMAND`: the Job around a command.

use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use serde_json::{Value, json};

use super::manifest::{Document, Origin};
use crate::failure::Failure;

/// Images are not used on this machine, and the API requires one.
const IMAGE: &str = "tally.dev/none";

/// Where the Job of a command is written.
pub(super) const COMMAND_LINE: &str = "command line";

const NAME_DEFAULT: &str = "command";

/// Job names become label values, and pods add an ending to them.
const NAME_LENGTH_MAX: usize = 52;

/// How the Job around a command looks.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Job of a command (after `--`)")]
pub(crate) struct CommandFlags {
    /// How often the command has to succeed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    completions: Option<u32>,
    /// How many run at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    parallelism: Option<u32>,
    /// How often a command that fails is tried again: each index on its own with `--indexed`, else all together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    retries: Option<u32>,
    /// Number the completions: each gets its own `$JOB_COMPLETION_INDEX`.
    #[arg(long)]
    indexed: bool,
    /// The Job's name [default: the command's].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl CommandFlags {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { completions, parallelism, retries, indexed, name } = self;
        !indexed && completions.is_none() && parallelism.is_none() && retries.is_none() && name.is_none()
    }

    /// The Job, to be run in `directory`.
    pub(crate) fn job(&self, command: &[String], directory: &Path) -> Result<Document, Failure> {
        let directory = directory.to_str().ok_or_else(|| {
            Failure::usage(anyhow!("the working directory `{}` is not UTF-8", directory.display()))
                .hint("run this from another directory")
        })?;
        let completions = self.completions.unwrap_or(1);
        let retries = self.retries.unwrap_or(0);
        let mut spec = json!({
            "completions": completions,
            "parallelism": self.parallelism.unwrap_or(1),
            "completionMode": if self.indexed { "Indexed" } else { "NonIndexed" },
        });
        // One index that fails shall not keep the others from being tried.
        spec[if self.indexed { "backoffLimitPerIndex" } else { "backoffLimit" }] = json!(retries);
        spec["template"] = template(command, directory);
        let name = self.name.clone().unwrap_or_else(|| name_of(command));
        let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
        Ok(Document { origin: Origin { file: COMMAND_LINE.to_owned(), number: 1 }, object })
    }
}

fn template(command: &[String], directory: &str) -> Value {
    let command: Vec<String> = command.iter().map(|word| literal(word)).collect();
    let container = json!({"name": "main", "image": IMAGE, "command": command, "workingDir": directory});
    json!({"spec": {"restartPolicy": "Never", "containers": [container]}})
}

/// In a manifest `$(NAME)` is a reference and `$$` stands for `$`; on a command line both are text.
fn literal(word: &str) -> String {
    if word.contains("$(") || word.contains("$$") { word.replace('$', "$$") } else { word.to_owned() }
}

/// The program's name as far as a Job can have it.
fn name_of(command: &[String]) -> String {
    let program = command.first().map(String::as_str).unwrap_or_default();
    let file = program.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let plain = |char: char| if char.is_ascii_alphanumeric() { char } else { '-' };
    let mut name: String = file.chars().map(plain).collect();
    name.truncate(NAME_LENGTH_MAX);
    let name = name.trim_matches('-');
    if name.is_empty() { NAME_DEFAULT.to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn one_run_without_retries_unless_told() {
        let job = CommandFlags::default().job(&words("echo $(x) y"), Path::new("/tmp")).unwrap().object;
        assert_eq!(
            job["spec"],
            json!({
                "completions": 1, "parallelism": 1, "completionMode": "NonIndexed", "backoffLimit": 0,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{
                    "name": "main", "image": "tally.dev/none", "command": ["echo", "$$(x)", "y"], "workingDir": "/tmp"}]}},
            })
        );
    }

    #[test]
    fn words_reach_the_command_as_they_were_typed() {
        for (word, written) in [("$HOME", "$HOME"), ("$(x)", "$$(x)"), ("$$", "$$$$"), ("$$(x)$y", "$$$$(x)$$y")] {
            assert_eq!(literal(word), written);
        }
    }

    #[test]
    fn an_index_is_tried_again_on_its_own() {
        let flags = CommandFlags {
            completions: Some(3),
            retries: Some(2),
            indexed: true,
            name: Some("mine".to_owned()),
            ..CommandFlags::default()
        };
        assert!(!flags.is_empty());
        let job = flags.job(&words("true"), Path::new("/")).unwrap().object;
        assert_eq!(job["metadata"]["name"], "mine");
        assert_eq!(job["spec"]["backoffLimitPerIndex"], 2);
        assert_eq!(job["spec"].get("backoffLimit"), None);
    }

    #[test]
    fn the_name_comes_from_the_command() {
        for (program, name) in
            [("/usr/bin/python3.12", "python3-12"), ("./Run_Me.sh", "run-me-sh"), ("//", "command"), ("[", "command")]
        {
            assert_eq!(name_of(&[program.to_owned()]), name);
            assert!(batch_types::names::is_dns_label(name));
        }
        assert_eq!(name_of(&["x".repeat(100)]).len(), NAME_LENGTH_MAX);
    }
}
