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
/// As many redirects as a kubelet follows.
const REDIRECTS_MAX: usize = 10;

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

/// A GET is answered with a status from 200 to 399. With a redirect that is not followed it comes with a warning.
pub(crate) async fn http(
    action: &HTTPGetAction,
    ports: &[ContainerPort],
    address: IpAddr,
    limit: Duration,
) -> Result<Option<String>, String> {
    match status(action, ports, address, limit).await? {
        200..300 => Ok(None),
        300..400 => Ok(Some("Probe terminated redirects".to_owned())),
        code => Err(format!("HTTP probe failed with statuscode: {code}")),
    }
}

/// The request of a hook is to be heard; what is answered does not matter (PL-27, PL-40).
pub(crate) async fn http_hook(
    action: &HTTPGetAction,
    ports: &[ContainerPort],
    address: IpAddr,
    limit: Duration,
) -> Result<(), String> {
    status(action, ports, address, limit).await.map(drop)
}

/// The status that a GET is answered with in the end.
async fn status(
    action: &HTTPGetAction,
    ports: &[ContainerPort],
    address: IpAddr,
    limit: Duration,
) -> Result<u16, String> {
    if action.scheme.as_deref().is_some_and(|scheme| !scheme.eq_ignore_ascii_case("http")) {
        return Err("this node has no HTTPS probes or hooks".to_owned());
    }
    let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_string());
    let port = port(&action.port, ports)?;
    let path = path(action.path.as_deref().unwrap_or_default()).into_owned();
    let target = Target { host: host.clone(), port, path, has_own_host: true };
    match timeout(limit, follow(target, action)).await {
        Ok(Ok(code)) => Ok(code),
        Ok(Err(error)) => Err(format!("Get \"http://{host}:{port}\": {error}")),
        Err(_) => Err(format!("Get \"http://{host}:{port}\": context deadline exceeded")),
    }
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
    path: String,
    /// A `Host` header of the action is about this one.
    has_own_host: bool,
}

impl Target {
    /// Where a `Location` leads from here. `None`: somewhere that plain HTTP does not.
    fn join(&self, location: &str) -> Option<Self> {
        let location = location.split('#').next().unwrap_or_default();
        let path = self.path.split('?').next().unwrap_or_default();
        let relative = |path: String| Some(Self { path, ..self.clone() });
        if let Some(rest) = location.strip_prefix("//") {
            return self.join(&format!("http://{rest}"));
        }
        match location.chars().next() {
            None => relative(self.path.clone()),
            Some('/') => relative(location.to_owned()),
            Some('?') => relative(format!("{path}{location}")),
            Some(_) => match location.parse::<http::Uri>().ok().filter(|uri| uri.scheme().is_some()) {
                Some(uri) => Self::of(&uri),
                None => {
                    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                    relative(format!("{directory}/{location}"))
                }
            },
        }
    }

    fn of(uri: &http::Uri) -> Option<Self> {
        let host = uri.host().filter(|_| uri.scheme_str() == Some("http"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned();
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        Some(Self { host, port: uri.port_u16().unwrap_or(80), path, has_own_host: false })
    }
}

/// Follows redirects as long as they stay on the host that the probe is for.
async fn follow(first: Target, action: &HTTPGetAction) -> io::Result<u16> {
    let mut target = first.clone();
    for _ in 0..=REDIRECTS_MAX {
        let answer = get(&target, action).await?;
        let code = status_code(&answer).ok_or(io::ErrorKind::InvalidData)?;
        let next = location(&answer).filter(|_| matches!(code, 301..=303 | 307 | 308)).and_then(|it| target.join(it));
        match next.filter(|next| next.host.eq_ignore_ascii_case(&first.host)) {
            Some(next) => target = next,
            None => return Ok(code),
        }
    }
    Err(io::Error::other(format!("stopped after {REDIRECTS_MAX} redirects")))
}

async fn get(target: &Target, action: &HTTPGetAction) -> io::Result<Vec<u8>> {
    let Target { host, port, path, has_own_host } = target;
    let headers = action.http_headers.iter().flatten();
    let headers = headers.filter(|header| *has_own_host || !header.name.eq_ignore_ascii_case("host"));
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
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
    stream.write_all(request.as_bytes()).await?;
    read_headers(&mut stream).await
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

/// The `Location` of an answer, if it has one.
fn location(answer: &[u8]) -> Option<&str> {
    let lines = answer.split(|byte| *byte == b'\n').map(|line| line.trim_ascii_end());
    let headers = lines.skip(1).take_while(|line| !line.is_empty()).filter_map(|line| std::str::from_utf8(line).ok());
    let mut named = headers.filter_map(|line| line.split_once(':'));
    named.find(|(name, _)| name.eq_ignore_ascii_case("location")).map(|(_, value)| value.trim())
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
        ask_by(answer, path, hangs_up, false).await
    }

    /// The same as a probe or as a hook.
    async fn ask_by(
        answer: &'static str,
        path: Option<&str>,
        hangs_up: bool,
        is_hook: bool,
    ) -> (Result<(), String>, String) {
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
        let address = IpAddr::from([127, 0, 0, 1]);
        let asking = async {
            match is_hook {
                false => http(&action, &ports, address, LIMIT).await.map(drop),
                true => http_hook(&action, &ports, address, LIMIT).await,
            }
        };
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

    #[test]
    fn locations_lead_on_from_where_they_were_found() {
        let here = Target { host: "h".to_owned(), port: 8080, path: "/a/b?c=d".to_owned(), has_own_host: true };
        for (location, host, port, path) in [
            ("/x?y", "h", 8080, "/x?y"),
            ("x#y", "h", 8080, "/a/x"),
            ("?x", "h", 8080, "/a/b?x"),
            ("", "h", 8080, "/a/b?c=d"),
            ("http://h:81/x", "h", 81, "/x"),
            ("http://other", "other", 80, "/"),
            ("//[::1]:81/x", "::1", 81, "/x"),
        ] {
            let next = here.join(location).unwrap();
            assert_eq!((next.host.as_str(), next.port, next.path.as_str()), (host, port, path), "{location}");
        }
        assert_eq!(here.join("https://h/x"), None);
    }

    /// Asks a server that answers every request with the next of these; what came of it, and the paths asked for.
    async fn ask_on(answers: Vec<String>) -> (Result<Option<String>, String>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = i32::from(listener.local_addr().unwrap().port());
        let (asked_in, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let serving = async {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 512];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                asked_in.send(request.split(' ').nth(1).unwrap_or_default().to_owned()).unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let action = HTTPGetAction { port: IntOrString::Int(port), ..HTTPGetAction::default() };
        let result = tokio::select! {
            result = http(&action, &[], IpAddr::from([127, 0, 0, 1]), LIMIT) => result,
            () = serving => unreachable!("it never ends"),
        };
        let mut paths = Vec::new();
        while let Ok(path) = asked.try_recv() {
            paths.push(path);
        }
        (result, paths)
    }

    #[tokio::test]
    async fn redirects_are_followed_on_the_same_host() {
        let to = |location: &str| format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\n\r\n");
        let (ok, broken) = ("HTTP/1.1 200 OK\r\n\r\n".to_owned(), "HTTP/1.1 503 No\r\n\r\n".to_owned());
        let (result, paths) = ask_on(vec![to("/a"), to("b"), ok]).await;
        assert_eq!((result, paths.join(" ")), (Ok(None), "/ /a /b".to_owned()));
        let (result, _) = ask_on(vec![to("/a"), broken]).await;
        assert_eq!(result, Err("HTTP probe failed with statuscode: 503".to_owned()), "the last answer counts");
        for elsewhere in ["http://elsewhere.invalid/", "https://127.0.0.1/"] {
            let (result, paths) = ask_on(vec![to(elsewhere)]).await;
            assert_eq!(result, Ok(Some("Probe terminated redirects".to_owned())), "{elsewhere}");
            assert_eq!(paths, ["/"]);
        }
        let (result, paths) = ask_on(vec![to("/"); 11]).await;
        assert!(result.is_err_and(|message| message.ends_with("stopped after 10 redirects")));
        assert_eq!(paths.len(), 11);
    }

    #[tokio::test]
    async fn hooks_only_want_to_be_heard() {
        for (answer, is_heard) in [("HTTP/1.1 500 No\r\n\r\n", true), ("HTTP/1.1 404 No\r\n\r\n", true), ("", false)] {
            let (result, _) = ask_by(answer, None, true, true).await;
            assert_eq!(result.is_ok(), is_heard, "PL-27: {answer:?}");
        }
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
