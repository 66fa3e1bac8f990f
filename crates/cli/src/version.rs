//! `tally version`.

use crate::arguments::Version;
use crate::failure::Failure;
use crate::output::{Format, say};
use crate::server::KUBERNETES_VERSION;

/// The version of this program.
pub(crate) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(options: &Version) -> Result<(), Failure> {
    say(&match options.output {
        Format::Text => format!("tally {VERSION}\nKubernetes {KUBERNETES_VERSION}\n"),
        Format::Json => {
            let versions = serde_json::json!({ "version": VERSION, "kubernetesVersion": KUBERNETES_VERSION });
            format!("{versions}\n")
        }
    })
}
