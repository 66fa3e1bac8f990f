//! Resources of containers and pods: names, quantities, requests against limits, claims (JA-P12).

use std::collections::BTreeMap;

use api_schema::Quantity;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::containers::{self, Surroundings};
use super::options::Options;
use super::report::{Place, Report};
use super::zero::{list, text};
use crate::names;
use crate::resource_names::{
    is_extended, is_huge_pages, is_native, is_overcommit_allowed, is_pod_level, is_standard, is_standard_for_container,
    is_whole,
};

pub(super) type ResourceList = BTreeMap<String, Text>;

const HUGE_PAGES: &str = "hugepages-";
const POD_LEVEL: [&str; 3] = ["cpu", "hugepages-", "memory"];
/// What a `resourceFieldRef` may name, sorted; any size of huge pages comes on top.
const FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const CPU_DIVISORS: [&str; 2] = ["1m", "1"];
const BYTE_DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// The quantity, zero if it is not one: decoding has refused those long before.
pub(super) fn quantity(text: &Text) -> Quantity {
    Quantity::parse(&text.0).unwrap_or(Quantity::ZERO)
}

pub(super) fn is_negative(text: &Text) -> bool {
    quantity(text).is_negative()
}

pub(super) fn is_fractional(text: &Text) -> bool {
    quantity(text).milli_value() % 1000 != 0
}

pub(super) fn validate_container(
    report: &mut Report,
    at: &Place<'_>,
    requirements: &core::ResourceRequirements,
    pod: &Surroundings<'_>,
) {
    validate(report, at, requirements, validate_container_name, pod.options);
    let claims = list(&requirements.claims);
    if !claims.is_empty() {
        validate_claims(report, &at.child("claims"), claims, list(&pod.spec.resource_claims));
    }
}

/// What the runtime itself needs on top of the containers; same rules as limits.
pub(super) fn validate_overhead(report: &mut Report, at: &Place<'_>, overhead: &ResourceList, options: &Options) {
    let requirements = core::ResourceRequirements { limits: Some(overhead.clone()), ..Default::default() };
    validate(report, at, &requirements, validate_container_name, options);
}

/// Resources of the pod as a whole, which bound those of its containers.
pub(super) fn validate_pod_level(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec, options: &Options) {
    let Some(requirements) = &spec.resources else { return };
    let at = at.child("resources");
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return report.forbidden(&at, "may not be set for a windows pod");
    }
    if requirements.claims.is_some() {
        report.forbidden(&at.child("claims"), "claims may not be set for Resources at pod-level");
    }
    validate(report, &at, requirements, validate_pod_name, options);
    let claims = list(&requirements.claims);
    if !claims.is_empty() {
        validate_claims(report, &at.child("claims"), claims, list(&spec.resource_claims));
    }
    validate_pod_level_consistency(report, &at, spec, requirements);
}

fn validate_pod_level_consistency(
    report: &mut Report,
    at: &Place<'_>,
    spec: &core::PodSpec,
    pod: &core::ResourceRequirements,
) {
    let requests_at = at.child("requests");
    for (name, requested) in aggregate(spec, |resources| resources.requests.as_ref()) {
        let Some(available) = pod.requests.as_ref().and_then(|requests| requests.get(&name)).map(quantity) else {
            continue;
        };
        if requested > available {
            let text = format!("must be greater than or equal to aggregate container requests of {requested}");
            report.invalid(&requests_at.key(&name), available.to_string(), text);
        }
    }
    let limits = pod.limits.as_ref();
    let limits_at = at.child("limits");
    for (name, limit) in aggregate(spec, |resources| resources.limits.as_ref()) {
        let Some(available) = limits.and_then(|limits| limits.get(&name)).map(quantity) else { continue };
        if is_huge_pages(&name) && limit > available {
            let text = format!("must be greater than or equal to aggregate container limits of {limit}");
            report.invalid(&limits_at.key(&name), available.to_string(), text);
        }
    }
    let containers_at = at.child("containers");
    for (i, container) in spec.containers.iter().enumerate() {
        let container_limits = container.resources.iter().filter_map(|resources| resources.limits.as_ref()).flatten();
        for (name, limit) in container_limits.map(|(name, limit)| (name, quantity(limit))) {
            let Some(available) = limits.and_then(|limits| limits.get(name)).map(quantity) else { continue };
            if limit > available {
                let container_at = containers_at.index(i);
                let resource_at = container_at.key(name);
                let text = format!("must be less than or equal to pod limits of {available}");
                report.invalid(&resource_at.child("limits"), limit.to_string(), text);
            }
        }
    }
}

/// What a pod asks for: its containers together, or what it says as a whole.
pub fn requests(spec: &core::PodSpec) -> BTreeMap<String, Quantity> {
    with_pod_level(spec, |resources| resources.requests.as_ref())
}

/// What a pod may use at most: its containers together, or what it says as a whole. Overhead is not counted: without
/// RuntimeClasses there is none.
pub fn limits(spec: &core::PodSpec) -> BTreeMap<String, Quantity> {
    with_pod_level(spec, |resources| resources.limits.as_ref())
}

fn with_pod_level(
    spec: &core::PodSpec,
    of: impl Fn(&core::ResourceRequirements) -> Option<&ResourceList>,
) -> BTreeMap<String, Quantity> {
    let mut total = aggregate(spec, &of);
    for (name, amount) in spec.resources.as_ref().and_then(&of).into_iter().flatten() {
        if is_pod_level(name) {
            total.insert(name.clone(), quantity(amount));
        }
    }
    total
}

/// What all containers need together: regular ones and sidecars at once, or the largest step of initialisation,
/// in which every sidecar started so far runs beside one init container.
pub(super) fn aggregate(
    spec: &core::PodSpec,
    of: impl Fn(&core::ResourceRequirements) -> Option<&ResourceList>,
) -> BTreeMap<String, Quantity> {
    let of = |container: &core::Container| -> Vec<(String, Quantity)> {
        let resources = container.resources.as_ref().and_then(&of);
        resources.into_iter().flatten().map(|(name, amount)| (name.clone(), quantity(amount))).collect()
    };
    let mut total = BTreeMap::new();
    for container in &spec.containers {
        add(&mut total, of(container));
    }
    let mut sidecars = BTreeMap::new();
    let mut initialisation: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in list(&spec.init_containers) {
        let needed = of(container);
        let mut step = sidecars.clone();
        add(&mut step, needed.clone());
        if containers::is_sidecar(container) {
            add(&mut total, needed);
            sidecars = step.clone();
        }
        raise(&mut initialisation, step);
    }
    raise(&mut total, initialisation);
    total
}

fn add(total: &mut BTreeMap<String, Quantity>, more: impl IntoIterator<Item = (String, Quantity)>) {
    for (name, amount) in more {
        match total.get_mut(&name) {
            Some(sum) => sum.add(&amount),
            None => _ = total.insert(name, amount),
        }
    }
}

fn raise(total: &mut BTreeMap<String, Quantity>, floor: BTreeMap<String, Quantity>) {
    for (name, amount) in floor {
        let current = total.entry(name).or_insert_with(|| amount.clone());
        if amount > *current {
            *current = amount;
        }
    }
}

fn validate(
    report: &mut Report,
    at: &Place<'_>,
    requirements: &core::ResourceRequirements,
    validate_name: fn(&mut Report, &Place<'_>, &str),
    options: &Options,
) {
    let (mut cpu_or_memory, mut huge_pages) = (false, false);
    let limits_at = at.child("limits");
    for (name, limit) in requirements.limits.iter().flatten() {
        let at = limits_at.key(name);
        let limit = quantity(limit);
        validate_name(report, &at, name);
        validate_quantity(report, &at, name, &limit);
        validate_huge_pages(report, &at, name, &limit, options);
        huge_pages |= is_huge_pages(name);
        cpu_or_memory |= matches!(name.as_str(), "cpu" | "memory");
    }
    let requests_at = at.child("requests");
    for (name, request) in requirements.requests.iter().flatten() {
        let at = requests_at.key(name);
        let request = quantity(request);
        validate_name(report, &at, name);
        validate_quantity(report, &at, name, &request);
        let limit = requirements.limits.as_ref().and_then(|limits| limits.get(name)).map(quantity);
        validate_against_limit(report, &requests_at, &limits_at, name, &request, limit);
        validate_huge_pages(report, &at, name, &request, options);
        huge_pages |= is_huge_pages(name);
        cpu_or_memory |= matches!(name.as_str(), "cpu" | "memory");
    }
    if huge_pages && !cpu_or_memory {
        report.forbidden(at, "HugePages require cpu or memory");
    }
}

fn validate_against_limit(
    report: &mut Report,
    requests_at: &Place<'_>,
    limits_at: &Place<'_>,
    name: &str,
    request: &Quantity,
    limit: Option<Quantity>,
) {
    let overcommit = is_overcommit_allowed(name);
    match limit {
        None if !overcommit => report.required(limits_at, "Limit must be set for non overcommitable resources"),
        Some(limit) if *request != limit && !overcommit => {
            report.invalid(requests_at, request.to_string(), format!("must be equal to {name} limit of {limit}"));
        }
        Some(limit) if *request > limit => {
            let text = format!("must be less than or equal to {name} limit of {limit}");
            report.invalid(requests_at, request.to_string(), text);
        }
        _ => {}
    }
}

fn validate_resource_name(report: &mut Report, at: &Place<'_>, name: &str) -> bool {
    let messages = names::qualified_name(name);
    let well_formed = messages.is_empty();
    report.each_invalid(at, name, messages);
    if !well_formed {
        return false;
    }
    if !name.contains('/') && !is_standard(name) {
        report.invalid(at, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

fn validate_container_name(report: &mut Report, at: &Place<'_>, name: &str) {
    validate_resource_name(report, at, name);
    if !name.contains('/') {
        if !is_standard_for_container(name) {
            report.invalid(at, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        report.invalid(at, name, "doesn't follow extended resource name standard");
    }
}

fn validate_pod_name(report: &mut Report, at: &Place<'_>, name: &str) {
    if validate_resource_name(report, at, name) && !is_pod_level(name) {
        report.not_supported(at, name, &POD_LEVEL);
    }
}

fn validate_quantity(report: &mut Report, at: &Place<'_>, name: &str, amount: &Quantity) {
    if amount.is_negative() {
        report.invalid(at, amount.to_string(), "must be greater than or equal to 0");
    }
    if is_whole(name) && amount.milli_value() % 1000 != 0 {
        report.invalid(at, amount.to_string(), "must be an integer");
    }
}

/// Storage that a claim asks for.
pub(super) fn require_positive(report: &mut Report, at: &Place<'_>, amount: &Text) {
    let amount = quantity(amount);
    if amount <= Quantity::ZERO {
        report.invalid(at, amount.to_string(), "must be greater than zero");
    }
}

fn validate_huge_pages(report: &mut Report, at: &Place<'_>, name: &str, amount: &Quantity, options: &Options) {
    if is_huge_pages(name) && !options.indivisible_huge_pages && !is_divisible(name, amount) {
        report.invalid(at, amount.to_string(), format!("{amount} is not positive integer multiple of {name}"));
    }
}

fn is_divisible(name: &str, amount: &Quantity) -> bool {
    let Some(page) = name.strip_prefix(HUGE_PAGES).and_then(|size| Quantity::parse(size).ok()) else { return false };
    page > Quantity::ZERO && page.milli_value() % 1000 == 0 && amount.value() % page.value() == 0
}

/// Whether an already stored spec has huge pages that are no multiple of their size (JA-P20).
pub(super) fn has_indivisible_huge_pages(spec: &core::PodSpec) -> bool {
    let indivisible = |resources: &ResourceList| {
        resources.iter().any(|(name, amount)| is_huge_pages(name) && !is_divisible(name, &quantity(amount)))
    };
    let mut resources = containers::all(spec).filter_map(|(_, _, container)| container.into_owned().resources);
    resources.any(|resources| resources.limits.iter().chain(&resources.requests).any(indivisible))
        || spec.overhead.iter().any(indivisible)
}

fn validate_claims(
    report: &mut Report,
    at: &Place<'_>,
    claims: &[core::ResourceClaim],
    pod_claims: &[core::PodResourceClaim],
) {
    let mut referenced: Vec<(&str, &str)> = Vec::new();
    for (i, claim) in claims.iter().enumerate() {
        let at = at.index(i);
        let (name, request) = (claim.name.as_str(), text(&claim.request));
        if name.is_empty() {
            report.required(&at, "");
            continue;
        }
        if referenced.contains(&(name, "")) {
            report.duplicate(&at, name);
        } else {
            if !request.is_empty() {
                report.each_invalid(&at.child("request"), request, names::dns_label(request));
            }
            if referenced.contains(&(name, request)) {
                report.duplicate(&at, format!("{name}/{request}"));
            } else if request.is_empty() {
                // The whole claim overlaps with every request of it referenced before.
                for _ in referenced.iter().filter(|(other, _)| *other == name) {
                    report.duplicate(&at, name);
                }
            }
            if !referenced.contains(&(name, request)) {
                referenced.push((name, request));
            }
        }
        if !pod_claims.iter().any(|pod_claim| pod_claim.name == name) {
            report.not_found_because(&at, name, missing_claim(pod_claims));
        }
    }
}

fn missing_claim(pod_claims: &[core::PodResourceClaim]) -> String {
    let mut names: Vec<&str> =
        pod_claims.iter().map(|claim| claim.name.as_str()).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let known = if names.is_empty() { " which is empty".to_owned() } else { format!(": {}", names.join(", ")) };
    format!("must be one of the names in pod.spec.resourceClaims{known}")
}

/// A limit or request exposed to the container; a volume must say whose.
pub(super) fn validate_field(
    report: &mut Report,
    at: &Place<'_>,
    selector: &core::ResourceFieldSelector,
    in_volume: bool,
) {
    let resource = selector.resource.as_str();
    let huge_pages = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_volume && text(&selector.container_name).is_empty() {
        report.required(&at.child("containerName"), "");
    } else if resource.is_empty() {
        report.required(&at.child("resource"), "");
    } else if !FIELDS.contains(&resource) && !huge_pages {
        report.not_supported_text(&at.child("resource"), resource, &FIELDS);
    }
    let Some(divisor) = selector.divisor.as_ref().map(quantity).filter(|divisor| *divisor != Quantity::ZERO) else {
        return;
    };
    if let Some(kind) = divisible_kind(resource) {
        let supported: &[&str] = if kind == "cpu" { &CPU_DIVISORS } else { &BYTE_DIVISORS };
        if !supported.contains(&divisor.to_string().as_str()) {
            let supported = if kind == "cpu" { "1m and 1".to_owned() } else { supported.join(", ") };
            let text = format!("only divisor's values {supported} are supported with the {kind} resource");
            report.invalid(&at.child("divisor"), resource, text);
        }
    }
}

/// What kind of resource a field is of, in the words of the error about its divisor.
fn divisible_kind(field: &str) -> Option<&'static str> {
    match field.strip_prefix("limits.").or_else(|| field.strip_prefix("requests."))? {
        "cpu" => Some("cpu"),
        "memory" => Some("memory"),
        "ephemeral-storage" => Some("local ephemeral storage"),
        name if is_huge_pages(name) => Some("hugepages"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::pod::testing::{check_containers, check_templates};

    fn requirements(requests: serde_json::Value, limits: serde_json::Value) -> serde_json::Value {
        json!({"resources": {"requests": requests, "limits": limits}})
    }

    /// JA-P12.
    #[test]
    fn names_and_amounts() {
        check_containers(&[
            (requirements(json!({"cpu": "1", "ephemeral-storage": "1Gi"}), json!({"cpu": "1500m"})), &[]),
            (requirements(json!({}), json!({"example.com/gpu": "2", "hugepages-2Mi": "4Mi", "memory": "1Gi"})), &[]),
            (
                requirements(json!({"cpu": "2"}), json!({"cpu": "1"})),
                &["resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"],
            ),
            (
                requirements(json!({"example.com/gpu": "1"}), json!({"example.com/gpu": "2"})),
                &["resources.requests: Invalid value: \"1\": must be equal to example.com/gpu limit of 2"],
            ),
            (
                requirements(json!({"example.com/gpu": "1"}), json!({})),
                &["resources.limits: Required value: Limit must be set for non overcommitable resources"],
            ),
            (
                requirements(json!({}), json!({"example.com/gpu": "1500m"})),
                &["resources.limits[example.com/gpu]: Invalid value: \"1500m\": must be an integer"],
            ),
            (
                requirements(json!({"cpu": "-1"}), json!({})),
                &["resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
            ),
            (
                requirements(json!({}), json!({"hugepages-2Mi": "4Mi"})),
                &["resources: Forbidden: HugePages require cpu or memory"],
            ),
            (
                requirements(json!({}), json!({"hugepages-2Mi": "3Mi", "memory": "1Gi"})),
                &["resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of \
                   hugepages-2Mi"],
            ),
            (
                requirements(json!({}), json!({"gpu": "1"})),
                &[
                    "resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
                    "resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
                ],
            ),
            (
                requirements(json!({}), json!({"pods": "1"})),
                &["resources.limits[pods]: Invalid value: \"pods\": must be a standard resource for containers"],
            ),
            (
                requirements(json!({}), json!({"requests.example.com/gpu": "1"})),
                &[
                    "resources.limits[requests.example.com/gpu]: Invalid value: \"requests.example.com/gpu\": doesn't follow \
                   extended resource name standard",
                ],
            ),
        ]);
    }

    #[test]
    fn claims_are_among_those_of_the_pod() {
        let at = "spec.containers[0].resources.claims";
        let spec = |claims: serde_json::Value| {
            json!({
                "resourceClaims": [{"name": "b", "resourceClaimName": "x"}, {"name": "a", "resourceClaimName": "y"}],
                "containers": [{"resources": {"claims": claims}}],
            })
        };
        check_templates(&[
            (spec(json!([{"name": "a", "request": "r"}, {"name": "a", "request": "s"}, {"name": "b"}])), &[]),
            (
                spec(
                    json!([{"name": "a", "request": "r"}, {"name": "a", "request": "r"}, {"name": "a"}, {"name": "c"}, {}]),
                ),
                &[
                    &format!("{at}[1]: Duplicate value: \"a/r\""),
                    &format!("{at}[2]: Duplicate value: \"a\""),
                    &format!("{at}[3]: Not found: \"c\": must be one of the names in pod.spec.resourceClaims: a, b"),
                    &format!("{at}[4]: Required value"),
                ],
            ),
        ]);
        check_containers(&[(
            json!({"resources": {"claims": [{"name": "c"}]}}),
            &[
                "resources.claims[0]: Not found: \"c\": must be one of the names in pod.spec.resourceClaims which is empty",
            ],
        )]);
    }

    #[test]
    fn pod_level_resources_hold_all_containers() {
        let spec = |resources: serde_json::Value| {
            json!({
                "resources": resources,
                "containers": [{"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}}],
                "initContainers": [
                    {"name": "side", "image": "a:1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                    {"name": "setup", "image": "a:1", "resources": {"requests": {"cpu": "3"}}},
                ],
            })
        };
        check_templates(&[
            (spec(json!({"requests": {"cpu": "4"}, "limits": {"cpu": "4"}})), &[]),
            (
                spec(json!({"requests": {"cpu": "3500m"}, "limits": {"cpu": "3500m"}})),
                &[
                    "spec.resources.requests[cpu]: Invalid value: \"3500m\": must be greater than or equal to aggregate \
                     container requests of 4",
                    "spec.resources.containers[0][cpu].limits: Invalid value: \"4\": must be less than or equal to pod \
                     limits of 3500m",
                ],
            ),
            (
                spec(json!({"limits": {"ephemeral-storage": "1"}})),
                &[
                    "spec.resources.limits[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \
                   \"cpu\", \"hugepages-\", \"memory\"",
                ],
            ),
        ]);
    }

    #[test]
    fn resource_fields_and_divisors() {
        let variable =
            |selector: serde_json::Value| json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": selector}}]});
        let at = "env[0].valueFrom.resourceFieldRef";
        check_containers(&[
            (variable(json!({"resource": "limits.cpu", "divisor": "1m"})), &[]),
            (variable(json!({"resource": "requests.hugepages-2Mi", "divisor": "1Mi"})), &[]),
            (variable(json!({})), &[&format!("{at}.resource: Required value")]),
            (
                variable(json!({"resource": "limits.gpu"})),
                &[&format!(
                    "{at}.resource: Unsupported value: \"limits.gpu\": supported values: \"limits.cpu\", \
                     \"limits.ephemeral-storage\", \"limits.memory\", \"requests.cpu\", \"requests.ephemeral-storage\", \
                     \"requests.memory\""
                )],
            ),
            (
                variable(json!({"resource": "limits.cpu", "divisor": "2"})),
                &[&format!(
                    "{at}.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu \
                     resource"
                )],
            ),
            (
                variable(json!({"resource": "requests.ephemeral-storage", "divisor": "1m"})),
                &[&format!(
                    "{at}.divisor: Invalid value: \"requests.ephemeral-storage\": only divisor's values 1, 1k, 1M, 1G, 1T, \
                     1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource"
                )],
            ),
        ]);
    }
}
