//! Schemas of the types a document refers to (AS-49 c).
//!
//! A writer asks for references; whatever was asked for, and everything that refers to in turn, is described at the
//! end. Version 2 and 3 documents say the same with small differences, which are all in this file.

use std::collections::{BTreeMap, VecDeque};

use api_schema::{Field, ListType, PatchStrategy, Shape, Type};
use serde_json::{Map, Value, json};

use super::{
    Dialect,
    descriptions::descriptions,
    facts::facts,
    names::{self, Scalar},
    types,
};

/// The schemas of one document, growing by reference.
#[derive(Debug)]
pub struct Components {
    dialect: Dialect,
    /// The group-versions of the document: some meta types count as kinds of each.
    versions: Vec<(&'static str, &'static str)>,
    schemas: BTreeMap<String, Value>,
    waiting: VecDeque<Component>,
}

#[derive(Debug, Clone, Copy)]
enum Component {
    Type(&'static Type),
    Scalar(Scalar),
}

impl Components {
    pub fn new(dialect: Dialect, versions: Vec<(&'static str, &'static str)>) -> Self {
        Self { dialect, versions, schemas: BTreeMap::new(), waiting: VecDeque::new() }
    }

    /// `{"$ref": …}` to a type.
    pub fn reference(&mut self, ty: &'static Type) -> Value {
        json!({"$ref": self.target(Component::Type(ty))})
    }

    /// All schemas that are referred to, by name.
    pub fn finish(mut self) -> Map<String, Value> {
        // Each schema is built once, and there are only so many types: this ends.
        while let Some(component) = self.waiting.pop_front() {
            let schema = match component {
                Component::Type(ty) => self.describe(ty),
                Component::Scalar(scalar) => self.describe_scalar(scalar),
            };
            self.schemas.insert(component.name(), schema);
        }
        self.schemas.into_iter().collect()
    }

    /// Where a component is described, which it will be from now on.
    fn target(&mut self, component: Component) -> String {
        let name = component.name();
        let target = match self.dialect {
            Dialect::V2 => format!("#/definitions/{name}"),
            Dialect::V3 => format!("#/components/schemas/{name}"),
        };
        self.schemas.entry(name).or_insert_with(|| {
            self.waiting.push_back(component);
            Value::Null
        });
        target
    }

    fn describe(&mut self, ty: &'static Type) -> Value {
        let name = types::name_of(ty);
        let mut schema = Map::new();
        schema.insert("description".to_owned(), json!(descriptions().of_type(&name)));
        if !ty.fields.is_empty() {
            let properties: BTreeMap<&str, Value> =
                ty.fields.iter().map(|field| (field.json, self.property(&name, field))).collect();
            schema.insert("properties".to_owned(), json!(properties));
        }
        let required: Vec<&str> =
            ty.fields.iter().filter(|field| facts().is_required(&name, field)).map(|field| field.json).collect();
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        schema.insert("type".to_owned(), json!("object"));
        let kinds = self.kinds(ty);
        if !kinds.is_empty() {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), Value::Array(kinds));
        }
        if ty.atomic {
            schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
        if let Some(union) = facts().union(&name) {
            let mut members = Map::new();
            if let Some(discriminator) = union.discriminator {
                members.insert("discriminator".to_owned(), json!(discriminator));
            }
            let fields: Map<String, Value> =
                union.members.iter().map(|field| ((*field).to_owned(), json!(names::capitalized(field)))).collect();
            members.insert("fields-to-discriminateBy".to_owned(), Value::Object(fields));
            schema.insert("x-kubernetes-unions".to_owned(), json!([members]));
        }
        Value::Object(schema)
    }

    /// The kinds a type is served as. `DeleteOptions` and `WatchEvent` belong to every version (AS-22).
    fn kinds(&self, ty: &'static Type) -> Vec<Value> {
        let kind = |group: &str, version: &str| json!({"group": group, "kind": ty.name, "version": version});
        match ty.name {
            "DeleteOptions" | "WatchEvent" => {
                let core = ("", "v1");
                let others = self.versions.iter().filter(|version| **version != core);
                [core].iter().chain(others).map(|(group, version)| kind(group, version)).collect()
            }
            _ if ty.field("kind").is_some_and(|field| field.embed.is_some_and(|embed| embed.name == "TypeMeta")) => {
                vec![kind(ty.group, ty.package)]
            }
            _ => Vec::new(),
        }
    }

    fn property(&mut self, type_name: &str, field: &Field) -> Value {
        let values = facts().values(field);
        let mut schema = self.value(&field.shape, values);
        let text = descriptions().of_field(type_name, field);
        schema.insert("description".to_owned(), json!(text));
        if self.dialect == Dialect::V3
            && let Some(default) = default_value(type_name, field)
        {
            schema.insert("default".to_owned(), default);
        }
        extend(&mut schema, type_name, field);
        Value::Object(schema)
    }

    /// What a value of this shape looks like, without the words around it.
    fn value(&mut self, shape: &Shape, values: Option<&[&str]>) -> Map<String, Value> {
        match shape {
            Shape::String => match values {
                Some(values) => object([("enum", json!(values)), ("type", json!("string"))]),
                None => object([("type", json!("string"))]),
            },
            Shape::Int32 => object([("format", json!("int32")), ("type", json!("integer"))]),
            Shape::Int64 => object([("format", json!("int64")), ("type", json!("integer"))]),
            Shape::Bool => object([("type", json!("boolean"))]),
            Shape::Bytes => object([("format", json!("byte")), ("type", json!("string"))]),
            Shape::Time => self.wrapped(Component::Scalar(Scalar::Time)),
            Shape::MicroTime => self.wrapped(Component::Scalar(Scalar::MicroTime)),
            Shape::Quantity => self.wrapped(Component::Scalar(Scalar::Quantity)),
            Shape::IntOrString => self.wrapped(Component::Scalar(Scalar::IntOrString)),
            Shape::Json => self.wrapped(Component::Scalar(Scalar::FieldsV1)),
            Shape::Struct(ty) => self.wrapped(Component::Type(ty)),
            Shape::List(element) => object([("items", self.element(element, values)), ("type", json!("array"))]),
            Shape::Map(element) => {
                object([("additionalProperties", self.element(element, values)), ("type", json!("object"))])
            }
        }
    }

    /// The items of a list or the values of a map.
    fn element(&mut self, shape: &Shape, values: Option<&[&str]>) -> Value {
        if let (Dialect::V3, Some(scalar)) = (self.dialect, scalar_of(shape)) {
            return json!({"$ref": self.target(Component::Scalar(scalar))});
        }
        let mut schema = self.value(shape, values);
        if self.dialect == Dialect::V3
            && let Some(zero) = zero(shape)
        {
            schema.insert("default".to_owned(), zero);
        }
        Value::Object(schema)
    }

    /// Version 3 puts references under `allOf`, because members beside `$ref` are ignored there; version 2 documents
    /// of Kubernetes have always had a description beside it.
    fn wrapped(&mut self, component: Component) -> Map<String, Value> {
        let target = self.target(component);
        match self.dialect {
            Dialect::V2 => object([("$ref", json!(target))]),
            Dialect::V3 => object([("allOf", json!([{"$ref": target}]))]),
        }
    }

    fn describe_scalar(&self, scalar: Scalar) -> Value {
        let name = format!("{scalar:?}");
        let either = |types: [&str; 2]| json!(types.map(|one| json!({ "type": one })));
        let mut schema = match (scalar, self.dialect) {
            (Scalar::Time | Scalar::MicroTime, _) => {
                object([("format", json!("date-time")), ("type", json!("string"))])
            }
            (Scalar::FieldsV1, _) => object([("type", json!("object"))]),
            (Scalar::Quantity, Dialect::V2) => object([("type", json!("string"))]),
            (Scalar::Quantity, Dialect::V3) => object([("oneOf", either(["string", "number"]))]),
            (Scalar::IntOrString, Dialect::V2) => {
                object([("format", json!("int-or-string")), ("type", json!("string"))])
            }
            (Scalar::IntOrString, Dialect::V3) => {
                object([("format", json!("int-or-string")), ("oneOf", either(["integer", "string"]))])
            }
        };
        schema.insert("description".to_owned(), json!(descriptions().of_type(&name)));
        Value::Object(schema)
    }
}

impl Component {
    fn name(self) -> String {
        match self {
            Self::Type(ty) => names::schema(ty),
            Self::Scalar(scalar) => scalar.schema(),
        }
    }
}

/// What patches and server-side apply do with lists and maps (AS-119, AS-125, AS-142).
fn extend(schema: &mut Map<String, Value>, type_name: &str, field: &Field) {
    let mut set = |name: &str, value: Value| schema.insert(format!("x-kubernetes-{name}"), value);
    let is_list = matches!(field.shape, Shape::List(_));
    match &field.list {
        ListType::Map(keys) => {
            set("list-map-keys", json!(keys));
            set("list-type", json!("map"));
        }
        ListType::Set => {
            set("list-type", json!("set"));
        }
        // Lists of kinds are answers, never applied; upstream marks no list type there, nor on discovery's verbs.
        ListType::Atomic if is_list && is_applied(type_name, field) => {
            set("list-type", json!("atomic"));
        }
        ListType::Atomic if matches!(field.shape, Shape::Map(_)) => {
            set("map-type", json!("atomic"));
        }
        ListType::Atomic | ListType::Granular => {}
    }
    let mut strategies = Vec::new();
    if let Some(PatchStrategy::MergeByKey(key)) = field.patch {
        set("patch-merge-key", json!(key));
    }
    if field.patch.is_some() {
        strategies.push("merge");
    }
    if field.retain_keys {
        strategies.push("retainKeys");
    }
    if field.replace {
        strategies.push("replace");
    }
    if !strategies.is_empty() {
        set("patch-strategy", json!(strategies.join(",")));
    }
}

fn is_applied(type_name: &str, field: &Field) -> bool {
    let is_list_of_kind = field.json == "items" && type_name.ends_with("List");
    !is_list_of_kind && (type_name, field.json) != ("APIResource", "verbs")
}

/// Structs default to empty ones, and members that are always written to their zero value.
fn default_value(type_name: &str, field: &Field) -> Option<Value> {
    if let Some(value) = facts().default_of(type_name, field) {
        return Some(value);
    }
    match field.shape {
        Shape::Struct(_) if !field.pointer => zero(&field.shape),
        Shape::String | Shape::Int32 | Shape::Int64 | Shape::Bool if field.always && !field.pointer => {
            zero(&field.shape)
        }
        _ => None,
    }
}

fn zero(shape: &Shape) -> Option<Value> {
    match shape {
        Shape::String => Some(json!("")),
        Shape::Int32 | Shape::Int64 => Some(json!(0)),
        Shape::Bool => Some(json!(false)),
        Shape::Struct(_) => Some(json!({})),
        _ => None,
    }
}

fn scalar_of(shape: &Shape) -> Option<Scalar> {
    match shape {
        Shape::Time => Some(Scalar::Time),
        Shape::MicroTime => Some(Scalar::MicroTime),
        Shape::Quantity => Some(Scalar::Quantity),
        Shape::IntOrString => Some(Scalar::IntOrString),
        _ => None,
    }
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
