//! What a node tells of its pods (INV-48).

use std::collections::BTreeMap;

use super::{
    Judge,
    history::{Change, Step},
    views::Pod,
};

impl Judge<'_> {
    /// INV-48: phases move forward only, and what is told of the end is told once.
    pub(super) fn pod_reported(&mut self, change: &Change, step: &Step<Pod>) {
        let (Some(before), Some(after)) = (&step.before, &step.after) else { return };
        if change.by != "node" {
            return;
        }
        let name = format!("pod {}", after.metadata.name);
        let (was, is) = (&before.status.phase, &after.status.phase);
        let changed_end = before.ended().is_some() && was != is;
        if rank(is) < rank(was) || changed_end {
            self.broken("INV-48", change.revision, &name, format!("its phase went from {was} to {is}"));
        }
        if before.ended().is_some() {
            let now = exit_codes(after);
            let then = exit_codes(before);
            if then.iter().any(|(container, code)| now.get(container) != Some(code)) {
                self.broken("INV-48", change.revision, name, format!("its exit codes went from {then:?} to {now:?}"));
            }
        }
    }
}

fn rank(phase: &str) -> u8 {
    match phase {
        "Succeeded" | "Failed" => 2,
        "Running" => 1,
        _ => 0,
    }
}

/// By container.
fn exit_codes(pod: &Pod) -> BTreeMap<&str, i32> {
    let containers = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let ended = |one: &super::views::Container| one.state.terminated.as_ref().map(|end| end.exit_code);
    containers.filter_map(|one| Some((&*one.name, ended(one)?))).collect()
}
