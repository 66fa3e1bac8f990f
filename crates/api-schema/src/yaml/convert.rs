//! A composed document as the JSON it stands for: scalars resolved, aliases and merges expanded, keys made strings and
//! sorted, as Kubernetes' converter does it before anything else looks at a body.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use serde_json::Number;

use super::Problem;
use super::compose::{Content, Document, NodeId};
use super::resolve::{Scalar, resolve};
use crate::go;
use crate::json::{encode_number, encode_string};

/// Nodes that the aliases of one document may stand for: many times what people write, and a few milliseconds' work
/// (BI-4).
const ALIASED_MAX: usize = 50_000;
const EXCESSIVE: &str = "document contains excessive aliasing";
const MERGE: &str = "<<";

/// A document in JSON, and keys that occur twice in one of its mappings.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Converted {
    pub(super) json: Vec<u8>,
    pub(super) duplicates: Vec<Duplicate>,
}

/// A key that its mapping has already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Duplicate {
    /// Counted from one.
    pub(super) line: usize,
    /// In upstream's words.
    pub(super) message: String,
}

pub(super) fn convert(document: &Document) -> Result<Converted, Problem> {
    let mut converter = Converter { document, duplicates: Vec::new(), active: Vec::new(), nodes: 0, aliased: 0 };
    let value = match document.root {
        Some(root) => converter.value(root)?,
        None => Tree::Scalar(Scalar::Null),
    };
    let mut json = Vec::new();
    write(&value, &mut json)?;
    Ok(Converted { json, duplicates: converter.duplicates })
}

/// A value before its keys are strings.
#[derive(Debug, Clone)]
enum Tree {
    Scalar(Scalar),
    Sequence(Vec<Tree>),
    Mapping(Mapping),
}

/// Members in the order of their first occurrence, found by key.
#[derive(Debug, Clone, Default)]
struct Mapping {
    members: Vec<(Scalar, Tree)>,
    by_key: HashMap<String, usize>,
}

struct Converter<'a> {
    document: &'a Document,
    duplicates: Vec<Duplicate>,
    /// Aliases being expanded; an anchor within its own value would never end.
    active: Vec<NodeId>,
    nodes: usize,
    aliased: usize,
}

impl Converter<'_> {
    fn value(&mut self, id: NodeId) -> Result<Tree, Problem> {
        self.count()?;
        match &self.document.nodes[id].content {
            Content::Scalar { text, tag, plain } => scalar(text, tag, *plain).map(Tree::Scalar),
            Content::Sequence(items) => {
                items.iter().map(|item| self.value(*item)).collect::<Result<_, _>>().map(Tree::Sequence)
            }
            Content::Mapping(_) => {
                let mut mapping = Mapping::default();
                self.members_into(id, &mut mapping)?;
                Ok(Tree::Mapping(mapping))
            }
            Content::Alias { name, target } => self.within_alias(id, name, |converter| converter.value(*target)),
        }
    }

    fn count(&mut self) -> Result<(), Problem> {
        self.nodes += 1;
        if !self.active.is_empty() {
            self.aliased += 1;
        }
        // Upstream bounds the share of aliased nodes, we bound their number as well.
        let mostly_aliased = self.aliased > 100 && self.nodes > 1000 && self.aliased * 100 > self.nodes * 99;
        if mostly_aliased || self.aliased > ALIASED_MAX {
            return Err(Problem::decoder(EXCESSIVE));
        }
        Ok(())
    }

    fn within_alias<T>(
        &mut self,
        alias: NodeId,
        name: &str,
        expand: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if self.active.contains(&alias) {
            return Err(Problem::decoder(format!("anchor '{name}' value contains itself")));
        }
        self.active.push(alias);
        let expanded = expand(self);
        self.active.pop();
        expanded
    }

    /// Adds the members of the mapping `id`, a later one replacing an earlier one of the same key.
    fn members_into(&mut self, id: NodeId, mapping: &mut Mapping) -> Result<(), Problem> {
        let document = self.document;
        let Content::Mapping(members) = &document.nodes[id].content else { return Ok(()) };
        for &(key, value) in members {
            if let Content::Scalar { text, tag, plain } = &document.nodes[key].content
                && text == MERGE
                && (*plain || tag == "tag:yaml.org,2002:merge")
            {
                self.merge(value, mapping)?;
                continue;
            }
            let key = match self.value(key)? {
                Tree::Scalar(key) => key,
                other => return Err(Problem::decoder(format!("invalid map key: {}", go_syntax(&other)))),
            };
            let tree = self.value(value)?;
            let shown = go_syntax(&Tree::Scalar(key.clone()));
            match mapping.by_key.get(&shown) {
                Some(&at) => {
                    let line = document.nodes[value].line + 1;
                    self.duplicates.push(Duplicate { line, message: format!("key {shown} already set in map") });
                    mapping.members[at].1 = tree;
                }
                None => {
                    mapping.by_key.insert(shown, mapping.members.len());
                    mapping.members.push((key, tree));
                }
            }
        }
        Ok(())
    }

    /// `<<`: the members of other mappings, of several ones those of the first.
    fn merge(&mut self, id: NodeId, mapping: &mut Mapping) -> Result<(), Problem> {
        let document = self.document;
        self.count()?;
        match &document.nodes[id].content {
            Content::Mapping(_) => self.members_into(id, mapping),
            Content::Alias { name, target } if matches!(document.nodes[*target].content, Content::Mapping(_)) => {
                self.within_alias(id, name, |converter| converter.members_into(*target, mapping))
            }
            Content::Sequence(items) => items.iter().rev().try_for_each(|item| match document.nodes[*item].content {
                Content::Sequence(_) => Err(not_a_map()),
                _ => self.merge(*item, mapping),
            }),
            _ => Err(not_a_map()),
        }
    }
}

fn not_a_map() -> Problem {
    Problem::decoder("map merge requires map or sequence of maps as the value")
}

fn scalar(text: &str, tag: &str, plain: bool) -> Result<Scalar, Problem> {
    let short = tag.strip_prefix("tag:yaml.org,2002:");
    match short {
        None if !plain => Ok(Scalar::Text(text.to_owned())),
        None if tag.is_empty() || tag == "!" => Ok(resolve(text)),
        // Tags nobody knows leave the text alone.
        None => Ok(Scalar::Text(text.to_owned())),
        Some("str" | "timestamp") => Ok(Scalar::Text(text.to_owned())),
        Some("binary") => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            let invalid = || Problem::decoder("!!binary value contains invalid base64 data");
            let decoded = decoded.map_err(|_| invalid())?;
            Ok(Scalar::Text(go::repaired(&decoded).into_owned()))
        }
        Some(wanted @ ("bool" | "int" | "float" | "null")) => typed(text, wanted),
        Some(_) => Ok(Scalar::Text(text.to_owned())),
    }
}

/// A scalar whose tag says what it must be.
fn typed(text: &str, wanted: &str) -> Result<Scalar, Problem> {
    let found = resolve(text);
    let kind = match &found {
        Scalar::Null => "null",
        Scalar::Bool(_) => "bool",
        Scalar::Int(_) | Scalar::Uint(_) => "int",
        Scalar::Float(_) => "float",
        Scalar::Text(_) => "str",
    };
    match (found, wanted) {
        (Scalar::Int(number), "float") => Ok(Scalar::Float(number as f64)),
        (found, _) if kind == wanted => Ok(found),
        _ => Err(Problem::decoder(format!("cannot decode !!{kind} `{text}` as a !!{wanted}"))),
    }
}

fn write(tree: &Tree, out: &mut Vec<u8>) -> Result<(), Problem> {
    match tree {
        Tree::Scalar(scalar) => write_scalar(scalar, out)?,
        Tree::Sequence(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(item, out)?;
            }
            out.push(b']');
        }
        Tree::Mapping(mapping) => {
            let mut members = BTreeMap::new();
            for (key, value) in &mapping.members {
                members.insert(key_text(key, value)?, value);
            }
            out.push(b'{');
            for (at, (key, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                encode_string(&key, out);
                out.push(b':');
                write(value, out)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn write_scalar(scalar: &Scalar, out: &mut Vec<u8>) -> Result<(), Problem> {
    match scalar {
        Scalar::Null => out.extend_from_slice(b"null"),
        Scalar::Bool(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Scalar::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Scalar::Uint(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Scalar::Float(number) => match Number::from_f64(*number) {
            Some(number) => encode_number(&number, out),
            None => {
                let shown = match number {
                    number if number.is_nan() => "NaN",
                    number if *number > 0.0 => "+Inf",
                    _ => "-Inf",
                };
                return Err(Problem::converter(format!("json: unsupported value: {shown}")));
            }
        },
        Scalar::Text(text) => encode_string(text, out),
    }
    Ok(())
}

/// JSON's keys are strings, so those of other types become some.
fn key_text(key: &Scalar, value: &Tree) -> Result<String, Problem> {
    let unsupported = |kind: &str| {
        let (key, value) = (go_syntax(&Tree::Scalar(key.clone())), go_syntax(value));
        let key = if kind == "uint64" { key } else { "<nil>".to_owned() };
        Problem::converter(format!("unsupported map key of type: {kind}, key: {key}, value: {value}"))
    };
    match key {
        Scalar::Text(text) => Ok(text.clone()),
        Scalar::Bool(value) => Ok(value.to_string()),
        Scalar::Int(number) => Ok(number.to_string()),
        Scalar::Float(number) if number.is_nan() => Ok(".nan".to_owned()),
        Scalar::Float(number) if number.is_infinite() => Ok(if *number > 0.0 { ".inf" } else { "-.inf" }.to_owned()),
        Scalar::Float(number) => Ok(shortest(*number as f32)),
        Scalar::Uint(_) => Err(unsupported("uint64")),
        Scalar::Null => Err(unsupported("%!s(<nil>)")),
    }
}

/// A number in as few digits as tell it apart, with an exponent where Go's `%g` has one.
fn shortest(number: f32) -> String {
    let scientific = format!("{number:e}");
    match scientific.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}

/// A value as Go prints its own types (`%#v`), which is what messages about keys show.
fn go_syntax(tree: &Tree) -> String {
    match tree {
        Tree::Scalar(Scalar::Null) => "interface {}(nil)".to_owned(),
        Tree::Scalar(Scalar::Bool(value)) => value.to_string(),
        Tree::Scalar(Scalar::Int(number)) => number.to_string(),
        Tree::Scalar(Scalar::Uint(number)) => format!("{number:#x}"),
        Tree::Scalar(Scalar::Float(number)) => number.to_string(),
        Tree::Scalar(Scalar::Text(text)) => go::quote(text),
        Tree::Sequence(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Tree::Mapping(mapping) => {
            let mut members: Vec<String> = mapping
                .members
                .iter()
                .map(|(key, value)| format!("{}:{}", go_syntax(&Tree::Scalar(key.clone())), go_syntax(value)))
                .collect();
            members.sort();
            format!("map[interface {{}}]interface {{}}{{{}}}", members.join(", "))
        }
    }
}
