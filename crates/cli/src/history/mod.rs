//! `tally history`: how containers ended, also when their pods and Jobs are gone.
//!
//! `sink` is how `tally up` fills the history, `flags` how much it keeps, `logs` what `tally logs --from-history` shows;
//! the files themselves are the crate `::history`'s. Reading needs no server.

mod flags;
mod logs;
mod sink;
mod table;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ::history::{Found, Query, Reader};
use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub(crate) use self::flags::HistoryFlags;
pub(crate) use self::logs::{FromHistory, show_logs};
pub(crate) use self::sink::open_sink;
use crate::data_dir;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::output::{say, tell};
use crate::text::counted;

#[derive(Debug, Args)]
pub(crate) struct History {
    /// Only runs of this Job or pod, by name or uid.
    #[arg(value_name = "job/NAME|pod/NAME")]
    subject: Option<Whose>,
    /// Only this namespace [default: all].
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Only this completion index.
    #[arg(long, value_name = "INDEX")]
    index: Option<u32>,
    /// Only runs that did not succeed.
    #[arg(long)]
    failed: bool,
    /// Only runs that ended this long ago at most (`90s`, `2h`, `7d`), or since a time (`2026-11-15T10:00:00Z`).
    #[arg(long, value_name = "AGE|TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// How to show them.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: HistoryFormat,
    /// The data directory of the tally whose history it is [default: tally/ in the user's data directory].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HistoryFormat {
    Text,
    /// With namespace, container, node, kept log and message.
    Wide,
    Json,
}

/// Whose runs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Whose {
    Job(String),
    Pod(String),
}

impl FromStr for Whose {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            _ if text.is_empty() || text.ends_with('/') => Err("a name is missing".to_owned()),
            None => Ok(Self::Job(text.to_owned())),
            Some(("job" | "jobs" | "job.batch" | "jobs.batch", name)) => Ok(Self::Job(name.to_owned())),
            Some(("pod" | "pods" | "po", name)) => Ok(Self::Pod(name.to_owned())),
            Some(_) => Err("the kinds are job and pod".to_owned()),
        }
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(name) => write!(f, "job/{name}"),
            Self::Pod(name) => write!(f, "pod/{name}"),
        }
    }
}

pub(crate) fn run(options: &History, environment: &Environment) -> Result<(), Failure> {
    let data = data_dir::choose(options.data.as_deref(), environment)?;
    let found = find(&directory(&data), &options.query())?;
    if found.is_empty() && options.output != HistoryFormat::Json {
        let on_record = find(&directory(&data), &options.all_of_subject())?.len();
        tell(&options.nothing_found(on_record, &directory(&data)));
        return Ok(());
    }
    let text = match options.output {
        HistoryFormat::Json => serde_json::to_string_pretty(&json_list(&found)).context("write JSON")? + "\n",
        HistoryFormat::Text => table::render(&found, Timestamp::now(), false),
        HistoryFormat::Wide => table::render(&found, Timestamp::now(), true),
    };
    say(&text)
}

impl History {
    fn query(&self) -> Query {
        let (job, pod) = match &self.subject {
            Some(Whose::Job(name)) => (Some(name.clone()), None),
            Some(Whose::Pod(name)) => (None, Some(name.clone())),
            None => (None, None),
        };
        let Self { namespace, index, failed, since, .. } = self;
        Query { namespace: namespace.clone(), job, pod, index: *index, failed: *failed, since: *since, container: None }
    }

    /// The same question without what picks some of the subject's runs.
    fn all_of_subject(&self) -> Query {
        Query { index: None, failed: false, since: None, ..self.query() }
    }

    /// What is said where no runs are found. `on_record` are those of the subject, whatever else was asked for.
    fn nothing_found(&self, on_record: usize, directory: &Path) -> String {
        let whose = self.subject.as_ref().map(|whose| format!(" of {whose}")).unwrap_or_default();
        let place = self.namespace.as_ref().map(|namespace| format!(" in namespace `{namespace}`")).unwrap_or_default();
        let directory = directory.display();
        if on_record == 0 {
            return format!("no runs{whose}{place} are on record in `{directory}`");
        }
        let given = [("--index", self.index.is_some()), ("--failed", self.failed), ("--since", self.since.is_some())];
        let flags: Vec<String> =
            given.iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| format!("`{flag}`")).collect();
        let runs = counted(on_record, "run");
        format!("of {runs}{whose}{place} on record in `{directory}`, none fits {}", flags.join(" and "))
    }
}

/// What to do about files of the history that cannot be read.
const UNREADABLE: &str = "it can be read by the user who ran `tally up`";

/// Where the history of a data directory is.
pub(crate) fn directory(data: &Path) -> PathBuf {
    data.join("history")
}

fn find(directory: &Path, query: &Query) -> Result<Vec<Found>, Failure> {
    Reader::new(directory).find(query).map_err(|error| match error.source.kind() {
        io::ErrorKind::NotFound => Failure::new(anyhow!("there is no history in `{}`", directory.display()))
            .hint("`tally up` keeps one in its data directory; say which with `--data DIR`"),
        _ => Failure::new(error).hint(UNREADABLE),
    })
}

/// The stable form: the records as they are kept, and which attempt each was.
fn json_list(found: &[Found]) -> Value {
    let attempts = table::attempts(found);
    let items: Vec<Value> = found
        .iter()
        .zip(attempts)
        .map(|(found, attempt)| {
            let mut item = serde_json::to_value(&found.record).unwrap_or_default();
            item["attempt"] = attempt.into();
            item
        })
        .collect();
    json!({"kind": "HistoryList", "items": items})
}

fn since(text: &str) -> Result<Timestamp, String> {
    since_at(text, Timestamp::now())
}

fn since_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let wrong = || "say an age as in `90s`, `2h` or `7d`, or a time as in `2026-11-15T10:00:00Z`".to_owned();
    let age = flags::age(text).map_err(|_| wrong())?;
    let age = SignedDuration::try_from(age).map_err(|_| wrong())?;
    now.checked_sub(age).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[test]
    fn whose_runs_are_wanted() {
        assert_eq!("job/pi".parse(), Ok(Whose::Job("pi".to_owned())));
        assert_eq!("pi".parse(), Ok(Whose::Job("pi".to_owned())));
        assert_eq!("po/x".parse(), Ok(Whose::Pod("x".to_owned())));
        for wrong in ["", "job/", "node/n"] {
            assert!(wrong.parse::<Whose>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn runs_that_are_there_are_not_denied() {
        let of = |words: &[&str], on_record: usize| {
            let command = History::augment_args(clap::Command::new("history").no_binary_name(true));
            let history = History::from_arg_matches(&command.get_matches_from(words)).unwrap();
            history.nothing_found(on_record, Path::new("/h"))
        };
        assert_eq!(of(&[], 0), "no runs are on record in `/h`");
        assert_eq!(of(&["job/a", "-n", "b"], 0), "no runs of job/a in namespace `b` are on record in `/h`");
        assert_eq!(of(&["job/a", "--failed"], 0), "no runs of job/a are on record in `/h`");
        assert_eq!(of(&["job/a", "--failed"], 1), "of 1 run of job/a on record in `/h`, none fits `--failed`");
        assert_eq!(
            of(&["--index", "3", "--since", "1h"], 20),
            "of 20 runs on record in `/h`, none fits `--index` and `--since`"
        );
    }

    #[test]
    fn since_is_an_age_or_a_time() {
        assert_eq!(since("2026-11-15T10:00:00Z").unwrap().to_string(), "2026-11-15T10:00:00Z");
        let now = since("2026-11-15T10:00:00Z").unwrap();
        assert_eq!(since_at("90m", now).unwrap().to_string(), "2026-11-15T08:30:00Z");
        assert!(since("yesterday").is_err() && since("99999999999999d").is_err());
    }
}
