//! The environment of a container (PL-108, PL-109).

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, EnvVarSource};

use super::admission;
use super::downward::{self, Allocatable, PodFacts};
use super::expansion::expand;
use super::sources::{Kind, Missing, Sources};
use crate::nursery::protocol::Variables;
use crate::pod::{Container, PodSpec};

/// Those of the base that are about services; `$(NAME)` knows them as well.
const SERVICE_PREFIX: &str = "KUBERNETES_";

/// Variables in order; setting one again changes it in place.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// What processes have anyway.
    base: Variables,
    /// What the container says, which comes before.
    own: Variables,
}

impl Environment {
    pub(crate) fn set(&mut self, name: &str, value: String) {
        set(&mut self.own, name, value);
    }

    /// For what the container's spec does not say.
    pub(crate) fn set_base(&mut self, name: &str, value: String) {
        set(&mut self.base, name, value);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        find(&self.own, name).or_else(|| find(&self.base, name))
    }

    /// As in a cluster, where nobody knows what is in an image: what the container itself has set, and services.
    pub(crate) fn expand(&self, text: &str) -> String {
        let service = |name: &str| find(&self.base, name).filter(|_| name.starts_with(SERVICE_PREFIX));
        expand(text, |name| find(&self.own, name).or_else(|| service(name)))
    }

    pub(crate) fn into_variables(self) -> Variables {
        let Self { base: mut all, own } = self;
        for (name, value) in own.0 {
            set(&mut all, &name, value);
        }
        all
    }
}

fn set(variables: &mut Variables, name: &str, value: String) {
    match variables.0.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => *known = value,
        None => variables.0.push((name.to_owned(), value)),
    }
}

fn find<'a>(variables: &'a Variables, name: &str) -> Option<&'a str> {
    variables.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// What an environment is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) facts: &'a PodFacts,
    pub(crate) spec: &'a PodSpec,
    pub(crate) container: &'a Container,
    pub(crate) allocatable: &'a Allocatable,
    /// What processes have before the pod says anything: in images, the image's own variables.
    pub(crate) base: &'a [(String, String)],
}

/// Does making this environment need the API?
pub(crate) fn needs_sources(container: &Container) -> bool {
    let refers = |source: &EnvVarSource| source.config_map_key_ref.is_some() || source.secret_key_ref.is_some();
    !container.env_from.is_empty()
        || container.env.iter().any(|variable| variable.value_from.as_ref().is_some_and(refers))
}

/// The whole environment, or why it cannot be made. Sources are only asked if [`needs_sources`].
pub(crate) async fn environment(inputs: Inputs<'_>, sources: &Sources) -> Result<Environment, String> {
    let mut environment = base(inputs);
    for source in &inputs.container.env_from {
        add_all(&mut environment, source, inputs, sources).await?;
    }
    for variable in &inputs.container.env {
        if let Some(value) = value_of(variable, &environment, inputs, sources).await? {
            environment.set(&variable.name, value);
        }
    }
    Ok(environment)
}

/// The same for a container that refers to nothing in the API.
pub(crate) fn environment_without_sources(inputs: Inputs<'_>) -> Result<Environment, String> {
    let mut environment = base(inputs);
    for variable in &inputs.container.env {
        let value = match value_from(variable) {
            None => environment.expand(variable.value.as_deref().unwrap_or_default()),
            Some(source) => own_value(source, inputs)?.unwrap_or_default(),
        };
        environment.set(&variable.name, value);
    }
    Ok(environment)
}

fn base(inputs: Inputs<'_>) -> Environment {
    let mut environment = Environment::default();
    for (name, value) in inputs.base {
        environment.set_base(name, value.clone());
    }
    let own_user = i64::from(rustix::process::geteuid().as_raw());
    if admission::user_of(inputs.container, inputs.spec).0.is_some_and(|user| user != own_user) {
        // The node's home is not theirs; runtimes give users that the image does not know the root.
        environment.set_base("HOME", "/".to_owned());
    }
    environment.set_base("HOSTNAME", hostname(inputs.spec, &inputs.facts.name));
    environment
}

/// The name of the pod as a host (PL-113).
pub(crate) fn hostname(spec: &PodSpec, pod_name: &str) -> String {
    match spec.hostname.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => name.to_owned(),
        None => pod_name[..pod_name.floor_char_boundary(63)].trim_end_matches(['-', '.']).to_owned(),
    }
}

async fn add_all(
    environment: &mut Environment,
    source: &EnvFromSource,
    inputs: Inputs<'_>,
    sources: &Sources,
) -> Result<(), String> {
    let (kind, name, optional) = match (&source.config_map_ref, &source.secret_ref) {
        (Some(map), _) => (Kind::ConfigMap, &map.name, map.optional),
        (None, Some(secret)) => (Kind::Secret, &secret.name, secret.optional),
        (None, None) => return Ok(()),
    };
    let content = match sources.get(kind, &inputs.facts.namespace, name).await {
        Ok(content) => content,
        Err(Missing::NotFound(_)) if optional == Some(true) => return Ok(()),
        Err(missing) => return Err(missing.into_message()),
    };
    let prefix = source.prefix.as_deref().unwrap_or_default();
    for (key, value) in content.variables() {
        // What cannot be a variable is left out, as the kubelet does.
        if let Ok(value) = std::str::from_utf8(value)
            && !value.contains('\0')
            && !key.contains('=')
        {
            environment.set(&format!("{prefix}{key}"), value.to_owned());
        }
    }
    Ok(())
}

fn value_from(variable: &EnvVar) -> Option<&EnvVarSource> {
    variable.value_from.as_ref().filter(|_| variable.value.as_deref().unwrap_or_default().is_empty())
}

/// `None`: an optional source is missing, and so is the variable.
async fn value_of(
    variable: &EnvVar,
    environment: &Environment,
    inputs: Inputs<'_>,
    sources: &Sources,
) -> Result<Option<String>, String> {
    let Some(source) = value_from(variable) else {
        return Ok(Some(environment.expand(variable.value.as_deref().unwrap_or_default())));
    };
    let reference = match (&source.config_map_key_ref, &source.secret_key_ref) {
        (Some(map), _) => Some((Kind::ConfigMap, &map.name, &map.key, map.optional)),
        (None, Some(secret)) => Some((Kind::Secret, &secret.name, &secret.key, secret.optional)),
        (None, None) => None,
    };
    let Some((kind, name, key, optional)) = reference else { return own_value(source, inputs) };
    let optional = optional == Some(true);
    let namespace = &inputs.facts.namespace;
    let content = match sources.get(kind, namespace, name).await {
        Ok(content) => content,
        Err(Missing::NotFound(_)) if optional => return Ok(None),
        Err(missing) => return Err(missing.into_message()),
    };
    match content.variable(key) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional => Ok(None),
        None => Err(format!("couldn't find key {key} in {} {namespace}/{name}", kind.title())),
    }
}

/// Values that come from the pod itself.
fn own_value(source: &EnvVarSource, inputs: Inputs<'_>) -> Result<Option<String>, String> {
    if let Some(selector) = &source.field_ref {
        return downward::field(inputs.facts, selector).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return downward::resource(inputs.spec, inputs.container, selector, inputs.allocatable).map(Some);
    }
    Err("the value comes from a source that this node does not have".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn made(container: Value, base: &[(&str, &str)]) -> Vec<(String, String)> {
        let container: Container = serde_json::from_value(container).unwrap();
        let facts = PodFacts {
            name: "p".to_owned(),
            labels: [("batch.kubernetes.io/job-completion-index".to_owned(), "4".to_owned())].into(),
            ..PodFacts::default()
        };
        let spec = PodSpec { hostname: Some("job-4".to_owned()), ..PodSpec::default() };
        let base: Vec<(String, String)> = base.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let inputs = Inputs {
            facts: &facts,
            spec: &spec,
            container: &container,
            allocatable: &Allocatable::default(),
            base: &base,
        };
        environment_without_sources(inputs).unwrap().into_variables().0
    }

    fn get(variables: &[(String, String)], name: &str) -> Option<String> {
        variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn values_see_earlier_variables_only() {
        let variables = made(
            json!({"env": [
                {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}, {"name": "C", "value": "$(D)"},
                {"name": "D", "value": "$$(A)"}, {"name": "E", "value": "$(PATH) $(HOSTNAME)"},
                {"name": "PATH", "value": "/x:$(PATH)"}, {"name": "F", "value": "$(PATH)"},
                {"name": "URL", "value": "https://$(KUBERNETES_SERVICE_HOST)"},
            ]}),
            &[("PATH", "/bin"), ("HOME", "/home/node"), ("KUBERNETES_SERVICE_HOST", "127.0.0.1")],
        );
        for (name, value) in [
            ("A", "1"),
            ("B", "12"),
            ("C", "$(D)"),
            ("D", "$(A)"),
            ("E", "$(PATH) $(HOSTNAME)"),
            ("PATH", "/x:$(PATH)"),
            ("F", "/x:$(PATH)"),
            ("URL", "https://127.0.0.1"),
            ("HOSTNAME", "job-4"),
            ("HOME", "/home/node"),
        ] {
            assert_eq!(get(&variables, name).as_deref(), Some(value), "{name}");
        }
    }

    #[test]
    fn another_user_does_not_get_the_nodes_home() {
        let base = [("HOME", "/home/node")];
        assert_eq!(get(&made(json!({}), &base), "HOME").as_deref(), Some("/home/node"));
        let other = json!({"securityContext": {"runAsUser": 12345}});
        assert_eq!(get(&made(other, &base), "HOME").as_deref(), Some("/"));
        let own = json!({"securityContext": {"runAsUser": 12345}, "env": [{"name": "HOME", "value": "/data"}]});
        assert_eq!(get(&made(own, &base), "HOME").as_deref(), Some("/data"));
    }

    #[test]
    fn the_completion_index_comes_from_a_label() {
        let field = json!({"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}});
        let variables = made(json!({"env": [{"name": "JOB_COMPLETION_INDEX", "valueFrom": field}]}), &[]);
        assert_eq!(get(&variables, "JOB_COMPLETION_INDEX").as_deref(), Some("4"), "PL-110");
    }

    #[test]
    fn duplicate_names_leave_the_last_value() {
        let variables = made(json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}), &[]);
        assert_eq!(variables.iter().filter(|(name, _)| name == "A").count(), 1);
        assert_eq!(get(&variables, "A").as_deref(), Some("2"));
    }

    #[test]
    fn host_names_are_short() {
        let spec = PodSpec::default();
        assert_eq!(hostname(&spec, "p"), "p");
        assert_eq!(hostname(&spec, &"x".repeat(100)).len(), 63);
        assert_eq!(hostname(&spec, &format!("{}-{}", "x".repeat(62), "y")), "x".repeat(62));
    }
}
