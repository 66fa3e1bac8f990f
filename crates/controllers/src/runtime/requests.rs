//! Single requests to the API, decoded into whatever the caller needs of the answer.
//!
//! `kube::Api<K>` decodes whole objects and instantiates its code for every kind; controllers need a few fields of the
//! answer or none (design D4). The types of answers are the caller's; [`Ignored`] drops the answer unread.
//!
//! Nobody waits for an answer for ever: a connection can die without a word, and whoever waited for it would never do
//! anything again (INV-30).

use std::time::Duration;

use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use kube::{
    Client, Error,
    client::Body,
    core::{Status, response::StatusDetails},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::resource::{Resource, push_parameter};

/// An answer that is not looked at.
pub type Ignored = serde::de::IgnoredAny;

/// The most that is read of one answer. Lists are paged, so that no honest answer comes near it.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// What has not been answered by then will not be: API servers give up after 60 seconds themselves. The events of a
/// watch, once it is open, have a deadline of their own.
const TIMEOUT: Duration = Duration::from_secs(65);

/// Objects of one page of a list, as in client-go.
pub(crate) const PAGE_LIMIT: &str = "500";

/// `Accept` for answers and watches that carry `metadata` only.
pub const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// `Accept` for lists that carry `metadata` only.
pub const METADATA_LIST_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// How a patch body is to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Merge,
    Strategic,
}

impl PatchType {
    fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// What a DELETE asks for.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Preconditions::is_empty")]
    pub preconditions: Preconditions,
    /// `Background`, `Foreground` or `Orphan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation_policy: Option<&'static str>,
}

/// What must be true of an object for it to be deleted.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

impl Preconditions {
    pub fn uid(uid: &str) -> Self {
        Self { uid: Some(uid.to_owned()), resource_version: None }
    }

    fn is_empty(&self) -> bool {
        self.uid.is_none() && self.resource_version.is_none()
    }
}

/// GET of one object, or of any other address.
pub async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Error> {
    get_as(client, path, "application/json").await
}

/// GET in a form of the object that `accept` asks for.
pub async fn get_as<T: DeserializeOwned>(client: &Client, path: &str, accept: &str) -> Result<T, Error> {
    in_time(async { decode(begin(client, path, accept).await?).await }).await
}

/// GET of a collection, page by page; `each` is given every object. `accept` is that of the list.
///
/// A list that expires between two pages is an error like any other: the caller starts over.
pub async fn for_each<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    accept: &str,
    mut each: impl FnMut(T),
) -> Result<(), Error> {
    let mut token = String::new();
    loop {
        let mut query = String::new();
        push_parameter(&mut query, "limit", PAGE_LIMIT);
        if !token.is_empty() {
            push_parameter(&mut query, "continue", &token);
        }
        let page: Page<T> = get_as(client, &format!("{path}?{query}"), accept).await?;
        page.items.into_iter().flatten().for_each(&mut each);
        if page.metadata.token.is_empty() {
            return Ok(());
        }
        token = page.metadata.token;
    }
}

/// POST to a collection.
pub async fn create<T: DeserializeOwned>(client: &Client, path: &str, object: &impl Serialize) -> Result<T, Error> {
    write(client, Method::POST, path, "application/json", object).await
}

/// POST to a collection of an object that is JSON already. The answer is not looked at.
pub async fn create_json(client: &Client, path: &str, json: String) -> Result<(), Error> {
    let request = request(Method::POST, path, "application/json", json.into_bytes())?;
    in_time(async { collect(send(client, request).await?).await.map(drop) }).await
}

/// PUT of an object or a part of it.
pub async fn replace<T: DeserializeOwned>(client: &Client, path: &str, object: &impl Serialize) -> Result<T, Error> {
    write(client, Method::PUT, path, "application/json", object).await
}

/// PATCH of an object or a part of it.
pub async fn patch<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    kind: PatchType,
    patch: &impl Serialize,
) -> Result<T, Error> {
    write(client, Method::PATCH, path, kind.content_type(), patch).await
}

/// PATCH whose answer is not looked at, for those that send thousands.
pub async fn patch_unread(client: &Client, path: &str, kind: PatchType, patch: &impl Serialize) -> Result<(), Error> {
    let body = serde_json::to_vec(patch).map_err(Error::SerdeError)?;
    let request = request(Method::PATCH, path, kind.content_type(), body)?;
    in_time(async { collect(send(client, request).await?).await.map(drop) }).await
}

/// DELETE of an object. Whether it is gone afterwards or only marked is the server's affair.
pub async fn delete(client: &Client, path: &str, options: &DeleteOptions) -> Result<(), Error> {
    write::<Ignored>(client, Method::DELETE, path, "application/json", options).await.map(|_| ())
}

/// The same, with the answer: the object as it was deleted or marked, or a `Status`.
pub async fn delete_and_read<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    options: &DeleteOptions,
) -> Result<T, Error> {
    write(client, Method::DELETE, path, "application/json", options).await
}

/// DELETE of every object of a collection.
pub async fn delete_collection(client: &Client, resource: &Resource, namespace: &str) -> Result<(), Error> {
    let options = DeleteOptions { propagation_policy: Some("Background"), ..DeleteOptions::default() };
    delete(client, &resource.collection(Some(namespace)), &options).await
}

/// Whether the server answered with this code.
pub fn is_code(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(status) if status.code == code)
}

pub fn is_not_found(error: &Error) -> bool {
    is_code(error, 404)
}

/// The object is not what the writer saw, or a precondition does not hold.
pub fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 409 && status.reason != "AlreadyExists")
}

/// The server has looked at the request and not carried it out. After anything else, a server error or no answer at all,
/// it may have been.
pub fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Api(status) if (400..500).contains(&status.code) && status.code != 408)
}

/// The object is another one than was meant: it has been made anew under its name. Other conflicts pass, and what was
/// asked for has to be asked for again.
pub fn is_other_uid(error: &Error) -> bool {
    match error {
        Error::Api(status) if status.code == 409 => status.message.contains("UID"),
        // In a patch a uid that does not fit is an immutable field (AS-126).
        Error::Api(status) if status.code == 422 => status.message.contains("metadata.uid"),
        _ => false,
    }
}

pub fn is_already_exists(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.reason == "AlreadyExists")
}

/// A list or watch must start over (AS-104).
pub fn is_expired(error: &Error) -> bool {
    is_code(error, 410)
}

/// A create was refused because its namespace is going away (AS-85).
pub fn is_namespace_terminating(error: &Error) -> bool {
    let Error::Api(status) = error else { return false };
    let causes = |details: &StatusDetails| details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
    status.code == 403 && status.details.as_ref().is_some_and(causes)
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    // Go encodes an empty list as null.
    items: Option<Vec<T>>,
}

#[derive(Deserialize, Default)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    token: String,
}

async fn write<T: DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: &impl Serialize,
) -> Result<T, Error> {
    let body = serde_json::to_vec(body).map_err(Error::SerdeError)?;
    let request = request(method, path, content_type, body)?;
    in_time(async { decode(send(client, request).await?).await }).await
}

fn request(method: Method, path: &str, content_type: &str, body: Vec<u8>) -> Result<Request<Body>, Error> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, content_type)
        .body(Body::from(body))
        .map_err(Error::HttpError)
}

/// Starts a GET; how long the answer's body may take is left to the caller.
pub(super) async fn open(client: &Client, path: &str, accept: &str) -> Result<Response<Body>, Error> {
    in_time(begin(client, path, accept)).await
}

async fn begin(client: &Client, path: &str, accept: &str) -> Result<Response<Body>, Error> {
    let request = Request::get(path)
        .header(header::ACCEPT, accept)
        // A watch compressed event by event would be held back by the decoder, and in process it is pure loss.
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Body::empty())
        .map_err(Error::HttpError)?;
    send(client, request).await
}

/// Sends a request; anything but success is an error.
async fn send(client: &Client, request: Request<Body>) -> Result<Response<Body>, Error> {
    let response = client.send(request).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status().as_u16();
    let bytes = collect(response).await?;
    let status = match serde_json::from_slice::<Status>(&bytes) {
        Ok(status) if status.code != 0 => status,
        // A proxy on the way answers in its own words.
        _ => Status { code, message: text_of(&bytes), reason: "Unknown".to_owned(), ..Status::default() },
    };
    Err(Error::Api(Box::new(status)))
}

pub(super) async fn decode<T: DeserializeOwned>(response: Response<Body>) -> Result<T, Error> {
    serde_json::from_slice(&collect(response).await?).map_err(Error::SerdeError)
}

pub(super) async fn collect(response: Response<Body>) -> Result<bytes::Bytes, Error> {
    let limited = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    Ok(limited.collect().await.map_err(Error::Service)?.to_bytes())
}

/// Waits for something, but not for ever.
pub(crate) async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let silent = |_| Err(Error::Service(format!("no answer within {TIMEOUT:?}").into()));
    tokio::time::timeout(TIMEOUT, answer).await.unwrap_or_else(silent)
}

/// The beginning of an answer that is no Status, for a message.
fn text_of(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(512)];
    String::from_utf8_lossy(start).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::StreamBody;

    use super::*;

    /// A server that says nothing, or begins to answer and then says nothing more.
    fn silent(begins: bool) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            if !begins {
                std::future::pending::<()>().await;
            }
            let frames = futures_util::stream::pending::<Result<hyper::body::Frame<bytes::Bytes>, Infallible>>();
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn inv_30_no_answer_is_waited_for_without_end() {
        for begins in [false, true] {
            let (client, started) = (silent(begins), tokio::time::Instant::now());
            let path = Resource::PODS.object("default", "a");
            let object = serde_json::json!({});
            let answers = [
                get::<Ignored>(&client, &path).await.map(drop),
                create::<Ignored>(&client, &path, &object).await.map(drop),
                create_json(&client, &path, "{}".to_owned()).await,
                replace::<Ignored>(&client, &path, &object).await.map(drop),
                patch::<Ignored>(&client, &path, PatchType::Merge, &object).await.map(drop),
                patch_unread(&client, &path, PatchType::Merge, &object).await,
                delete(&client, &path, &DeleteOptions::default()).await,
                for_each(&client, &path, "application/json", |_: Ignored| {}).await,
            ];
            for answer in &answers {
                assert!(answer.as_ref().is_err_and(|error| error.to_string().contains("no answer within 65s")));
                assert!(!is_refusal(answer.as_ref().unwrap_err()), "it may have been carried out");
            }
            assert_eq!(started.elapsed().as_secs(), 65 * answers.len() as u64);
        }
        let opened = open(&silent(false), "/api/v1/pods?watch=true", "application/json").await;
        assert!(opened.is_err(), "a watch that is not opened in time is none");
        assert!(open(&silent(true), "/api/v1/pods?watch=true", "application/json").await.is_ok(), "it may be quiet");
    }
}
