//! Probes and hooks that are not commands: HTTP, TCP, sleep. Commands are the nursery's work.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerPort, HTTPGetAction, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Of an answer no more than this is read; its status line comes first.
const ANSWER_MAX: usize = 8192;

/// A TCP connection can be made. `ports` are those of the container, by which it may be named.
pub(crate) async fn tcp(
    action: &TCPSocketAction,
    ports: &[ContainerPort],
    address: IpAddr,
    limit: Duration,
) -> Result<(), String> {
    let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_string());
    let port = port(&action.port, ports)?;
    match timeout(limit, TcpStream::connect((host.as_str(), port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("dial tcp {host}:{port}: {error}")),
        Err(_) => Err(format!("dial tcp {host}:{port}: i/o timeout")),
    }
}

/// A GET is answered with a status from 200 to 399.
pub(crate) async fn http(
    action: &HTTPGetAction,
    ports: &[ContainerPort],
    address: IpAddr,
    limit: Duration,
) -> Result<(), String> {
    if action.scheme.as_deref().is_some_and(|scheme| !scheme.eq_ignore_ascii_case("http")) {
        return Err("this node has no HTTPS probes".to_owned());
    }
    let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_string());
    let port = port(&action.port, ports)?;
    match timeout(limit, get(&host, port, action)).await {
        Ok(Ok(200..400)) => Ok(()),
        Ok(Ok(code)) => Err(format!("HTTP probe failed with statuscode: {code}")),
        Ok(Err(error)) => Err(format!("Get \"http://{host}:{port}\": {error}")),
        Err(_) => Err(format!("Get \"http://{host}:{port}\": context deadline exceeded")),
    }
}

async fn get(host: &str, port: u16, action: &HTTPGetAction) -> io::Result<u16> {
    let path = path(action.path.as_deref().unwrap_or_default());
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
    if !is_text(&path) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let answer = read_headers(&mut stream).await?;
    status_code(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The path as a request names it: `healthz` is `/healthz`.
fn path(path: &str) -> Cow<'_, str> {
    if path.starts_with('/') { path.into() } else { format!("/{path}").into() }
}

/// Reads as far as the headers go. A server may well keep the connection open after its answer.
async fn read_headers(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    while answer.len() < ANSWER_MAX && !ends_headers(&answer) {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(answer)
}

fn ends_headers(answer: &[u8]) -> bool {
    answer.split_inclusive(|byte| *byte == b'\n').any(|line| line == b"\n" || line == b"\r\n")
}

fn status_code(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

/// The number of a port; one with a name is among those of the container.
fn port(port: &IntOrString, ports: &[ContainerPort]) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = ports.iter().find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port);
            // A number may be written as text.
            named.or_else(|| name.parse().ok()).ok_or_else(|| format!("port {name} not found"))?
        }
    };
    let valid = u16::try_from(number).ok().filter(|number| *number > 0);
    valid.ok_or_else(|| format!("invalid port number: {number}"))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Asks a server that gives this answer and hangs up, or does not; the result, and the first line of the request.
    async fn ask(answer: &'static str, path: Option<&str>, hangs_up: bool) -> (Result<(), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = i32::from(listener.local_addr().unwrap().port());
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 512];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            (String::from_utf8_lossy(&request[..length]).into_owned(), Some(stream).filter(|_| !hangs_up))
        };
        let ports = [ContainerPort { name: Some("web".to_owned()), container_port: port, ..ContainerPort::default() }];
        let action = HTTPGetAction {
            port: IntOrString::String("web".to_owned()),
            path: path.map(str::to_owned),
            ..HTTPGetAction::default()
        };
        let asking = http(&action, &ports, IpAddr::from([127, 0, 0, 1]), LIMIT);
        let (result, (request, _held_open)) = tokio::join!(asking, serving);
        (result, request.lines().next().unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn http_statuses_from_200_to_399_pass() {
        let failed = Err("HTTP probe failed with statuscode: 500".to_owned());
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\n", Ok(())),
            ("HTTP/1.0 200 OK\n\n", Ok(())),
            ("HTTP/1.1 302 Found\r\n\r\n", Ok(())),
            ("HTTP/1.1 500 No\r\n\r\n", failed),
        ] {
            assert_eq!(ask(answer, None, true).await.0, expected, "{answer:?}");
        }
        assert!(ask("nonsense\r\n\r\n", None, true).await.0.is_err());
        assert!(ask("HTTP/1.1 200 OK\r\nContent-", None, true).await.0.is_err(), "cut off");
    }

    #[tokio::test]
    async fn an_answer_is_over_with_its_headers() {
        let answer = "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(ask(answer, None, false).await.0, Ok(()));
    }

    #[tokio::test]
    async fn paths_begin_with_a_slash() {
        for (path, line) in [
            (None, "GET / HTTP/1.1"),
            (Some(""), "GET / HTTP/1.1"),
            (Some("healthz"), "GET /healthz HTTP/1.1"),
            (Some("/a?b=c"), "GET /a?b=c HTTP/1.1"),
            (Some("?b=c"), "GET /?b=c HTTP/1.1"),
        ] {
            assert_eq!(ask("HTTP/1.1 200 OK\r\n\r\n", path, true).await.1, line, "{path:?}");
        }
    }

    #[test]
    fn ports_have_numbers_or_names() {
        let web = ContainerPort { name: Some("web".to_owned()), container_port: 8080, ..ContainerPort::default() };
        let number = |wanted: IntOrString| port(&wanted, std::slice::from_ref(&web));
        let named = |name: &str| number(IntOrString::String(name.to_owned()));
        assert_eq!((number(IntOrString::Int(80)), named("web"), named("81")), (Ok(80), Ok(8080), Ok(81)));
        assert_eq!(named("db"), Err("port db not found".to_owned()));
        assert_eq!(number(IntOrString::Int(0)), Err("invalid port number: 0".to_owned()));
    }

    #[tokio::test]
    async fn a_port_must_be_open_for_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let action = |port: u16| TCPSocketAction { port: IntOrString::Int(port.into()), host: None };
        let own = listener.local_addr().unwrap().port();
        let address = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(tcp(&action(own), &[], address, LIMIT).await, Ok(()));
        drop(listener);
        assert!(tcp(&action(own), &[], address, LIMIT).await.is_err());
        let named = TCPSocketAction { port: IntOrString::String("web".to_owned()), host: None };
        assert!(tcp(&named, &[], address, LIMIT).await.is_err());
    }
}
