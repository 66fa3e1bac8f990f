//! The nursery's end of the socket, without blocking and with a bound on what waits to be sent.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use super::protocol::{self, Remark, Report, Request};

/// A node that lets this much pile up is cut off; it learns everything when it connects again.
const UNSENT_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, received: Vec::new(), unsent: Vec::new() }
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// False: the connection is of no more use.
    pub(super) fn queue(&mut self, report: &Report) -> bool {
        protocol::encode(report, &mut self.unsent).is_ok() && self.unsent.len() <= UNSENT_MAX
    }

    /// The same for the node's log.
    pub(super) fn remark(&mut self, remark: &str) -> bool {
        protocol::encode(&Remark { remark: remark.to_owned() }, &mut self.unsent).is_ok()
    }

    /// Sends as much as the socket takes. False: the connection is of no more use.
    pub(super) fn send(&mut self) -> bool {
        let mut sent = 0;
        let is_open = loop {
            if sent == self.unsent.len() {
                break true;
            }
            match self.stream.write(&self.unsent[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error.kind() == io::ErrorKind::WouldBlock,
            }
        };
        self.unsent.drain(..sent);
        is_open
    }

    /// All whole requests that have arrived, and whether more can come.
    pub(super) fn receive(&mut self) -> (Vec<Request>, bool) {
        let mut chunk = [0; 64 << 10];
        let mut requests = Vec::new();
        loop {
            let is_open = match self.stream.read(&mut chunk) {
                Ok(0) => false,
                Ok(count) => {
                    self.received.extend_from_slice(&chunk[..count]);
                    true
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (requests, true),
                Err(_) => false,
            };
            let mut used = 0;
            let well_formed = loop {
                match protocol::decode(&self.received, &mut used) {
                    Ok(Some(request)) => requests.push(request),
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            self.received.drain(..used);
            if !is_open || !well_formed {
                return (requests, false);
            }
        }
    }
}
