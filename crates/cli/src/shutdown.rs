//! SIGINT, SIGTERM and SIGHUP: the first asks for an orderly end, the second ends the process at once.

use std::{fs, io, process};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// The signals that end a server.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Absent where somebody has it ignored: `nohup` means that a closed terminal ends nothing.
    hangup: Option<Signal>,
}

impl Signals {
    /// From here on the signals no longer kill the process.
    pub(crate) fn listen() -> io::Result<Self> {
        let is_ignored = is_ignored(&fs::read_to_string("/proc/self/status")?, SignalKind::hangup());
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: (!is_ignored).then(|| signal(SignalKind::hangup())).transpose()?,
        })
    }

    /// Ready at the first signal. From then on a second one exits, whatever the process is doing: nothing that was
    /// answered can be lost, because answers wait for the disk.
    pub(crate) async fn first(self) {
        self.first_then(|| {}).await;
    }

    /// The same; `before_exit` is called when the second one comes. Signals are heard from now on, also by those who
    /// are too busy to look at the answer.
    pub(crate) fn first_then(
        mut self,
        before_exit: impl FnOnce() + Send + 'static,
    ) -> impl Future<Output = SignalKind> + Send {
        let (told, first) = oneshot::channel();
        tokio::spawn(async move {
            let kind = self.next().await;
            tracing::info!(signal = kind.as_raw_value(), "stopping");
            let _ = told.send(kind);
            let kind = self.next().await;
            before_exit();
            process::exit(128 + kind.as_raw_value());
        });
        async {
            match first.await {
                Ok(kind) => kind,
                // The runtime is ending, and everything on it.
                Err(_) => std::future::pending().await,
            }
        }
    }

    async fn next(&mut self) -> SignalKind {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = hangup => SignalKind::hangup(),
        }
    }
}

/// Whether `/proc/PID/status` says that a signal is ignored. Listening to it would bring it back.
fn is_ignored(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (kind.as_raw_value() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_ignored_stays_so() {
        let status = |mask: &str| format!("Name:\ttally\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert!(is_ignored(&status("0000000000001001"), SignalKind::hangup()));
        assert!(!is_ignored(&status("0000000000001002"), SignalKind::hangup()));
        assert!(is_ignored(&status("0000000000001002"), SignalKind::interrupt()));
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
