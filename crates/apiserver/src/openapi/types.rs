//! Types that are served beside the kinds: discovery documents, watch events, patches.
//!
//! They are never decoded or stored, so the registry of `api_schema` does not know them; OpenAPI does.

use std::{collections::HashMap, sync::LazyLock};

use api_schema::{Embed, Field, Shape, Type, registry};

/// Any type that a document may describe, by the name the registry or this module knows it by.
pub fn find(name: &str) -> Option<&'static Type> {
    registry().get(name).or_else(|| OWN.get(name).copied())
}

/// A type of this module. The names are literals, so a missing one is a mistake in the program.
pub fn own(name: &str) -> &'static Type {
    OWN.get(name).unwrap_or_else(|| panic!("`{name}` is not a type of the documents"))
}

/// The name that [`find`] knows a type by. Two groups may share a name; the smaller group's is qualified.
pub fn name_of(ty: &'static Type) -> String {
    match find(ty.name) {
        Some(found) if std::ptr::eq(found, ty) => ty.name.to_owned(),
        _ => format!("{}.{}", ty.group.split('.').next().unwrap_or_default(), ty.name),
    }
}

static OWN: LazyLock<HashMap<&'static str, &'static Type>> = LazyLock::new(|| {
    let version = declare("GroupVersionForDiscovery", vec![always("groupVersion"), always("version")]);
    let address = declare("ServerAddressByClientCIDR", vec![always("clientCIDR"), always("serverAddress")]);
    let group_fields = vec![
        always("name"),
        field("versions", list(Shape::Struct(version)), true),
        field("preferredVersion", Shape::Struct(version), false),
        field("serverAddressByClientCIDRs", list(Shape::Struct(address)), false),
    ];
    let group = declare("APIGroup", object(group_fields));
    let resource = declare(
        "APIResource",
        vec![
            always("name"),
            always("singularName"),
            field("namespaced", Shape::Bool, true),
            optional("group"),
            optional("version"),
            always("kind"),
            field("verbs", list(Shape::String), true),
            field("shortNames", list(Shape::String), false),
            field("categories", list(Shape::String), false),
            optional("storageVersionHash"),
        ],
    );
    let raw = declare("RawExtension", Vec::new());
    let types = [
        version,
        address,
        group,
        resource,
        raw,
        declare("APIGroupList", object(vec![field("groups", list(Shape::Struct(group)), true)])),
        declare(
            "APIResourceList",
            object(vec![always("groupVersion"), field("resources", list(Shape::Struct(resource)), true)]),
        ),
        declare(
            "APIVersions",
            object(vec![
                field("versions", list(Shape::String), true),
                field("serverAddressByClientCIDRs", list(Shape::Struct(address)), true),
            ]),
        ),
        declare(
            "Info",
            [
                ("major", true),
                ("minor", true),
                ("emulationMajor", false),
                ("emulationMinor", false),
                ("minCompatibilityMajor", false),
                ("minCompatibilityMinor", false),
                ("gitVersion", true),
                ("gitCommit", true),
                ("gitTreeState", true),
                ("buildDate", true),
                ("goVersion", true),
                ("compiler", true),
                ("platform", true),
            ]
            .map(|(name, is_always)| field(name, Shape::String, is_always))
            .into(),
        ),
        declare("Patch", Vec::new()),
        declare(
            "WatchEvent",
            vec![always("type"), Field { pointer: true, ..field("object", Shape::Struct(raw), false) }],
        ),
    ];
    types.into_iter().map(|ty| (ty.name, ty)).collect()
});

fn declare(name: &'static str, fields: Vec<Field>) -> &'static Type {
    Box::leak(Box::new(Type::new(name, "v1", "", fields)))
}

fn object(fields: Vec<Field>) -> Vec<Field> {
    let type_meta = |json| Field { embed: Some(Embed { name: "TypeMeta", number: 0 }), ..optional(json) };
    [type_meta("kind"), type_meta("apiVersion")].into_iter().chain(fields).collect()
}

fn field(json: &'static str, shape: Shape, is_always: bool) -> Field {
    Field { always: is_always, ..Field::new(json, 0, shape) }
}

fn always(json: &'static str) -> Field {
    field(json, Shape::String, true)
}

fn optional(json: &'static str) -> Field {
    field(json, Shape::String, false)
}

fn list(element: Shape) -> Shape {
    Shape::List(Box::new(element))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_the_name_they_give() {
        for (name, ty) in registry().types() {
            assert_eq!(name_of(ty), name);
        }
        for (name, ty) in OWN.iter() {
            assert_eq!(name_of(ty), *name);
            assert!(registry().get(name).is_none(), "{name} would hide a type of the registry");
        }
    }
}
