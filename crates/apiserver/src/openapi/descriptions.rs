//! One or two sentences about every type and member, for `kubectl explain` (AS-52).
//!
//! The words are ours and in `descriptions.txt`:
//!
//! ```text
//! JobSpec How a Job runs its pods.        a type
//!   parallelism How many pods may run…    a member of it
//! PodAntiAffinity = PodAffinity Rules…     a type whose members are described elsewhere
//! *                                       members that mean the same in every type
//! ```

use std::{collections::HashMap, sync::LazyLock};

use api_schema::Field;

/// The table, read once.
pub fn descriptions() -> &'static Descriptions {
    static DESCRIPTIONS: LazyLock<Descriptions> =
        LazyLock::new(|| Descriptions::read(include_str!("descriptions.txt")));
    &DESCRIPTIONS
}

#[derive(Debug, Default)]
pub struct Descriptions {
    types: HashMap<&'static str, &'static str>,
    fields: HashMap<(&'static str, &'static str), &'static str>,
    same: HashMap<&'static str, &'static str>,
}

impl Descriptions {
    /// What a type is; lists of a kind need no words of their own.
    pub fn of_type(&self, type_name: &str) -> String {
        match (self.types.get(type_name), type_name.strip_suffix("List")) {
            (Some(text), _) => (*text).to_owned(),
            (None, Some(kind)) => format!("A list of {} objects.", kind.rsplit('.').next().unwrap_or(kind)),
            (None, None) => String::new(),
        }
    }

    /// What a member means: in this type, in the struct it is inlined from, or anywhere.
    pub fn of_field(&self, type_name: &str, field: &Field) -> &'static str {
        let owners = [Some(type_name), field.embed.map(|embed| embed.name)];
        let own = owners.into_iter().flatten().find_map(|owner| self.member(owner, field.json));
        own.or_else(|| self.member("*", field.json)).unwrap_or_default()
    }

    fn member(&self, type_name: &str, json: &str) -> Option<&'static str> {
        let own = self.fields.get(&(type_name, json));
        own.or_else(|| self.fields.get(&(*self.same.get(type_name)?, json))).copied()
    }

    /// A mistake in the table is a mistake in the program: it panics, in every test.
    fn read(table: &'static str) -> Self {
        let mut read = Self::default();
        let mut current = "";
        for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, text) = line.trim_start().split_once(' ').unwrap_or((line, ""));
            if line.starts_with(' ') {
                let before = read.fields.insert((current, name), text);
                assert!(before.is_none(), "{current}.{name} is described twice");
                continue;
            }
            current = name;
            let text = match text.strip_prefix("= ").and_then(|rest| rest.split_once(' ')) {
                Some((other, text)) => {
                    read.same.insert(name, other);
                    text
                }
                None => text,
            };
            read.types.insert(name, text);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::types;

    #[test]
    fn every_description_is_of_something_that_exists() {
        let scalars = ["Time", "MicroTime", "Quantity", "IntOrString", "FieldsV1", "*"];
        let table = descriptions();
        for name in table.types.keys().chain(table.same.keys()).chain(table.same.values()) {
            assert!(types::find(name).is_some() || scalars.contains(name), "{name}");
        }
        for (name, field) in table.fields.keys().filter(|(name, _)| *name != "*") {
            assert!(types::find(name).is_some_and(|ty| ty.field(field).is_some()), "{name}.{field}");
        }
    }

    #[test]
    fn descriptions_are_short_sentences() {
        let table = descriptions();
        let texts = table.types.iter().filter(|(name, _)| **name != "*").map(|(name, text)| (*name, "", *text));
        for (name, field, text) in texts.chain(table.fields.iter().map(|((name, field), text)| (*name, *field, *text)))
        {
            assert!(text.ends_with(['.', '?']) && text.len() <= 300, "{name}.{field}: {text}");
        }
    }
}
