//! What `tally up` leaves on disk, however the user's shell is set up (BI-122) and however little room there is (BI-123).

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

/// Starts on a disk with so many bytes left, then again with room, then on the same disk without the right to write, and
/// tells how each went. Needs the right to mount; exit code 77 says that it is missing.
const ON_A_SMALL_DISK: &str = r#"
    up() { "$0" up --data "$1" --listen 127.0.0.1:0 --node none --controllers none > /dev/null & }
    mount -t tmpfs -o size=8m tmpfs "$1" || exit 77
    dd if=/dev/zero of="$1/fill" bs=64k 2> /dev/null
    truncate -s "-$2" "$1/fill"
    up "$1/data"; wait $!; echo "full: exit $?"
    rm "$1/fill"
    up "$1/data"
    for _ in $(seq 300); do test -e "$1/data/kubeconfig" && break; sleep 0.1; done
    test -e "$1/data/kubeconfig" && echo "with room: starts"
    kill $!; wait $!
    mount -o remount,ro "$1"
    up "$1/other"; wait $!; echo "read-only: exit $?"
    up "$1/data"; wait $!; echo "read-only with a store: exit $?"
"#;

/// BI-123: a start that finds no room says so and fails, and leaves nothing behind that a later start trips over.
#[test]
fn a_full_or_read_only_disk_is_refused_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // From nothing at all to nearly enough: the store, keys and credentials need about 100 KiB.
    for left in [0, 4, 16, 32, 48, 64].map(|kibibytes| kibibytes * 1024) {
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", ON_A_SMALL_DISK, env!("CARGO_BIN_EXE_tally")])
            .arg(dir.path())
            .arg(left.to_string())
            .stdin(Stdio::null())
            .output()
            .expect("run unshare");
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if stderr.contains("unshare failed") || output.status.code() == Some(77) {
            eprintln!("skipped: a small disk takes the right to mount one: {stderr}");
            return;
        }
        let expected = "full: exit 1\nwith room: starts\nread-only: exit 1\nread-only with a store: exit 1\n";
        assert_eq!(stdout, expected, "with {left} bytes left: {stderr}");
        for cause in ["No space left on device", "Read-only file system", "error: ", "hint: "] {
            assert!(stderr.contains(cause), "with {left} bytes left nobody says `{cause}`: {stderr}");
        }
    }
}
