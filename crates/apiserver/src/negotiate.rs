//! Content negotiation (AS-16…AS-21): which representation a client wants, and which one it sends.

use http::{HeaderMap, header};

use crate::status::Status;

pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

const OBJECT_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAM_TYPES: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// What an object is turned into first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    Whole,
    Table(MetaVersion),
    PartialObject(MetaVersion),
    PartialObjectList(MetaVersion),
}

/// The version of `meta.k8s.io` a transformed answer is labelled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The agreed representation of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Representation {
    pub encoding: Encoding,
    pub view: View,
}

impl Representation {
    pub const JSON: Self = Self { encoding: Encoding::Json, view: View::Whole };
}

/// The endpoint being negotiated for; the texts and the offers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    Object,
    List,
    Watch,
}

/// One clause of an Accept header.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    pub media_type: String,
    pub parameters: Vec<(String, String)>,
    quality: f32,
}

impl Clause {
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Chooses the representation of a resource's answer, or refuses as AS-18 says.
pub fn accept(headers: &HeaderMap, offer: Offer) -> Result<Representation, Status> {
    let clauses = clauses(headers);
    if clauses.is_empty() {
        return Ok(Representation::JSON);
    }
    if offer == Offer::Watch {
        return accept_stream(&clauses);
    }
    let mut knows_type = false;
    for clause in &clauses {
        let encoding = match clause.media_type.as_str() {
            JSON | "*/*" => Encoding::Json,
            YAML => Encoding::Yaml,
            PROTOBUF => Encoding::Protobuf,
            _ => continue,
        };
        knows_type = true;
        if let Some(view) = view_of(clause).filter(|view| is_writable(encoding, *view)) {
            return Ok(Representation { encoding, view });
        }
    }
    Err(refuse(knows_type, offer))
}

fn accept_stream(clauses: &[Clause]) -> Result<Representation, Status> {
    for clause in clauses {
        let encoding = match clause.media_type.as_str() {
            JSON | "*/*" => Encoding::Json,
            PROTOBUF => Encoding::Protobuf,
            _ => continue,
        };
        let streams = clause.parameter("stream").is_none_or(|stream| stream == "watch");
        let view = view_of(clause).filter(|view| is_writable(encoding, *view));
        if let (true, Some(view)) = (streams, view) {
            return Ok(Representation { encoding, view });
        }
    }
    let knows_type = clauses.iter().any(|clause| matches!(clause.media_type.as_str(), JSON | YAML | PROTOBUF | "*/*"));
    if knows_type {
        Err(Status::not_acceptable(format!("only the following media types are accepted: {STREAM_TYPES}")))
    } else {
        Err(refuse(false, Offer::List))
    }
}

/// Tables hold cells of any type and exist in JSON and YAML only.
fn is_writable(encoding: Encoding, view: View) -> bool {
    !(encoding == Encoding::Protobuf && matches!(view, View::Table(_)))
}

/// The encoding of a refusal that comes before anything was agreed on.
pub fn encoding_of_refusal(headers: &HeaderMap) -> Encoding {
    accept(headers, Offer::Object).map_or(Encoding::Json, |agreed| agreed.encoding)
}

fn refuse(knows_type: bool, offer: Offer) -> Status {
    if knows_type {
        return Status::not_acceptable(format!("only the following media types are accepted: {OBJECT_TYPES}"));
    }
    let streams = if offer == Offer::Object { String::new() } else { format!(", {STREAM_TYPES}") };
    Status::not_acceptable(format!("406: Not Acceptable\n\nAvailable representations: {OBJECT_TYPES}{streams}"))
        .with_details(crate::status::Details::default())
}

/// The transformation a clause asks for; `None` when it asks for one that does not exist.
fn view_of(clause: &Clause) -> Option<View> {
    let (kind, group, version) = (clause.parameter("as"), clause.parameter("g"), clause.parameter("v"));
    if kind.is_none() && group.is_none() && version.is_none() {
        return Some(View::Whole);
    }
    let version = match (group, version) {
        (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
        (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1Beta1,
        _ => return None,
    };
    match kind {
        Some("Table") => Some(View::Table(version)),
        Some("PartialObjectMetadata") => Some(View::PartialObject(version)),
        Some("PartialObjectMetadataList") => Some(View::PartialObjectList(version)),
        _ => None,
    }
}

/// The clauses of all Accept headers by quality, then position.
pub fn clauses(headers: &HeaderMap) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(clause)
        .collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

fn clause(text: &str) -> Option<Clause> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().filter(|media_type| !media_type.is_empty())?.to_ascii_lowercase();
    let mut clause = Clause { media_type, parameters: Vec::new(), quality: 1.0 };
    for parameter in parts {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
        if key == "q" {
            clause.quality = value.parse().unwrap_or(1.0);
        } else {
            clause.parameters.push((key, value.to_owned()));
        }
    }
    Some(clause)
}

/// How a request body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyType {
    Json,
    Yaml,
    Protobuf,
}

/// The type of a POST, PUT or DELETE body (AS-20).
pub fn body_type(headers: &HeaderMap) -> Result<BodyType, Status> {
    match media_type(headers).as_deref() {
        None | Some("" | JSON) => Ok(BodyType::Json),
        Some(YAML) => Ok(BodyType::Yaml),
        Some(PROTOBUF) => Ok(BodyType::Protobuf),
        Some(_) => Err(Status::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {OBJECT_TYPES}"
        ))),
    }
}

/// The kinds of patch (AS-21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

pub fn patch_type(headers: &HeaderMap) -> Result<PatchType, Status> {
    match media_type(headers).as_deref() {
        Some("application/json-patch+json") => Ok(PatchType::Json),
        Some("application/merge-patch+json") => Ok(PatchType::Merge),
        Some("application/strategic-merge-patch+json") => Ok(PatchType::Strategic),
        Some("application/apply-patch+yaml") => Ok(PatchType::Apply),
        _ => Err(Status::unsupported_media_type("415: Unsupported Media Type")
            .with_details(crate::status::Details::default())),
    }
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.parse().unwrap());
        headers
    }

    #[test]
    fn kubectl_gets_its_table() {
        let headers = accepting(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        );
        assert_eq!(accept(&headers, Offer::List).unwrap().view, View::Table(MetaVersion::V1));
    }

    #[test]
    fn typed_go_clients_get_protobuf_but_no_tables_in_it() {
        let headers = accepting("application/vnd.kubernetes.protobuf,application/json");
        assert_eq!(accept(&headers, Offer::Object).unwrap().encoding, Encoding::Protobuf);
        let headers = accepting("application/vnd.kubernetes.protobuf, */*");
        assert_eq!(accept(&headers, Offer::Watch).unwrap().encoding, Encoding::Protobuf);
        let headers = accepting(
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1",
        );
        assert_eq!(accept(&headers, Offer::List).unwrap().encoding, Encoding::Json);
    }

    #[test]
    fn quality_orders_clauses() {
        let headers = accepting("application/json;q=0.5, application/yaml");
        assert_eq!(accept(&headers, Offer::Object).unwrap().encoding, Encoding::Yaml);
    }

    #[test]
    fn refusals_say_what_is_offered() {
        let unknown = accept(&accepting("application/xml"), Offer::List).unwrap_err();
        assert!(unknown.message.starts_with("406: Not Acceptable\n\n") && unknown.message.contains("stream=watch"));
        let transformed = accept(&accepting("application/json;as=Foo;g=meta.k8s.io;v=v1"), Offer::Object).unwrap_err();
        assert_eq!(transformed.message, format!("only the following media types are accepted: {OBJECT_TYPES}"));
        assert!(accept(&accepting("application/yaml"), Offer::Watch).is_err());
    }
}
