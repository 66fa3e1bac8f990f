//! The kubeconfig that `tally up` writes for clients: server, authority and token in one private file.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use apiserver::tls::{Identity, write_private};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

use crate::failure::Failure;

/// The first line of every file written here; other files are somebody's own and are not overwritten.
const MARK: &str = "# Written by `tally up` at each start; changes are lost.";

/// Writes the kubeconfig for a server that listens on `address`.
pub(crate) fn write(path: &Path, address: SocketAddr, identity: &Identity) -> Result<(), Failure> {
    refuse_foreign(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder
        // Whoever could write there could send clients to another server (BI-122).
        .map_or(Ok(()), |folder| DirBuilder::new().recursive(true).mode(0o700).create(folder))
        .and_then(|()| write_private(path, text(address, identity).as_bytes()))
        .with_context(|| format!("write the kubeconfig `{}`", path.display()))
        .map_err(|error| Failure::new(error).hint("pass another place with `--kubeconfig-out FILE`"))
}

/// A person's own kubeconfig holds clusters that nobody could bring back.
fn refuse_foreign(path: &Path) -> Result<(), Failure> {
    match fs::read_to_string(path) {
        Ok(text) if text.is_empty() || text.starts_with(MARK) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(Failure::new(anyhow!("`{}` exists and was not written by tally", path.display()))
            .hint("pass a new file; `KUBECONFIG=one:two` makes kubectl read several")),
        Err(error) => {
            let error = anyhow!(error).context(format!("read the kubeconfig `{}`", path.display()));
            Err(Failure::new(error).hint("pass another place with `--kubeconfig-out FILE`"))
        }
    }
}

/// Where clients on this machine reach a server that listens on `address`.
pub(crate) fn server_url(address: SocketAddr) -> String {
    format!("https://{}", reachable(address))
}

/// The variables from which programs in pods know the API server, as every pod of a cluster has them.
pub(crate) fn in_cluster(address: SocketAddr) -> Vec<(String, String)> {
    let address = reachable(address);
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    [
        ("KUBERNETES_SERVICE_HOST", host),
        ("KUBERNETES_SERVICE_PORT", port.clone()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", port),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn text(address: SocketAddr, identity: &Identity) -> String {
    let server = server_url(address);
    let authority = BASE64_STANDARD.encode(&identity.authority);
    // In quotes: a token of digits only would be read as a number.
    let token = Value::from(identity.token.reveal());
    format!(
        "\
{MARK}
apiVersion: v1
kind: Config
clusters:
- name: tally
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: tally
  user:
    token: {token}
contexts:
- name: tally
  context:
    cluster: tally
    user: tally
    namespace: default
current-context: tally
"
    )
}

/// `path` as one word of a POSIX shell.
pub(crate) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |char: char| char.is_ascii_alphanumeric() || "/._-+=:,@%".contains(char);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use apiserver::tls::server_names;

    use super::*;

    fn identity(dir: &Path) -> Identity {
        let names = server_names(Ipv4Addr::LOCALHOST.into());
        Identity::load_or_create(dir, &names, jiff::Timestamp::now()).unwrap()
    }

    #[test]
    fn the_file_is_private_and_replaced_at_each_start() {
        let dir = tempfile::tempdir().unwrap();
        let (path, identity) = (dir.path().join("new/config"), identity(dir.path()));
        for port in [1, 2] {
            write(&path, SocketAddr::from(([127, 0, 0, 1], port)), &identity).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(&format!("server: https://127.0.0.1:{port}\n")), "{text}");
            assert!(text.contains(identity.token.reveal()));
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_foreign_kubeconfig_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();
        write(&path, SocketAddr::from(([127, 0, 0, 1], 1)), &identity(dir.path())).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "apiVersion: v1\nkind: Config\n");
    }

    #[test]
    fn clients_are_sent_to_an_address_they_can_reach() {
        for (listen, url) in [
            ("127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("0.0.0.0:6443", "https://127.0.0.1:6443"),
            ("[::]:6443", "https://[::1]:6443"),
            ("[::1]:6443", "https://[::1]:6443"),
        ] {
            assert_eq!(server_url(listen.parse().unwrap()), url);
        }
    }

    #[test]
    fn paths_survive_the_shell() {
        for (path, word) in [("/a/b-c.d", "/a/b-c.d"), ("/a b", "'/a b'"), ("/it's", r"'/it'\''s'"), ("", "''")] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
