//! The node's end of the socket: starts a nursery or finds one, and keeps the connection.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream as StdStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::layout::Layout;
use super::protocol::{self, News, Remark, Report, Request};

/// Requests that wait to be sent. The node waits when there are more.
const QUEUE: usize = 1024;

/// A nursery that keeps ending is started again after this, and not more often.
const RESTART_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(crate) enum NurseryError {
    #[error("make the node's directory `{0}`")]
    Directory(String, #[source] io::Error),
    #[error("start the nursery `{0}`")]
    Start(String, #[source] io::Error),
    #[error("connect to the nursery")]
    Connect(#[source] io::Error),
}

/// A handle for requests. Reports come on the channel that [`Nursery::open`] returns, a `Welcome` first and after every
/// reconnection.
#[derive(Clone, Debug)]
pub(crate) struct Nursery {
    requests: mpsc::Sender<Request>,
}

impl Nursery {
    /// Finds the nursery that runs for this directory, or starts one: `command` followed by the directory.
    pub(crate) async fn open(
        layout: Layout,
        command: Vec<OsString>,
    ) -> Result<(Self, mpsc::Receiver<Report>), NurseryError> {
        layout.create().map_err(|error| NurseryError::Directory(layout.root.display().to_string(), error))?;
        let (requests, request_queue) = mpsc::channel(QUEUE);
        let (report_queue, reports) = mpsc::channel(QUEUE);
        let stream = connect_or_start(&layout, &command).await?;
        tokio::spawn(keep(layout, command, stream, request_queue, report_queue));
        Ok((Self { requests }, reports))
    }

    /// False: the node is shutting down.
    pub(crate) async fn send(&self, request: Request) -> bool {
        self.requests.send(request).await.is_ok()
    }
}

/// Carries messages until the node drops its handles, over as many connections as it takes.
async fn keep(
    layout: Layout,
    command: Vec<OsString>,
    mut stream: UnixStream,
    mut requests: mpsc::Receiver<Request>,
    reports: mpsc::Sender<Report>,
) {
    loop {
        let connected_at = tokio::time::Instant::now();
        let (reader, writer) = stream.into_split();
        let mut reading = tokio::spawn(receive(reader, reports.clone()));
        let is_over = transmit(writer, &mut requests, &mut reading).await;
        reading.abort();
        if is_over || reports.is_closed() {
            return;
        }
        tracing::warn!("the nursery has gone away");
        // One that cannot even start must not be started in a tight loop.
        tokio::time::sleep_until(connected_at + RESTART_DELAY).await;
        stream = loop {
            match connect_or_start(&layout, &command).await {
                Ok(stream) => break stream,
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "the nursery does not come back");
                    tokio::time::sleep(RESTART_DELAY).await;
                }
            }
        };
    }
}

async fn receive(mut reader: OwnedReadHalf, reports: mpsc::Sender<Report>) {
    let mut received = Vec::with_capacity(64 << 10);
    loop {
        match reader.read_buf(&mut received).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut used = 0;
        loop {
            match protocol::decode(&received, &mut used) {
                Ok(Some(News::Remark(Remark { remark }))) => tracing::warn!("the nursery says: {remark}"),
                Ok(Some(News::Report(report))) => {
                    if reports.send(report).await.is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "the nursery cannot be understood");
                    return;
                }
            }
        }
        received.drain(..used);
    }
}

/// True: there will be no more requests. False: the connection has ended.
async fn transmit(
    mut writer: OwnedWriteHalf,
    requests: &mut mpsc::Receiver<Request>,
    reading: &mut tokio::task::JoinHandle<()>,
) -> bool {
    let mut batch = Vec::new();
    let mut buffer = Vec::new();
    loop {
        let count = tokio::select! {
            count = requests.recv_many(&mut batch, 64) => count,
            _ = &mut *reading => return false,
        };
        if count == 0 {
            return true;
        }
        for request in batch.drain(..) {
            if let Err(error) = protocol::encode(&request, &mut buffer) {
                tracing::error!(error = &error as &dyn std::error::Error, "a request cannot be sent to the nursery");
            }
        }
        if writer.write_all(&buffer).await.is_err() {
            return false;
        }
        buffer.clear();
    }
}

async fn connect_or_start(layout: &Layout, command: &[OsString]) -> Result<UnixStream, NurseryError> {
    if let Some(stream) = connect(layout) {
        return into_tokio(stream);
    }
    let (own, other) = StdStream::pair().map_err(NurseryError::Connect)?;
    start(layout, command, other)?;
    into_tokio(own)
}

fn into_tokio(stream: StdStream) -> Result<UnixStream, NurseryError> {
    stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)).map_err(NurseryError::Connect)
}

/// The path of a socket must be short; one through a descriptor of its directory is.
fn connect(layout: &Layout) -> Option<StdStream> {
    let directory = std::fs::File::open(layout.nursery()).ok()?;
    StdStream::connect(format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), Layout::SOCKET)).ok()
}

fn start(layout: &Layout, command: &[OsString], connection: StdStream) -> Result<(), NurseryError> {
    let failed = |error| NurseryError::Start(format!("{command:?}"), error);
    let (program, arguments) = command.split_first().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let errors =
        OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(layout.errors()).map_err(failed)?;
    let child = Command::new(program)
        .args(arguments)
        .arg(&layout.root)
        .current_dir("/")
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(connection)))
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(failed)?;
    reap_later(child);
    Ok(())
}

/// The nursery usually outlives us. If it does not, it should not stay a zombie.
fn reap_later(mut child: Child) {
    let waiting = std::thread::Builder::new().name("nursery-wait".to_owned()).stack_size(64 << 10);
    let _ = waiting.spawn(move || child.wait());
}
