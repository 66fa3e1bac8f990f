//! How a command fails: an error for people, what to do about it, and an exit code for scripts.

use std::fmt::Write as _;
use std::process::ExitCode;

/// Exit codes other than 0. A second signal exits with 128 plus its number (`shutdown`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Could not start, or failed while running.
    Failed = 1,
    /// The command line asks for something that does not exist; clap uses the same code.
    Usage = 2,
}

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
    /// The next thing to try, preferably a command.
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Failed, error: error.into(), hint: None }
    }

    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(error) }
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Tells the user, on stderr, and says what to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        eprint!("{}", self.text());
        ExitCode::from(self.exit as u8)
    }

    fn text(&self) -> String {
        let mut text = format!("error: {}\n", self.error);
        for cause in self.error.chain().skip(1) {
            let _ = writeln!(text, "  caused by: {cause}");
        }
        if let Some(hint) = &self.hint {
            let _ = write!(text, "\nhint: {hint}\n");
        }
        text
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(error)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_failure_reads_error_causes_blank_line_hint() {
        let failure = Failure::new(anyhow!("permission denied").context("open `x`")).hint("try `y`");
        expect![[r"
            error: open `x`
              caused by: permission denied

            hint: try `y`
        "]]
        .assert_eq(&failure.text());
        assert_eq!(Failure::usage(anyhow!("no")).exit as u8, 2);
    }
}
