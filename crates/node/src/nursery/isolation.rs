//! What sets a container apart from the machine: its mounts, its user, its limits.
//!
//! Most containers need none of it and are plain processes. One with mounts gets a mount namespace whose root is a small
//! tmpfs: every top-level directory of the machine is bound into it, the volumes are bound at their paths, and paths that
//! do not exist on the machine are made in it instead of on the machine. A working directory that is missing is made the
//! same way, but never on the machine itself. Without root the namespace comes with a user namespace in which the user
//! stays who they are.
//!
//! [`Isolation::enter`] runs in the child between fork and exec; everything it needs is prepared before.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::{Component, Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, fchown, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Uid, WaitOptions, chdir, getegid, geteuid, pivot_root, waitpid};
use rustix::thread::{CapabilitySet, ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};

use super::process;
use super::protocol::{InstanceId, Mount, Variables};

/// Where the machine's own root can be seen from inside.
const HOST: &str = ".host";

/// Where a container of another user sees a working directory that it did not ask for.
pub(super) const WORK: &str = "/.work";

/// Paths below mounts deeper than this are refused by the API already.
const DEPTH_MAX: usize = 64;

/// What to do to the child before it becomes the container's process.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    namespace: Option<Namespace>,
    directory: PathBuf,
    /// The directory may be covered by a mount; then the root will do.
    may_miss_directory: bool,
    user: Option<u32>,
    group: Option<u32>,
    /// All groups it is to be in; `None` leaves the nursery's own.
    groups: Option<Vec<Gid>>,
    /// `cgroup.procs` of the container's control group.
    control_group: Option<OwnedFd>,
    /// Where the child says what went wrong; exec reports only a number.
    complaints: Option<OwnedFd>,
    listener: Option<OwnedFd>,
}

#[derive(Debug)]
enum Namespace {
    New {
        root: PathBuf,
        hostname: String,
        mounts: Vec<Mount>,
        with_user: bool,
    },
    /// That of a running process.
    Of {
        process: OwnedFd,
        with_user: bool,
    },
}

/// A mount whose source is held open: nobody can put something else in its place. Opened in the new namespace, since
/// the kernel binds only what is mounted there.
#[derive(Debug)]
struct Opened {
    source: OwnedFd,
    is_directory: bool,
    target: PathBuf,
    read_only: bool,
}

impl Isolation {
    /// For a process as another user; `None` leaves the nursery's own.
    pub(super) fn with_user(mut self, user: Option<u32>, group: Option<u32>, groups: &[u32]) -> Self {
        self.user = user;
        self.group = group;
        let changes = user.is_some() || group.is_some() || !groups.is_empty();
        self.groups = changes.then(|| group.iter().chain(groups).map(|group| Gid::from_raw(*group)).collect());
        self
    }

    pub(super) fn with_control_group(mut self, procs: Option<OwnedFd>) -> Self {
        self.control_group = procs;
        self
    }

    /// A namespace with these mounts. `root` is an empty directory to build it on.
    pub(super) fn with_mounts(mut self, root: &Path, hostname: &str, mounts: &[Mount]) -> Result<Self, String> {
        // A mount inside another one comes after it.
        let mut mounts = mounts.to_vec();
        mounts.sort_by_key(|mount| mount.target.components().count());
        self.namespace = Some(Namespace::New {
            root: root.to_owned(),
            hostname: hostname.to_owned(),
            mounts,
            with_user: !super::is_allowed(CapabilitySet::SYS_ADMIN),
        });
        self.listen()
    }

    /// The namespace of a process that was started with mounts.
    pub(super) fn beside(mut self, process: OwnedFd) -> Result<Self, String> {
        self.namespace = Some(Namespace::Of { process, with_user: !super::is_allowed(CapabilitySet::SYS_ADMIN) });
        self.listen()
    }

    /// Where the process starts.
    pub(super) fn in_directory(mut self, directory: &Path, may_be_missing: bool) -> Self {
        self.directory = directory.to_owned();
        self.may_miss_directory = may_be_missing;
        self
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn listen(mut self) -> Result<Self, String> {
        let (listener, complaints) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|error| format!("make a pipe: {error}"))?;
        self.complaints = Some(complaints);
        self.listener = Some(listener);
        Ok(self)
    }

    pub(super) fn has_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    pub(super) fn complaints(&self) -> Option<Complaints> {
        self.listener.as_ref().and_then(|listener| listener.try_clone().ok()).map(Complaints)
    }

    /// In the child: becomes what was prepared.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        let done = self.try_enter();
        if let (Err(failure), Some(complaints)) = (&done, &self.complaints) {
            let _ = rustix::io::write(complaints, failure.to_string().as_bytes());
        }
        done.map_err(|failure| failure.error)
    }

    fn try_enter(&self) -> Result<(), Failure> {
        if let Some(procs) = &self.control_group {
            rustix::io::write(procs, b"0").during("join the control group")?;
        }
        match &self.namespace {
            None => {}
            Some(Namespace::New { root, hostname, mounts, with_user }) => {
                unshare(*with_user)?;
                let places = build(root, mounts)?;
                let _ = rustix::system::sethostname(hostname.as_bytes());
                match self.change_directory() {
                    Err(missing) if missing.error.kind() == io::ErrorKind::NotFound => {
                        places.make(&self.directory).map_err(|_| missing)?;
                        self.change_directory()?;
                    }
                    done => done?,
                }
            }
            Some(Namespace::Of { process, with_user }) => {
                let mut kinds = ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
                if *with_user {
                    kinds |= ThreadNameSpaceType::USER;
                }
                move_into_thread_name_spaces(process.as_fd(), kinds).during("join the container's mounts")?;
                self.change_directory()?;
            }
        }
        self.become_user()
    }

    fn change_directory(&self) -> Result<(), Failure> {
        match chdir(&self.directory) {
            Err(_) if self.may_miss_directory => chdir("/").during("chdir to the root"),
            done => done.during(&format!("chdir to cwd ({:?}) failed", self.directory)),
        }
    }

    fn become_user(&self) -> Result<(), Failure> {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        if let Some(groups) = &self.groups {
            set_thread_groups(groups).during("leave the groups of the node")?;
        }
        if let Some(group) = self.group.map(Gid::from_raw) {
            set_thread_res_gid(group, group, group).during("change the group")?;
        }
        if let Some(user) = self.user {
            let user = Uid::from_raw(user);
            give_output(user);
            set_thread_res_uid(user, user, user).during("change the user")?;
        }
        Ok(())
    }
}

/// Whoever opens `/dev/stdout` or `/dev/stderr` needs to own the pipe behind it. Without that the open descriptors still
/// work, so a failure is none of the container's.
fn give_output(user: Uid) {
    for output in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
        if kind_of(output).is_ok_and(|kind| kind == FileType::Fifo) {
            let _ = fchown(output, Some(user), None);
        }
    }
}

/// The reading end of what a child had to say.
#[derive(Debug)]
pub(super) struct Complaints(OwnedFd);

impl Complaints {
    pub(super) fn read(self) -> Option<String> {
        let mut text = String::new();
        // The pipe does not block; what was written is there.
        let _ = fs::File::from(self.0).take(4096).read_to_string(&mut text);
        (!text.is_empty()).then_some(text)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{attempt}: {error}")]
struct Failure {
    attempt: String,
    error: io::Error,
}

impl Failure {
    fn within(self, attempt: &str) -> Self {
        Self { attempt: format!("{attempt}: {}", self.attempt), error: self.error }
    }
}

trait During<T> {
    fn during(self, attempt: &str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, attempt: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure { attempt: attempt.to_owned(), error: error.into() })
    }
}

impl Opened {
    fn new(mount: &Mount) -> Result<Self, Failure> {
        const ATTEMPT: &str = "open the volume";
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let mut source = openat(CWD, &mount.source, flags, Mode::empty()).during(ATTEMPT)?;
        for name in mount.sub_path.iter().flat_map(|path| path.components()) {
            let Component::Normal(name) = name else { return Err(Errno::XDEV).during("follow the subPath") };
            source = openat(&source, name, flags | OFlags::NOFOLLOW, Mode::empty()).during(ATTEMPT)?;
            if kind_of(&source).during(ATTEMPT)? == FileType::Symlink {
                return Err(Errno::LOOP).during("follow the subPath");
            }
        }
        let is_directory = kind_of(&source).during(ATTEMPT)? == FileType::Directory;
        Ok(Self { source, is_directory, target: resolve(&mount.target), read_only: mount.read_only })
    }
}

fn kind_of(file: impl AsFd) -> rustix::io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode))
}

/// The path with the machine's own symlinks followed as far as it exists: `/var/run/x` becomes `/run/x`.
fn resolve(target: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut existing = target;
    loop {
        if let Ok(found) = existing.canonicalize() {
            return missing.iter().rev().fold(found, |path, name| path.join(name));
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name);
                existing = parent;
            }
            _ => return target.to_owned(),
        }
    }
}

#[expect(unsafe_code, reason = "new namespaces are what this module is for")]
fn unshare(with_user: bool) -> Result<(), Failure> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWUTS;
    if with_user {
        flags |= UnshareFlags::NEWUSER;
    }
    // SAFETY: the call is unsafe because of flags that close file descriptors of other threads; none of these flags
    // touches descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }.during("make a mount namespace")?;
    if with_user {
        fs::write("/proc/self/setgroups", "deny").during("keep the groups")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1")).during("keep the user")?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1")).during("keep the group")?;
    }
    Ok(())
}

/// Where in the new root directories may be made: where the machine does not notice, and in volumes that can be written.
struct Places {
    /// Devices of what was made for the container alone.
    own: Vec<u64>,
    volumes: Vec<Opened>,
}

impl Places {
    /// Makes a directory and those on the way to it, as container runtimes do for a working directory. What is there is
    /// held open: nobody can put a link to somewhere else in its place.
    fn make(&self, directory: &Path) -> io::Result<()> {
        let (mut place, missing) = open_existing(directory)?;
        if !self.contain(&place)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        for name in missing.components().take(DEPTH_MAX) {
            let Component::Normal(name) = name else { return Err(io::ErrorKind::InvalidInput.into()) };
            match mkdirat(&place, name, Mode::from_raw_mode(0o755)) {
                // By another container of the pod, at the same moment.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            place = openat(&place, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok(())
    }

    fn contain(&self, place: &OwnedFd) -> io::Result<bool> {
        if self.own.contains(&fstat(place)?.st_dev) {
            return Ok(true);
        }
        let path = fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
        let around = self.volumes.iter().filter(|volume| path.starts_with(&volume.target));
        let innermost = around.max_by_key(|volume| volume.target.components().count());
        Ok(innermost.is_some_and(|volume| !volume.read_only))
    }
}

/// A directory to look at and to make others in.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The part of a path that exists, and the rest of it.
fn open_existing(path: &Path) -> io::Result<(OwnedFd, &Path)> {
    for existing in path.ancestors() {
        match openat(CWD, existing, DIRECTORY, Mode::empty()) {
            Ok(found) => return Ok((found, path.strip_prefix(existing).unwrap_or(Path::new("")))),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::NOENT.into())
}

/// Builds the new root and moves into it.
fn build(root: &Path, mounts: &[Mount]) -> Result<Places, Failure> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).during("keep mounts to ourselves")?;
    let at = |mount: &Mount| format!("mount {}", mount.target.display());
    let opened = mounts
        .iter()
        .map(|mount| Opened::new(mount).map_err(|failure| failure.within(&at(mount))))
        .collect::<Result<Vec<_>, _>>()?;
    mount("tmpfs", root, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755,size=4m")
        .during("mount a root")?;
    fs::create_dir(root.join(HOST)).during("make a root")?;
    let mut own = vec![device(root)?];
    for entry in fs::read_dir("/").during("read the machine's root")? {
        let entry = entry.during("read the machine's root")?;
        bind_top_level(&entry, root)?;
    }
    for (mount, source) in mounts.iter().zip(&opened) {
        own.extend(attach(root, source, &opened).map_err(|failure| failure.within(&at(mount)))?);
    }
    pivot_root(root, root.join(HOST)).during("change the root")?;
    Ok(Places { own, volumes: opened })
}

fn device(directory: &Path) -> Result<u64, Failure> {
    Ok(rustix::fs::stat(directory).during("look at a directory")?.st_dev)
}

fn bind_top_level(entry: &fs::DirEntry, root: &Path) -> Result<(), Failure> {
    let kind = entry.file_type().during("read the machine's root")?;
    let (from, to) = (entry.path(), root.join(entry.file_name()));
    if kind.is_symlink() {
        let link = fs::read_link(&from).during("read a link")?;
        std::os::unix::fs::symlink(link, &to).during("copy a link")?;
    } else if kind.is_dir() {
        fs::create_dir(&to).during("make a directory")?;
        // A directory that cannot be bound stays empty; the container may not need it.
        let _ = mount_bind_recursive(&from, &to);
    } else if kind.is_file() {
        fs::File::create(&to).during("make a file")?;
        let _ = mount_bind(&from, &to);
    }
    Ok(())
}

/// The device of a directory of the machine that had to be covered, if one had to be.
fn attach(root: &Path, mount: &Opened, all: &[Opened]) -> Result<Option<u64>, Failure> {
    let relative = mount.target.strip_prefix("/").unwrap_or(&mount.target);
    let target = root.join(relative);
    let covering = match fs::symlink_metadata(&target) {
        Ok(_) => None,
        Err(_) => make_target(root, relative, mount.is_directory, all)?,
    };
    let source = format!("/proc/self/fd/{}", mount.source.as_raw_fd());
    mount_bind_recursive(source.as_str(), &target).during("bind the volume")?;
    if mount.read_only {
        let flags = MountFlags::BIND | MountFlags::RDONLY | locked_flags(&target)?;
        mount_remount(&target, flags, c"").during("make it read-only")?;
    }
    Ok(covering)
}

/// Makes a mount point that the machine does not have: in a volume if it lies in one, else in a copy of its parent.
fn make_target(root: &Path, relative: &Path, is_directory: bool, all: &[Opened]) -> Result<Option<u64>, Failure> {
    let names: Vec<_> = relative.components().collect();
    if names.len() > DEPTH_MAX || names.iter().any(|name| !matches!(name, Component::Normal(_))) {
        return Err(Errno::INVAL).during("make the mount point");
    }
    let mut path = PathBuf::new();
    let existing = names.iter().take_while(|name| {
        path.push(name);
        fs::symlink_metadata(root.join(&path)).is_ok_and(|it| it.is_dir())
    });
    let depth = existing.count();
    let parent: PathBuf = names[..depth].iter().collect();
    let in_volume = all.iter().any(|mount| Path::new("/").join(&parent).starts_with(&mount.target));
    let is_covered = depth > 0 && !in_volume;
    if is_covered {
        replace_by_links(root, &parent)?;
    }
    let covering = is_covered.then(|| device(&root.join(&parent))).transpose()?;
    let mut path = root.join(&parent);
    for (index, name) in names.iter().enumerate().skip(depth) {
        path.push(name);
        if index + 1 == names.len() && !is_directory {
            fs::File::create_new(&path).during("make the mount point")?;
        } else {
            fs::create_dir(&path).during("make the mount point")?;
        }
    }
    Ok(covering)
}

/// Covers a directory of the machine with an empty one and links everything that was in it, so that something can be
/// added without the machine noticing.
fn replace_by_links(root: &Path, directory: &Path) -> Result<(), Failure> {
    let covered = root.join(directory);
    let names: Vec<_> = fs::read_dir(&covered)
        .during("read a directory")?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()
        .during("read a directory")?;
    mount("tmpfs", &covered, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755,size=16m")
        .during("cover a directory")?;
    let host = Path::new("/").join(HOST).join(directory);
    for name in names {
        std::os::unix::fs::symlink(host.join(&name), covered.join(&name)).during("link to the machine")?;
    }
    Ok(())
}

/// Flags that an unprivileged remount must not drop.
fn locked_flags(path: &Path) -> Result<MountFlags, Failure> {
    use rustix::fs::StatVfsMountFlags as Stat;
    let stat = rustix::fs::statvfs(path).during("look at the mount")?;
    let pairs = [
        (Stat::NOSUID, MountFlags::NOSUID),
        (Stat::NODEV, MountFlags::NODEV),
        (Stat::NOEXEC, MountFlags::NOEXEC),
        (Stat::NOATIME, MountFlags::NOATIME),
        (Stat::NODIRATIME, MountFlags::NODIRATIME),
        (Stat::RELATIME, MountFlags::RELATIME),
    ];
    let set = pairs.into_iter().filter(|(have, _)| stat.f_flag.contains(*have));
    Ok(set.fold(MountFlags::empty(), |flags, (_, flag)| flags | flag))
}

/// Can this process give a child a mount namespace? Tried with a child that does nothing else.
pub(super) fn check_mounts(root: &Path) -> Result<(), String> {
    let isolation = Isolation::default().with_mounts(root, "probe", &[])?.in_directory(Path::new("/"), false);
    let id = InstanceId { pod: "probe".to_owned(), container: "probe".to_owned(), attempt: 0 };
    let command = ["true".to_owned()];
    let environment = Variables(vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]);
    let start =
        process::Start { id: &id, command: &command, program_shown: "true", environment: &environment, isolation };
    let probe = process::start(start)?;
    match waitpid(Some(probe.pid), WaitOptions::empty()) {
        Ok(Some((_, status))) if status.exit_status() == Some(0) => Ok(()),
        other => Err(format!("a process with mounts of its own ended with {other:?}")),
    }
}
