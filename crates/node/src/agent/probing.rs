//! Probes and hooks that are not commands: HTTP, TCP, sleep. Commands are the nursery's work.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{HTTPGetAction, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The beginning of an answer, enough for its status line.
const ANSWER_MAX: usize = 1024;

/// A TCP connection can be made.
pub(crate) async fn tcp(action: &TCPSocketAction, address: IpAddr, limit: Duration) -> Result<(), String> {
    let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_string());
    let port = port(&action.port)?;
    match timeout(limit, TcpStream::connect((host.as_str(), port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("dial tcp {host}:{port}: {error}")),
        Err(_) => Err(format!("dial tcp {host}:{port}: i/o timeout")),
    }
}

/// A GET is answered with a status from 200 to 399.
pub(crate) async fn http(action: &HTTPGetAction, address: IpAddr, limit: Duration) -> Result<(), String> {
    if action.scheme.as_deref().is_some_and(|scheme| !scheme.eq_ignore_ascii_case("http")) {
        return Err("this node has no HTTPS probes".to_owned());
    }
    let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_string());
    let port = port(&action.port)?;
    match timeout(limit, get(&host, port, action)).await {
        Ok(Ok(200..400)) => Ok(()),
        Ok(Ok(code)) => Err(format!("HTTP probe failed with statuscode: {code}")),
        Ok(Err(error)) => Err(format!("Get \"http://{host}:{port}\": {error}")),
        Err(_) => Err(format!("Get \"http://{host}:{port}\": context deadline exceeded")),
    }
}

async fn get(host: &str, port: u16, action: &HTTPGetAction) -> std::io::Result<u16> {
    let path = action.path.as_deref().filter(|path| path.starts_with('/')).unwrap_or("/");
    let headers = action.http_headers.iter().flatten();
    let is_text = |text: &str| !text.contains(['\r', '\n']);
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\nUser-Agent: kube-probe/1.36\r\n");
    let has_host = headers.clone().any(|header| header.name.eq_ignore_ascii_case("host"));
    if !has_host {
        request.push_str(&format!("Host: {host}:{port}\r\n"));
    }
    for header in headers.filter(|header| is_text(&header.name) && is_text(&header.value)) {
        request.push_str(&format!("{}: {}\r\n", header.name, header.value));
    }
    request.push_str("\r\n");
    if !is_text(path) {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX as u64).read_to_end(&mut answer).await?;
    status_code(&answer).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

fn status_code(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

/// Named ports need a list of ports, which processes do not have.
fn port(port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(text) => text.parse().ok(),
    };
    number.filter(|port| *port > 0).ok_or_else(|| format!("invalid port number: {port:?}"))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn answer_with(status: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = i32::from(listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 512];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await;
        });
        let action = HTTPGetAction { port: IntOrString::Int(port), ..HTTPGetAction::default() };
        http(&action, IpAddr::from([127, 0, 0, 1]), Duration::from_secs(5)).await
    }

    #[tokio::test]
    async fn http_statuses_from_200_to_399_pass() {
        assert_eq!(answer_with("200 OK").await, Ok(()));
        assert_eq!(answer_with("302 Found").await, Ok(()));
        assert_eq!(answer_with("500 No").await, Err("HTTP probe failed with statuscode: 500".to_owned()));
        assert!(answer_with("nonsense").await.is_err());
    }

    #[tokio::test]
    async fn a_port_must_be_open_for_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let action = |port: u16| TCPSocketAction { port: IntOrString::Int(port.into()), host: None };
        let own = listener.local_addr().unwrap().port();
        let address = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(tcp(&action(own), address, Duration::from_secs(5)).await, Ok(()));
        drop(listener);
        assert!(tcp(&action(own), address, Duration::from_secs(5)).await.is_err());
        let named = TCPSocketAction { port: IntOrString::String("web".to_owned()), host: None };
        assert!(tcp(&named, address, Duration::from_secs(5)).await.is_err());
    }
}
