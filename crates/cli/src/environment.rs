//! Every environment variable that tally reads, and nothing else reads any.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// What the environment says, read once at start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// `XDG_DATA_HOME`: where programs keep a user's data. Relative values are ignored, as its specification asks.
    pub(crate) data_home: Option<PathBuf>,
    /// `HOME`.
    pub(crate) home: Option<PathBuf>,
    /// `KUBECONFIG`: files that kubectl reads, separated by colons.
    pub(crate) kubeconfig: Vec<PathBuf>,
    /// `RUST_LOG`: a tracing filter, in place of `-v`.
    pub(crate) log_filter: Option<String>,
    /// `NO_COLOR`: set and not empty means no colours (no-color.org). Neither has a dumb terminal any.
    pub(crate) no_color: bool,
    /// `TERM` is `dumb`: a terminal that only knows lines.
    pub(crate) is_dumb: bool,
    /// `RUST_BACKTRACE`: whether a bug of tally's own is reported with a stack trace.
    pub(crate) wants_trace: bool,
}

/// What the processes of pods have without asking: where programs are, whose they are and how they speak. A container
/// image would bring the like; everything else of this process' environment may be a secret.
const FOR_PODS: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ"];

impl Environment {
    pub(crate) fn read() -> Self {
        let paths = env::var_os("KUBECONFIG").unwrap_or_default();
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            data_home: directory("XDG_DATA_HOME"),
            home: directory("HOME"),
            kubeconfig: env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect(),
            log_filter: env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty()),
            no_color: is_dumb || env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
            is_dumb,
            wants_trace: env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0"),
        }
    }

    /// Where tally keeps its data unless told otherwise.
    pub(crate) fn data_dir(&self) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".local/share"));
        Some(self.data_home.clone().or_else(home)?.join("tally"))
    }

    /// The variables that the processes of every pod start with.
    pub(crate) fn for_pods() -> Vec<(String, String)> {
        let known = |(name, _): &(String, String)| FOR_PODS.contains(&name.as_str());
        Self::everything().into_iter().filter(known).collect()
    }

    /// All variables of this process that are text.
    pub(crate) fn everything() -> Vec<(String, String)> {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        env::vars_os().filter_map(text).collect()
    }
}

fn directory(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_lives_under_the_users_data_directory() {
        let home = Some(PathBuf::from("/home/ada"));
        let only_home = Environment { home: home.clone(), ..Environment::default() };
        assert_eq!(only_home.data_dir(), Some("/home/ada/.local/share/tally".into()));
        let both = Environment { home, data_home: Some("/data".into()), ..Environment::default() };
        assert_eq!(both.data_dir(), Some("/data/tally".into()));
        assert_eq!(Environment::default().data_dir(), None);
    }

    #[test]
    fn pods_learn_where_programs_are_and_little_else() {
        let variables = Environment::for_pods();
        assert!(variables.iter().any(|(name, _)| name == "PATH"));
        assert!(!variables.iter().any(|(name, _)| name.starts_with("CARGO")), "cargo sets many for tests");
    }
}
