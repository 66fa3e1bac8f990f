//! Watches: from a version, in order, without gaps (AS-96…AS-109, design D6).
//!
//! A watch holds no buffer: it pulls from the store's log and frames what its reader has room for. An event in the
//! common form is framed once and shared by all watchers (design D3). Large objects are not even framed but sent as the
//! store has them: watches that nobody reads hold them all the same, and there may be thousands (BI-85).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use api_schema::{json as encoder, protobuf};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use serde_json::{Value, json};
use store::{Event, EventKind, ListQuery, ReadError};
use tokio::time::Instant;

use super::{canonical, get};
use crate::{
    answer::{Answer, Content, IncludeObject, served},
    attributes::Attributes,
    body::ResponseBody,
    negotiate::{Encoding, MetaVersion, Representation, View},
    options::{ListOptions, resource_version},
    resources::Resource,
    respond,
    route::Target,
    selection::Selection,
    server::{ApiServer, Call},
    status::Status,
    storage::Stored,
    views::{self, TableForm},
};

/// How many events are framed at a time.
const BATCH_MAX: usize = 256;
/// How many bytes are handed to the transport at a time, about. An object of this size is a chunk of its own.
const CHUNK_BYTES: usize = 64 * 1024;
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// A last bookmark shortly before the end saves the client a replay (AS-106).
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Without `timeoutSeconds` a watch lives 30 to 60 minutes.
const LIFETIME_MIN_SECONDS: u64 = 1800;

pub(super) async fn watch(
    server: &ApiServer,
    call: &Call,
    target: &Target,
    representation: Representation,
) -> Result<Answer, Status> {
    // What a `/watch/` path asks for without saying `watch` is checked as a list, as upstream does.
    let mut options = ListOptions::parse(&call.query, call.query.flag("watch"))?;
    if let Some(name) = target.name.as_ref().filter(|_| options.field_selector.is_empty()) {
        // `/watch/…/name`, the deprecated form.
        options.field_selector = format!("metadata.name={name}");
    }
    let selection = Selection::parse(target.resource, &options)?;
    if target.name.is_some() && selection.name != target.name {
        return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
    }
    let from = resource_version(&options.resource_version)?;
    let framing = Framing::new(server, call, target.resource, representation)?;
    let seconds = options
        .timeout_seconds
        .filter(|&seconds| seconds > 0)
        .unwrap_or_else(|| LIFETIME_MIN_SECONDS + server.state.environment.below(LIFETIME_MIN_SECONDS));
    let start = start(server, target, &options, &selection, from).await;
    let stream = Stream {
        server: server.clone(),
        selection,
        framing,
        prefix: target.prefix(),
        bookmarks: options.allow_bookmarks,
        ends_initial_events: options.send_initial_events == Some(true),
        deadline: Instant::now() + Duration::from_secs(seconds),
        next_bookmark: Instant::now() + BOOKMARK_PERIOD.min(last_bookmark(seconds)),
        phase: start,
        ready: VecDeque::new(),
        held: None,
    };
    let body = stream::unfold(stream, |mut stream| async move { stream.next().await.map(|chunk| (chunk, stream)) });
    Ok(Answer { code: 200, content: Content::Stream(ResponseBody::Stream(Box::pin(body))) })
}

fn last_bookmark(seconds: u64) -> Duration {
    let lifetime = Duration::from_secs(seconds);
    lifetime.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(lifetime)
}

/// Decides what a watch begins with (AS-100).
async fn start(
    server: &ApiServer,
    target: &Target,
    options: &ListOptions,
    selection: &Selection,
    from: Option<u64>,
) -> Phase {
    let initial = match options.send_initial_events {
        Some(wanted) => wanted,
        None => from.is_none(),
    };
    if initial
        && let Some(wanted) = from
        && let Err(status) = get::reach(server, target.resource, wanted).await
    {
        return Phase::Failing(status);
    }
    if !initial {
        let from = from.unwrap_or_else(|| server.state.store.revision());
        return Phase::Opening { from };
    }
    match server.state.store.list(&ListQuery::new(&target.prefix())) {
        Ok(found) => Phase::Initial {
            items: found.entries.into_iter().filter(|entry| selection.matches(entry)).collect(),
            revision: found.revision,
        },
        Err(error) => Phase::Failing(Status::internal(format!("reading the store: {error}"))),
    }
}

/// Where a watch stands.
enum Phase {
    /// One ERROR event, then the end.
    Failing(Status),
    /// Current objects as ADDED events.
    Initial {
        items: VecDeque<Stored>,
        revision: u64,
    },
    /// Live events are about to be read from a revision.
    Opening {
        from: u64,
    },
    Live(store::Watch<Attributes>),
    Ended,
}

struct Stream {
    server: ApiServer,
    selection: Selection,
    framing: Framing,
    prefix: String,
    bookmarks: bool,
    /// Whether a bookmark tells when the initial events are over; it is not known on deprecated paths.
    ends_initial_events: bool,
    deadline: Instant,
    next_bookmark: Instant,
    phase: Phase,
    /// Comes before anything that the phase has to say.
    ready: VecDeque<Bytes>,
    /// The last large event. Whoever comes by it later shares it with those who have not got rid of it.
    held: Option<Arc<Event<Attributes>>>,
}

impl Stream {
    /// The next piece of the body; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(piece);
            }
            match std::mem::replace(&mut self.phase, Phase::Ended) {
                Phase::Ended => return None,
                Phase::Failing(status) => {
                    let mut chunk = BytesMut::new();
                    self.framing.frame("ERROR", &status.to_value(), &mut chunk);
                    return Some(chunk.freeze());
                }
                Phase::Initial { items, revision } => self.initial(items, revision),
                Phase::Opening { from } => self.phase = self.open(from),
                Phase::Live(watch) => self.live(watch).await,
            }
        }
    }

    /// Frames some of the initial objects, and the bookmark that ends them.
    fn initial(&mut self, mut items: VecDeque<Stored>, revision: u64) {
        let mut chunk = BytesMut::new();
        while chunk.len() < CHUNK_BYTES
            && self.ready.is_empty()
            && let Some(item) = items.pop_front()
        {
            match self.framing.is_common() && item.value_len() >= CHUNK_BYTES {
                true => self.put_large("ADDED", item.value(), &mut chunk),
                false => self.framing.object("ADDED", &item, &mut chunk),
            }
        }
        if !items.is_empty() {
            self.phase = Phase::Initial { items, revision };
        } else {
            if self.bookmarks && self.ends_initial_events {
                self.framing.bookmark(revision, true, &mut chunk);
            }
            self.phase = Phase::Opening { from: revision };
        }
        self.put(&mut chunk);
    }

    /// What was framed so far comes next.
    fn put(&mut self, chunk: &mut BytesMut) {
        if !chunk.is_empty() {
            self.ready.push_back(chunk.split().freeze());
        }
    }

    /// After what was framed so far, a line around an object that is not copied for it.
    fn put_large(&mut self, kind: &'static str, object: Bytes, chunk: &mut BytesMut) {
        put_line_start(kind, chunk);
        self.put(chunk);
        self.ready.push_back(object);
        chunk.extend_from_slice(LINE_END);
    }

    fn open(&self, from: u64) -> Phase {
        match self.server.state.store.watch(&self.prefix, from) {
            Ok(watch) => Phase::Live(watch),
            Err(error) => Phase::Failing(too_old(&error)),
        }
    }

    /// Waits for events, the next bookmark, or the end.
    async fn live(&mut self, mut watch: store::Watch<Attributes>) {
        let mut stopping = self.server.state.stopping.subscribe();
        let bookmark_at = if self.bookmarks { self.next_bookmark } else { self.deadline };
        tokio::select! {
            biased;
            // An error means that the sender is gone, and with it the server.
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = tokio::time::sleep_until(self.deadline) => return,
            () = tokio::time::sleep_until(bookmark_at) => {
                let progress = watch.progress();
                // One that was begun in the future has seen nothing yet that a bookmark could vouch for.
                if progress <= self.server.state.store.revision() {
                    let mut chunk = BytesMut::new();
                    self.framing.bookmark(progress, false, &mut chunk);
                    self.put(&mut chunk);
                }
                let last = self.deadline - BOOKMARK_BEFORE_END;
                let next = Instant::now() + BOOKMARK_PERIOD;
                self.next_bookmark = if Instant::now() < last { next.min(last) } else { self.deadline };
            }
            batch = watch.next_batch(BATCH_MAX) => match batch {
                Ok(events) => self.frame(&events),
                Err(error) => {
                    self.phase = Phase::Failing(too_old(&error));
                    return;
                }
            },
        }
        self.phase = Phase::Live(watch);
    }

    /// Frames changes.
    fn frame(&mut self, events: &[Arc<Event<Attributes>>]) {
        let size = |event: &Arc<Event<Attributes>>| event.entry.value_len() + FRAME_BYTES;
        // Growing step by step would copy what is already there again and again.
        let mut chunk = BytesMut::with_capacity(events.iter().map(size).filter(|bytes| *bytes < CHUNK_BYTES).sum());
        self.held = None;
        for event in events {
            match self.event(event, &mut chunk) {
                Some(kind) if event.entry.value_len() >= CHUNK_BYTES => {
                    self.put_large(kind, event.entry.value(), &mut chunk);
                    self.held = Some(Arc::clone(event));
                }
                Some(kind) => chunk.extend_from_slice(&shared(kind, event)),
                None => {}
            }
        }
        self.put(&mut chunk);
    }

    /// One change as this watch sees it: selectors judge the old and the new state (AS-98). What it is called, if its line
    /// is that of all watchers in the common form; otherwise it is framed here, if there is anything to say.
    fn event(&mut self, event: &Event<Attributes>, chunk: &mut BytesMut) -> Option<&'static str> {
        let matched = event.previous.as_ref().is_some_and(|previous| self.selection.matches(previous));
        let matches = event.kind == EventKind::Put && self.selection.matches(&event.entry);
        let is_common = self.framing.is_common();
        match (matched, matches) {
            (false, false) => {}
            (false, true) if is_common && event.previous.is_none() => return Some("ADDED"),
            (false, true) => self.framing.object("ADDED", &event.entry, chunk),
            (true, true) if is_common => return Some("MODIFIED"),
            (true, true) => self.framing.object("MODIFIED", &event.entry, chunk),
            (true, false) if event.kind == EventKind::Delete && is_common => return Some("DELETED"),
            (true, false) if event.kind == EventKind::Delete => self.framing.object("DELETED", &event.entry, chunk),
            (true, false) => {
                // It no longer matches: the previous content with the new version.
                if let Some(previous) = &event.previous {
                    self.framing.left(previous, event.revision(), chunk);
                }
            }
        }
        None
    }
}

/// The line that all watchers in the common form share; it depends on nothing but the event.
fn shared(kind: &'static str, event: &Event<Attributes>) -> Bytes {
    event.frame(|event| {
        let mut line = BytesMut::with_capacity(event.entry.value_len() + FRAME_BYTES);
        put_line(kind, &event.entry.value(), &mut line);
        line.freeze()
    })
}

fn too_old(error: &ReadError) -> Status {
    match error {
        ReadError::Compacted { requested, oldest } => {
            Status::expired(format!("too old resource version: {requested} ({oldest})"))
        }
        other => Status::internal(format!("reading the store: {other}")),
    }
}

/// What is written around an object, and a little more.
const FRAME_BYTES: usize = 40;

fn put_line(kind: &str, object: &[u8], chunk: &mut BytesMut) {
    chunk.reserve(object.len() + FRAME_BYTES);
    put_line_start(kind, chunk);
    chunk.extend_from_slice(object);
    chunk.extend_from_slice(LINE_END);
}

fn put_line_start(kind: &str, chunk: &mut BytesMut) {
    chunk.extend_from_slice(b"{\"type\":\"");
    chunk.extend_from_slice(kind.as_bytes());
    chunk.extend_from_slice(b"\",\"object\":");
}

const LINE_END: &[u8] = b"}\n";

/// How this watch writes objects.
struct Framing {
    resource: &'static Resource,
    encoding: Encoding,
    view: View,
    include: IncludeObject,
    server: ApiServer,
    /// Whether column definitions have been sent (AS-161).
    columns_sent: bool,
}

impl Framing {
    fn new(
        server: &ApiServer,
        call: &Call,
        resource: &'static Resource,
        representation: Representation,
    ) -> Result<Self, Status> {
        let include = match representation.view {
            View::Table(_) => IncludeObject::parse(&call.query)?,
            _ => IncludeObject::Metadata,
        };
        let Representation { encoding, view } = representation;
        Ok(Self { resource, encoding, view, include, server: server.clone(), columns_sent: false })
    }

    /// Stored bytes go out as they are.
    fn is_common(&self) -> bool {
        self.view == View::Whole && self.encoding == Encoding::Json && self.resource.conversion.is_none()
    }

    fn object(&mut self, kind: &str, stored: &Stored, chunk: &mut BytesMut) {
        if self.is_common() {
            put_line(kind, &stored.value(), chunk);
            return;
        }
        if let View::PartialObject(version) | View::PartialObjectList(version) = self.view
            && self.encoding == Encoding::Json
            && self.resource.conversion.is_none()
        {
            put_line(kind, &views::partial_bytes(&stored.value(), version), chunk);
            return;
        }
        match served(stored, self.resource) {
            Ok(object) => self.value(kind, &object, chunk),
            Err(status) => self.frame("ERROR", &status.to_value(), chunk),
        }
    }

    /// An object that left the selection.
    fn left(&mut self, previous: &Stored, revision: u64, chunk: &mut BytesMut) {
        match served(previous, self.resource) {
            Ok(mut object) => {
                object["metadata"]["resourceVersion"] = json!(revision.to_string());
                self.value("DELETED", &object, chunk);
            }
            Err(status) => self.frame("ERROR", &status.to_value(), chunk),
        }
    }

    fn value(&mut self, kind: &str, object: &Value, chunk: &mut BytesMut) {
        let shown = match self.view {
            View::Whole => object.clone(),
            View::PartialObject(version) | View::PartialObjectList(version) => views::partial(object, version),
            View::Table(version) => {
                let form = self.table_form(version);
                views::table(self.resource, [object], views::metadata_of_one(object), form)
            }
        };
        self.frame(kind, &shown, chunk);
    }

    /// One event in the encoding of this watch.
    fn frame(&self, kind: &str, object: &Value, chunk: &mut BytesMut) {
        if self.encoding == Encoding::Protobuf {
            if let Some(object) = respond::protobuf_bytes(object) {
                chunk.extend_from_slice(&protobuf::encode_watch_event(kind, &object));
            }
            return;
        }
        let mut bytes = Vec::new();
        encoder::encode(object, &mut bytes);
        put_line(kind, &bytes, chunk);
    }

    /// An otherwise empty object that carries a version (AS-102, AS-106).
    fn bookmark(&mut self, revision: u64, ends_initial_events: bool, chunk: &mut BytesMut) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if ends_initial_events {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let empty = json!({
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version(),
            "metadata": metadata,
        });
        let object = canonical(self.resource, empty.clone()).unwrap_or(empty);
        if let View::Table(version) = self.view {
            let form = self.table_form(version);
            self.frame("BOOKMARK", &views::bookmark_row(self.resource, &object, form), chunk);
            return;
        }
        self.value("BOOKMARK", &object, chunk);
    }

    fn table_form(&mut self, version: MetaVersion) -> TableForm {
        let columns = !std::mem::replace(&mut self.columns_sent, true);
        TableForm { version, include: self.include, columns, now: self.server.state.environment.now() }
    }
}
