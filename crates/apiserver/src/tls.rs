//! Who the server is: its certificate authority, its certificate and its token, kept under the data directory.
//!
//! ```text
//! DIR/pki/ca.crt      the authority's certificate, for clients that want a file (`curl --cacert`)
//! DIR/pki/ca.pem      the authority's key and certificate, 0600
//! DIR/pki/server.pem  the server's key and certificate, 0600; renewed when its names or its time run out
//! DIR/token           the bearer token of the one administrator, 0600
//! ```
//!
//! A key and its certificate share one file, replaced by one rename, so that no crash leaves a pair that does not fit.
//! Sockets are elsewhere (`serve`), and so is the kubeconfig (the `cli` crate writes it for people).

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use store::private::{self, PrivateError};
use tokio_rustls::rustls::{
    self, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject as _},
};

/// The authority outlives any data directory: clients that copied it must not break, and whoever can read its key can
/// read the token beside it anyway.
const AUTHORITY_DAYS: i64 = 36_500;
/// Some clients refuse server certificates that are valid much longer than a year.
const SERVER_DAYS: i64 = 365;
/// A server certificate is replaced this long before it ends, because a server may run for weeks once started.
const RENEWAL_DAYS: i64 = 30;
/// Certificates start a day early: their dates have no time of day, and clocks of clients differ.
const START_EARLY_DAYS: i64 = 1;

const TOKEN_BYTES: usize = 32;

/// Everything that lets clients trust the server and the server trust its administrator.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The authority's certificate, PEM.
    pub authority: String,
    pub token: Token,
    /// Ready to accept connections: ALPN offers HTTP/2, then HTTP/1.1 (AS-8).
    pub tls: Arc<ServerConfig>,
}

impl Identity {
    /// Reads the identity kept under `dir`, making or renewing the parts that are missing, damaged, about to expire, or
    /// issued for other `names` (see [`server_names`]).
    pub fn load_or_create(dir: &Path, names: &[String], now: Timestamp) -> Result<Self, Error> {
        let pki = dir.join("pki");
        // Keys are in there: nobody else may enter, whatever the user's umask (BI-122).
        private::directory(&pki)?;
        let (authority, is_new) = load_or_create_authority(&pki, now)?;
        let server = match load_pair(&pki.join("server.pem"))? {
            Some(pair) if !is_new && serves(&pair, &authority, names, now) => pair,
            _ => create_server(&pki, &authority, names, now)?,
        };
        let token = Token::load_or_create(&dir.join("token"))?;
        Ok(Self { authority: certificate_pem(&authority.certificate), token, tls: Arc::new(server_config(server)?) })
    }
}

/// The names a server that listens on `listen` answers to: those of this machine, and those under which programs in
/// pods know the API server.
pub fn server_names(listen: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        "::1",
    ]
    .map(str::to_owned)
    .into();
    let listen = listen.to_string();
    if !names.contains(&listen) {
        names.push(listen);
    }
    names
}

/// A bearer token. It never shows in `Debug` output, and so in no log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The token itself, for the two places that need it: the authenticator and the kubeconfig.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn load_or_create(path: &Path) -> Result<Self, Error> {
        let Some(contents) = private::read(path)? else {
            let token = Self::random()?;
            write_private(path, format!("{}\n", token.0).as_bytes())
                .map_err(|source| Error::Write { path: path.to_owned(), source })?;
            return Ok(token);
        };
        let text = str::from_utf8(&contents).unwrap_or_default().trim();
        // Short tokens could be guessed; a file that an editor emptied must not open the door (BI-125). What no header
        // can carry would lock everybody out.
        if text.len() < TOKEN_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Token { path: path.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }

    fn random() -> Result<Self, Error> {
        let mut bytes = [0; TOKEN_BYTES];
        provider().secure_random.fill(&mut bytes).map_err(|_| Error::Random)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Replaces `path` with a file that only its owner may read, in one step: readers see the old contents or the new.
pub fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    replace(path, contents, 0o600)
}

fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    // `create_new` under a name nobody can guess: in a shared folder no planted link is followed.
    let draft = folder.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&draft)
        .and_then(|mut file| file.write_all(contents).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, path))
        .and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        // The draft may never have been made; the first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or the token cannot be read, or could have been by others.
    #[error(transparent)]
    Private(#[from] PrivateError),
    #[error("write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` does not hold one token of at least {TOKEN_BYTES} ASCII characters without blanks", path.display())]
    Token { path: PathBuf },
    #[error("no random numbers from the system")]
    Random,
    #[error("make a certificate for {names}")]
    Certificate { names: String, source: rcgen::Error },
    #[error("prepare TLS")]
    Tls(#[from] rustls::Error),
}

/// A certificate and its key.
struct Pair {
    key: PrivatePkcs8KeyDer<'static>,
    certificate: CertificateDer<'static>,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn load_or_create_authority(pki: &Path, now: Timestamp) -> Result<(Pair, bool), Error> {
    let path = pki.join("ca.pem");
    let (pair, is_new) = match load_pair(&path)? {
        Some(pair) => (pair, false),
        None => (create_authority(&path, now)?, true),
    };
    let public = pki.join("ca.crt");
    let pem = certificate_pem(&pair.certificate);
    if fs::read_to_string(&public).ok().as_deref() != Some(&pem) {
        replace(&public, pem.as_bytes(), 0o644).map_err(|source| Error::Write { path: public, source })?;
    }
    Ok((pair, is_new))
}

/// `None` when the file is missing or damaged: what it held can be made again.
fn load_pair(path: &Path) -> Result<Option<Pair>, Error> {
    let Some(pem) = private::read(path)? else { return Ok(None) };
    match (PrivatePkcs8KeyDer::from_pem_slice(&pem), CertificateDer::from_pem_slice(&pem)) {
        (Ok(key), Ok(certificate)) => Ok(Some(Pair { key, certificate })),
        _ => {
            tracing::warn!(path = %path.display(), "damaged certificate file; making a new one");
            Ok(None)
        }
    }
}

fn create_authority(path: &Path, now: Timestamp) -> Result<Pair, Error> {
    let make = || {
        let key = KeyPair::generate()?;
        let mut params = authority_params();
        valid_for(&mut params, AUTHORITY_DAYS, now);
        let certificate = params.self_signed(&key)?;
        Ok((key, certificate))
    };
    let (key, certificate) =
        make().map_err(|source| Error::Certificate { names: "the authority".to_owned(), source })?;
    save_pair(path, &key, &certificate)
}

/// Issued certificates name these parameters, so they never change for a given authority key.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "tally-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn create_server(pki: &Path, authority: &Pair, names: &[String], now: Timestamp) -> Result<Pair, Error> {
    let make = || {
        let issuer = Issuer::new(authority_params(), KeyPair::try_from(&authority.key)?);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "tally");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, SERVER_DAYS, now);
        let certificate = params.signed_by(&key, &issuer)?;
        Ok((key, certificate))
    };
    let (key, certificate) = make().map_err(|source| Error::Certificate { names: names.join(", "), source })?;
    save_pair(&pki.join("server.pem"), &key, &certificate)
}

fn valid_for(params: &mut CertificateParams, days: i64, now: Timestamp) {
    let day = |days: i64| {
        let date = (now + SignedDuration::from_hours(24 * days)).to_zoned(TimeZone::UTC).date();
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(-START_EARLY_DAYS);
    params.not_after = day(days);
}

fn save_pair(path: &Path, key: &KeyPair, certificate: &rcgen::Certificate) -> Result<Pair, Error> {
    let pem = key.serialize_pem() + &certificate.pem();
    write_private(path, pem.as_bytes()).map_err(|source| Error::Write { path: path.to_owned(), source })?;
    Ok(Pair { key: PrivatePkcs8KeyDer::from(key.serialize_der()), certificate: certificate.der().clone() })
}

/// Whether clients that trust `authority` accept the pair under every name, today and until the next renewal. The
/// question is put to the verifier that such clients use, so no certificate is parsed here.
fn serves(pair: &Pair, authority: &Pair, names: &[String], now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    if roots.add(authority.certificate.clone()).is_err() {
        return false;
    }
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build() else {
        return false;
    };
    let accepts = |name: &String, at: Timestamp| {
        let Ok(name) = ServerName::try_from(name.as_str()) else { return false };
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().try_into().unwrap_or(0)));
        verifier.verify_server_cert(&pair.certificate, &[], &name, &[], at).is_ok()
    };
    let renewal = now + SignedDuration::from_hours(24 * RENEWAL_DAYS);
    names.iter().all(|name| accepts(name, now) && accepts(name, renewal))
}

fn server_config(server: Pair) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![server.certificate], PrivateKeyDer::Pkcs8(server.key))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let encoded = BASE64_STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in encoded.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names() -> Vec<String> {
        server_names(Ipv4Addr::LOCALHOST.into())
    }

    fn now() -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    fn days_later(days: i64) -> Timestamp {
        now() + SignedDuration::from_hours(24 * days)
    }

    fn server_pem(dir: &Path) -> String {
        fs::read_to_string(dir.join("pki/server.pem")).unwrap()
    }

    #[test]
    fn an_identity_stays_the_same_until_renewal() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::load_or_create(dir.path(), &names(), now()).unwrap();
        let server = server_pem(dir.path());
        let again = Identity::load_or_create(dir.path(), &names(), days_later(SERVER_DAYS - RENEWAL_DAYS - 1)).unwrap();
        assert_eq!(first.authority, again.authority);
        assert_eq!(first.token, again.token);
        assert_eq!(server, server_pem(dir.path()));
    }

    #[test]
    fn the_server_certificate_is_renewed_before_it_ends_and_the_authority_stays() {
        for days in [SERVER_DAYS - RENEWAL_DAYS + 1, SERVER_DAYS + 1, -400] {
            let dir = tempfile::tempdir().unwrap();
            let first = Identity::load_or_create(dir.path(), &names(), now()).unwrap();
            let server = server_pem(dir.path());
            let later = Identity::load_or_create(dir.path(), &names(), days_later(days)).unwrap();
            assert_eq!(first.authority, later.authority);
            assert_ne!(server, server_pem(dir.path()), "after {days} days");
        }
    }

    #[test]
    fn another_listen_address_gets_another_server_certificate() {
        let dir = tempfile::tempdir().unwrap();
        Identity::load_or_create(dir.path(), &names(), now()).unwrap();
        let server = server_pem(dir.path());
        let other = server_names(Ipv4Addr::new(127, 0, 0, 2).into());
        Identity::load_or_create(dir.path(), &other, now()).unwrap();
        let wider = server_pem(dir.path());
        assert_ne!(server, wider);
        // The wider certificate also serves the usual names: going back needs no new one.
        Identity::load_or_create(dir.path(), &names(), now()).unwrap();
        assert_eq!(wider, server_pem(dir.path()));
    }

    #[test]
    fn damaged_certificate_files_are_made_again() {
        for file in ["pki/ca.pem", "pki/server.pem", "pki/ca.crt"] {
            let dir = tempfile::tempdir().unwrap();
            Identity::load_or_create(dir.path(), &names(), now()).unwrap();
            fs::write(dir.path().join(file), "-----BEGIN").unwrap();
            let identity = Identity::load_or_create(dir.path(), &names(), now()).unwrap();
            let public = fs::read_to_string(dir.path().join("pki/ca.crt")).unwrap();
            assert_eq!(identity.authority, public, "{file}");
            let [authority, server] = ["ca.pem", "server.pem"]
                .map(|file| load_pair(&dir.path().join("pki").join(file)).unwrap().expect("a complete pair"));
            assert!(serves(&server, &authority, &names(), now()), "{file}");
        }
    }

    #[test]
    fn a_damaged_token_is_refused_and_never_accepted_as_empty() {
        let good = "0123456789abcdef0123456789abcdef";
        let inner = [" ", "\t", "\n", "\u{a0}", "\u{e9}", "\0"].map(|wrong| format!("{good}{wrong}{good}\n"));
        let blank = [String::new(), "\n".to_owned(), " ".repeat(64), "short".to_owned()];
        for text in blank.into_iter().chain(inner) {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("token"), &text).unwrap();
            let error = Identity::load_or_create(dir.path(), &names(), now()).unwrap_err();
            assert!(matches!(error, Error::Token { .. }), "{text:?}: {error}");
        }
    }

    #[test]
    fn secrets_that_others_could_read_are_theirs_no_longer_and_those_they_could_write_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let first = Identity::load_or_create(dir, &names(), now()).unwrap();
        let set_mode =
            |file: &str, mode| fs::set_permissions(dir.join(file), fs::Permissions::from_mode(mode)).unwrap();
        for (file, open, closed, writable) in [
            ("token", 0o644, 0o600, 0o646),
            ("pki/ca.pem", 0o640, 0o600, 0o660),
            ("pki/server.pem", 0o604, 0o600, 0o602),
            ("pki", 0o755, 0o700, 0o777),
        ] {
            set_mode(file, open);
            let again = Identity::load_or_create(dir, &names(), now()).unwrap();
            assert_eq!((&again.token, &again.authority), (&first.token, &first.authority), "{file}");
            assert_eq!(fs::metadata(dir.join(file)).unwrap().permissions().mode() & 0o777, closed, "{file}");
            set_mode(file, writable);
            let error = Identity::load_or_create(dir, &names(), now()).unwrap_err();
            assert!(matches!(error, Error::Private(PrivateError::Writable { .. })), "{file}: {error}");
            set_mode(file, closed);
            let moved = dir.join("moved");
            fs::rename(dir.join(file), &moved).unwrap();
            std::os::unix::fs::symlink(&moved, dir.join(file)).unwrap();
            let error = Identity::load_or_create(dir, &names(), now()).unwrap_err();
            assert!(matches!(error, Error::Private(PrivateError::SymbolicLink { .. })), "{file}: {error}");
            fs::rename(&moved, dir.join("back")).unwrap();
            fs::remove_file(dir.join(file)).unwrap();
            fs::rename(dir.join("back"), dir.join(file)).unwrap();
        }
    }

    #[test]
    fn secrets_are_private_and_do_not_show_in_debug_output() {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::load_or_create(dir.path(), &names(), now()).unwrap();
        for file in ["token", "pki/ca.pem", "pki/server.pem"] {
            let mode = fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        assert_eq!(identity.token.reveal().len(), 2 * TOKEN_BYTES);
        assert!(!format!("{identity:?}").contains(identity.token.reveal()));
    }

    #[test]
    fn replacing_a_file_leaves_no_draft_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write_private(&path, b"one").unwrap();
        write_private(&path, b"two").unwrap();
        write_private(&dir.path().join("missing/file"), b"three").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
