//! What `tally up` leaves on disk, however the user's shell is set up (BI-122).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far longer than a start takes; a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server under a shell that takes no permission away from new files.
struct Careless(Child);

impl Careless {
    fn start(data: &Path) -> Self {
        let script = "umask 000; exec \"$0\" up --data \"$1\" --listen 127.0.0.1:0 --node none --controllers none";
        let child = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_tally")])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("run a shell");
        Self(child)
    }
}

impl Drop for Careless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

/// What is inside a directory of mode 0700 is nobody else's, so the engine's own files may have any mode.
#[test]
fn credentials_are_the_owners_alone_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let _server = Careless::start(&data);
    let since = Instant::now();
    while !data.join("kubeconfig").exists() {
        assert!(since.elapsed() < PATIENCE, "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    for directory in ["", "pki", "store"] {
        assert_eq!(mode(&data.join(directory)), 0o700, "`{directory}`");
    }
    for file in ["kubeconfig", "token"] {
        assert_eq!(mode(&data.join(file)), 0o600, "`{file}`");
    }
    let keys = fs::read_dir(data.join("pki")).unwrap().map(|entry| entry.unwrap().path());
    for key in keys.filter(|path| path.extension().is_some_and(|extension| extension == "pem")) {
        assert_eq!(mode(&key), 0o600, "{}", key.display());
    }
}
