//! The phase of a pod from the states of its containers (PL-5 to PL-7).

use super::container::{Container, Kind, State};
use crate::pod::Phase;

/// `stopped`: nothing more will be started, whatever the restart policy says.
pub(crate) fn phase_of(containers: &[Container], stopped: bool) -> Phase {
    let plain_init = || of_kind(containers, Kind::Init);
    let regular = || of_kind(containers, Kind::Regular);
    let lasting = || containers.iter().filter(|container| container.kind != Kind::Init);

    if plain_init().any(failed_for_good) {
        return Phase::Failed;
    }
    if plain_init().any(|init| init.is_running() || init.never_ran() || init.is_of_past) && !stopped {
        return Phase::Pending;
    }
    let regular_exists = regular().any(Container::has_run_here);
    let sidecar_not_started =
        |container: &Container| container.kind == Kind::Sidecar && container.is_running() && !container.is_started();
    if !regular_exists && containers.iter().any(sidecar_not_started) {
        return Phase::Pending;
    }
    if lasting().any(Container::never_ran) {
        return Phase::Pending;
    }
    if lasting().any(Container::is_running) {
        return Phase::Running;
    }
    if stopped {
        let all_zero = regular().all(|container| matches!(&container.state, State::Terminated(exit) if exit.code == 0));
        return if all_zero { Phase::Succeeded } else { Phase::Failed };
    }
    if regular().any(|container| container.restartable) {
        return Phase::Running;
    }
    if regular().all(|container| container.newest_exit().is_some_and(|exit| exit.code == 0)) {
        return Phase::Succeeded;
    }
    Phase::Failed
}

/// Ended with an error and nothing starts it again.
pub(crate) fn failed_for_good(container: &Container) -> bool {
    !container.restartable && container.newest_exit().is_some_and(|exit| exit.code != 0)
}

pub(crate) fn of_kind(containers: &[Container], kind: Kind) -> impl Iterator<Item = &Container> {
    containers.iter().filter(move |container| container.kind == kind)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::container::Exit;
    use super::*;

    /// One word per container: `kind:state`, for example `init:0`, `side:run`, `main:1r` (restartable), `main:wait`.
    fn containers(text: &str) -> Vec<Container> {
        text.split_whitespace()
            .map(|word| {
                let (kind, state) = word.split_once(':').unwrap();
                let kind = match kind {
                    "init" => Kind::Init,
                    "side" => Kind::Sidecar,
                    _ => Kind::Regular,
                };
                let mut container = Container::new(kind, "ContainerCreating");
                let exit = |code: &str| Exit::with_code(code.parse().unwrap(), None, Timestamp::UNIX_EPOCH);
                match state {
                    "wait" => {}
                    "run" => container.set_running(0, Timestamp::UNIX_EPOCH),
                    "hook" => {
                        container.set_running(0, Timestamp::UNIX_EPOCH);
                        container.post_start_pending = true;
                    }
                    state => {
                        container.restartable = state.ends_with('r') || state.ends_with('b');
                        container.set_terminated(exit(state.trim_end_matches(['r', 'b'])));
                        if state.ends_with('b') {
                            container.set_waiting("CrashLoopBackOff", None);
                        }
                    }
                }
                container
            })
            .collect()
    }

    #[test]
    fn phases_follow_from_states() {
        use Phase::{Failed, Pending, Running, Succeeded};
        for (text, stopped, phase) in [
            ("main:wait", false, Pending),
            ("main:run", false, Running),
            ("main:run main:wait", false, Pending),
            ("main:0", false, Succeeded),
            ("main:3", false, Failed),
            ("main:0 main:3", false, Failed),
            ("main:0 main:run", false, Running),
            ("main:1 main:run", false, Running),
            ("main:0r", false, Running),
            ("main:1b", false, Running),
            ("main:1b main:0", false, Running),
            ("init:1 main:wait", false, Failed),
            ("init:1b main:wait", false, Pending),
            ("init:run main:wait", false, Pending),
            ("init:0 main:wait", false, Pending),
            ("init:0 main:run", false, Running),
            ("init:wait main:wait", false, Pending),
            ("side:hook main:wait", false, Pending),
            ("side:run main:wait", false, Pending),
            ("side:run main:run", false, Running),
            ("side:1b main:run", false, Running),
            ("side:run main:0", false, Running),
            ("side:143 main:0", true, Succeeded),
            ("side:0 main:1", true, Failed),
            ("main:0r", true, Succeeded),
            ("main:1b", true, Failed),
            ("main:137", true, Failed),
        ] {
            assert_eq!(phase_of(&containers(text), stopped), phase, "{text} stopped={stopped}");
        }
    }
}
