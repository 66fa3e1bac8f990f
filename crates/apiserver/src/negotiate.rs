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
    /// An answer that is no object of a table.
    Plain,
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
///
/// Two parties look at the header, as upstream: the router knows media types by their exact spelling, the handler
/// tries the clauses one by one. A watch is negotiated like a list; what cannot be streamed is refused afterwards.
pub fn accept(headers: &HeaderMap, offer: Offer) -> Result<Representation, Status> {
    // What nearly all clients send needs no closer look.
    if matches!(header_text(headers), "" | JSON) {
        return Ok(Representation::JSON);
    }
    let clauses = clauses(headers);
    if !clauses.iter().any(|clause| matches!(clause.media_type.as_str(), JSON | YAML | PROTOBUF | "*/*")) {
        let streams =
            if matches!(offer, Offer::Object | Offer::Plain) { String::new() } else { format!(", {STREAM_TYPES}") };
        let why = format!("406: Not Acceptable\n\nAvailable representations: {OBJECT_TYPES}{streams}");
        return Err(Status::not_acceptable(why).with_details(crate::status::Details::default()));
    }
    let only = |types: &str| Status::not_acceptable(format!("only the following media types are accepted: {types}"));
    let is_offered = |agreed: &Representation| offer != Offer::Plain || !matches!(agreed.view, View::Table(_));
    match clauses.iter().filter_map(representation).find(is_offered) {
        Some(agreed) if offer == Offer::Watch && agreed.encoding == Encoding::Yaml => Err(only(STREAM_TYPES)),
        Some(agreed) => Ok(agreed),
        None => Err(only(OBJECT_TYPES)),
    }
}

/// What a clause asks for, if it can be had.
fn representation(clause: &Clause) -> Option<Representation> {
    let encoding = match clause.media_type.as_str() {
        JSON | "*/*" | "application/*" => Encoding::Json,
        YAML => Encoding::Yaml,
        PROTOBUF => Encoding::Protobuf,
        _ => return None,
    };
    let asks = |name: &str| clause.parameter(name).filter(|value| !value.is_empty());
    let streams = asks("stream").is_none_or(|stream| stream == "watch" && encoding != Encoding::Yaml);
    let version_fits = asks("sv").is_none_or(|version| version == "v1");
    let view = view_of(clause).filter(|view| streams && version_fits && is_writable(encoding, *view))?;
    Some(Representation { encoding, view })
}

/// Tables hold cells of any type and exist in JSON and YAML only.
fn is_writable(encoding: Encoding, view: View) -> bool {
    !(encoding == Encoding::Protobuf && matches!(view, View::Table(_)))
}

/// The encoding of a refusal that comes before anything was agreed on.
pub fn encoding_of_refusal(headers: &HeaderMap) -> Encoding {
    accept(headers, Offer::Object).map_or(Encoding::Json, |agreed| agreed.encoding)
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

/// The Accept header; a second one is not looked at.
fn header_text(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The clauses of the Accept header by quality, then the particular ones before the wildcards, then by position.
pub fn clauses(headers: &HeaderMap) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = header_text(headers).split(',').filter_map(clause).collect();
    let is_wildcard = |clause: &Clause| (clause.media_type.starts_with("*/"), clause.media_type.ends_with("/*"));
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then_with(|| is_wildcard(a).cmp(&is_wildcard(b))));
    clauses
}

fn clause(text: &str) -> Option<Clause> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().filter(|media_type| !media_type.is_empty())?.to_owned();
    let mut clause = Clause { media_type, parameters: Vec::new(), quality: 1.0 };
    for (key, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
        if key.trim() == "q" {
            clause.quality = value.parse().unwrap_or_default();
        } else {
            clause.parameters.push((key.trim().to_owned(), value.trim().to_owned()));
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
    let value = content_type(headers);
    if value == JSON {
        return Ok(BodyType::Json);
    }
    let media_type = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        _ if !has_fine_parameters(value) => {}
        "" if value.is_empty() => return Ok(BodyType::Json),
        JSON => return Ok(BodyType::Json),
        YAML => return Ok(BodyType::Yaml),
        PROTOBUF => return Ok(BodyType::Protobuf),
        _ => {}
    }
    Err(Status::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: {OBJECT_TYPES}"
    )))
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Whether every parameter has a name and a value, as Go's `mime.ParseMediaType` wants it; semicolons at the end are
/// forgiven.
fn has_fine_parameters(content_type: &str) -> bool {
    let parameters = content_type.trim_end_matches([';', ' ']).split(';').skip(1);
    let is_token = |text: &str| !text.is_empty() && !text.contains([' ', '"', '=', ',', '/', '(', ')', '<', '>', '@']);
    let is_quoted = |text: &str| text.len() >= 2 && text.starts_with('"') && text.ends_with('"');
    let mut names: Vec<String> = Vec::new();
    parameters.map(str::trim).all(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else { return false };
        let name = name.to_ascii_lowercase();
        let fine = is_token(&name) && (is_token(value) || is_quoted(value)) && !names.contains(&name);
        names.push(name);
        fine
    })
}

/// The kinds of patch (AS-21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

const PATCH_TYPES: [(&str, PatchType); 4] = [
    ("application/json-patch+json", PatchType::Json),
    ("application/merge-patch+json", PatchType::Merge),
    ("application/strategic-merge-patch+json", PatchType::Strategic),
    ("application/apply-patch+yaml", PatchType::Apply),
];

pub fn patch_type(headers: &HeaderMap) -> Result<PatchType, Status> {
    // Two parties look at it. The router takes a list and does not mind blanks; the handler wants one type and nothing
    // else in front of the parameters. Both compare spellings, so upper case is another type.
    let value = content_type(headers);
    let routed = value
        .split(',')
        .any(|one| exact_patch_type(one.split(';').next().unwrap_or_default().trim_matches(' ')).is_some());
    if !routed {
        return Err(Status::unsupported_media_type("415: Unsupported Media Type")
            .with_details(crate::status::Details::default()));
    }
    exact_patch_type(value.split(';').next().unwrap_or_default()).ok_or_else(|| {
        let types = PATCH_TYPES.map(|(media_type, _)| media_type).join(", ");
        Status::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {types}"
        ))
    })
}

fn exact_patch_type(media_type: &str) -> Option<PatchType> {
    PATCH_TYPES.iter().find(|(known, _)| *known == media_type).map(|(_, patch_type)| *patch_type)
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
    fn what_is_no_object_has_no_table() {
        let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
        assert_eq!(accept(&accepting(table), Offer::Plain).unwrap_err().code, 406);
        let either = accept(&accepting(&format!("{table},application/json")), Offer::Plain).unwrap();
        assert_eq!(either, Representation::JSON);
    }

    #[test]
    fn quality_orders_clauses() {
        let headers = accepting("application/json;q=0.5, application/yaml");
        assert_eq!(accept(&headers, Offer::Object).unwrap().encoding, Encoding::Yaml);
    }

    /// AS-18: the particular comes before the wildcard, spelling counts, and parameters are conditions.
    #[test]
    fn clauses_are_tried_in_upstreams_order() {
        let not_known = "406: Not Acceptable\n\nAvailable representations: ";
        let only = "only the following media types are accepted: application/json, application/yaml, ";
        let streams = "only the following media types are accepted: application/json;stream=watch, ";
        let cases = [
            ("*/*, application/yaml", Offer::Object, Ok(Encoding::Yaml)),
            ("*/*;q=0.9, application/yaml;q=0.1", Offer::Object, Ok(Encoding::Json)),
            ("application/yaml;q=x, application/json", Offer::Object, Ok(Encoding::Json)),
            ("application/*, */*", Offer::Object, Ok(Encoding::Json)),
            ("application/*", Offer::Object, Err(not_known)),
            ("application/JSON", Offer::Object, Err(not_known)),
            (";", Offer::Object, Err(not_known)),
            ("application/json;stream=watch", Offer::Object, Ok(Encoding::Json)),
            ("application/json;stream=x", Offer::Object, Err(only)),
            ("application/json;stream=x, application/yaml", Offer::Object, Ok(Encoding::Yaml)),
            ("application/yaml;stream=watch", Offer::List, Err(only)),
            ("application/json;sv=v1", Offer::Object, Ok(Encoding::Json)),
            ("application/json;sv=v2", Offer::Object, Err(only)),
            ("application/json;as=\"Table\";g=meta.k8s.io;v=v1", Offer::List, Err(only)),
            ("application/yaml, application/json", Offer::Watch, Err(streams)),
            ("application/json;stream=x", Offer::Watch, Err(only)),
        ];
        for (header, offer, expected) in cases {
            match (accept(&accepting(header), offer), expected) {
                (Ok(agreed), Ok(encoding)) => assert_eq!(agreed.encoding, encoding, "{header}"),
                (Err(status), Err(start)) => assert!(status.message.starts_with(start), "{header}: {}", status.message),
                (found, _) => panic!("{header}: {found:?}"),
            }
        }
    }

    /// AS-20, AS-21.
    #[test]
    fn content_types_are_read_as_go_reads_them() {
        let sending = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            headers
        };
        for fine in ["", "application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;"]
        {
            assert_eq!(body_type(&sending(fine)).unwrap(), BodyType::Json, "{fine}");
        }
        for odd in ["application/json; charset", "application/json; a=b; a=c", "application/json;;a=b", "json", ";"] {
            assert_eq!(body_type(&sending(odd)).unwrap_err().code, 415, "{odd}");
        }
        assert_eq!(patch_type(&sending("application/merge-patch+json; x")).unwrap(), PatchType::Merge);
        let by_router = "415: Unsupported Media Type";
        let by_handler = "the body of the request was in an unknown format - accepted media types include: \
                          application/json-patch+json, application/merge-patch+json, \
                          application/strategic-merge-patch+json, application/apply-patch+yaml";
        for (value, message) in [
            ("", by_router),
            ("application/Merge-Patch+json", by_router),
            ("*/*", by_router),
            ("application/merge-patch+json ; x", by_handler),
            ("application/merge-patch+json, application/json", by_handler),
            ("application/json, application/merge-patch+json", by_handler),
        ] {
            let refused = patch_type(&sending(value)).unwrap_err();
            assert_eq!((refused.code, refused.message.as_str()), (415, message), "{value}");
        }
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
