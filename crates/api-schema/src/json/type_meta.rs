//! The first look at a body: is it JSON, and which kind does it say it is (AS-25).

use super::decode::malformed;
use super::error::DecodeError;
use super::lexer::{Lexer, Malformed};
use super::scalar::Found;
use crate::TypeMeta;
use crate::go;

/// The `kind` and `apiVersion` of a body, which may lack both. The error is the complete text that upstream puts after
/// `the object provided is unrecognized (must be of type Job): `.
///
/// This step of upstream uses Go's own decoder, which does not care about the case of names.
pub fn type_meta(document: &[u8]) -> Result<TypeMeta, String> {
    let mut meta = TypeMeta::default();
    match read(document, &mut meta) {
        Ok(None) => {}
        Ok(Some(error)) => return Err(parse_error(&error)),
        Err(Malformed) => return Err(parse_error(&malformed(document))),
    }
    // A version has at most a group before it.
    if meta.api_version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {}", meta.api_version));
    }
    Ok(meta)
}

fn parse_error(error: &DecodeError) -> String {
    format!("couldn't get version/kind; json parse error: {error}")
}

/// The beginning of a body as upstream appends it in parentheses to such errors: text if it looks like JSON, else hex.
pub fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let shown = &body[..body.len().min(SHOWN)];
    let dots = if body.len() > SHOWN { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(shown)),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + dots,
    }
}

/// Fills `meta`; a value of the wrong type is returned as an error only after the whole document was read.
fn read(document: &[u8], meta: &mut TypeMeta) -> Result<Option<DecodeError>, Malformed> {
    let text = go::repaired(document);
    let mut lexer = Lexer::new(&text);
    let mut error = None;
    match lexer.peek()? {
        b'{' => {
            let mut more = lexer.open(b'}')?;
            while more {
                let key = lexer.key()?;
                let (name, member) = if key.eq_ignore_ascii_case("kind") {
                    ("kind", &mut meta.kind)
                } else if key.eq_ignore_ascii_case("apiVersion") {
                    ("apiVersion", &mut meta.api_version)
                } else {
                    lexer.skip()?;
                    more = lexer.more(b'}')?;
                    continue;
                };
                match lexer.found()? {
                    Found::String(text) => *member = text.into_owned(),
                    Found::Null => {}
                    found => {
                        let text = format!(
                            "json: cannot unmarshal {} into Go struct field .{name} of type string",
                            found.kind()
                        );
                        error.get_or_insert(DecodeError::Type(text));
                        if matches!(found, Found::Array | Found::Object) {
                            lexer.skip()?;
                        }
                    }
                }
                more = lexer.more(b'}')?;
            }
        }
        _ => {
            let found = lexer.found()?;
            if !matches!(found, Found::Null) {
                let go_type = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
                let text = format!("json: cannot unmarshal {} into Go value of type {go_type}", found.kind());
                error = Some(DecodeError::Type(text));
            }
            if matches!(found, Found::Array) {
                lexer.skip()?;
            }
        }
    }
    lexer.end()?;
    Ok(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_version_are_found_wherever_they_stand() {
        let meta = |text: &str| type_meta(text.as_bytes()).map(|meta| (meta.api_version, meta.kind));
        let job = Ok(("batch/v1".to_owned(), "Job".to_owned()));
        assert_eq!(meta(r#"{"metadata":{"kind":"x"},"kind":"Job","apiVersion":"batch/v1"}"#), job);
        assert_eq!(meta(r#"{"KIND":"Job","apiversion":"batch/v1"}"#), job);
        assert_eq!(meta("{}"), Ok(Default::default()));
        assert_eq!(meta("null"), Ok(Default::default()));
    }

    #[test]
    fn bodies_that_do_not_parse_are_described() {
        let cases = [
            ("", "couldn't get version/kind; json parse error: unexpected end of JSON input", "<empty>"),
            (
                "hello",
                "couldn't get version/kind; json parse error: invalid character 'h' looking for beginning of value",
                "68656c6c6f",
            ),
            (
                r#"{"apiVersion":"batch/v1","kind":"Job"} x"#,
                "couldn't get version/kind; json parse error: invalid character 'x' after top-level value",
                r#"{"apiVersion":"batch/v1","kind ..."#,
            ),
            (
                r#"{"kind":5}"#,
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
                r#"{"kind":5}"#,
            ),
            (r#"{"apiVersion":"a/b/c"}"#, "unexpected GroupVersion string: a/b/c", r#"{"apiVersion":"a/b/c"}"#),
        ];
        for (body, error, beginning) in cases {
            assert_eq!(type_meta(body.as_bytes()), Err(error.to_owned()));
            assert_eq!(summary(body.as_bytes()), beginning);
        }
    }
}
