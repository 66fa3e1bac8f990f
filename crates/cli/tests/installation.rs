//! What `tally up` takes for its own on disk (BI-120, BI-125), and what it leaves there, however the user's shell is set up
//! (BI-122) and however little room there is (BI-123).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far longer than a start takes; a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server under a shell that takes no permission away from new files.
struct Careless(Child);

impl Careless {
    fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    fn start_with(data: &Path, more: &[&Path]) -> Self {
        let script = "umask 000; exec \"$0\" up --listen 127.0.0.1:0 --node none --controllers none --data \"$@\"";
        let child = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_tally")])
            .arg(data)
            .args(more)
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

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn wait_for(path: &Path) {
    let since = Instant::now();
    while !path.exists() {
        assert!(since.elapsed() < PATIENCE, "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What is inside a directory of mode 0700 is nobody else's, so the engine's own files may have any mode.
#[test]
fn credentials_are_the_owners_alone_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let _server = Careless::start(&data);
    wait_for(&data.join("kubeconfig"));
    for directory in ["", "pki", "store"] {
        assert_eq!(mode(&data.join(directory)), 0o700, "`{directory}`");
    }
    for file in ["kubeconfig", "token"] {
        assert_eq!(mode(&data.join(file)), 0o600, "`{file}`");
    }
    let keys = fs::read_dir(data.join("pki")).unwrap().map(|entry| entry.unwrap().path());
    for key in keys.filter(|path| path.extension().is_some_and(|extension| extension != "crt")) {
        assert_eq!(mode(&key), 0o600, "{}", key.display());
    }
}

#[test]
fn folders_made_for_a_kubeconfig_are_the_owners_alone_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("new/er/config");
    let _server = Careless::start_with(&dir.path().join("data"), &[Path::new("--kubeconfig-out"), &config]);
    wait_for(&config);
    for (path, expected) in [("new", 0o700), ("new/er", 0o700), ("new/er/config", 0o600)] {
        assert_eq!(mode(&dir.path().join(path)), expected, "`{path}`");
    }
}

/// What lies there already is closed to others as well, and is used as it is.
#[test]
fn credentials_that_others_could_read_are_the_owners_alone_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let token = "7".repeat(64);
    fs::create_dir_all(data.join("pki")).unwrap();
    fs::write(data.join("token"), &token).unwrap();
    for (path, mode) in [("", 0o755), ("pki", 0o755), ("token", 0o644)] {
        set_mode(&data.join(path), mode);
    }
    // Links that would lead the kubeconfig, or what is read of it, elsewhere.
    fs::write(dir.path().join("elsewhere"), "").unwrap();
    symlink(dir.path().join("elsewhere"), data.join("kubeconfig")).unwrap();
    let _server = Careless::start(&data);
    wait_for(&data.join("tally.json"));
    for (path, expected) in [("pki", 0o700), ("store", 0o700), ("token", 0o600), ("kubeconfig", 0o600)] {
        assert_eq!(mode(&data.join(path)), expected, "`{path}`");
    }
    assert_eq!(fs::read_to_string(data.join("token")).unwrap(), token);
    let kubeconfig = fs::read_to_string(data.join("kubeconfig")).unwrap();
    assert!(kubeconfig.contains(&format!("token: \"{token}\"\n")), "digits are no number: {kubeconfig}");
    assert_eq!(fs::read_to_string(dir.path().join("elsewhere")).unwrap(), "");
}

/// How a start on `DIR/data` fails, with `DIR` for the directory; `spoil` is told where the data is.
fn refusal(spoil: impl Fn(&Path)) -> String {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    fs::create_dir_all(data.join("pki")).expect("directories");
    for path in [&data, &data.join("pki")] {
        set_mode(path, 0o700);
    }
    fs::write(data.join("token"), "7".repeat(64)).expect("a token");
    set_mode(&data.join("token"), 0o600);
    spoil(&data);
    let output = Command::new(env!("CARGO_BIN_EXE_tally"))
        .args(["up", "--listen", "127.0.0.1:0", "--node", "none", "--controllers", "none", "--data"])
        // The slash would follow a link.
        .arg(data.join(""))
        .stdin(Stdio::null())
        .output()
        .expect("run tally");
    let stderr = String::from_utf8_lossy(&output.stderr).replace(&*dir.path().to_string_lossy(), "DIR");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{stderr}");
    assert!(!data.join("kubeconfig").exists() && !data.join("tally.json").exists(), "{stderr}");
    stderr
}

/// Moves what is there aside and puts a link to it in its place.
fn link(path: &Path) {
    let moved = path.with_extension("moved");
    fs::rename(path, &moved).expect("moved aside");
    symlink(&moved, path).expect("a link");
}

#[test]
fn what_others_can_write_or_lead_elsewhere_is_refused_with_the_command_that_helps() {
    for given in [0o777, 0o770, 0o720, 0o702] {
        let stderr = refusal(|data| set_mode(data, given));
        assert!(stderr.contains(&format!("`DIR/data` can be written by others (mode {given:o})\n")), "{stderr}");
        assert!(stderr.contains("\n\nhint: if nobody has tampered with it, `chmod 700 DIR/data` makes"), "{stderr}");
    }
    for (path, given, command) in
        [("pki", 0o777, "chmod 700 DIR/data/pki"), ("token", 0o666, "chmod 600 DIR/data/token")]
    {
        let stderr = refusal(|data| set_mode(&data.join(path), given));
        let error = format!("error: `DIR/data/{path}` can be written by others (mode {given:o})\n");
        assert!(stderr.starts_with(&error), "{stderr}");
        assert!(stderr.contains(&format!("`{command}`")), "{stderr}");
    }
    let stderr = refusal(link);
    assert!(stderr.contains("`DIR/data` is a symbolic link\n"), "{stderr}");
    assert!(stderr.contains("\n\nhint: name the directory itself: `--data DIR/data.moved`\n"), "{stderr}");
    for path in ["pki", "token"] {
        let stderr = refusal(|data| link(&data.join(path)));
        assert!(stderr.starts_with(&format!("error: `DIR/data/{path}` is a symbolic link\n")), "{stderr}");
        assert!(
            stderr.contains(&format!("`rm DIR/data/{path} && mv DIR/data/{path}.moved DIR/data/{path}`")),
            "{stderr}"
        );
    }
}

/// Giving things away takes root; what others than root are refused is tested where the check is.
#[test]
fn what_belongs_to_another_user_is_refused_even_to_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: giving a directory away takes root");
        return;
    }
    for path in ["", "pki", "token"] {
        let stderr = refusal(|data| chown(data.join(path), Some(65_534), None).expect("given away"));
        let shown = format!("DIR/data/{path}");
        let shown = shown.trim_end_matches('/');
        assert!(
            stderr.contains(&format!("`{shown}` belongs to user 65534, and this process runs as user 0\n")),
            "{stderr}"
        );
        assert!(stderr.contains(&format!("\n\nhint: `sudo chown -R 0 {shown}` makes it yours")), "{stderr}");
    }
}

/// BI-125. A token with a blank inside would be half a token to the server: nobody could come in.
#[test]
fn a_token_that_is_none_is_refused() {
    for text in ["", " \n", &" ".repeat(64), &format!("{0} {0}", "7".repeat(40)), &format!("{0}\n{0}", "7".repeat(40))]
    {
        let stderr = refusal(|data| fs::write(data.join("token"), text).expect("a token"));
        let error = "error: `DIR/data/token` does not hold one token of at least 32 ASCII characters without blanks\n";
        assert!(stderr.starts_with(error), "{text:?}: {stderr}");
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
