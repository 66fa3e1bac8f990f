//! Bytes of a known type to a canonical value, in one pass.
//!
//! The hot path only notices that a document is malformed; `syntax` then finds the words. Recursion is bounded by the
//! depth of the types, unknown members are skipped without recursion, and values without a shape are limited in depth.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::canonical::{Fate, assemble, fate, zero_value};
use super::error::{DecodeError, Path, StrictError, push_strict};
use super::lexer::{Lexer, Malformed};
use super::merge::overlay;
use super::scalar::{Found, GoType, Refusal, byte, encoded, scalar};
use super::{Decoded, convert, syntax};
use crate::go;
use crate::model::{Field, Shape, Type};

/// Decodes a body of type `ty`.
///
/// Like Go's decoder: a malformed document is reported as such whatever else is wrong; of several values of the wrong
/// type the first is reported; `null` equals absent; the last of duplicate members wins, objects and maps merging
/// into the earlier ones.
pub fn decode(ty: &'static Type, document: &[u8]) -> Result<Decoded, DecodeError> {
    let text = go::repaired(document);
    let mut decoder = Decoder::new(&text);
    let result = decoder.document(ty);
    give_back_stack(std::mem::take(&mut decoder.fields));
    let value = match result {
        Ok(value) => value,
        Err(Stop::Malformed) => return Err(malformed(document)),
        Err(Stop::Refused(error)) => {
            // The rest was not read; it may still be malformed.
            syntax::check(document)?;
            return Err(*error);
        }
    };
    match decoder.type_error {
        Some(error) => Err(error),
        None => Ok(Decoded { value, strict: decoder.strict }),
    }
}

/// Reads a document of no particular type, such as a patch; the last of duplicate members wins.
pub fn parse(document: &[u8]) -> Result<Value, DecodeError> {
    let text = go::repaired(document);
    let mut lexer = Lexer::new(&text);
    let value = lexer.value(0).and_then(|value| lexer.end().map(|()| value));
    value.map_err(|Malformed| malformed(document))
}

/// Like [`parse`], and lists the members that are given twice.
pub fn parse_noting_duplicates(document: &[u8]) -> Result<(Value, Vec<StrictError>), DecodeError> {
    let text = go::repaired(document);
    let mut lexer = Lexer::new(&text);
    let mut duplicates = Vec::new();
    let mut note = |path: &Path<'_>, key: &str| push_strict(&mut duplicates, StrictError::Duplicate(path.member(key)));
    let value = lexer.value_noting(0, &Path::ROOT, &mut note).and_then(|value| lexer.end().map(|()| value));
    match value {
        Ok(value) => Ok((value, duplicates)),
        Err(Malformed) => Err(malformed(document)),
    }
}

/// The error of a document that the lexer refused.
pub(super) fn malformed(document: &[u8]) -> DecodeError {
    match syntax::check(document) {
        Err(error) => error,
        // Well-formed, but deeper than we let values without a shape be.
        Ok(()) => DecodeError::Syntax("exceeded max depth".to_owned()),
    }
}

thread_local! {
    /// The stack of the thread's previous decoding, kept because allocating it costs as much as reading a small object.
    static FIELD_STACK: Cell<Vec<(usize, Value)>> = const { Cell::new(Vec::new()) };
}

/// More than the fields of any object with all its parents.
const FIELD_STACK_MAX: usize = 1024;

fn give_back_stack(mut stack: Vec<(usize, Value)>) {
    stack.clear();
    if stack.capacity() <= FIELD_STACK_MAX {
        FIELD_STACK.set(stack);
    }
}

struct Decoder<'d> {
    lexer: Lexer<'d>,
    /// Fields of the objects being read, innermost last. One stack for all saves an allocation per object.
    fields: Vec<(usize, Value)>,
    strict: Vec<StrictError>,
    type_error: Option<DecodeError>,
    /// Keep exactly what the document says: no omissions, no additions, nulls included. For members that are given
    /// twice, whose values merge before anything is left out.
    verbatim: bool,
}

/// Boxed, so that results stay small: they are returned for every value.
enum Stop {
    Malformed,
    Refused(Box<DecodeError>),
}

impl From<Malformed> for Stop {
    fn from(_: Malformed) -> Self {
        Stop::Malformed
    }
}

impl<'d> Decoder<'d> {
    fn new(document: &'d str) -> Self {
        Self {
            lexer: Lexer::new(document),
            fields: FIELD_STACK.take(),
            strict: Vec::new(),
            type_error: None,
            verbatim: false,
        }
    }

    fn document(&mut self, ty: &'static Type) -> Result<Value, Stop> {
        let go_type = GoType { declared: ty.name, depth: 0 };
        let value = self.value(&Shape::Struct(ty), &Path::ROOT, go_type)?;
        self.lexer.end()?;
        Ok(value.filter(|value| !value.is_null()).unwrap_or_else(|| zero_value(&Shape::Struct(ty))))
    }

    /// One value of a shape; null stays null. `None` if it was of the wrong type, which is remembered.
    fn value(&mut self, shape: &Shape, path: &Path<'_>, go_type: GoType<'_>) -> Result<Option<Value>, Stop> {
        let found = match (shape, self.lexer.peek()?) {
            (Shape::String, b'"') => return Ok(Some(Value::String(self.lexer.string()?.into_owned()))),
            (Shape::Struct(ty), b'{') => return self.object(ty, path).map(Some),
            (Shape::List(element), b'[') => return self.list(element, path, go_type).map(Some),
            (Shape::Map(element), b'{') => return self.map(element, path, go_type).map(Some),
            (Shape::Bytes, b'[') => return self.bytes(path).map(Some),
            (Shape::Json, _) => return Ok(Some(self.lexer.value(0)?)),
            _ => self.lexer.found()?,
        };
        if matches!(found, Found::Null) {
            return Ok(Some(Value::Null));
        }
        let composite = matches!(found, Found::Array | Found::Object);
        let result = scalar(shape, found, path, go_type);
        if composite {
            self.lexer.skip()?;
        }
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Refusal::Final(error)) => Err(Stop::Refused(Box::new(error))),
            Err(Refusal::Remembered(error)) => {
                self.type_error.get_or_insert(error);
                Ok(None)
            }
        }
    }

    fn object(&mut self, ty: &'static Type, path: &Path<'_>) -> Result<Value, Stop> {
        let base = self.fields.len();
        let mut seen = 0u128;
        let mut guess = 0;
        let mut more = self.lexer.open(b'}')?;
        while more {
            let key = self.lexer.key()?;
            match ty.position_near(guess, &key) {
                Some(at) => {
                    guess = at + 1;
                    let field = &ty.fields[at];
                    if seen & 1 << at == 0 {
                        seen |= 1 << at;
                        if let Some(value) = self.member(ty, field, path)? {
                            self.fields.push((at, value));
                        }
                    } else {
                        push_strict(&mut self.strict, StrictError::Duplicate(path.member(&key)));
                        self.duplicate_member(ty, at, base, path)?;
                    }
                }
                None => {
                    push_strict(&mut self.strict, StrictError::Unknown(path.member(&key)));
                    self.lexer.skip()?;
                }
            }
            more = self.lexer.more(b'}')?;
        }
        if !self.fields[base..].is_sorted_by_key(|(at, _)| *at) {
            self.fields[base..].sort_unstable_by_key(|(at, _)| *at);
        }
        let given = self.fields.drain(base..);
        Ok(Value::Object(if self.verbatim {
            given.map(|(at, value)| (ty.fields[at].json.to_owned(), value)).collect()
        } else {
            let mask = given.as_slice().iter().fold(0, |mask, (at, _)| mask | 1 << at);
            assemble(ty, mask, given)
        }))
    }

    /// The value of a field, unless it is left out.
    fn member(&mut self, ty: &'static Type, field: &'static Field, path: &Path<'_>) -> Result<Option<Value>, Stop> {
        let go_type = GoType { declared: field.declared, depth: 0 };
        let value = self.value(&field.shape, &path.field(ty, field), go_type)?;
        Ok(value.filter(|value| self.verbatim || fate(field, value) == Fate::Keep))
    }

    /// A field that was given before: Go decodes into the value that is already there.
    fn duplicate_member(&mut self, ty: &'static Type, at: usize, base: usize, path: &Path<'_>) -> Result<(), Stop> {
        let field = &ty.fields[at];
        let outer = std::mem::replace(&mut self.verbatim, true);
        let later = self.member(ty, field, path);
        self.verbatim = outer;
        let Some(later) = later? else { return Ok(()) };
        let earlier = self.fields[base..].iter().position(|(other, _)| *other == at);
        let earlier = earlier.map(|offset| self.fields.swap_remove(base + offset).1);
        let mut merged = overlay(&field.shape, field.pointer, earlier.unwrap_or(Value::Null), later);
        if !self.verbatim {
            convert::normalise(&field.shape, &mut merged);
        }
        if self.verbatim || fate(field, &merged) == Fate::Keep {
            self.fields.push((at, merged));
        }
        Ok(())
    }

    fn list(&mut self, element: &Shape, path: &Path<'_>, go_type: GoType<'_>) -> Result<Value, Stop> {
        let mut items = Vec::new();
        let mut more = self.lexer.open(b']')?;
        while more {
            let value = self.value(element, &path.index(items.len()), go_type.element())?;
            items.push(self.element_value(element, value));
            more = self.lexer.more(b']')?;
        }
        Ok(Value::Array(items))
    }

    /// Bytes that are written as a list of numbers.
    fn bytes(&mut self, path: &Path<'_>) -> Result<Value, Stop> {
        let mut bytes = Vec::new();
        let mut more = self.lexer.open(b']')?;
        while more {
            let found = self.lexer.found()?;
            let composite = matches!(found, Found::Array | Found::Object);
            let byte = byte(&found, path);
            if composite {
                self.lexer.skip()?;
            }
            match byte {
                Ok(byte) => bytes.push(byte),
                Err(error) => {
                    self.type_error.get_or_insert(error);
                }
            }
            more = self.lexer.more(b']')?;
        }
        Ok(encoded(&bytes))
    }

    fn map(&mut self, element: &Shape, path: &Path<'_>, go_type: GoType<'_>) -> Result<Value, Stop> {
        let mut members = Map::with_capacity(8);
        let mut sorted = true;
        let mut more = self.lexer.open(b'}')?;
        while more {
            let key = self.lexer.key()?.into_owned();
            sorted &= members.keys().next_back().is_none_or(|last: &String| *last < key);
            if !sorted && members.contains_key(&key) {
                push_strict(&mut self.strict, StrictError::Duplicate(path.member(&key)));
            }
            let value = self.value(element, &path.key(&key), go_type.element())?;
            let value = self.element_value(element, value);
            members.insert(key, value);
            more = self.lexer.more(b'}')?;
        }
        if !sorted {
            members.sort_keys();
        }
        Ok(Value::Object(members))
    }

    /// A null (or refused) item is the zero value: lists and maps of the API hold no pointers.
    fn element_value(&self, element: &Shape, value: Option<Value>) -> Value {
        match value {
            Some(Value::Null) | None if !self.verbatim => zero_value(element),
            value => value.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::registry;

    fn ty(api_version: &str, kind: &str) -> &'static Type {
        registry().kind(api_version, kind).unwrap()
    }

    fn job(document: &str) -> Result<Decoded, DecodeError> {
        decode(ty("batch/v1", "Job"), document.as_bytes())
    }

    fn text(result: Result<Decoded, DecodeError>) -> String {
        result.map_or_else(|error| error.to_string(), |decoded| decoded.value.to_string())
    }

    #[test]
    fn members_given_twice_are_told_wherever_they_are() {
        let (value, duplicates) =
            parse_noting_duplicates(br#"{"data":{"color":"red","color":"green"},"list":[{"a":1,"a":2}]}"#).unwrap();
        assert_eq!(value["data"]["color"], "green");
        let told: Vec<String> = duplicates.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["duplicate field \"data.color\"", "duplicate field \"list[0].a\""]);
    }

    #[test]
    fn members_come_in_api_order_with_always_present_ones() {
        let document = r#"{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"image":"a","name":"m"}]}},
            "completions":null,"parallelism":0},"metadata":{"labels":{"b":"2","a":"1"},"name":"x"},
            "apiVersion":"batch/v1","kind":"Job"}"#;
        let expected = concat!(
            r#"{"kind":"Job","apiVersion":"batch/v1","metadata":{"name":"x","labels":{"a":"1","b":"2"}},"#,
            r#""spec":{"parallelism":0,"template":{"metadata":{},"spec":{"containers":[{"name":"m","image":"a","#,
            r#""resources":{}}],"restartPolicy":"Never"}}},"status":{}}"#
        );
        assert_eq!(text(job(document)), expected);
        assert_eq!(text(job("null")), text(job("{}")));
        assert_eq!(
            text(job("{}")),
            r#"{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#
        );
    }

    #[test]
    fn bytes_may_be_a_list_of_numbers() {
        let data = |data: &str| {
            let document = format!(r#"{{"data":{{"a":{data}}}}}"#);
            let decoded = decode(ty("v1", "Secret"), document.as_bytes());
            let value = serde_json::from_str(&document).unwrap();
            assert_eq!(convert::convert(ty("v1", "Secret"), value), decoded, "{document}");
            decoded.map_or_else(|error| error.to_string(), |decoded| decoded.value["data"]["a"].to_string())
        };
        assert_eq!(data("[104,105]"), r#""aGk=""#);
        assert_eq!(data("[null]"), r#""AA==""#);
        assert_eq!(data("[]"), r#""""#);
        let refused =
            |found: &str| format!("json: cannot unmarshal {found} into Go struct field Secret.data of type uint8");
        assert_eq!(data("[300]"), refused("number 300"));
        assert_eq!(data("[1.5,\"x\"]"), refused("number 1.5"));
        assert_eq!(data("[\"x\"]"), refused("string"));
        assert_eq!(data("[[1]]"), refused("array"));
    }

    #[test]
    fn omission_follows_ja_r4() {
        let status = |status: &str| {
            let decoded = job(&format!(r#"{{"status":{status}}}"#)).unwrap();
            decoded.value["status"].to_string()
        };
        assert_eq!(
            status(r#"{"active":0,"ready":0,"failedIndexes":"","completedIndexes":"","uncountedTerminatedPods":{}}"#),
            r#"{"failedIndexes":"","uncountedTerminatedPods":{},"ready":0}"#
        );
        assert_eq!(
            status(r#"{"conditions":[{"type":"Complete","status":"True"}]}"#),
            r#"{"conditions":[{"type":"Complete","status":"True","lastProbeTime":null,"lastTransitionTime":null}]}"#
        );
        for rules in ["[]", "null"] {
            let document = format!(r#"{{"spec":{{"podFailurePolicy":{{"rules":{rules}}}}}}}"#);
            assert_eq!(job(&document).unwrap().value["spec"]["podFailurePolicy"], json!({"rules": null}));
        }
        let list = decode(ty("batch/v1", "JobList"), br#"{"items":null}"#).unwrap();
        assert_eq!(list.value, json!({"metadata": {}, "items": []}));
        let config = decode(ty("v1", "ConfigMap"), br#"{"data":{"a":null}}"#).unwrap();
        assert_eq!(config.value["data"], json!({"a": ""}));
    }

    #[test]
    fn type_errors_are_gos() {
        let cases = [
            (r#"{"spec":"x"}"#, "string into Go struct field Job.spec of type v1.JobSpec"),
            (r#"{"spec":{"parallelism":"3"}}"#, "string into Go struct field JobSpec.spec.parallelism of type int32"),
            (
                r#"{"spec":{"parallelism":2147483648}}"#,
                "number 2147483648 into Go struct field JobSpec.spec.parallelism of type int32",
            ),
            (
                r#"{"spec":{"activeDeadlineSeconds":1.5}}"#,
                "number 1.5 into Go struct field JobSpec.spec.activeDeadlineSeconds of type int64",
            ),
            (r#"{"spec":{"suspend":"true"}}"#, "string into Go struct field JobSpec.spec.suspend of type bool"),
            (r#"{"metadata":{"name":5}}"#, "number into Go struct field ObjectMeta.metadata.name of type string"),
            (r#"{"metadata":{"uid":5}}"#, "number into Go struct field ObjectMeta.metadata.uid of type types.UID"),
            (
                r#"{"metadata":{"labels":{"a":1}}}"#,
                "number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                r#"{"metadata":{"labels":[]}}"#,
                "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            (r#"{"kind":5}"#, "number into Go struct field Job.TypeMeta.kind of type string"),
            (
                r#"{"spec":{"template":[]}}"#,
                "array into Go struct field JobSpec.spec.template of type v1.PodTemplateSpec",
            ),
            (
                r#"{"spec":{"template":{"spec":{"containers":{}}}}}"#,
                "object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
            ),
            (
                r#"{"spec":{"template":{"spec":{"restartPolicy":1}}}}"#,
                "number into Go struct field PodSpec.spec.template.spec.restartPolicy of type v1.RestartPolicy",
            ),
            (
                r#"{"spec":{"template":{"spec":{"containers":["x"]}}}}"#,
                "string into Go struct field PodSpec.spec.template.spec.containers of type v1.Container",
            ),
            (
                r#"{"spec":{"template":{"spec":{"containers":[{"command":"sh"}]}}}}"#,
                "string into Go struct field Container.spec.template.spec.containers.command of type []string",
            ),
            (
                r#"{"spec":{"template":{"spec":{"volumes":[{"emptyDir":1}]}}}}"#,
                "number into Go struct field Volume.spec.template.spec.volumes.VolumeSource.emptyDir of type \
                 v1.EmptyDirVolumeSource",
            ),
            (
                r#"{"metadata":{"creationTimestamp":5}}"#,
                "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
            ("[]", "array into Go value of type v1.Job"),
        ];
        for (document, expected) in cases {
            assert_eq!(text(job(document)), format!("json: cannot unmarshal {expected}"), "{document}");
        }
    }

    #[test]
    fn first_type_error_wins_but_own_parsers_stop_at_once_and_syntax_beats_all() {
        let two = r#"{"spec":{"parallelism":"x","completions":"y"}}"#;
        assert!(text(job(two)).contains("spec.parallelism"));
        let then_time = r#"{"spec":{"parallelism":"x"},"status":{"startTime":"y"}}"#;
        assert!(text(job(then_time)).starts_with("parsing time"));
        let then_syntax = r#"{"spec":{"parallelism":"x"},"status":{"startTime":"y"}"#;
        assert_eq!(text(job(then_syntax)), "unexpected end of JSON input");
        assert_eq!(text(job(r#"{"spec":{"parallelism":"x"}} y"#)), "invalid character 'y' after top-level value");
    }

    #[test]
    fn unknown_and_duplicate_members_are_listed_in_document_order() {
        let document = r#"{"spec":{"parallelism":1,"x":1,"x":2,"parallelism":2,
            "template":{"spec":{"containers":[{"name":"a"},{"speed":{"deep":[1,{"er":2}]}}]}}},
            "metadata":{"labels":{"a":"1","a":"2"},"Name":"n"},"wheels":4}"#;
        let decoded = job(document).unwrap();
        let listed: Vec<String> = decoded.strict.iter().map(ToString::to_string).collect();
        assert_eq!(
            listed,
            [
                r#"unknown field "spec.x""#,
                r#"duplicate field "spec.parallelism""#,
                r#"unknown field "spec.template.spec.containers[1].speed""#,
                r#"duplicate field "metadata.labels.a""#,
                r#"unknown field "metadata.Name""#,
                r#"unknown field "wheels""#,
            ]
        );
        assert_eq!(decoded.value["spec"]["parallelism"], 2);
        assert_eq!(decoded.value["metadata"]["labels"]["a"], "2");
        let many: String = (0..200).map(|n| format!(r#","x{n}":1"#)).collect();
        assert_eq!(job(&format!(r#"{{"kind":"Job"{many}}}"#)).unwrap().strict.len(), 100);
    }

    #[test]
    fn duplicate_objects_merge_as_go_decodes_into_what_is_there() {
        let merged = |document: &str| job(document).unwrap().value;
        assert_eq!(
            merged(r#"{"metadata":{"name":"a","namespace":"n"},"metadata":{"name":"b"}}"#)["metadata"],
            json!({"name": "b", "namespace": "n"})
        );
        assert_eq!(
            merged(r#"{"metadata":{"labels":{"a":"1","b":"2"}},"metadata":{"labels":{"b":"3"}}}"#)["metadata"]["labels"],
            json!({"a": "1", "b": "3"})
        );
        assert_eq!(merged(r#"{"metadata":{"name":"a"},"metadata":null}"#)["metadata"], json!({"name": "a"}));
        assert_eq!(
            merged(r#"{"spec":{"parallelism":1,"parallelism":null}}"#)["spec"].get("parallelism"),
            None,
            "a pointer is reset"
        );
        let containers = r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"i"}],"containers":[{"name":"b"},{"name":"c"}]}}}}"#;
        assert_eq!(
            merged(containers)["spec"]["template"]["spec"]["containers"],
            json!([{"name": "b", "image": "i", "resources": {}}, {"name": "c", "resources": {}}])
        );
    }

    #[test]
    fn scalars_are_normalised() {
        let pod = r#"{"metadata":{"creationTimestamp":"2026-11-15T08:27:19.5+02:00"},"spec":{"containers":[{"name":"a",
            "resources":{"limits":{"memory":"1024Mi","cpu":0.5}},"livenessProbe":{"httpGet":{"port":"http"}},
            "env":[{"name":"\u00e4\ud83d\ude00\ud800<","value":"x\\\"\n"}]}]}}"#;
        let value = decode(ty("v1", "Pod"), pod.as_bytes()).unwrap().value;
        assert_eq!(value["metadata"]["creationTimestamp"], "2026-11-15T06:27:19Z");
        let container = &value["spec"]["containers"][0];
        assert_eq!(container["resources"].to_string(), r#"{"limits":{"cpu":"500m","memory":"1Gi"}}"#);
        assert_eq!(container["livenessProbe"]["httpGet"]["port"], "http");
        assert_eq!(container["env"][0]["name"], "ä😀\u{fffd}<");
        let zero = r#"{"metadata":{"creationTimestamp":"0001-01-01T00:00:00Z"}}"#;
        assert_eq!(decode(ty("v1", "Pod"), zero.as_bytes()).unwrap().value["metadata"], json!({}));
    }

    #[test]
    fn depth_is_bounded_everywhere() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(job(&format!(r#"{{"x":{}}}"#, nested(9_000))).is_ok(), "unknown members are skipped without recursion");
        let too_deep = job(&format!(r#"{{"x":{}}}"#, nested(10_001)));
        assert_eq!(text(too_deep), "invalid character '[' exceeded max depth");
        let fields = |n: usize| format!(r#"{{"metadata":{{"managedFields":[{{"fieldsV1":{}}}]}}}}"#, nested(n));
        assert!(job(&fields(200)).is_ok());
        assert_eq!(text(job(&fields(5_000))), "exceeded max depth");
        assert!(parse(nested(5_000).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(document in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = job(&String::from_utf8_lossy(&document));
            let _ = decode(ty("v1", "Pod"), &document);
            let _ = parse(&document);
        }

        #[test]
        fn the_two_readers_agree_on_what_is_json(document in r#"[\[\]{}:, "a0-9.eE+\\untrfls-]{0,12}"#) {
            prop_assert_eq!(parse(document.as_bytes()).is_ok(), syntax::check(document.as_bytes()).is_ok());
            let own = parse(document.as_bytes());
            let serde = serde_json::from_str::<Value>(&document);
            // serde_json refuses lone surrogates and numbers beyond a double; Go and we do not.
            if let Ok(serde) = serde {
                prop_assert_eq!(own, Ok(serde));
            }
        }
    }
}
