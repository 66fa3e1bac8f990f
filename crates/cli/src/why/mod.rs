//! `tally why`: what a Job, CronJob or pod is waiting for.
//!
//! `collect` reads the object and what surrounds it, `::why` answers; here are flags, output and what to say about a
//! name that does not exist.

mod collect;
mod subject;

use anyhow::{Context as _, anyhow};
use clap::Args;
use tokio::runtime;

use self::collect::Collector;
use self::subject::Subject;
use crate::cluster::{Cluster, ClusterFlags};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::output::{Format, say};

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// What to explain; a name alone is looked for among Jobs, CronJobs and pods, in this order.
    #[arg(value_name = "job/NAME|cronjob/NAME|pod/NAME|NAME")]
    subject: Subject,
    /// How to answer.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) fn run(options: &Why, environment: &Environment) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().context("start the async runtime")?;
    runtime.block_on(explain(options, environment))
}

async fn explain(options: &Why, environment: &Environment) -> Result<(), Failure> {
    let cluster = options.cluster.connect(environment).await?;
    let collector = Collector::new(&cluster);
    for kind in options.subject.kinds() {
        let found = collector.object(*kind, &options.subject.name).await;
        let object = found.map_err(|error| cluster.failure(error, format!("read {}", options.subject)))?;
        if let Some(object) = object {
            let snapshot = collector.surroundings(*kind, object).await;
            return print(&::why::explain(&snapshot), options.output);
        }
    }
    Err(not_found(&options.subject, &cluster, &collector).await)
}

fn print(answer: &::why::Answer, format: Format) -> Result<(), Failure> {
    say(&match format {
        Format::Text => answer.text(),
        Format::Json => serde_json::to_string_pretty(answer).context("write JSON")? + "\n",
    })
}

/// Says what the name may have meant.
async fn not_found(subject: &Subject, cluster: &Cluster, collector: &Collector<'_>) -> Failure {
    let error = anyhow!("there is no {subject} in namespace `{}` on {}", cluster.namespace, cluster.server);
    let elsewhere = collector.namespaces_with(subject).await;
    let names = collector.names(subject).await;
    let similar = ::why::similar(&subject.name, names.iter().map(String::as_str));
    let hint = if let Some(namespace) = elsewhere.first() {
        format!("there is one in namespace `{namespace}`: add `-n {namespace}`")
    } else if let Some(name) = similar.first() {
        let others: Vec<String> = similar.iter().map(|name| format!("`{name}`")).collect();
        match others.len() {
            1 => format!("did you mean `tally why {}{}`?", subject.renamed(name), cluster.data_flag),
            _ => format!("did you mean one of {}?", others.join(", ")),
        }
    } else {
        let (argument, flag) = (subject.history_argument(), &cluster.data_flag);
        format!("if it was deleted, its runs may be on record: `tally history {argument}{flag}`")
    };
    Failure::usage(error).hint(hint)
}
