//! SIGINT and SIGTERM: the first asks for an orderly end, the second ends the process at once.

use std::io;
use std::process;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The two signals that end a server.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From here on the signals no longer kill the process.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Ready at the first signal. From then on a second one exits, whatever the process is doing: nothing that was
    /// answered can be lost, because answers wait for the disk.
    pub(crate) async fn first(self) {
        self.first_then(|| {}).await;
    }

    /// The same; `before_exit` is called when the second one comes.
    pub(crate) async fn first_then(mut self, before_exit: impl FnOnce() + Send + 'static) -> SignalKind {
        let first = self.next().await;
        tracing::info!(signal = first.as_raw_value(), "stopping");
        tokio::spawn(async move {
            let kind = self.next().await;
            before_exit();
            process::exit(128 + kind.as_raw_value());
        });
        first
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        }
    }
}
