//! Manifests: files, directories and standard input, as one list of objects that each know where they come from.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use api_schema::yaml;
use serde_json::{Deserializer, Value, json};

use crate::failure::Failure;

/// More than anybody's manifests; a device or a pipe without an end stops here.
const BYTES_MAX: u64 = 64 << 20;

/// What kubectl reads of a directory.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// The name of standard input on the command line.
const STANDARD_INPUT: &str = "-";

/// An object and where it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    pub(crate) origin: Origin,
    pub(crate) object: Value,
}

/// Where an object is written: the file and the document in it, counted from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) file: String,
    pub(crate) number: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.number)
    }
}

impl Document {
    pub(crate) fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    pub(crate) fn api_version(&self) -> &str {
        self.object["apiVersion"].as_str().unwrap_or_default()
    }

    /// The name, or what the server is to begin it with.
    pub(crate) fn name(&self) -> &str {
        let metadata = &self.object["metadata"];
        metadata["name"].as_str().or_else(|| metadata["generateName"].as_str()).unwrap_or_default()
    }

    pub(crate) fn is(&self, api_version: &str, kind: &str) -> bool {
        self.api_version() == api_version && self.kind() == kind
    }
}

/// All objects of the given places, in their order; those of a directory in the order of the files' names.
pub(crate) fn read(places: &[PathBuf], stdin: impl Read) -> Result<Vec<Document>, Failure> {
    let mut stdin = Some(stdin);
    let mut documents = Vec::new();
    for place in places {
        if place.as_os_str() == STANDARD_INPUT {
            let stdin = stdin.take().ok_or_else(|| {
                Failure::usage(anyhow!("`-` stands for standard input, which can be read once")).hint("say `-` once")
            })?;
            documents.extend(parse("standard input", &text_of(stdin, "standard input")?)?);
        } else {
            for file in files_of(place)? {
                let name = file.display().to_string();
                let open = fs::File::open(&file).map_err(|error| unreadable(&file, error))?;
                documents.extend(parse(&name, &text_of(open, &name)?)?);
            }
        }
    }
    Ok(documents)
}

fn unreadable(path: &Path, error: io::Error) -> Failure {
    Failure::usage(anyhow!(error).context(format!("read `{}`", path.display())))
        .hint("pass files or directories with manifests, or `-` for standard input")
}

fn files_of(place: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error| unreadable(place, error);
    if !fs::metadata(place).map_err(unreadable)?.is_dir() {
        return Ok(vec![place.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(place).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if EXTENSIONS.contains(&extension) && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        let error = anyhow!("there are no manifests in `{}`", place.display());
        return Err(Failure::usage(error).hint("files that end in .yaml, .yml or .json are read"));
    }
    files.sort();
    Ok(files)
}

fn text_of(source: impl Read, name: &str) -> Result<String, Failure> {
    let failure = |error: anyhow::Error| {
        Failure::usage(error.context(format!("read `{name}`"))).hint("manifests are YAML or JSON in UTF-8")
    };
    let mut bytes = Vec::new();
    source.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failure(error.into()))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(failure(anyhow!("it is longer than {} MiB", BYTES_MAX >> 20)));
    }
    let text = String::from_utf8(bytes).context("it is not text").map_err(failure)?;
    // Editors of other systems put it before the text, and kubectl reads over it.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The objects of one file, lists taken apart.
fn parse(file: &str, text: &str) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    for (number, value) in values(file, text)? {
        let origin = Origin { file: file.to_owned(), number };
        let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && value["items"].is_array();
        let objects = match value {
            Value::Null => continue,
            mut list if is_list => list["items"].as_array_mut().map(std::mem::take).unwrap_or_default(),
            object => vec![object],
        };
        for object in objects {
            check(&origin, &object)?;
            documents.push(Document { origin: origin.clone(), object });
        }
    }
    Ok(documents)
}

/// The documents of a file with their numbers.
fn values(file: &str, text: &str) -> Result<Vec<(usize, Value)>, Failure> {
    if text.trim_start().starts_with('{') {
        let values: Result<Vec<Value>, _> = Deserializer::from_str(text).into_iter().collect();
        // What looks like JSON may be YAML in JSON's clothes; then the YAML reader has the better message.
        if let Ok(values) = values {
            return Ok((1..).zip(values).collect());
        }
    }
    let mut values = Vec::new();
    for (number, (first_line, document)) in (1..).zip(yaml_documents(text)) {
        let origin = Origin { file: file.to_owned(), number };
        values.push((number, yaml_value(&origin, first_line, &document)?));
    }
    Ok(values)
}

/// YAML 1.1 as kubectl and the server read it: `0755` is octal, and a key that occurs twice is a mistake.
fn yaml_value(origin: &Origin, first_line: usize, document: &str) -> Result<Value, Failure> {
    let json = yaml::to_json_strictly(document).map_err(|yaml::Fault { line, message }| {
        let line = line.map(|line| format!(", line {}", line + first_line)).unwrap_or_default();
        Failure::usage(anyhow!("{origin}{line}: {message}")).hint("correct the YAML and run again; nothing was started")
    })?;
    let value = serde_json::from_slice(&json).with_context(|| format!("{origin}: read the JSON it stands for"));
    value.map_err(Failure::usage)
}

/// Splits at `---` and behind `...`, which YAML allows nowhere else at the beginning of a line. With each document comes
/// the number of lines before it.
fn yaml_documents(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(0, String::new())];
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_end() == "..." {
            documents.push((number, String::new()));
            continue;
        }
        let rest = line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        let begins_first = documents.len() == 1 && documents[0].1.lines().all(is_blank);
        match (rest, documents.last_mut()) {
            (Some(rest), Some(first)) if begins_first => *first = (number - 1, format!("{rest}\n")),
            (Some(rest), _) => documents.push((number - 1, format!("{rest}\n"))),
            (None, Some((_, document))) => {
                document.push_str(line);
                document.push('\n');
            }
            (None, None) => {}
        }
    }
    documents.retain(|(_, document)| !document.lines().all(is_blank));
    documents
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// What every object must have before a server can be asked about it.
fn check(origin: &Origin, object: &Value) -> Result<(), Failure> {
    let refuse = |field: &str, what: &str| {
        Failure::usage(anyhow!("{origin}: {field}: {what}"))
            .hint("every object has `apiVersion`, `kind` and `metadata.name`; nothing was started")
    };
    if !object.is_object() {
        return Err(refuse("(document)", "must be a mapping"));
    }
    for field in ["apiVersion", "kind"] {
        if object[field].as_str().is_none_or(str::is_empty) {
            return Err(refuse(field, "Required value"));
        }
    }
    let metadata = &object["metadata"];
    if !metadata.is_object() && !metadata.is_null() {
        return Err(refuse("metadata", "must be a mapping"));
    }
    if metadata["name"].as_str().or_else(|| metadata["generateName"].as_str()).is_none_or(str::is_empty) {
        return Err(refuse("metadata.name", "Required value: name or generateName is required"));
    }
    Ok(())
}

/// A CronJob is not waited for: its template is run once, now, as `kubectl create job --from` would.
pub(crate) fn instantiate(document: &Document) -> Document {
    use batch_types::constants::annotation::CRONJOB_INSTANTIATE;

    let (metadata, template) = (&document.object["metadata"], &document.object["spec"]["jobTemplate"]);
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": template["metadata"], "spec": template["spec"],
    });
    if !job["metadata"].is_object() {
        job["metadata"] = json!({});
    }
    for field in ["name", "generateName", "namespace"] {
        if !metadata[field].is_null() {
            job["metadata"][field] = metadata[field].clone();
        }
    }
    if !job["metadata"]["annotations"].is_object() {
        job["metadata"]["annotations"] = json!({});
    }
    job["metadata"]["annotations"][CRONJOB_INSTANTIATE] = json!("manual");
    Document { origin: document.origin.clone(), object: job }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check_text(text: &str, expected: Expect) {
        let shown = match parse("f.yaml", text) {
            Ok(documents) => documents
                .iter()
                .map(|it| format!("{}: {} {}\n", it.origin.number, it.kind(), it.name()))
                .collect::<String>(),
            Err(failure) => format!("{}\n", failure.error),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn documents_are_split_and_lists_taken_apart() {
        check_text(
            "# a comment\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n# nothing\n--- # c\n\
             apiVersion: v1\nkind: XList\nitems:\n- {apiVersion: v1, kind: B, metadata: {name: b}}\n\
             - {apiVersion: v1, kind: C, metadata: {generateName: c-}}\n...\n",
            expect![[r#"
                1: A a
                2: B b
                2: C c-
            "#]],
        );
    }

    #[test]
    fn a_block_may_hold_what_looks_like_a_separator() {
        check_text(
            "apiVersion: v1\nkind: A\nmetadata: {name: a}\ndata:\n  x: |\n    ---\n    y\n  z: ---\n",
            expect![[r#"
                1: A a
            "#]],
        );
    }

    #[test]
    fn json_may_follow_json() {
        check_text(
            r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}} {"apiVersion":"v1","kind":"B","metadata":{"name":"b"}}"#,
            expect![[r#"
                1: A a
                2: B b
            "#]],
        );
    }

    #[test]
    fn errors_name_file_document_and_field() {
        check_text(
            "a: 1\n",
            expect![[r#"
            f.yaml, document 1: apiVersion: Required value
        "#]],
        );
        check_text(
            "apiVersion: v1\nkind: A\n---\n- 1\n",
            expect![[r#"
            f.yaml, document 1: metadata.name: Required value: name or generateName is required
        "#]],
        );
        check_text(
            "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n- 1\n",
            expect![[r#"
            f.yaml, document 2: (document): must be a mapping
        "#]],
        );
        check_text(
            "apiVersion: v1\nkind: A\nmetadata: 7\n",
            expect![[r#"
            f.yaml, document 1: metadata: must be a mapping
        "#]],
        );
        check_text("", expect![""]);
    }

    #[test]
    fn lines_are_counted_from_the_top_of_the_file() {
        let failure = parse("f.yaml", "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\na: b\n  c: [\n").unwrap_err();
        let text = failure.error.to_string();
        assert!(text.starts_with("f.yaml, document 2, line 6"), "{text}");
    }

    /// The numbers of YAML 1.1, as kubectl reads them.
    #[test]
    fn a_leading_zero_means_octal() {
        let text =
            "{apiVersion: v1, kind: A, metadata: {name: a}, spec: {mode: 0755, limit: 010, text: '010', on: yes}}";
        let documents = parse("f", text).unwrap();
        assert_eq!(documents[0].object["spec"], json!({"mode": 493, "limit": 8, "text": "010", "true": true}));
    }

    /// One number, that of the file, and nothing about the reader's own insides.
    #[test]
    fn faults_of_later_documents_are_where_an_editor_shows_them() {
        let first = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n";
        check_text(
            &format!("{first}---\nkind: B\nspec: {{}}\nkind: C\n"),
            expect![[r#"
                f.yaml, document 2, line 7: key "kind" already set in map
            "#]],
        );
        check_text(
            &format!("{first}---\n# c\n---\na: [b\nc: d\n"),
            expect![[r#"
                f.yaml, document 2, line 8: did not find expected ',' or ']'
            "#]],
        );
        check_text(
            &format!("{first}...\na: *b\n"),
            expect![[r#"
                f.yaml, document 2: unknown anchor 'b' referenced
            "#]],
        );
    }

    #[test]
    fn a_cron_job_is_run_once() {
        let text = "{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly, namespace: x}, spec: {jobTemplate: \
                    {metadata: {labels: {a: b}}, spec: {parallelism: 2}}}}";
        let documents = parse("f", text).unwrap();
        let job = instantiate(&documents[0]).object;
        assert_eq!(
            job,
            json!({"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"labels": {"a": "b"}, "name": "nightly", "namespace": "x",
                    "annotations": {"cronjob.kubernetes.io/instantiate": "manual"}},
                "spec": {"parallelism": 2}})
        );
    }

    #[test]
    fn a_directory_gives_its_manifests_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.yml", "c.json", "d.txt"] {
            let text = format!("{{\"apiVersion\": \"v1\", \"kind\": \"A\", \"metadata\": {{\"name\": \"{name}\"}}}}");
            fs::write(dir.path().join(name), text).unwrap();
        }
        let documents = read(&[dir.path().to_owned()], io::empty()).unwrap();
        assert_eq!(documents.iter().map(Document::name).collect::<Vec<_>>(), ["a.yml", "b.yaml", "c.json"]);
        let empty = tempfile::tempdir().unwrap();
        read(&[empty.path().to_owned()], io::empty()).unwrap_err();
    }

    #[test]
    fn a_byte_order_mark_is_read_over() {
        for text in [
            "apiVersion: v1\nkind: A\nmetadata: {name: a}\n",
            r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}"#,
        ] {
            let documents = read(&["-".into()], format!("\u{feff}{text}").as_bytes()).unwrap();
            assert_eq!((documents[0].api_version(), documents[0].name()), ("v1", "a"));
        }
    }

    #[test]
    fn standard_input_is_read_once() {
        let text = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n";
        let documents = read(&["-".into()], text.as_bytes()).unwrap();
        assert_eq!(documents[0].origin.to_string(), "standard input, document 1");
        read(&["-".into(), "-".into()], text.as_bytes()).unwrap_err();
    }
}
