use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn json_of(text: &str) -> String {
    match to_json(text.as_bytes()) {
        Ok(FromYaml { json, .. }) => String::from_utf8(json).unwrap(),
        Err(why) => format!("error: {why}"),
    }
}

#[test]
fn documents_become_the_json_upstream_makes_of_them() {
    let cases = [
        ("", "null"),
        ("# nothing\n", "null"),
        ("---\n", "null"),
        ("a: 1\nb: [x, 'y', \"z\\n\"]\nc: {d: e}\n", r#"{"a":1,"b":["x","y","z\n"],"c":{"d":"e"}}"#),
        // Keys are sorted and made strings.
        ("b: 1\na: 2\n1: x\ntrue: w\n1.5: z\n", r#"{"1":"x","1.5":"z","a":2,"b":1,"true":"w"}"#),
        ("1e21: a\n123456789.123456789: b\n", r#"{"1.2345679e+08":"b","1e+21":"a"}"#),
        ("123456.0: a\n1234567.0: b\n", r#"{"1.234567e+06":"b","123456":"a"}"#),
        ("0.0001: a\n-0.00001: b\n", r#"{"-1e-05":"b","0.0001":"a"}"#),
        // Dashes may stand at the column of their key.
        ("a:\n- 1\n-\n- b: c\n  d: e\n", r#"{"a":[1,null,{"b":"c","d":"e"}]}"#),
        ("a:\n  - - 1\n    - 2\n  - [x: y, z]\n", r#"{"a":[[1,2],[{"x":true},"z"]]}"#),
        // Only the first document counts.
        ("a: 1\n---\nb: [\n", r#"{"a":1}"#),
        ("a: 1\n...\nb: 2\n", r#"{"a":1}"#),
        // YAML 1.1's words.
        ("a: yes\nb: off\nc: ~\nd: 'yes'\ne: !!str no\n", r#"{"a":true,"b":false,"c":null,"d":"yes","e":"no"}"#),
        ("a: 0644\nb: 1e3\nc: 0x10\nd: 1_000\ne: .5\n", r#"{"a":420,"b":1000,"c":16,"d":1000,"e":0.5}"#),
        ("a: 2026-11-15T10:00:00Z\nb: 2026-11-15\n", r#"{"a":"2026-11-15T10:00:00Z","b":"2026-11-15"}"#),
        ("a: |\n  x\n   y\n\n  z\nb: >-\n  x\n  y\n\n  z\n", r#"{"a":"x\n y\n\nz\n","b":"x y\nz"}"#),
        ("a: |+\n  x\n\nb: |2-\n   x\n", r#"{"a":"x\n\n","b":" x"}"#),
        ("a: x\n  y\n\n  z\nb: 'p\n  q'\nc: \"p\\\n  q\"\n", r#"{"a":"x y\nz","b":"p q","c":"pq"}"#),
        ("? a\n: b\n? c\n", r#"{"a":"b","c":null}"#),
        ("a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2\n", r#"{"a":{"b":1},"c":{"b":1},"d":{"b":1,"e":2}}"#),
        ("a: \"\\u00e4\\x41\\t\\/\"\n", "error: yaml: found unknown escape character"),
        ("a: http://x:80/y#z\nb: a#b #c\n", r#"{"a":"http://x:80/y#z","b":"a#b"}"#),
        ("{\"a\":{\"b\":[1,2]},\"c\":\"\\u003c\"}", r#"{"a":{"b":[1,2]},"c":"\u003c"}"#),
    ];
    for (text, expected) in cases {
        assert_eq!(json_of(text), expected, "{text:?}");
    }
}

/// The messages people know from `kubectl apply`, with upstream's way of counting lines.
#[test]
fn malformed_documents_are_refused_in_upstream_words() {
    let cases = [
        ("a: b: c\n", "yaml: mapping values are not allowed in this context"),
        ("a: 1\n b: 2\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("a:\n\tb: 1\n", "yaml: line 2: found character that cannot start any token"),
        ("a: @b\n", "yaml: found character that cannot start any token"),
        ("{oops: [\n", "yaml: line 1: did not find expected node content"),
        ("a: [b, c\n", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: {b: c\nd: e\n", "yaml: line 1: did not find expected ',' or '}'"),
        ("- a\nb: c\n", "yaml: line 1: did not find expected '-' indicator"),
        ("a: 1\nb\nc: 2\n", "yaml: line 3: could not find expected ':'"),
        ("a: \"b\n", "yaml: line 2: found unexpected end of stream"),
        ("a: *x\n", "yaml: unknown anchor 'x' referenced"),
        ("a: &x [*x]\n", "yaml: anchor 'x' value contains itself"),
        ("a: {{ x }}\n", "yaml: invalid map key: map[interface {}]interface {}{\"x\":interface {}(nil)}"),
        ("a: - b\n", "yaml: block sequence entries are not allowed in this context"),
        ("<<: x\n", "yaml: map merge requires map or sequence of maps as the value"),
        ("a: !!int x\n", "yaml: cannot decode !!str `x` as a !!int"),
        ("%YAML 1.2\n---\na: 1\n", "yaml: found incompatible YAML document"),
        ("a: \u{1}\n", "yaml: control characters are not allowed"),
        ("a: .nan\n", "json: unsupported value: NaN"),
        ("~: b\n", "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"b\""),
    ];
    for (text, expected) in cases {
        assert_eq!(to_json(text.as_bytes()).unwrap_err(), expected, "{text:?}");
    }
    assert_eq!(to_json(b"a: \xff\n").unwrap_err(), "yaml: invalid leading UTF-8 octet");
}

/// Whoever writes a manifest looks for the line in an editor, which counts from one.
#[test]
fn faults_are_where_an_editor_shows_them() {
    let cases = [
        ("a: b: c\n", Some(1)),
        ("a: 1\n b: 2\n", Some(2)),
        ("x: 0\na: [b, c\nd: e\n", Some(3)),
        ("a: [\n", Some(1)),
        ("x: 0\n- a\n", Some(2)),
        ("x: 0\ny: 1\nb: 1\ny: 2\n", Some(4)),
        ("a: *x\n", None),
    ];
    for (text, line) in cases {
        let fault = to_json_strictly(text).unwrap_err();
        assert_eq!(fault.line, line, "{text:?}: {fault:?}");
        assert!(!fault.message.contains("line"), "the line is told once: {fault:?}");
    }
    assert_eq!(to_json_strictly("a: 010\n"), Ok(b"{\"a\":8}".to_vec()));
}

#[test]
fn a_key_given_twice_is_a_strict_error_and_the_last_one_counts() {
    let read = to_json(b"a: 1\nb:\n  c: 2\n  c: 3\na: 4\n").unwrap();
    assert_eq!(read.json, br#"{"a":4,"b":{"c":3}}"#);
    let expected =
        "yaml: unmarshal errors:\n  line 4: key \"c\" already set in map\n  line 5: key \"a\" already set in map";
    assert_eq!(read.strict_error().as_deref(), Some(expected));
    assert_eq!(to_json(b"a: 1\n1: 2\n").unwrap().strict_error(), None);
}

#[test]
fn aliases_and_nesting_are_bounded() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert_eq!(to_json(bomb.as_bytes()).unwrap_err(), "yaml: document contains excessive aliasing");
    assert!(to_json("[".repeat(100_000).as_bytes()).is_err());
    assert!(to_json("- ".repeat(100_000).as_bytes()).is_err());
    assert!(to_json("? ".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn values_are_written_as_upstream_writes_them() {
    let value = json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "demo", "resourceVersion": "12", "creationTimestamp": "2026-11-15T10:00:00Z", "labels": {}},
        "data": {
            "a10": "y",
            "a9": "",
            "B": "two\nlines\n",
            "no-end": "two\nlines",
            "colon": "a: b",
            "dash": "- x",
            "quote": "it's",
            "quoted": "'x'",
            "space": " x",
            "tab": "a\tb",
            "utf8": "äöü 😀",
            "blank": "a \nb",
        },
        "list": [{"name": "c", "ports": [80, true, null], "none": []}, "x"],
    });
    let expected = "\
apiVersion: v1
data:
  B: |
    two
    lines
  a9: \"\"
  a10: \"y\"
  blank: \"a \\nb\"
  colon: 'a: b'
  dash: '- x'
  no-end: |-
    two
    lines
  quote: it's
  quoted: '''x'''
  space: ' x'
  tab: \"a\\tb\"
  utf8: \"äöü \\U0001F600\"
kind: ConfigMap
list:
- name: c
  none: []
  ports:
  - 80
  - true
  - null
- x
metadata:
  creationTimestamp: \"2026-11-15T10:00:00Z\"
  labels: {}
  name: demo
  resourceVersion: \"12\"
";
    assert_eq!(to_string(&value), expected);
}

#[test]
fn long_lines_are_folded_at_a_space_beyond_column_eighty() {
    let words = vec!["word"; 30].join(" ");
    let text = to_string(&json!({"key": words, "quoted": format!("{words}: x")}));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("key: word word") && lines[0].len() > 80);
    assert!(lines[1].starts_with("  word"), "{text}");
    assert_eq!(json_of(&text), serde_json::to_string(&json!({"key": words, "quoted": format!("{words}: x")})).unwrap());
}

fn any_value() -> impl Strategy<Value = Value> {
    let text =
        prop_oneof!["[ -~]{0,12}", "\\PC{0,6}", "[a-z0-9:#\\-' \n\t]{0,120}", "(y|no|null|1|0x1|~|<<x|---|\\.\\.\\.)"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ -~]{0,8}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().filter(|(key, _)| key != "<<").collect())),
        ]
    })
}

proptest! {
    /// Whatever is written reads back as the same value.
    #[test]
    fn what_is_written_can_be_read(value in any_value()) {
        let text = to_string(&value);
        let read = to_json(text.as_bytes()).map_err(|why| TestCaseError::fail(format!("{why}\n{text}")))?;
        let read: Value = serde_json::from_slice(&read.json).unwrap();
        prop_assert_eq!(read, value, "{}", text);
    }

    /// JSON is YAML.
    #[test]
    fn json_reads_as_itself(value in any_value()) {
        let mut text = Vec::new();
        crate::json::encode(&value, &mut text);
        // Upstream's parser refuses what JSON allows: characters it takes for controls, and long keys.
        if let Ok(read) = to_json(&text) {
            let read: Value = serde_json::from_slice(&read.json).unwrap();
            prop_assert_eq!(read, value);
        }
    }

    #[test]
    fn nothing_makes_the_reader_panic(text in "[-\\[\\]{}:,?#&*!|>'\"%@` \n\ta-c0-9.]{0,60}") {
        let _ = to_json(text.as_bytes());
    }
}
