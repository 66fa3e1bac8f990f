//! Every environment variable that tally reads, and nothing else reads any.

use std::env;
use std::path::PathBuf;

/// What the environment says, read once at start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// `XDG_DATA_HOME`: where programs keep a user's data. Relative values are ignored, as its specification asks.
    data_home: Option<PathBuf>,
    /// `HOME`.
    home: Option<PathBuf>,
    /// `RUST_LOG`: a tracing filter, in place of `-v`.
    pub(crate) log_filter: Option<String>,
    /// `NO_COLOR`: set and not empty means no colours (no-color.org).
    pub(crate) no_color: bool,
}

impl Environment {
    pub(crate) fn read() -> Self {
        Self {
            data_home: directory("XDG_DATA_HOME"),
            home: directory("HOME"),
            log_filter: env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty()),
            no_color: env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
        }
    }

    /// Where tally keeps its data unless told otherwise.
    pub(crate) fn data_dir(&self) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".local/share"));
        Some(self.data_home.clone().or_else(home)?.join("tally"))
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
}
