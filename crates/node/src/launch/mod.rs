//! From a container's spec to the process to start: command, environment, volumes, limits.

pub(crate) mod admission;
pub(crate) mod downward;
pub(crate) mod environment;
mod expansion;
pub(crate) mod fit;
pub(crate) mod sources;
pub(crate) mod space;
mod tokens;
pub(crate) mod volumes;

use std::fs;
use std::path::{Component, Path, PathBuf};

use api_schema::Quantity;

use self::downward::{Allocatable, PodFacts};
use self::environment::Environment;
use self::sources::Sources;
use crate::logs::Bounds;
use crate::nursery::Layout;
use crate::nursery::protocol::{Abilities, InstanceId, Launch, Limits, Mount};
use crate::pod::{Container, PodSpec};

/// Where containers leave a last message unless they say otherwise.
const DEFAULT_MESSAGE_PATH: &str = "/dev/termination-log";

/// What all containers of a node have in common.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) layout: Layout,
    /// What processes have in their environment before the pod says anything.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) allocatable: Allocatable,
    pub(crate) log: Bounds,
    pub(crate) processes_max: usize,
}

/// What a process is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) facts: &'a PodFacts,
    pub(crate) spec: &'a PodSpec,
    pub(crate) container: &'a Container,
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) attempt: u32,
    pub(crate) abilities: Abilities,
}

impl Surroundings {
    /// Where processes reach the API server, told by the variables that in-cluster clients read.
    pub(crate) fn api_server(&self) -> Option<String> {
        let get = |name: &str| self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let (host, port) = (get("KUBERNETES_SERVICE_HOST")?, get("KUBERNETES_SERVICE_PORT")?);
        Some(if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") })
    }
}

impl<'a> Inputs<'a> {
    fn environment(&self) -> environment::Inputs<'a> {
        let Self { facts, spec, container, surroundings, .. } = *self;
        let Surroundings { allocatable, environment, .. } = surroundings;
        environment::Inputs { facts, spec, container, allocatable, base: environment }
    }
}

/// Can the launch be made without asking the API?
pub(crate) fn is_self_contained(container: &Container) -> bool {
    !environment::needs_sources(container)
}

/// The process to start, or what is missing.
pub(crate) async fn launch(inputs: Inputs<'_>, sources: &Sources) -> Result<Launch, String> {
    let environment = environment::environment(inputs.environment(), sources).await?;
    finish(inputs, environment)
}

/// The same for containers that refer to nothing in the API.
pub(crate) fn launch_self_contained(inputs: Inputs<'_>) -> Result<Launch, String> {
    let environment = environment::environment_without_sources(inputs.environment())?;
    finish(inputs, environment)
}

fn finish(inputs: Inputs<'_>, mut environment: Environment) -> Result<Launch, String> {
    let Inputs { container, spec, facts, .. } = inputs;
    admission::check_non_root(container, spec, facts)?;
    // Before anything of the machine's user: programs must act as the pod's account, not as whoever runs the node.
    if let Some(kubeconfig) = kubeconfig(inputs).filter(|_| environment.get("KUBECONFIG").is_none()) {
        environment.set_base("KUBECONFIG", kubeconfig.to_string_lossy().into_owned());
    }
    let command: Vec<String> =
        container.command.iter().chain(&container.args).map(|text| environment.expand(text)).collect();
    let mut mounts = mounts(inputs, &environment)?;
    let termination_message = message_file(inputs, &command, &mut mounts)?;
    let (user, group) = admission::user_of(container, spec);
    let number = |id: Option<i64>| id.and_then(|id| u32::try_from(id).ok());
    Ok(Launch {
        id: InstanceId { pod: facts.uid.clone(), container: container.name.clone(), attempt: inputs.attempt },
        command,
        program_shown: container.command.first().cloned().unwrap_or_default(),
        directory: container.working_dir.as_deref().filter(|path| !path.is_empty()).map(PathBuf::from),
        log: inputs.surroundings.log,
        wants_log_tail: container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
        user: differs(number(user), rustix::process::geteuid().as_raw()),
        group: differs(number(group), rustix::process::getegid().as_raw()),
        groups: if inputs.abilities.users { admission::groups_of(spec) } else { Vec::new() },
        hostname: environment::hostname(spec, &facts.name),
        mounts,
        termination_message,
        limits: limits(spec, container),
        processes_max: Some(inputs.surroundings.processes_max),
        environment: environment.into_variables(),
    })
}

fn differs(wanted: Option<u32>, own: u32) -> Option<u32> {
    wanted.filter(|wanted| *wanted != own)
}

fn mounts(inputs: Inputs<'_>, environment: &Environment) -> Result<Vec<Mount>, String> {
    let volumes = volumes_directory(&inputs.surroundings.layout, &inputs.facts.uid);
    let mut mounts = Vec::new();
    for mount in &inputs.container.volume_mounts {
        let Some(volume) = inputs.spec.volumes.iter().find(|volume| volume.name == mount.name) else {
            return Err(format!("volume \"{}\" not found", mount.name));
        };
        // Credentials are worth having even where nothing can be mounted: they are found by `KUBECONFIG`.
        if volume.is_api_access() && !inputs.abilities.mounts {
            continue;
        }
        let sub_path = match (&mount.sub_path_expr, &mount.sub_path) {
            (Some(expression), _) if !expression.is_empty() => Some(environment.expand(expression)),
            (_, Some(path)) if !path.is_empty() => Some(path.clone()),
            _ => None,
        };
        let source = volumes::source_path(&volumes, volume);
        let sub_path = match sub_path {
            Some(path) if is_writable(volume) => {
                let shown = mount.sub_path_expr.as_deref().filter(|it| !it.is_empty()).unwrap_or(&path);
                let path = without_dots(&path);
                make_sub_path(&source, &path, shown)?;
                Some(path)
            }
            // The present version of the files, which this mount keeps (PL-116).
            Some(path) => fs::read_link(source.join("..data")).ok().map(|version| version.join(without_dots(&path))),
            None => None,
        };
        mounts.push(Mount {
            source,
            sub_path,
            target: PathBuf::from(&mount.mount_path),
            read_only: mount.read_only == Some(true) || !is_writable(volume),
        });
    }
    Ok(mounts)
}

/// Where the container finds the kubeconfig of its account, if it has one.
fn kubeconfig(inputs: Inputs<'_>) -> Option<PathBuf> {
    inputs.surroundings.api_server()?;
    let volume_of = |name: &str| inputs.spec.volumes.iter().find(|volume| volume.name == name);
    let mut mounts = inputs.container.volume_mounts.iter();
    let (mount, volume) = mounts.find_map(|mount| {
        let volume = volume_of(&mount.name).filter(|volume| volume.is_api_access())?;
        Some((mount, volume))
    })?;
    let directory = if inputs.abilities.mounts {
        PathBuf::from(&mount.mount_path)
    } else {
        let volumes = volumes_directory(&inputs.surroundings.layout, &inputs.facts.uid);
        volumes::source_path(&volumes, volume)
    };
    Some(directory.join(volumes::KUBECONFIG))
}

pub(crate) fn volumes_directory(layout: &Layout, uid: &str) -> PathBuf {
    layout.pod(uid).join("volumes")
}

fn is_writable(volume: &crate::pod::Volume) -> bool {
    volume.empty_dir.is_some() || volume.host_path.is_some()
}

/// `./a` is `a`.
fn without_dots(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| *part != Component::CurDir).collect()
}

/// A directory that a subPath names is made if it is missing, without following links in the volume. `shown` is the path
/// before it was expanded, which may have made secrets part of it (INV-53).
fn make_sub_path(source: &Path, sub_path: &Path, shown: &str) -> Result<(), String> {
    let mut path = source.to_owned();
    for part in sub_path.components() {
        let Component::Normal(name) = part else { return Err(format!("subPath \"{shown}\" leaves its volume")) };
        path.push(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => return Err(format!("subPath \"{shown}\" contains a symlink")),
            Ok(_) => {}
            Err(_) => fs::create_dir(&path).map_err(|error| format!("make subPath \"{shown}\": {error}"))?,
        }
    }
    Ok(())
}

/// A file for the container's last words, if it can be given one (PL-56). It needs a mount namespace, which costs a
/// millisecond; a container that asks for nothing else gets one only if its command names the path.
fn message_file(inputs: Inputs<'_>, command: &[String], mounts: &mut Vec<Mount>) -> Result<Option<PathBuf>, String> {
    let path = inputs.container.termination_message_path.as_deref().filter(|path| !path.is_empty());
    let path = path.unwrap_or(DEFAULT_MESSAGE_PATH);
    let is_wanted =
        !mounts.is_empty() || path != DEFAULT_MESSAGE_PATH || command.iter().any(|word| word.contains(path));
    if !is_wanted || !inputs.abilities.mounts || !path.starts_with('/') {
        return Ok(None);
    }
    let directory = inputs.surroundings.layout.pod(&inputs.facts.uid).join("messages");
    let file = directory.join(format!("{}.{}", inputs.container.name, inputs.attempt));
    let made = fs::create_dir_all(&directory).and_then(|()| fs::write(&file, b"")).and_then(|()| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666))
    });
    made.map_err(|error| format!("make a file for the termination message: {error}"))?;
    mounts.push(Mount { source: file.clone(), sub_path: None, target: PathBuf::from(path), read_only: false });
    Ok(Some(file))
}

/// Those of the container; where it has none, those of the pod as a whole, of which no container may use more either.
fn limits(spec: &PodSpec, container: &Container) -> Limits {
    let resources = [container.resources.as_deref(), spec.resources.as_deref()];
    let lists = resources.map(|resources| resources.and_then(|resources| resources.limits.as_ref()));
    let get = |name: &str| {
        let text = lists.iter().flatten().find_map(|limits| limits.get(name))?;
        Quantity::parse(&text.0).ok()
    };
    Limits {
        memory_bytes: get("memory").and_then(|amount| u64::try_from(amount.value()).ok()).filter(|bytes| *bytes > 0),
        cpu_millis: get("cpu").and_then(|amount| u64::try_from(amount.milli_value()).ok()).filter(|it| *it > 0),
        pids: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn surroundings(root: &Path, environment: &[(&str, &str)]) -> Surroundings {
        Surroundings {
            layout: Layout::new(root),
            environment: environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            allocatable: Allocatable::default(),
            log: Bounds::default(),
            processes_max: 100,
        }
    }

    #[test]
    fn the_api_server_is_where_in_cluster_clients_look_for_it() {
        let at = |host| {
            let api = [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", "6443")];
            surroundings(Path::new("/node"), &api).api_server()
        };
        assert_eq!(at("127.0.0.1").as_deref(), Some("https://127.0.0.1:6443"));
        assert_eq!(at("::1").as_deref(), Some("https://[::1]:6443"));
        assert_eq!(surroundings(Path::new("/node"), &[]).api_server(), None);
    }

    #[test]
    fn supplementary_groups_need_the_right_to_change_them() {
        let spec: PodSpec = serde_json::from_value(json!({
            "securityContext": {"fsGroup": 2000, "supplementalGroups": [3000, 2000]},
            "containers": [{"name": "c", "command": ["true"]}],
        }))
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let groups = |abilities| {
            let (facts, surroundings) = (PodFacts::default(), surroundings(directory.path(), &[]));
            let (container, surroundings) = (&spec.containers[0], &surroundings);
            let inputs = Inputs { facts: &facts, spec: &spec, container, surroundings, attempt: 0, abilities };
            launch_self_contained(inputs).unwrap().groups
        };
        assert_eq!(groups(Abilities { users: true, ..Abilities::default() }), [3000, 2000]);
        assert_eq!(groups(Abilities::default()), [0_u32; 0]);
    }

    #[test]
    fn a_container_without_limits_has_those_of_its_pod() {
        let spec: PodSpec = serde_json::from_value(json!({
            "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
            "containers": [{"resources": {"limits": {"cpu": "500m"}}}, {"resources": {"requests": {"cpu": "1"}}}],
        }))
        .unwrap();
        let of = |spec: &PodSpec, index: usize| {
            let Limits { cpu_millis, memory_bytes, .. } = limits(spec, &spec.containers[index]);
            (cpu_millis, memory_bytes)
        };
        assert_eq!(of(&spec, 0), (Some(500), Some(1 << 30)));
        assert_eq!(of(&spec, 1), (Some(2000), Some(1 << 30)));
        assert_eq!(of(&PodSpec { resources: None, ..spec }, 1), (None, None));
    }

    #[test]
    fn a_sub_path_may_begin_with_a_dot() {
        let spec: PodSpec = serde_json::from_value(json!({
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{
                "name": "c", "command": ["true"],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "./a/./b"}],
            }],
        }))
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let surroundings = surroundings(directory.path(), &[]);
        let facts = PodFacts { uid: "u".to_owned(), ..PodFacts::default() };
        let volume = surroundings.layout.pod("u").join("volumes/v");
        fs::create_dir_all(&volume).unwrap();
        let abilities = Abilities { mounts: true, ..Abilities::default() };
        let (container, surroundings) = (&spec.containers[0], &surroundings);
        let inputs = Inputs { facts: &facts, spec: &spec, container, surroundings, attempt: 0, abilities };
        let mounts = mounts(inputs, &Environment::default()).unwrap();
        assert_eq!(mounts[0].sub_path.as_deref(), Some(Path::new("a/b")));
        assert!(volume.join("a/b").is_dir());
        assert!(make_sub_path(&volume, &without_dots("./../x"), "./../x").is_err(), "INV-52");
    }

    /// Credentials are found where they are mounted or, where nothing can be, in the pod's own directory.
    #[test]
    fn credentials_are_found_with_and_without_mounts() {
        let token = json!({"sources": [{"serviceAccountToken": {"path": "token"}}]});
        let spec: PodSpec = serde_json::from_value(json!({
            "volumes": [{"name": "kube-api-access-x", "projected": token}],
            "containers": [
                {"name": "c", "command": ["true"], "volumeMounts": [{"name": "kube-api-access-x", "mountPath": "/t"}]},
                {"name": "d", "command": ["true"]},
            ],
        }))
        .unwrap();
        let facts = PodFacts { uid: "u".to_owned(), ..PodFacts::default() };
        let directory = tempfile::tempdir().unwrap();
        let known =
            surroundings(directory.path(), &[("KUBERNETES_SERVICE_HOST", "h"), ("KUBERNETES_SERVICE_PORT", "1")]);
        let found = |container: usize, surroundings: &Surroundings, can_mount| {
            let container = &spec.containers[container];
            let abilities = Abilities { mounts: can_mount, ..Abilities::default() };
            let inputs = Inputs { facts: &facts, spec: &spec, container, surroundings, attempt: 0, abilities };
            let launch = launch_self_contained(inputs).unwrap();
            let kubeconfig = launch.environment.0.into_iter().find(|(name, _)| name == "KUBECONFIG");
            (kubeconfig.map(|(_, value)| value), launch.mounts.iter().any(|mount| mount.target == Path::new("/t")))
        };
        assert_eq!(found(0, &known, true), (Some("/t/kubeconfig".to_owned()), true));
        let own = known.layout.pod("u").join("volumes/kube-api-access-x/kubeconfig").display().to_string();
        assert_eq!(found(0, &known, false), (Some(own), false));
        assert_eq!(found(1, &known, true), (None, false), "a container that mounts nothing has no credentials");
        assert_eq!(found(0, &surroundings(directory.path(), &[]), true), (None, true), "nobody to talk to");
    }
}
