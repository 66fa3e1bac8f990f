//! Lists in annotations: the forerunners of today's fields, which Go reads into structs that say nothing about JSON. So
//! members may be written in any case, null is empty wherever it stands, and what does not fit is told in Go's words.

use api_schema::{
    json::{self, kind_of},
    time::{Precision, Timestamp},
};
use serde_json::{Map, Value};

/// A member of the struct: its name in Go, whose first letter in lower case makes the API's, and its Go type.
pub type Member = (&'static str, &'static str);

/// Reads a list of structs of a Go type such as `core.Taint`. The items have the API's names; unknown members are gone.
pub fn list(text: &str, go_type: &str, members: &[Member]) -> Result<Vec<Value>, String> {
    let items = match json::parse(text.as_bytes()).map_err(|error| error.to_string())? {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        other => return Err(format!("json: cannot unmarshal {} into Go value of type []{go_type}", kind_of(&other))),
    };
    items.into_iter().map(|item| structure(item, go_type, members)).collect()
}

fn structure(item: Value, go_type: &str, members: &[Member]) -> Result<Value, String> {
    let given = match item {
        Value::Null => Map::new(),
        Value::Object(given) => given,
        other => return Err(format!("json: cannot unmarshal {} into Go value of type {go_type}", kind_of(&other))),
    };
    let mut read = Map::new();
    for (name, value) in given {
        let known = members.iter().find(|(member, _)| member.eq_ignore_ascii_case(&name));
        let Some((member, member_type)) = known.filter(|_| !value.is_null()) else { continue };
        if !fits(&value, member_type)? {
            let structure = go_type.rsplit('.').next().unwrap_or(go_type);
            let shown = match (&value, *member_type) {
                (Value::Number(number), "int64") => format!("number {number}"),
                (value, _) => kind_of(value).to_owned(),
            };
            return Err(format!(
                "json: cannot unmarshal {shown} into Go struct field {structure}.{member} of type {member_type}"
            ));
        }
        read.insert(member[..1].to_lowercase() + &member[1..], value);
    }
    Ok(Value::Object(read))
}

/// Every type but these two is a string.
fn fits(value: &Value, go_type: &str) -> Result<bool, String> {
    match (go_type, value) {
        ("int64", value) => Ok(value.is_i64()),
        ("v1.Time", Value::String(text)) => Timestamp::parse(text, Precision::Seconds).map(|_| true),
        (_, value) => Ok(value.is_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_read_as_go_reads_them() {
        let read = |text: &str| {
            let members = [("Key", "string"), ("TolerationSeconds", "int64"), ("TimeAdded", "v1.Time")];
            list(text, "core.Toleration", &members)
        };
        assert_eq!(read("null"), Ok(vec![]));
        assert_eq!(read("[null,{}]"), Ok(vec![json!({}), json!({})]));
        let item = json!({"key": "k", "tolerationSeconds": 3});
        assert_eq!(read(r#"[{"KEY":"k","tolerationseconds":3,"x":1,"timeAdded":null}]"#), Ok(vec![item]));
        for (text, why) in [
            ("x", "invalid character 'x' looking for beginning of value"),
            ("[{", "unexpected end of JSON input"),
            ("{}", "json: cannot unmarshal object into Go value of type []core.Toleration"),
            ("[1]", "json: cannot unmarshal number into Go value of type core.Toleration"),
            (r#"[{"key":1}]"#, "json: cannot unmarshal number into Go struct field Toleration.Key of type string"),
            (
                r#"[{"TolerationSeconds":1.5}]"#,
                "json: cannot unmarshal number 1.5 into Go struct field Toleration.TolerationSeconds of type int64",
            ),
            (
                r#"[{"TimeAdded":"x"}]"#,
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
            ),
        ] {
            assert_eq!(read(text), Err(why.to_owned()), "{text}");
        }
    }
}
