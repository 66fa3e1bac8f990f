//! Reads the tables of API types and finds types by name or by kind.
//!
//! A table is made of lines; `#` starts a comment.
//!
//! ```text
//! version batch/v1                 the apiVersion of the kinds that follow
//! alias string PodPhase DNSPolicy  Go types that are only another name for a shape; error texts show the name
//! struct JobSpec                   a type, followed by its fields; `atomic`: apply replaces it as a whole
//! object Binding                   a struct with `kind` and `apiVersion`; `in X Y`: served in these versions
//! kind Job                         an object that also has a list, `JobList`
//!   parallelism  1  *int32         JSON name, protobuf number, Go type, then flags
//!   <VolumeSource>  2              all fields of that struct, which protobuf nests under the number
//! ```
//!
//! | flag | meaning |
//! |---|---|
//! | `!` | no `omitempty`: emitted even when empty (AS-29); `![]`: an empty list stays `[]` instead of `null` |
//! | `omitzero` | a struct or time that is left out when zero; others are always emitted, as in Go |
//! | `merge=KEY`, `merge` | strategic merge patch merges the list by key, or as a set (AS-119) |
//! | `retainKeys`, `replace` | further patch strategies (AS-125) |
//! | `map=KEYS`, `set`, `atomic` | how server-side apply sees it (AS-142) |
//!
//! Names with a dot are types that share their Go name with another one (`events.Event`).

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::model::{Embed, Field, ListType, PatchStrategy, Shape, Type};

const TABLES: [&str; 7] = [
    include_str!("tables/meta.txt"),
    include_str!("tables/pods.txt"),
    include_str!("tables/volumes.txt"),
    include_str!("tables/core.txt"),
    include_str!("tables/batch.txt"),
    include_str!("tables/others.txt"),
    include_str!("tables/access.txt"),
];

/// Every type of the API, read once.
pub fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::read(&TABLES));
    &REGISTRY
}

/// All types, and which of them are served kinds.
#[derive(Debug)]
pub struct Registry {
    types: HashMap<&'static str, &'static Type>,
    kinds: HashMap<(&'static str, &'static str), &'static Type>,
    aliases: HashMap<&'static str, &'static str>,
}

impl Registry {
    /// The type with this name. Where two groups share a name the smaller group's is qualified: `events.Event`.
    pub fn get(&self, type_name: &str) -> Option<&'static Type> {
        self.types.get(type_name).copied()
    }

    /// The type of a kind (or list kind) in an API version: `("batch/v1", "JobList")`.
    ///
    /// `DeleteOptions` belongs to every version (AS-22).
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&'static Type> {
        if kind == "DeleteOptions" {
            return self.get(kind);
        }
        self.kinds.get(&(api_version, kind)).copied()
    }

    /// All types with the names that [`Registry::get`] knows them by, in no particular order.
    pub fn types(&self) -> impl Iterator<Item = (&'static str, &'static Type)> + '_ {
        self.types.iter().map(|(name, ty)| (*name, *ty))
    }

    /// All kinds as `(apiVersion, kind, type)`, in no particular order.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static Type)> + '_ {
        self.kinds.iter().map(|((version, kind), ty)| (*version, *kind, *ty))
    }

    /// What a named Go type stands for, if it is not a struct: `ResourceList` is `map[ResourceName]Quantity`.
    pub(crate) fn alias(&self, name: &str) -> Option<&'static str> {
        self.aliases.get(name).copied()
    }

    /// A mistake in a table is a mistake in the program, so reading does not return errors: it panics, in every test.
    fn read(tables: &[&'static str]) -> Self {
        let mut reader = Reader::default();
        for table in tables {
            reader.declare(table);
        }
        let mut names: Vec<&'static str> = reader.declarations.keys().copied().collect();
        names.sort_unstable();
        for name in names {
            reader.build(name);
        }
        Self { types: reader.types, kinds: reader.kinds, aliases: reader.aliases }
    }
}

#[derive(Default)]
struct Reader {
    declarations: HashMap<&'static str, Declaration>,
    aliases: HashMap<&'static str, &'static str>,
    types: HashMap<&'static str, &'static Type>,
    kinds: HashMap<(&'static str, &'static str), &'static Type>,
}

/// A type as written, before the types it refers to are known.
#[derive(Clone)]
struct Declaration {
    role: Role,
    atomic: bool,
    version: &'static str,
    /// The versions that serve it; only the section's own unless the table says otherwise.
    served: Vec<&'static str>,
    fields: Vec<&'static str>,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Struct,
    Object,
    Kind,
}

impl Reader {
    fn declare(&mut self, table: &'static str) {
        let mut version = "";
        let mut current = "";
        for line in table.lines() {
            let mut words = line.split_whitespace();
            let Some(first) = words.next() else { continue };
            if line.starts_with(' ') {
                let declaration = self.declarations.get_mut(current).expect("fields follow their type");
                declaration.fields.push(line);
                continue;
            }
            let role = match first {
                "#" => continue,
                "version" => {
                    version = words.next().expect("a version");
                    continue;
                }
                "alias" => {
                    let target = words.next().expect("what the aliases stand for");
                    self.aliases.extend(words.map(|name| (name, target)));
                    continue;
                }
                "struct" => Role::Struct,
                "object" => Role::Object,
                "kind" => Role::Kind,
                other => panic!("unknown word `{other}` in a table of types"),
            };
            current = words.next().expect("a type's name");
            let rest: Vec<&'static str> = words.collect();
            let served = match rest.iter().position(|word| *word == "in") {
                Some(at) => rest[at + 1..].to_vec(),
                None => vec![version],
            };
            let atomic = rest.first() == Some(&"atomic");
            let declaration = Declaration { role, atomic, version, served, fields: Vec::new() };
            assert!(self.declarations.insert(current, declaration).is_none(), "type `{current}` is declared twice");
        }
    }

    /// The type with this name, built with everything it refers to. Types live as long as the program.
    fn build(&mut self, name: &'static str) -> &'static Type {
        if let Some(ty) = self.types.get(name) {
            return ty;
        }
        let declaration = self.declarations.get(name).unwrap_or_else(|| panic!("unknown type `{name}`")).clone();
        let mut fields = if declaration.role == Role::Struct { Vec::new() } else { type_meta_fields() };
        for line in &declaration.fields {
            self.read_field(line, &mut fields);
        }
        let (group, package) = declaration.version.split_once('/').unwrap_or(("", declaration.version));
        let short_name = name.rsplit('.').next().unwrap_or(name);
        let mut ty = Type::new(short_name, package, group, fields);
        ty.atomic = declaration.atomic;
        let ty: &'static Type = Box::leak(Box::new(ty));
        self.types.insert(name, ty);
        if declaration.role != Role::Struct {
            self.kinds.extend(declaration.served.iter().map(|version| ((*version, short_name), ty)));
        }
        if declaration.role == Role::Kind {
            self.build_list(name, ty, &declaration.served);
        }
        ty
    }

    fn build_list(&mut self, name: &'static str, item: &'static Type, served: &[&'static str]) {
        let mut fields = type_meta_fields();
        let mut metadata = Field::new("metadata", 1, Shape::Struct(self.build("ListMeta")));
        metadata.always = true;
        metadata.declared = "ListMeta";
        let mut items = Field::new("items", 2, Shape::List(Box::new(Shape::Struct(item))));
        items.always = true;
        items.empty_list = true;
        items.declared = format!("[]{name}").leak();
        fields.extend([metadata, items]);
        let list_name: &'static str = format!("{name}List").leak();
        let short_name = list_name.rsplit('.').next().unwrap_or(list_name);
        let list: &'static Type = Box::leak(Box::new(Type::new(short_name, item.package, item.group, fields)));
        self.types.insert(list_name, list);
        self.kinds.extend(served.iter().map(|version| ((*version, short_name), list)));
    }

    fn read_field(&mut self, line: &'static str, fields: &mut Vec<Field>) {
        let mut words = line.split_whitespace();
        let (Some(json), Some(number)) = (words.next(), words.next()) else { panic!("no number in `{line}`") };
        let number = number.parse().unwrap_or_else(|_| panic!("bad number in `{line}`"));
        if let Some(embedded) = json.strip_prefix('<').and_then(|name| name.strip_suffix('>')) {
            let embed = Embed { name: embedded, number };
            let inlined = self.build(embedded).fields.iter().cloned();
            fields.extend(inlined.map(|field| Field { embed: Some(embed), ..field }));
            return;
        }
        let declared = words.next().unwrap_or_else(|| panic!("no type in `{line}`"));
        let shape = self.shape(declared);
        let mut field = Field::new(json, number, shape);
        field.declared = declared;
        field.pointer = declared.starts_with('*');
        field.always = !field.pointer && is_struct_in_go(&field.shape);
        if matches!(&field.shape, Shape::Struct(ty) if ty.atomic) {
            field.list = ListType::Atomic;
        }
        for flag in words {
            apply_flag(&mut field, flag);
        }
        fields.push(field);
    }

    fn shape(&mut self, declared: &'static str) -> Shape {
        let declared = declared.trim_start_matches('*');
        match declared {
            "string" => return Shape::String,
            "int32" => return Shape::Int32,
            "int64" => return Shape::Int64,
            "bool" => return Shape::Bool,
            "[]byte" => return Shape::Bytes,
            "Time" => return Shape::Time,
            "MicroTime" => return Shape::MicroTime,
            "Quantity" => return Shape::Quantity,
            "IntOrString" => return Shape::IntOrString,
            "FieldsV1" => return Shape::Json,
            _ => {}
        }
        if let Some(element) = declared.strip_prefix("[]") {
            return Shape::List(Box::new(self.shape(element)));
        }
        if let Some((_, value)) = declared.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Shape::Map(Box::new(self.shape(value)));
        }
        match self.aliases.get(declared).copied() {
            Some(target) => self.shape(target),
            None => Shape::Struct(self.build(declared)),
        }
    }
}

fn apply_flag(field: &mut Field, flag: &'static str) {
    match flag.split_once('=') {
        Some(("merge", key)) => field.patch = Some(PatchStrategy::MergeByKey(key)),
        Some(("map", keys)) => field.list = ListType::Map(keys.split(',').collect::<Vec<_>>().leak()),
        _ => match flag {
            "!" => field.always = true,
            "![]" => (field.always, field.empty_list) = (true, true),
            "omitzero" => field.always = false,
            "merge" => field.patch = Some(PatchStrategy::MergeSet),
            "retainKeys" => field.retain_keys = true,
            "replace" => field.replace = true,
            "set" => field.list = ListType::Set,
            "atomic" => field.list = ListType::Atomic,
            other => panic!("unknown flag `{other}` of field `{}`", field.json),
        },
    }
}

/// Go's `omitempty` never leaves out a struct, and these are structs there.
fn is_struct_in_go(shape: &Shape) -> bool {
    matches!(shape, Shape::Struct(_) | Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString)
}

fn type_meta_fields() -> Vec<Field> {
    let field = |json| Field {
        embed: Some(Embed { name: "TypeMeta", number: 0 }),
        declared: "string",
        ..Field::new(json, 0, Shape::String)
    };
    vec![field("kind"), field("apiVersion")]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn field(type_name: &str, json: &str) -> &'static Field {
        let ty = registry().get(type_name).unwrap_or_else(|| panic!("no type {type_name}"));
        ty.field(json).unwrap_or_else(|| panic!("no field {type_name}.{json}"))
    }

    #[test]
    fn every_kind_of_the_server_is_known() {
        let kinds = [
            ("v1", "Namespace Pod Node Event ConfigMap Secret ServiceAccount ResourceQuota LimitRange Service"),
            ("batch/v1", "Job CronJob"),
            ("coordination.k8s.io/v1", "Lease"),
            ("events.k8s.io/v1", "Event"),
            ("scheduling.k8s.io/v1", "PriorityClass"),
            ("policy/v1", "PodDisruptionBudget"),
            ("rbac.authorization.k8s.io/v1", "Role RoleBinding ClusterRole ClusterRoleBinding"),
            ("meta.k8s.io/v1", "PartialObjectMetadata"),
            ("meta.k8s.io/v1beta1", "PartialObjectMetadata"),
        ];
        for (version, names) in kinds {
            for kind in names.split(' ') {
                let ty = registry().kind(version, kind).unwrap_or_else(|| panic!("{version} {kind}"));
                assert_eq!(ty.name, kind);
                let list = registry().kind(version, &format!("{kind}List")).expect("every kind has a list");
                assert!(std::ptr::eq(
                    list.field("items").and_then(|f| f.shape.element()).and_then(Shape::as_struct).unwrap(),
                    ty
                ));
            }
        }
        let objects = [
            ("v1", "Binding Status DeleteOptions"),
            ("policy/v1", "Eviction"),
            ("policy/v1beta1", "Eviction"),
            (
                "authorization.k8s.io/v1",
                "SubjectAccessReview SelfSubjectAccessReview LocalSubjectAccessReview SelfSubjectRulesReview",
            ),
            ("authentication.k8s.io/v1", "TokenReview TokenRequest SelfSubjectReview"),
            ("batch/v1", "DeleteOptions"),
        ];
        for (version, names) in objects {
            for kind in names.split(' ') {
                assert!(registry().kind(version, kind).is_some(), "{version} {kind}");
            }
        }
        assert!(registry().kind("batch/v1", "Pod").is_none());
        assert_ne!(registry().kind("v1", "Event").unwrap().group, registry().get("events.Event").unwrap().group);
    }

    #[test]
    fn names_and_numbers_are_unique_within_a_type() {
        for (name, ty) in registry().types() {
            assert!(ty.fields.len() <= 128, "{name}: decoding tracks seen fields in 128 bits");
            let names: HashSet<_> = ty.fields.iter().map(|field| field.json).collect();
            assert_eq!(names.len(), ty.fields.len(), "{name}: duplicate JSON name");
            let mut numbers = HashSet::new();
            let mut embeds = HashSet::new();
            for field in ty.fields.iter().filter(|field| field.number != 0) {
                let scope = field.embed.map(|embed| embed.number);
                assert!(numbers.insert((scope, field.number)), "{name}.{}: number taken", field.json);
                embeds.extend(scope);
            }
            assert!(embeds.iter().all(|embed| !numbers.contains(&(None, *embed))), "{name}: embed number taken");
        }
    }

    #[test]
    fn embedded_structs_stay_together() {
        // The protobuf encoder opens the nested message once.
        for (name, ty) in registry().types() {
            let mut seen = Vec::new();
            for field in &ty.fields {
                if seen.last() != Some(&field.embed) {
                    assert!(field.embed.is_none() || !seen.contains(&field.embed), "{name}.{}", field.json);
                    seen.push(field.embed);
                }
            }
        }
    }

    #[test]
    fn strategic_merge_lists_are_those_of_as_119() {
        let by_key = "\
            ObjectMeta.ownerReferences uid|PodSpec.containers name|PodSpec.initContainers name|\
            PodSpec.ephemeralContainers name|PodSpec.volumes name|PodSpec.resourceClaims name|\
            PodSpec.imagePullSecrets name|PodSpec.schedulingGates name|PodSpec.hostAliases ip|\
            PodSpec.topologySpreadConstraints topologyKey|Container.env name|Container.ports containerPort|\
            Container.volumeMounts mountPath|Container.volumeDevices devicePath|EphemeralContainer.env name|\
            EphemeralContainer.ports containerPort|EphemeralContainer.volumeMounts mountPath|\
            EphemeralContainer.volumeDevices devicePath|EphemeralContainerCommon.env name|\
            EphemeralContainerCommon.ports containerPort|EphemeralContainerCommon.volumeMounts mountPath|\
            EphemeralContainerCommon.volumeDevices devicePath|PodStatus.conditions type|JobStatus.conditions type|\
            NodeStatus.conditions type|NamespaceStatus.conditions type|PodDisruptionBudgetStatus.conditions type|\
            PodStatus.podIPs ip|PodStatus.hostIPs ip|PodStatus.resourceClaimStatuses name|\
            ContainerStatus.volumeMounts mountPath|ContainerStatus.allocatedResourcesStatus name|\
            NodeStatus.addresses type|ServiceAccount.secrets name|ServiceSpec.ports port|ServiceStatus.conditions type";
        let mut expected: Vec<String> = by_key.split('|').map(str::to_owned).collect();
        expected.extend(["ObjectMeta.finalizers set".to_owned(), "NodeSpec.podCIDRs set".to_owned()]);
        let mut found = Vec::new();
        for (name, ty) in registry().types() {
            for field in &ty.fields {
                match field.patch {
                    Some(PatchStrategy::MergeByKey(key)) => found.push(format!("{name}.{} {key}", field.json)),
                    Some(PatchStrategy::MergeSet) => found.push(format!("{name}.{} set", field.json)),
                    None => {}
                }
            }
        }
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        for (ty, json) in
            [("PodSpec", "volumes"), ("PodSpec", "resourceClaims"), ("PodStatus", "resourceClaimStatuses")]
        {
            assert!(field(ty, json).retain_keys, "{ty}.{json}");
        }
        assert!(field("PodDisruptionBudgetSpec", "selector").replace);
    }

    #[test]
    fn apply_list_types_are_those_of_as_142() {
        let map = |keys: &'static [&'static str]| ListType::Map(keys);
        let by_name = "PodSpec.containers PodSpec.initContainers PodSpec.ephemeralContainers PodSpec.volumes \
            PodSpec.imagePullSecrets PodSpec.schedulingGates PodSpec.resourceClaims Container.env \
            ResourceRequirements.claims PodStatus.resourceClaimStatuses ServiceAccount.secrets";
        let by_type = "PodStatus.conditions NodeStatus.conditions NodeStatus.addresses NamespaceStatus.conditions \
            PodDisruptionBudgetStatus.conditions";
        let sets = "ObjectMeta.finalizers UncountedTerminatedPods.succeeded UncountedTerminatedPods.failed \
            PodFailurePolicyOnExitCodesRequirement.values ContainerRestartRuleOnExitCodes.values NodeSpec.podCIDRs";
        let atomic = "JobStatus.conditions CronJobStatus.active PodStatus.containerStatuses \
            PodStatus.initContainerStatuses PodStatus.ephemeralContainerStatuses PodStatus.hostIPs \
            PodFailurePolicy.rules PodFailurePolicyRule.onPodConditions SuccessPolicy.rules PodSpec.tolerations \
            Container.args Container.command Container.envFrom PodSpec.readinessGates Container.restartPolicyRules \
            ProjectedVolumeSource.sources SecretVolumeSource.items NodeSpec.taints ObjectMeta.managedFields \
            JobSpec.selector PodSpec.nodeSelector Binding.target EnvVarSource.fieldRef EnvVarSource.secretKeyRef \
            EnvVarSource.configMapKeyRef EnvVarSource.resourceFieldRef EnvVarSource.fileKeyRef \
            NodeAffinity.requiredDuringSchedulingIgnoredDuringExecution PreferredSchedulingTerm.preference";
        let cases = [
            (by_name, map(&["name"])),
            (by_type, map(&["type"])),
            ("PodSpec.hostAliases PodStatus.podIPs", map(&["ip"])),
            ("PodSpec.topologySpreadConstraints", map(&["topologyKey", "whenUnsatisfiable"])),
            ("Container.ports", map(&["containerPort", "protocol"])),
            ("Container.volumeMounts", map(&["mountPath"])),
            ("Container.volumeDevices", map(&["devicePath"])),
            ("ObjectMeta.ownerReferences", map(&["uid"])),
            (sets, ListType::Set),
            (atomic, ListType::Atomic),
            ("ObjectMeta.labels ResourceRequirements.limits Pod.spec Container.securityContext", ListType::Granular),
        ];
        for (names, expected) in cases {
            for name in names.split_whitespace() {
                let (ty, json) = name.split_once('.').unwrap();
                assert_eq!(field(ty, json).list, expected, "{name}");
            }
        }
        for name in "OwnerReference LabelSelector NodeSelector NodeSelectorTerm ObjectReference LocalObjectReference \
            ObjectFieldSelector ResourceFieldSelector ConfigMapKeySelector SecretKeySelector FileKeySelector"
            .split_whitespace()
        {
            assert!(registry().get(name).unwrap().atomic, "{name}");
        }
        assert!(!registry().get("PodSpec").unwrap().atomic);
    }

    #[test]
    fn always_present_fields_include_those_of_as_29() {
        let cases = "Pod.metadata Pod.spec Pod.status CronJob.status PodTemplateSpec.metadata ContainerStatus.state \
            ContainerStatus.lastState ContainerStatus.ready ContainerStatus.restartCount ContainerStatus.imageID \
            ContainerStateTerminated.exitCode ContainerStateTerminated.finishedAt ContainerStateRunning.startedAt \
            PodCondition.lastProbeTime JobCondition.lastTransitionTime Container.name Container.resources \
            PodSpec.containers JobSpec.template CronJobSpec.schedule CronJobSpec.jobTemplate OwnerReference.uid \
            Event.involvedObject Event.eventTime Event.reportingInstance events.Event.eventTime \
            events.Event.deprecatedSource DaemonEndpoint.Port NodeSystemInfo.machineID PriorityClass.value \
            PodFailurePolicyRule.action PodFailurePolicyOnExitCodesRequirement.values TokenRequestSpec.boundObjectRef";
        for name in cases.split_whitespace() {
            let (ty, json) = name.rsplit_once('.').unwrap();
            assert!(field(ty, json).always, "{name}");
        }
        assert!(!field("ObjectMeta", "creationTimestamp").always, "left out since 1.34 (AS-27)");
        assert!(!field("JobStatus", "active").always);
        assert!(field("JobStatus", "ready").pointer);
    }
}
