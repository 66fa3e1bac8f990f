//! Real bugs of the past, told as stories that must end well (REG-…).
//!
//! Those that are one row of a table are in `vectors`, those of the ledger beside its code.
//! Each has a counterpart in `teeth`, which brings the old bug back to show that the test can fail.

mod backoff;
mod population;
mod tracking;
mod verdicts;

use serde_json::Value;

use super::shell::Controller;
use super::world::World;

fn started(spec: Value) -> (World, Controller) {
    let mut world = World::new(spec);
    let mut controller = Controller::start(&world);
    controller.settle(&mut world);
    (world, controller)
}

fn finish_all(world: &mut World, exit_code: i32) {
    for name in world.active() {
        world.finish(&name, exit_code);
    }
}

/// Says which conditions a Job has, in order, with `=STATUS` unless it is True.
fn conditions(status: &k8s_openapi::api::batch::v1::JobStatus) -> Vec<String> {
    let all = status.conditions.iter().flatten();
    all.map(|item| match item.status.as_str() {
        "True" => item.type_.clone(),
        other => format!("{}={other}", item.type_),
    })
    .collect()
}
