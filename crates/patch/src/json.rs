//! RFC 6902 JSON patch with the habits of the library that upstream uses (`gopkg.in/evanphx/json-patch.v4`), which
//! is more forgiving than the RFC in places and stricter in none (AS-116):
//!
//! - `replace` of an absent object member adds it; `test` of an absent member passes against `null`;
//!   `copy` of an absent member writes `null`;
//! - array indexes are what Go's `strconv.Atoi` reads (`01`, `+1`), and negative ones count from the end;
//! - what stands before the first `/` of a pointer is ignored, and so is everything unknown after a `~`.
//!
//! That is why this is written by hand and not taken from the `json-patch` crate, which follows the RFC to the letter.

use api_schema::json::kind_of;
use serde_json::Value;

use crate::bounds::{DEPTH_MAX, depth};
use crate::error::PatchError;

/// Upstream's `maxJSONPatchOperations`.
pub const OPERATIONS_MAX: usize = 10_000;

/// Upstream's `JSONPatchMaxCopyBytes`: how much all `copy` operations of a patch may add together.
pub const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// How many items all operations of a patch may push aside in lists or look through on their way down. Upstream has no
/// such limit, but a list may have a million items. It is twice what a list takes that grows at its front by as many
/// operations as there may be.
pub const ITEMS_MOVED_MAX: usize = OPERATIONS_MAX * OPERATIONS_MAX;

/// How many members all operations of a patch may have sorted on their way: order is not worth more work than that.
const SORTED_MAX: usize = 1_000_000;

/// The outcome of a JSON patch.
#[derive(Debug, Clone, PartialEq)]
pub struct Patched {
    pub object: Value,
    /// Members of operations that no operation has, such as `json patch unknown field "[0].foo"`. They are warnings or
    /// part of a strict decoding error, in front of those of the object (AS-118).
    pub strict_errors: Vec<String>,
}

/// Applies a list of operations in order; the first one that fails refuses the whole patch.
pub fn apply(live: Value, patch: &Value) -> Result<Patched, PatchError> {
    let (operations, strict_errors) = decode(patch)?;
    let mut document = Document { root: live, copied_bytes: 0, moved: Moved(0) };
    for operation in operations {
        document.run(operation).map_err(PatchError::Unprocessable)?;
    }
    Ok(Patched { object: document.root, strict_errors })
}

/// Like [`apply`], with the members in the order in which upstream writes the outcome: sorted in every object that an
/// operation has gone through, while values stay as they were sent. It matters only to those who say what is wrong with
/// the outcome, and in which order.
pub fn apply_in_order(live: Value, patch: &Value) -> Result<Patched, PatchError> {
    let (operations, strict_errors) = decode(patch)?;
    let mut document = Document { root: live, copied_bytes: 0, moved: Moved(0) };
    let mut left = SORTED_MAX;
    for operation in operations {
        let paths = [operation.from, operation.path];
        document.run(operation).map_err(PatchError::Unprocessable)?;
        for path in paths.into_iter().flatten() {
            sort_along(&mut document.root, path, &mut left);
        }
    }
    if let Value::Object(members) = &mut document.root {
        members.sort_keys();
    }
    Ok(Patched { object: document.root, strict_errors })
}

/// Sorts the objects that lead to the last step of a pointer, as far as they are there and as long as members are `left`
/// to be sorted.
fn sort_along(root: &mut Value, path: &str, left: &mut usize) {
    let mut steps = path.split('/').skip(1).map(unescape);
    let mut next = Some(root);
    while let (Some(value), Some(key)) = (next.take(), steps.next()) {
        next = match value {
            Value::Object(members) => {
                *left = left.saturating_sub(members.len());
                if *left == 0 {
                    return;
                }
                members.sort_keys();
                members.get_mut(&key)
            }
            Value::Array(items) => index(&key, items.len()).ok().and_then(|at| items.get_mut(at)),
            _ => None,
        };
    }
}

/// One operation; members of a wrong type have been refused, absent ones are still possible.
struct Operation<'a> {
    op: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: Option<&'a Value>,
}

fn decode(patch: &Value) -> Result<(Vec<Operation<'_>>, Vec<String>), PatchError> {
    let items = match patch {
        Value::Null => return Ok((Vec::new(), Vec::new())),
        Value::Array(items) => items,
        other => return Err(undecodable(other, "Go value of type []handlers.jsonPatchOp")),
    };
    let mut strict_errors = Vec::new();
    let operations = items
        .iter()
        .enumerate()
        .map(|(at, item)| decode_operation(at, item, &mut strict_errors))
        .collect::<Result<Vec<_>, _>>()?;
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations { got: operations.len() });
    }
    Ok((operations, strict_errors))
}

fn decode_operation<'a>(
    at: usize,
    item: &'a Value,
    strict_errors: &mut Vec<String>,
) -> Result<Operation<'a>, PatchError> {
    let mut operation = Operation { op: "", path: None, from: None, value: None };
    let members = match item {
        Value::Null => return Ok(operation),
        Value::Object(members) => members,
        other => return Err(undecodable(other, "Go value of type handlers.jsonPatchOp")),
    };
    for (name, value) in members {
        match name.as_str() {
            "op" => operation.op = text(name, value)?.unwrap_or_default(),
            "path" => operation.path = text(name, value)?,
            "from" => operation.from = text(name, value)?,
            "value" => operation.value = Some(value),
            _ => strict_errors.push(format!("json patch unknown field \"[{at}].{name}\"")),
        }
    }
    Ok(operation)
}

fn text<'a>(name: &str, value: &'a Value) -> Result<Option<&'a str>, PatchError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        other => Err(undecodable(other, &format!("Go struct field jsonPatchOp.{name} of type string"))),
    }
}

fn undecodable(value: &Value, into: &str) -> PatchError {
    PatchError::bad_request(format!("error decoding patch: json: cannot unmarshal {} into {into}", kind_of(value)))
}

/// The object while operations run over it. Their errors are for logs only, so they are plain text.
struct Document {
    root: Value,
    copied_bytes: usize,
    moved: Moved,
}

type Outcome<T = ()> = Result<T, String>;

/// How many items have been moved; [`ITEMS_MOVED_MAX`] is the most.
struct Moved(usize);

impl Moved {
    /// Asked before the work is done.
    fn add(&mut self, items: usize) -> Outcome {
        self.0 += items;
        if self.0 > ITEMS_MOVED_MAX {
            return Err(format!("unable to move {} items of lists, exceeding the limit {ITEMS_MOVED_MAX}", self.0));
        }
        Ok(())
    }
}

impl Document {
    fn run(&mut self, operation: Operation<'_>) -> Outcome {
        match operation.op {
            "add" => self.add(pointer(operation.path, "path")?, operation.value.cloned().unwrap_or_default()),
            "remove" => self.take(pointer(operation.path, "path")?).map(drop),
            "replace" => self.replace(pointer(operation.path, "path")?, operation.value),
            "move" => self.relocate(pointer(operation.from, "from")?, pointer(operation.path, "path")?),
            "copy" => self.copy(pointer(operation.from, "from")?, pointer(operation.path, "path")?),
            "test" => self.test(pointer(operation.path, "path")?, operation.value),
            op => Err(format!("unexpected kind: {op}")),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Outcome {
        within_depth(path, &value)?;
        self.insert(path, value)
    }

    fn insert(&mut self, path: &str, value: Value) -> Outcome {
        let (parent, key) = parent(&mut self.root, path)?;
        match parent {
            Value::Object(members) => {
                members.insert(key, value);
            }
            Value::Array(items) if key == "-" => items.push(value),
            Value::Array(items) => {
                let at = index(&key, items.len() + 1)?;
                self.moved.add(items.len() - at)?;
                items.insert(at, value);
            }
            _ => return Err(missing(path)),
        }
        Ok(())
    }

    fn take(&mut self, path: &str) -> Outcome<Value> {
        let (parent, key) = parent(&mut self.root, path)?;
        match parent {
            Value::Object(members) => members.swap_remove(&key).ok_or_else(|| missing(path)),
            Value::Array(items) => {
                let at = index(&key, items.len())?;
                self.moved.add(items.len() - at)?;
                Ok(items.remove(at))
            }
            _ => Err(missing(path)),
        }
    }

    fn replace(&mut self, path: &str, value: Option<&Value>) -> Outcome {
        let value = value.cloned().unwrap_or_default();
        within_depth(path, &value)?;
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err("replace operation value must be object or array".into());
            }
            self.root = value;
            return Ok(());
        }
        let (parent, key) = parent(&mut self.root, path)?;
        match parent {
            Value::Object(members) => {
                members.insert(key, value);
            }
            Value::Array(items) => {
                let at = index(&key, items.len())?;
                items[at] = value;
            }
            _ => return Err(missing(path)),
        }
        Ok(())
    }

    fn relocate(&mut self, from: &str, to: &str) -> Outcome {
        let value = self.take(from)?;
        // A value that only moves up need not be looked through.
        if level(to) > level(from) {
            self.moved.add(size(&value))?;
            within_depth(to, &value)?;
        }
        self.insert(to, value)
    }

    fn copy(&mut self, from: &str, to: &str) -> Outcome {
        let value = self.get(from)?.cloned().unwrap_or_default();
        self.copied_bytes += encoded_len(&value);
        if self.copied_bytes > COPY_BYTES_MAX {
            return Err(format!(
                "unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {COPY_BYTES_MAX}",
                self.copied_bytes
            ));
        }
        self.add(to, value)
    }

    fn test(&mut self, path: &str, expected: Option<&Value>) -> Outcome {
        let expected = expected.unwrap_or(&Value::Null);
        let found = if path.is_empty() { Some(&self.root) } else { self.get(path)? };
        if found.unwrap_or(&Value::Null) == expected { Ok(()) } else { Err(format!("testing value {path} failed")) }
    }

    /// The value at a pointer; `None` for an absent object member, an error for everything else that is not there.
    fn get(&mut self, path: &str) -> Outcome<Option<&Value>> {
        let (parent, key) = parent(&mut self.root, path)?;
        match parent {
            Value::Object(members) => Ok(members.get(&key)),
            Value::Array(items) => Ok(Some(&items[index(&key, items.len())?])),
            _ => Err(missing(path)),
        }
    }
}

/// The container that holds the last step of a pointer, and that step.
fn parent<'a>(root: &'a mut Value, path: &str) -> Outcome<(&'a mut Value, String)> {
    let mut steps = path.split('/').skip(1).map(unescape).peekable();
    let mut parent = root;
    let mut key = steps.next().ok_or_else(|| missing(path))?;
    for next in steps {
        let child = match parent {
            Value::Object(members) => members.get_mut(&key),
            Value::Array(items) => index(&key, items.len()).ok().and_then(|at| items.get_mut(at)),
            _ => None,
        };
        parent = child.ok_or_else(|| missing(path))?;
        key = next;
    }
    Ok((parent, key))
}

fn pointer<'a>(given: Option<&'a str>, member: &str) -> Outcome<&'a str> {
    given.ok_or_else(|| format!("operation is missing its {member} field"))
}

fn missing(path: &str) -> String {
    format!("doc is missing path: {path}")
}

/// One pass from left to right, so that `~01` is `~1` and not `/`.
fn unescape(step: &str) -> String {
    if !step.contains('~') {
        return step.to_owned();
    }
    let mut out = String::with_capacity(step.len());
    let mut rest = step;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        let (replacement, length) = match rest.as_bytes().get(at + 1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        out.push(replacement);
        rest = &rest[at + length..];
    }
    out + rest
}

/// A position among `len`, read as Go's `Atoi` would; negative positions count from the end.
fn index(step: &str, len: usize) -> Outcome<usize> {
    let at: i64 = step.parse().map_err(|_| format!("value was not a proper array index: '{step}'"))?;
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let resolved = if at < 0 { at + len } else { at };
    if (0..len).contains(&resolved) {
        Ok(resolved as usize)
    } else {
        Err(format!("unable to access invalid index: {at}"))
    }
}

/// How deep a pointer points.
fn level(path: &str) -> usize {
    path.bytes().filter(|&byte| byte == b'/').count()
}

/// How many values there are in a value, itself included. Everything here nests within [`DEPTH_MAX`].
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// Copies of a part into itself would otherwise nest without end.
fn within_depth(path: &str, value: &Value) -> Outcome {
    match DEPTH_MAX.checked_sub(level(path)).and_then(|left| depth(value, left)) {
        Some(_) => Ok(()),
        None => Err(format!("exceeded max depth of {DEPTH_MAX}")),
    }
}

fn encoded_len(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("a JSON value encodes and counting cannot fail");
    counter.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;

    /// `object | patch` in, the patched object or the cause of the refusal out.
    fn check(input: &str, expected: Expect) {
        let (live, patch) = input.split_once(" | ").unwrap();
        let outcome = apply(serde_json::from_str(live).unwrap(), &serde_json::from_str(patch).unwrap());
        let shown = match outcome {
            Ok(patched) if patched.strict_errors.is_empty() => patched.object.to_string(),
            Ok(patched) => format!("{} with {}", patched.object, patched.strict_errors.join(", ")),
            Err(error) => format!("{}: {error}", error.rejection().code),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn operations_of_the_recorded_cases() {
        let live = r#"{"metadata":{"labels":{"a":"1"},"finalizers":["x"]},"data":{"color":"blue","size":"10"}}"#;
        let run = |patch: &str, expected: Expect| check(&format!("{live} | {patch}"), expected);
        run(
            r#"[{"op":"add","path":"/data/color","value":"red"}]"#,
            expect![[r#"{"metadata":{"labels":{"a":"1"},"finalizers":["x"]},"data":{"color":"red","size":"10"}}"#]],
        );
        run(
            r#"[{"op":"add","path":"/binaryData/x/y","value":"eA=="}]"#,
            expect!["422: doc is missing path: /binaryData/x/y"],
        );
        run(
            r#"[{"op":"replace","path":"/data/none","value":"red"}]"#,
            expect![[
                r#"{"metadata":{"labels":{"a":"1"},"finalizers":["x"]},"data":{"color":"blue","size":"10","none":"red"}}"#
            ]],
        );
        run(r#"[{"op":"remove","path":"/data/none"}]"#, expect!["422: doc is missing path: /data/none"]);
        run(
            r#"[{"op":"move","from":"/data/color","path":"/data/colour"}]"#,
            expect![[r#"{"metadata":{"labels":{"a":"1"},"finalizers":["x"]},"data":{"size":"10","colour":"blue"}}"#]],
        );
        run(
            r#"[{"op":"copy","from":"/data/color","path":"/data/colour"}]"#,
            expect![[
                r#"{"metadata":{"labels":{"a":"1"},"finalizers":["x"]},"data":{"color":"blue","size":"10","colour":"blue"}}"#
            ]],
        );
        run(r#"[{"op":"test","path":"/data/color","value":"red"}]"#, expect!["422: testing value /data/color failed"]);
        run(
            r#"[{"op":"test","path":"/data/color","value":"blue"},{"op":"remove","path":"/metadata"}]"#,
            expect![[r#"{"data":{"color":"blue","size":"10"}}"#]],
        );
        run(r#"[{"op":"increase","path":"/data/size"}]"#, expect!["422: unexpected kind: increase"]);
        run(r#"[{"path":"/data/size"}]"#, expect!["422: unexpected kind: "]);
        run(
            r#"[{"op":"add","path":"/metadata/labels/example.com~1key","value":"v"},{"op":"remove","path":"/data"}]"#,
            expect![[r#"{"metadata":{"labels":{"a":"1","example.com/key":"v"},"finalizers":["x"]}}"#]],
        );
        run(
            r#"[{"op":"add","path":"/metadata/finalizers/-","value":"y"},{"op":"remove","path":"/data"}]"#,
            expect![[r#"{"metadata":{"labels":{"a":"1"},"finalizers":["x","y"]}}"#]],
        );
        run(
            r#"{"op":"add"}"#,
            expect![
                "400: error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
            ],
        );
    }

    /// AS-118: warnings come in this order.
    #[test]
    fn objects_on_the_way_are_sorted_on_request() {
        let live = json!({"kind": "A", "apiVersion": "b", "spec": {"d": 1, "c": 1}, "metadata": {"name": "n"}});
        let patch = json!([
            {"op": "add", "path": "/metadata/list", "value": [{"z": 1, "y": 1}, {"x": 1, "w": 1}]},
            {"op": "move", "from": "/metadata/list/1/x", "path": "/metadata/a"},
            {"op": "add", "path": "/metadata/list/1/v", "value": {"t": 1, "s": 1}},
        ]);
        let ordered = apply_in_order(live.clone(), &patch).unwrap();
        assert_eq!(
            ordered.object.to_string(),
            r#"{"apiVersion":"b","kind":"A","metadata":{"a":1,"list":[{"z":1,"y":1},{"v":{"t":1,"s":1},"w":1}],"name":"n"},"spec":{"d":1,"c":1}}"#
        );
        assert_eq!(ordered, apply(live, &patch).unwrap());
    }

    #[test]
    fn absent_members_are_null_to_test_and_copy() {
        check(r#"{"a":1} | [{"op":"test","path":"/b","value":null}]"#, expect![[r#"{"a":1}"#]]);
        check(r#"{"a":1} | [{"op":"test","path":"/b"}]"#, expect![[r#"{"a":1}"#]]);
        check(r#"{"a":1} | [{"op":"test","path":"/b","value":1}]"#, expect!["422: testing value /b failed"]);
        check(r#"{"a":1} | [{"op":"copy","from":"/b","path":"/c"}]"#, expect![[r#"{"a":1,"c":null}"#]]);
        check(r#"{"a":1} | [{"op":"move","from":"/b","path":"/c"}]"#, expect!["422: doc is missing path: /b"]);
        check(r#"{"a":{"b":1}} | [{"op":"test","path":"","value":{"a":{"b":1}}}]"#, expect![[r#"{"a":{"b":1}}"#]]);
    }

    #[test]
    fn array_indexes_are_bounded_and_may_be_negative() {
        check(r#"{"l":[1,2]} | [{"op":"add","path":"/l/0","value":0}]"#, expect![[r#"{"l":[0,1,2]}"#]]);
        check(r#"{"l":[1,2]} | [{"op":"add","path":"/l/2","value":3}]"#, expect![[r#"{"l":[1,2,3]}"#]]);
        check(
            r#"{"l":[1,2]} | [{"op":"add","path":"/l/3","value":3}]"#,
            expect!["422: unable to access invalid index: 3"],
        );
        check(r#"{"l":[1,2]} | [{"op":"add","path":"/l/-1","value":3}]"#, expect![[r#"{"l":[1,2,3]}"#]]);
        check(r#"{"l":[1,2]} | [{"op":"add","path":"/l/-3","value":0}]"#, expect![[r#"{"l":[0,1,2]}"#]]);
        check(
            r#"{"l":[1,2]} | [{"op":"add","path":"/l/-4","value":0}]"#,
            expect!["422: unable to access invalid index: -4"],
        );
        check(r#"{"l":[1,2]} | [{"op":"remove","path":"/l/-1"}]"#, expect![[r#"{"l":[1]}"#]]);
        check(r#"{"l":[1,2]} | [{"op":"remove","path":"/l/2"}]"#, expect!["422: unable to access invalid index: 2"]);
        check(
            r#"{"l":[1,2]} | [{"op":"remove","path":"/l/-"}]"#,
            expect!["422: value was not a proper array index: '-'"],
        );
        check(r#"{"l":[1,2]} | [{"op":"replace","path":"/l/01","value":9}]"#, expect![[r#"{"l":[1,9]}"#]]);
        check(
            r#"{"l":[1,2]} | [{"op":"replace","path":"/l/2","value":9}]"#,
            expect!["422: unable to access invalid index: 2"],
        );
        check(r#"{"l":[{"a":1}]} | [{"op":"replace","path":"/l/0/a","value":2}]"#, expect![[r#"{"l":[{"a":2}]}"#]]);
    }

    #[test]
    fn pointers_are_read_as_upstream_reads_them() {
        check(r#"{"a":1} | [{"op":"replace","path":"junk/a","value":2}]"#, expect![[r#"{"a":2}"#]]);
        check(r#"{"a":1} | [{"op":"add","path":"","value":{}}]"#, expect!["422: doc is missing path: "]);
        check(r#"{"a":1} | [{"op":"remove","path":""}]"#, expect!["422: doc is missing path: "]);
        check(r#"{"a":1} | [{"op":"replace","path":"","value":{"b":1}}]"#, expect![[r#"{"b":1}"#]]);
        check(
            r#"{"a":1} | [{"op":"replace","path":"","value":"x"}]"#,
            expect!["422: replace operation value must be object or array"],
        );
        check(r#"{"~1":1} | [{"op":"remove","path":"/~01"}]"#, expect!["{}"]);
        check(r#"{"~2~":1} | [{"op":"remove","path":"/~2~"}]"#, expect!["{}"]);
        check(r#"{"a":1} | [{"op":"add","path":"/a/b","value":1}]"#, expect!["422: doc is missing path: /a/b"]);
        check(r#"{"a":1} | [{"op":"add","value":1}]"#, expect!["422: operation is missing its path field"]);
        check(r#"{"":1} | [{"op":"remove","path":"/"}]"#, expect!["{}"]);
    }

    #[test]
    fn patches_that_do_not_decode_name_the_go_types() {
        check(
            r#"{} | "x""#,
            expect![
                "400: error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp"
            ],
        );
        check(
            r#"{} | [1]"#,
            expect![
                "400: error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"
            ],
        );
        check(
            r#"{} | [{"op":5}]"#,
            expect![
                "400: error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
            ],
        );
        check(r#"{} | [null]"#, expect!["422: unexpected kind: "]);
        check(r#"{} | null"#, expect!["{}"]);
        check(
            r#"{} | [{"op":"add","path":"/a","value":1,"foo":2}]"#,
            expect![[r#"{"a":1} with json patch unknown field "[0].foo""#]],
        );
    }

    #[test]
    fn operations_copies_and_nesting_are_bounded() {
        let many = Value::Array(vec![json!({"op": "test", "path": "/a"}); OPERATIONS_MAX + 1]);
        assert_eq!(apply(json!({}), &many), Err(PatchError::TooManyOperations { got: OPERATIONS_MAX + 1 }));

        let doubling: Vec<_> =
            (0..40).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/a/{n}")})).collect();
        let outcome = apply(json!({"a": {"b": "x".repeat(1000)}}), &Value::Array(doubling));
        assert!(matches!(outcome, Err(PatchError::Unprocessable(cause)) if cause.contains("exceeding the limit")));

        let mut nesting = Vec::new();
        let mut path = "/a".to_owned();
        for _ in 0..12 {
            nesting.push(json!({"op": "copy", "from": "/a", "path": format!("{path}/a")}));
            path += &path.clone();
        }
        let outcome = apply(json!({"a": {}}), &Value::Array(nesting));
        assert!(matches!(outcome, Err(PatchError::Unprocessable(cause)) if cause.contains("exceeded max depth")));
    }

    #[test]
    fn moves_of_many_items_are_bounded() {
        let refused = |live: &Value, operations: Vec<Value>| match apply(live.clone(), &Value::Array(operations)) {
            Err(PatchError::Unprocessable(cause)) => assert!(cause.starts_with("unable to move 10"), "{cause}"),
            other => panic!("{:?}", other.map(|patched| patched.strict_errors)),
        };
        let large = json!({"l": vec![0; 1_000_000], "m": {}});
        refused(&large, vec![json!({"op": "add", "path": "/l/0", "value": 1}); 9_000]);
        refused(&large, vec![json!({"op": "remove", "path": "/l/0"}); 9_000]);
        refused(&large, vec![json!({"op": "move", "from": "/l/0", "path": "/l/-"}); 9_000]);
        let down_and_up =
            [json!({"op": "move", "from": "/l", "path": "/m/l"}), json!({"op": "move", "from": "/m/l", "path": "/l"})];
        refused(&large, vec![down_and_up; 4_500].concat());

        // Whatever happens at the end of a list costs nothing, and lists that are not large may be worked on at will.
        for (live, path, items) in [(large, "/l/-", 1_010_000), (json!({"l": []}), "/l/0", OPERATIONS_MAX)] {
            let patch = Value::Array(vec![json!({"op": "add", "path": path, "value": 1}); OPERATIONS_MAX]);
            assert_eq!(apply(live, &patch).unwrap().object["l"].as_array().unwrap().len(), items, "{path}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_operations_never_panic(
            steps in proptest::collection::vec((0..7usize, "(/[a-c0-2~-]{0,2}){0,3}", "(/[a-c0-2~-]{0,2}){0,3}"), 0..8),
        ) {
            let names = ["add", "remove", "replace", "move", "copy", "test", "what"];
            let patch: Vec<_> = steps.iter()
                .map(|(op, path, from)| json!({"op": names[*op], "path": path, "from": from, "value": {"a": [1]}}))
                .collect();
            let _ = apply(json!({"a": [1, {"b": 2}], "b": {"c": null}}), &Value::Array(patch));
        }
    }
}
