//! Properties that must hold for every type of the table: values made up from the schema survive every codec.

use api_schema::{Shape, Type, json, protobuf, registry};
use proptest::prelude::*;
use serde_json::{Map, Value};

/// Makes up values from a seed. Shrinking would not help much: a failing seed already names type and value.
struct Maker(u64);

impl Maker {
    fn next(&mut self, below: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.next(from.len() as u64) as usize]
    }

    fn text(&mut self) -> String {
        self.pick(&["", "a", "demo", "Never", "a b", "<&>", "\"\\\n\u{1}", "käse", "\u{2028}", "😀", "x.y/z"])
            .to_owned()
    }

    fn value(&mut self, shape: &Shape, depth: usize) -> Value {
        match shape {
            Shape::String => Value::String(self.text()),
            Shape::Int32 => Value::from(self.next(u64::from(u32::MAX) + 1) as u32 as i32 >> self.next(31)),
            Shape::Int64 => Value::from(self.next(u64::MAX) as i64 >> self.next(63)),
            Shape::Bool => Value::Bool(self.next(2) == 0),
            Shape::Bytes => Value::from(self.pick(&["", "aGVsbG8=", "/w==", "aGVs\nbG8="])),
            Shape::Time => {
                self.pick(&["2026-11-15T06:27:19Z", "1969-12-31T23:59:59+01:00", "9999-12-31T23:59:59Z"]).into()
            }
            Shape::MicroTime => self.pick(&["2024-05-01T10:00:00.000001Z", "1960-02-29T00:00:00.999999-11:30"]).into(),
            Shape::Quantity => self.pick(&["0", "1", "0.5", "1024Mi", "100m", "1e3", "1.5Gi", "-5", "12E"]).into(),
            Shape::IntOrString => match self.next(2) {
                0 => Value::from(self.next(70_000)),
                _ => Value::String(self.text()),
            },
            Shape::Json => serde_json::json!({"f:a": {"k:{\"name\":\"x\"}": {".": {}}}, "n": [1, null, true]}),
            Shape::Struct(ty) => self.object(ty, depth + 1),
            Shape::List(element) => (0..self.next(3)).map(|_| self.value(element, depth + 1)).collect(),
            Shape::Map(element) => {
                let entries = (0..self.next(4)).map(|_| (self.text(), self.value(element, depth + 1)));
                Value::Object(entries.collect())
            }
        }
    }

    /// Deeper objects have fewer members, so that the whole stays small.
    fn object(&mut self, ty: &'static Type, depth: usize) -> Value {
        let mut members = Map::new();
        let skip_from = self.next(ty.fields.len() as u64 + 1) as usize;
        for at in 0..ty.fields.len() {
            // Not in the API's order.
            let field = &ty.fields[(at + skip_from) % ty.fields.len()];
            match self.next(2 + 2 * depth as u64) {
                0 => drop(members.insert(field.json.to_owned(), self.value(&field.shape, depth))),
                1 if self.next(4) == 0 => drop(members.insert(field.json.to_owned(), Value::Null)),
                _ => {}
            }
        }
        Value::Object(members)
    }
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    json::encode(value, &mut out);
    out
}

fn text(value: &Value) -> String {
    String::from_utf8(encoded(value)).expect("JSON is text")
}

/// Kind and version travel in the envelope, not in the object or its items.
fn without_type_meta(value: &Value) -> Value {
    let mut value = value.clone();
    strip_type_meta(&mut value);
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        strip_type_meta(item);
    }
    if let Some(options) = value.get_mut("deleteOptions") {
        strip_type_meta(options);
    }
    value
}

fn strip_type_meta(value: &mut Value) {
    if let Some(members) = value.as_object_mut() {
        members.shift_remove("kind");
        members.shift_remove("apiVersion");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn values_of_every_kind_survive_every_codec(seed in any::<u64>()) {
        for (api_version, kind, ty) in registry().kinds() {
            let given = Maker(seed).object(ty, 0);
            let decoded = json::decode(ty, &encoded(&given));
            let decoded = decoded.unwrap_or_else(|error| panic!("{api_version} {kind}: {error}\n{}", text(&given)));
            prop_assert_eq!(&decoded.strict, &[], "{} {}", api_version, kind);

            let converted = json::convert(ty, given.clone()).expect("what decodes converts");
            prop_assert_eq!(text(&converted.value), text(&decoded.value), "{} {}: convert", api_version, kind);

            let again = json::decode(ty, &encoded(&decoded.value)).expect("canonical values decode");
            prop_assert_eq!(text(&again.value), text(&decoded.value), "{} {}: decode twice", api_version, kind);

            let wire = protobuf::encode(ty, &decoded.value, api_version, kind);
            let (meta, raw) = protobuf::decode_envelope(&wire).expect("our own envelope");
            prop_assert_eq!((meta.api_version.as_str(), meta.kind.as_str()), (api_version, kind));
            let back = protobuf::decode(ty, &wire[raw]).expect("our own message");
            prop_assert_eq!(text(&back), text(&without_type_meta(&decoded.value)), "{} {}: protobuf", api_version, kind);
        }
    }

    #[test]
    fn stamped_encoding_differs_only_by_the_revision(seed in any::<u64>()) {
        for (_, _, ty) in registry().kinds().filter(|(_, kind, _)| !kind.ends_with("List") && *kind != "Status" && *kind != "DeleteOptions") {
            let mut object = json::convert(ty, Maker(seed).object(ty, 0)).expect("values of the schema").value;
            let (head, tail) = json::encode_stamped(&object);
            object["metadata"]["resourceVersion"] = "42".into();
            let stamped = [head, b"42".to_vec(), tail].concat();
            let canonical = json::convert(ty, object).expect("still of the schema").value;
            prop_assert_eq!(String::from_utf8_lossy(&stamped), text(&canonical));
        }
    }

    #[test]
    fn parts_known_as_bytes_keep_their_place(seed in any::<u64>(), aside in prop::sample::subsequence(vec!["spec", "status"], 0..=2)) {
        for (api_version, kind) in [("v1", "Pod"), ("batch/v1", "Job"), ("v1", "Node")] {
            let ty = registry().kind(api_version, kind).expect("a served kind");
            let mut object = json::convert(ty, Maker(seed).object(ty, 0)).expect("values of the schema").value;
            let whole = json::encode_stamped(&object);
            let members = object.as_object_mut().expect("an object");
            let raw: Vec<_> = aside.iter().filter_map(|name| Some((*name, encoded(&members.shift_remove(*name)?)))).collect();
            let raw: Vec<_> = raw.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
            let managed_fields = object["metadata"].as_object_mut().and_then(|metadata| metadata.shift_remove("managedFields"));
            let managed_fields = managed_fields.map(|list| encoded(&list));
            let raw = json::Raw { members: &raw, managed_fields: managed_fields.as_deref() };
            prop_assert_eq!(json::encode_stamped_with(ty, &object, &raw), whole);
        }
    }

    #[test]
    fn damaged_documents_are_refused_or_read_but_never_panic(seed in any::<u64>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        for (api_version, kind) in [("v1", "Pod"), ("batch/v1", "CronJob"), ("v1", "Secret")] {
            let ty = registry().kind(api_version, kind).expect("a served kind");
            let value = json::convert(ty, Maker(seed).object(ty, 0)).expect("values of the schema").value;
            let mut document = encoded(&value);
            let position = at.index(document.len());
            document[position] = byte;
            let _ = json::decode(ty, &document);
            let _ = json::type_meta(&document);
            let _ = json::decode(ty, &document[..position]);
            let mut wire = protobuf::encode(ty, &value, api_version, kind);
            let position = at.index(wire.len());
            wire[position] = byte;
            if let Ok((_, raw)) = protobuf::decode_envelope(&wire) {
                let _ = protobuf::decode(ty, &wire[raw]);
            }
            let _ = protobuf::decode_envelope(&wire[..position]);
        }
    }
}
