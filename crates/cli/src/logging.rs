//! Logs, on stderr. Only warnings unless asked: the ready line and errors are not logs.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::environment::Environment;

/// Starts logging at the level `-v` asks for; a filter in the environment takes its place.
pub(crate) fn start(verbose: u8, environment: &Environment) {
    let filter = match &environment.log_filter {
        Some(filter) => EnvFilter::new(filter),
        None => EnvFilter::new(level(verbose)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // Telling of it would go the same way.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal() && !environment.no_color)
        .init();
}

fn level(verbose: u8) -> &'static str {
    match verbose {
        // The client logs what it also returns, and the command says it better; and what the kubeconfig asks for.
        0 => "warn,kube_client::client::builder=off,kube_client::client::tls=off",
        1 => "info",
        2 => "debug",
        _ => "trace",
    }
}
