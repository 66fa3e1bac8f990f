//! What OpenAPI says about types beyond their shape: required members, enumerations, defaults, unions.
//!
//! The table is `facts.txt`; its header describes the syntax. Shapes themselves come from `api_schema`.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use api_schema::{Field, Shape};
use serde_json::{Value, json};

/// The facts of the table, read once.
pub fn facts() -> &'static Facts {
    static FACTS: LazyLock<Facts> = LazyLock::new(|| Facts::read(include_str!("facts.txt")));
    &FACTS
}

/// Facts by type name as the registry knows it (`events.Event`), or by Go name for enumerations.
#[derive(Debug, Default)]
pub struct Facts {
    enums: HashMap<&'static str, Vec<&'static str>>,
    required: HashSet<(&'static str, &'static str)>,
    optional: HashSet<(&'static str, &'static str)>,
    defaults: HashMap<(&'static str, &'static str), &'static str>,
    unions: HashMap<&'static str, Union>,
    meta: HashSet<&'static str>,
}

/// Members of which at most one is set.
#[derive(Debug, PartialEq, Eq)]
pub struct Union {
    /// The member whose value tells which one.
    pub discriminator: Option<&'static str>,
    pub members: Vec<&'static str>,
}

impl Facts {
    /// The values of a field or of its elements, if they are a closed set.
    pub fn values(&self, field: &Field) -> Option<&[&'static str]> {
        let mut go_type = field.declared.trim_start_matches('*');
        if let Some(element) = go_type.strip_prefix("[]") {
            go_type = element;
        } else if let Some((_, value)) = go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            go_type = value;
        }
        self.enums.get(go_type).map(Vec::as_slice)
    }

    /// Upstream requires what has neither `omitempty` nor a mark that it is optional. Go cannot leave out structs, so
    /// their presence in JSON says nothing: those that are required are listed.
    pub fn is_required(&self, type_name: &str, field: &Field) -> bool {
        let by_shape = field.always && !field.pointer && !is_struct(&field.shape);
        let key = (type_name, field.json);
        (by_shape && !self.optional.contains(&key)) || self.required.contains(&key)
    }

    /// A default that the shape alone does not tell. Structs that are inlined bring theirs along.
    pub fn default_of(&self, type_name: &str, field: &Field) -> Option<Value> {
        let owner = field.embed.map_or(type_name, |embed| embed.name);
        let text = *self.defaults.get(&(owner, field.json))?;
        Some(if matches!(field.shape, Shape::Bool) { json!(text == "true") } else { json!(text) })
    }

    pub fn union(&self, type_name: &str) -> Option<&Union> {
        self.unions.get(type_name)
    }

    /// Whether a type belongs to apimachinery, which the registry files under the core group.
    pub fn is_meta(&self, type_name: &str) -> bool {
        self.meta.contains(type_name)
    }

    /// A mistake in the table is a mistake in the program: it panics, in every test.
    fn read(table: &'static str) -> Self {
        let mut facts = Self::default();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let Some(word) = words.next() else { continue };
            if word == "meta" {
                facts.meta.extend(words);
                continue;
            }
            let subject = words.next().unwrap_or_else(|| panic!("no subject in `{line}`"));
            match word {
                "enum" => {
                    facts.enums.insert(subject, words.map(unquoted).collect());
                }
                "required" => facts.required.extend(words.map(|field| (subject, field))),
                "optional" => facts.optional.extend(words.map(|field| (subject, field))),
                "default" => {
                    let key = subject.rsplit_once('.').unwrap_or_else(|| panic!("no field in `{line}`"));
                    let value = words.next().unwrap_or_else(|| panic!("no value in `{line}`"));
                    facts.defaults.insert(key, unquoted(value));
                }
                "union" => {
                    let mut members: Vec<&'static str> = words.collect();
                    let discriminator = (members.first() == Some(&"by")).then(|| members.drain(..2).nth(1)).flatten();
                    facts.unions.insert(subject, Union { discriminator, members });
                }
                other => panic!("unknown word `{other}` in the table of facts"),
            }
        }
        facts
    }
}

/// The empty string needs quotes to be a word.
fn unquoted(word: &str) -> &str {
    if word == "\"\"" { "" } else { word }
}

fn is_struct(shape: &Shape) -> bool {
    matches!(shape, Shape::Struct(_) | Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString)
}

#[cfg(test)]
mod tests {
    use api_schema::registry;

    use super::*;
    use crate::openapi::types;

    fn field_of(type_name: &str, json: &str) -> Option<&'static Field> {
        types::find(type_name)?.field(json)
    }

    #[test]
    fn every_fact_is_about_a_field_that_exists() {
        let facts = facts();
        let members = facts.required.iter().chain(&facts.optional).chain(facts.defaults.keys());
        let unions = facts.unions.iter().flat_map(|(ty, union)| {
            union.members.iter().chain(union.discriminator.iter()).map(move |field| (*ty, *field))
        });
        for (ty, field) in members.copied().chain(unions) {
            assert!(field_of(ty, field).is_some(), "{ty}.{field}");
        }
        for name in &facts.meta {
            assert!(types::find(name).is_some() || *name == "FieldsV1", "{name}");
        }
    }

    #[test]
    fn every_enumeration_is_used() {
        let used: HashSet<Vec<&str>> = registry()
            .types()
            .flat_map(|(_, ty)| &ty.fields)
            .filter_map(|field| facts().values(field))
            .map(<[_]>::to_vec)
            .collect();
        for (name, values) in &facts().enums {
            assert!(used.contains(values), "{name}");
            assert!(values.is_sorted(), "{name}");
        }
    }

    #[test]
    fn required_members_are_those_upstream_marks() {
        let required = |ty, json| facts().is_required(ty, field_of(ty, json).unwrap());
        for (ty, json, expected) in [
            ("JobSpec", "template", true),
            ("JobSpec", "parallelism", false),
            ("Job", "spec", false),
            ("CronJob", "spec", true),
            ("CronJobSpec", "schedule", true),
            ("PodSpec", "containers", true),
            ("Container", "name", true),
            ("Container", "resources", false),
            ("PriorityClass", "value", false),
            ("GRPCAction", "service", false),
            ("JobList", "items", true),
        ] {
            assert_eq!(required(ty, json), expected, "{ty}.{json}");
        }
    }
}
