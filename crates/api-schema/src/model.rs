//! What a type is: its fields in API order, each with everything that any codec or patch needs to know about it.
//!
//! The types themselves are listed in `tables/`; reading those is the business of the registry.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A struct of the Kubernetes API, such as `JobSpec`.
#[derive(Debug)]
pub struct Type {
    /// The Go name without its package: `JobSpec`.
    pub name: &'static str,
    /// The package as Go prints it in error texts (`v1`), and the group it belongs to (`""` for core and meta).
    pub package: &'static str,
    pub group: &'static str,
    /// In the order of the API's type definition, which is the order of canonical JSON (AS-26). Structs that JSON
    /// inlines are flattened; [`Field::embed`] remembers where they came from.
    pub fields: Vec<Field>,
    /// Server-side apply owns and replaces values of this type as a whole (AS-142: "atomic object").
    pub atomic: bool,
    by_json_name: HashMap<&'static str, usize, BuildHasherDefault<NameHasher>>,
    by_number: Vec<Wire>,
    always_mask: u128,
}

/// One member of a [`Type`].
#[derive(Debug, Clone)]
pub struct Field {
    pub json: &'static str,
    /// Protobuf field number (AS-244); 0 for members that protobuf keeps outside the message (`kind`, `apiVersion`).
    pub number: u32,
    pub shape: Shape,
    /// A Go pointer: present values are kept even when zero. Not a pointer and not `always`: zero means absent.
    pub pointer: bool,
    /// Emitted even when empty (AS-29).
    pub always: bool,
    /// An empty list of an `always` field prints as `[]`; otherwise as `null`, because upstream's storage does not
    /// tell an empty list from an absent one.
    pub empty_list: bool,
    /// How a strategic merge patch treats this list (AS-119); `None` replaces lists and merges objects.
    pub patch: Option<PatchStrategy>,
    /// `x-kubernetes-patch-strategy: retainKeys` (AS-125).
    pub retain_keys: bool,
    /// `x-kubernetes-patch-strategy: replace`: an object that a strategic merge patch replaces instead of merging.
    pub replace: bool,
    /// How server-side apply treats this list or map (AS-142).
    pub list: ListType,
    /// The struct that JSON inlines and protobuf nests, if this field comes from one.
    pub embed: Option<Embed>,
    /// The Go type as the table declares it (`*RestartPolicy`, `[]Container`); error texts are made from it.
    pub declared: &'static str,
}

/// A struct whose members appear in JSON as if they were its parent's, such as `VolumeSource` in `Volume`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embed {
    /// The Go name, which error texts include in the path.
    pub name: &'static str,
    /// The protobuf field number of the nested message; 0 if there is none.
    pub number: u32,
}

/// The value of a field.
#[derive(Debug, Clone)]
pub enum Shape {
    String,
    Int32,
    Int64,
    Bool,
    /// Standard base64 in JSON.
    Bytes,
    /// RFC 3339, whole seconds, UTC.
    Time,
    /// RFC 3339 with six fractional digits, UTC.
    MicroTime,
    /// A resource quantity in canonical form.
    Quantity,
    IntOrString,
    /// Any JSON value, kept as it is (`FieldsV1`).
    Json,
    /// Another type. No API type contains itself, so references are plain.
    Struct(&'static Type),
    List(Box<Shape>),
    Map(Box<Shape>),
}

/// Lists that a strategic merge patch merges instead of replacing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchStrategy {
    /// A list of objects merged by this member.
    MergeByKey(&'static str),
    /// A list of primitives merged as a set.
    MergeSet,
}

/// Server-side apply's view of a list, map or struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole; the default of lists.
    Atomic,
    /// A set of primitives.
    Set,
    /// Items identified by these members.
    Map(&'static [&'static str]),
    /// Objects and string maps merged member by member; the default of those.
    Granular,
}

/// What a protobuf field number of a message stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Unknown,
    /// The position in [`Type::fields`].
    Field(usize),
    /// A nested message whose fields are those of this type that carry this embed.
    Embed(Embed),
}

impl Type {
    pub fn new(name: &'static str, package: &'static str, group: &'static str, fields: Vec<Field>) -> Self {
        let by_json_name = fields.iter().enumerate().map(|(at, field)| (field.json, at)).collect();
        let always = fields.iter().enumerate().filter(|(_, field)| field.always);
        let always_mask = always.fold(0, |mask, (at, _)| mask | 1 << at);
        let by_number = wire_table(&fields);
        Self { name, package, group, fields, atomic: false, by_json_name, by_number, always_mask }
    }

    /// The field with this exact (case-sensitive, AS-30) JSON name.
    pub fn field(&self, json_name: &str) -> Option<&Field> {
        self.position(json_name).map(|at| &self.fields[at])
    }

    /// The position of the field in [`Type::fields`].
    pub fn position(&self, json_name: &str) -> Option<usize> {
        self.by_json_name.get(json_name).copied()
    }

    /// Like [`Type::position`], trying first the field at `guess`: members mostly come in the API's order.
    pub(crate) fn position_near(&self, guess: usize, json_name: &str) -> Option<usize> {
        match self.fields.get(guess) {
            Some(field) if field.json == json_name => Some(guess),
            _ => self.position(json_name),
        }
    }

    /// A bit for the position of every field that is emitted even when empty. No type has more than 128 fields.
    pub(crate) fn always_mask(&self) -> u128 {
        self.always_mask
    }

    /// What the protobuf field `number` holds in the message itself.
    pub(crate) fn wire(&self, number: u32) -> Wire {
        self.by_number.get(number as usize).copied().unwrap_or(Wire::Unknown)
    }

    /// What the protobuf field `number` holds in the nested message of `embed`. Such messages are small.
    pub(crate) fn wire_in(&self, embed: Embed, number: u32) -> Wire {
        let found = self.fields.iter().position(|field| field.number == number && field.embed == Some(embed));
        found.map_or(Wire::Unknown, Wire::Field)
    }
}

impl Field {
    /// A plain optional field; the registry sets the rest. Lists are atomic and everything else granular.
    pub fn new(json: &'static str, number: u32, shape: Shape) -> Self {
        let list = if matches!(shape, Shape::List(_)) { ListType::Atomic } else { ListType::Granular };
        Self {
            json,
            number,
            shape,
            pointer: false,
            always: false,
            empty_list: false,
            patch: None,
            retain_keys: false,
            replace: false,
            list,
            embed: None,
            declared: "",
        }
    }
}

impl Shape {
    /// The type of an object with known members.
    pub fn as_struct(&self) -> Option<&'static Type> {
        match self {
            Shape::Struct(ty) => Some(ty),
            _ => None,
        }
    }

    /// The shape of a list's items or a map's values.
    pub fn element(&self) -> Option<&Shape> {
        match self {
            Shape::List(element) | Shape::Map(element) => Some(element),
            _ => None,
        }
    }
}

fn wire_table(fields: &[Field]) -> Vec<Wire> {
    let mut table = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        let (number, wire) = match field.embed {
            Some(embed) => (embed.number, Wire::Embed(embed)),
            None => (field.number, Wire::Field(at)),
        };
        if number == 0 {
            continue;
        }
        let number = number as usize;
        if table.len() <= number {
            table.resize(number + 1, Wire::Unknown);
        }
        table[number] = wire;
    }
    table
}

/// Hashes field names, which are short and chosen by us; the keys come from the table, so flooding is no concern.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
