//! The nursery as a program: what the hidden subcommand of `tally` does.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(root) = std::env::args_os().next_back() else { return ExitCode::FAILURE };
    match node::nursery::run(root.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
