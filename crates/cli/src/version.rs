//! `tally version`.

use crate::arguments::Version;
use crate::failure::Failure;
use crate::output::Format;
use crate::server::KUBERNETES_VERSION;

/// The version of this program.
pub(crate) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(options: &Version) -> Result<(), Failure> {
    match options.output {
        Format::Text => println!("tally {VERSION}\nKubernetes {KUBERNETES_VERSION}"),
        Format::Json => {
            println!("{}", serde_json::json!({ "version": VERSION, "kubernetesVersion": KUBERNETES_VERSION }));
        }
    }
    Ok(())
}
