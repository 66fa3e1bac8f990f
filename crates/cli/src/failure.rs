//! How a command fails: an error for people, what to do about it, and an exit code for scripts.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::anyhow;

use crate::environment::Environment;
use crate::output::tell;

/// Exit codes other than 0. A second signal exits with 128 plus its number (`shutdown`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Could not start, or failed while running; a Job failed.
    Failed = 1,
    /// The command line or a manifest asks for something that does not exist; clap uses the same code.
    Usage = 2,
    /// No tally runs on the data directory. systemctl says the same of services.
    NotRunning = 3,
    /// `wait`: the time ran out; timeout(1) uses the same code.
    TimedOut = 124,
    /// Ended in order after SIGHUP: the terminal was closed.
    HungUp = 129,
    /// Ended in order after Ctrl-C, as a shell would say: 128 and the number of the signal.
    Interrupted = 130,
    /// Nobody reads the output any more.
    BrokenPipe = 141,
    /// Ended in order after SIGTERM.
    Terminated = 143,
}

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
    /// The next thing to try, preferably a command.
    pub(crate) hint: String,
}

/// What to try where nothing better is known.
const HINT_DEFAULT: &str = "the same command with `-vv` tells what leads up to it";

impl Failure {
    pub(crate) fn new(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Failed, error: error.into(), hint: HINT_DEFAULT.to_owned() }
    }

    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(error) }
    }

    /// Ends the command with this code instead.
    #[must_use]
    pub(crate) fn exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// Tells the user, on stderr, and says what to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        tell(self.text().trim_end());
        ExitCode::from(self.exit as u8)
    }

    /// Reports panics like failures: they are bugs, and whoever meets one should not have to read a stack trace.
    /// `RUST_BACKTRACE` brings the trace back.
    pub(crate) fn report_panics(environment: &Environment) {
        if environment.wants_trace {
            return;
        }
        std::panic::set_hook(Box::new(|panic| {
            let message = panic.payload_as_str().unwrap_or("no message");
            let place = panic.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
            let error = anyhow!("this is a bug in tally: {message}{}", place.unwrap_or_default());
            let hint = "`RUST_BACKTRACE=1` in front of the command shows where; please report it with that";
            tell(Self::new(error).hint(hint).text().trim_end());
        }));
    }

    fn text(&self) -> String {
        let mut text = format!("error: {}\n", without_number(&self.error.to_string()));
        for cause in self.error.chain().skip(1) {
            let _ = writeln!(text, "  caused by: {}", without_number(&cause.to_string()));
        }
        let _ = write!(text, "\nhint: {}\n", self.hint);
        text
    }
}

/// `No such file or directory (os error 2)` without the number, which helps nobody.
fn without_number(text: &str) -> &str {
    let number = |tail: &str| tail.strip_suffix(')').is_some_and(|number| number.parse::<u32>().is_ok());
    match text.rsplit_once(" (os error ") {
        Some((before, tail)) if number(tail) => before,
        _ => text,
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(error)
    }
}

/// An error of a client without its own frame: what the server said, or why it could not be asked.
pub(crate) fn plain(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{}", status.message),
        kube::Error::Service(error) => anyhow!(error),
        kube::Error::HyperError(error) => error.into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn numbers_of_the_system_are_left_out() {
        let error = std::io::Error::from_raw_os_error(2);
        assert!(Failure::new(error).text().starts_with("error: No such file or directory\n"));
    }

    #[test]
    fn what_the_server_says_is_not_said_twice() {
        let status = kube::core::Status { message: "jobs \"x\" not found".to_owned(), ..Default::default() };
        let failure = Failure::new(plain(kube::Error::Api(Box::new(status))).context("read job/x"));
        expect![[r#"
            error: read job/x
              caused by: jobs "x" not found

            hint: the same command with `-vv` tells what leads up to it
        "#]]
        .assert_eq(&failure.text());
    }

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
