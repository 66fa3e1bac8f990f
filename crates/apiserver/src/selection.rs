//! Which objects a list or a watch is about: label selector, field selector, and how they read stored bytes.

use std::borrow::Cow;

use batch_types::selector::{FieldSelector, Selector};
use bytes::Bytes;

use crate::{
    options::ListOptions,
    resources::{Resource, UnknownField},
    status::Status,
    storage::Stored,
};

/// A parsed pair of selectors for one resource.
#[derive(Debug, Clone)]
pub struct Selection {
    labels: Selector,
    fields: Vec<FieldRequirement>,
    /// `metadata.name=x`: the single-object form (AS-95).
    pub name: Option<String>,
    /// `metadata.namespace=x`.
    pub namespace: Option<String>,
}

#[derive(Debug, Clone)]
struct FieldRequirement {
    source: Source,
    equals: bool,
    value: String,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Name,
    Namespace,
    /// A field that may be named but has no value in any object.
    Nothing,
    /// A selectable field of the resource, by position.
    Field {
        at: usize,
        /// Its text when it is absent.
        absent: &'static str,
        /// The field that stands in for it when it is empty.
        or: Option<usize>,
    },
}

impl Selection {
    pub fn parse(resource: &Resource, options: &ListOptions) -> Result<Self, Status> {
        let labels: Selector =
            options.label_selector.parse().map_err(|error| Status::bad_request(format!("{error}")))?;
        let parsed: FieldSelector =
            options.field_selector.parse().map_err(|error| Status::bad_request(format!("{error}")))?;
        let mut fields = Vec::new();
        let (mut name, mut namespace) = (None, None);
        for requirement in parsed.requirements {
            let source = source_of(resource, &requirement.field)?;
            if !requirement.negated {
                match source {
                    Source::Name => name = Some(requirement.value.clone()),
                    Source::Namespace => namespace = Some(requirement.value.clone()),
                    Source::Nothing | Source::Field { .. } => {}
                }
            }
            fields.push(FieldRequirement { source, equals: !requirement.negated, value: requirement.value });
        }
        Ok(Self { labels, fields, name, namespace })
    }

    /// Nothing is filtered out.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty()
    }

    /// Judges an object by its key and its attributes.
    pub fn matches(&self, object: &Stored) -> bool {
        let reads = !self.labels.is_everything() || self.fields.iter().any(FieldRequirement::reads_value);
        let value = if reads { object.value() } else { Bytes::new() };
        self.fields.iter().all(|requirement| requirement.matches(object, &value))
            && (self.labels.is_everything()
                || self.labels.matches_with(|label| object.attributes().label(&value, label)))
    }
}

impl FieldRequirement {
    /// Whether the key alone does not tell.
    fn reads_value(&self) -> bool {
        matches!(self.source, Source::Field { .. })
    }

    fn matches(&self, object: &Stored, value: &Bytes) -> bool {
        let actual: Cow<'_, str> = match self.source {
            Source::Name => key_part(&object.key, Part::Name).into(),
            Source::Namespace => key_part(&object.key, Part::Namespace).into(),
            Source::Nothing => "".into(),
            Source::Field { at, absent, or } => {
                let text = |at| object.attributes().field(value, at).filter(|text| !text.is_empty());
                text(at).or_else(|| or.and_then(text)).unwrap_or(Cow::Borrowed(absent))
            }
        };
        (actual == self.value.as_str()) == self.equals
    }
}

enum Part {
    Namespace,
    Name,
}

/// Keys are `topic/namespace/name`, or `topic/name` for cluster-wide kinds.
fn key_part(key: &str, part: Part) -> &str {
    let mut segments = key.split('/').skip(1);
    let (first, second) = (segments.next().unwrap_or_default(), segments.next());
    match (part, second) {
        (Part::Name, Some(name)) => name,
        (Part::Name, None) | (Part::Namespace, Some(_)) => first,
        (Part::Namespace, None) => "",
    }
}

fn source_of(resource: &Resource, label: &str) -> Result<Source, Status> {
    match label {
        "metadata.name" => return Ok(Source::Name),
        "metadata.namespace" if resource.namespaced || resource.unknown_field == UnknownField::Default => {
            return Ok(Source::Namespace);
        }
        // Upstream lets it be named and forgets to fill it in.
        "status.podIPs" if resource.kind == "Pod" => return Ok(Source::Nothing),
        _ => {}
    }
    let position = |label: &str| resource.selectable.iter().position(|field| field.label == label);
    // An event without a source is found by who reported it (AS-94).
    let or = position("reportingComponent").filter(|_| label == "source");
    position(label).map(|at| Source::Field { at, absent: resource.selectable[at].absent, or }).ok_or_else(|| {
        Status::bad_request(match resource.unknown_field {
            UnknownField::Default => {
                format!("\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            UnknownField::Short => format!("field label not supported: {label}"),
            UnknownField::WithKind => format!("field label \"{label}\" not supported for {}", resource.kind),
        })
    })
}
