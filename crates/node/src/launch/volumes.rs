//! Volumes of a pod, put in place below the pod's own directory (PL-114 to PL-119).
//!
//! Where a container sees them is the business of its mount namespace; see `nursery::isolation`.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, HostPathVolumeSource, KeyToPath, ProjectedVolumeSource, VolumeProjection,
};

use super::downward::{self, Allocatable, PodFacts};
use super::sources::{Kind, Missing, Sources};
use crate::pod::{Container, PodSpec, Volume};

/// Volumes with this prefix, made of a token, are added to every pod by admission.
const API_ACCESS_PREFIX: &str = "kube-api-access-";

/// Files keep this mode unless the volume says otherwise.
const DEFAULT_MODE: i32 = 0o644;

/// What the fsGroup of a pod may do with files that nobody writes to, as the kubelet's `SetVolumeOwnership` has it.
const GROUP_READS: u32 = 0o440;
/// New files of a directory belong to its group.
const SET_GROUP: u32 = 0o2000;

/// The file beside the token that tells programs where the API is and who they are.
pub(super) const KUBECONFIG: &str = "kubeconfig";

impl Volume {
    /// The API credentials that admission adds to pods.
    pub(crate) fn is_api_access(&self) -> bool {
        self.name.starts_with(API_ACCESS_PREFIX)
            && self.projected.as_ref().is_some_and(|projected| {
                projected.sources.iter().flatten().any(|source| source.service_account_token.is_some())
            })
    }

    /// What kind it is, if this node does not have it.
    pub(crate) fn unsupported_kind(&self) -> Option<&str> {
        self.other.keys().next().map(String::as_str)
    }
}

/// What volumes are made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) facts: &'a PodFacts,
    pub(crate) spec: &'a PodSpec,
    pub(crate) allocatable: &'a Allocatable,
    /// Where processes reach the API, if they can.
    pub(crate) api_server: Option<&'a str>,
    /// Files can be given to a group of the pod's choice.
    pub(crate) can_change_group: bool,
}

impl Inputs<'_> {
    /// Whose the files are beside their owner. Without the right to change it they are the node's user's, as whom the
    /// processes run then too.
    fn group(&self) -> Option<u32> {
        let group = self.spec.security_context.as_ref()?.fs_group.filter(|_| self.can_change_group)?;
        u32::try_from(group).ok()
    }
}

/// Files to be in a volume: path below it, content, mode.
type Files = BTreeMap<PathBuf, (Vec<u8>, i32)>;

/// Puts all volumes of a pod below `directory`. The error is the text of a `FailedMount` event.
pub(crate) async fn prepare(directory: &Path, inputs: Inputs<'_>, sources: &Sources) -> Result<(), String> {
    for volume in &inputs.spec.volumes {
        prepare_one(directory, volume, inputs, sources)
            .await
            .map_err(|reason| format!("MountVolume.SetUp failed for volume \"{}\" : {reason}", volume.name))?;
    }
    Ok(())
}

/// Does the volume follow changes of what it was made from?
pub(crate) fn is_refreshed(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Brings volumes up to date (PL-116). What cannot be read now stays as it is.
pub(crate) async fn refresh(directory: &Path, inputs: Inputs<'_>, sources: &Sources) {
    for volume in inputs.spec.volumes.iter().filter(|volume| is_refreshed(volume)) {
        if let Err(reason) = prepare_one(directory, volume, inputs, sources).await {
            tracing::debug!(
                reason,
                volume = volume.name,
                pod = inputs.facts.name,
                "a volume is not brought up to date"
            );
        }
    }
}

async fn prepare_one(directory: &Path, volume: &Volume, inputs: Inputs<'_>, sources: &Sources) -> Result<(), String> {
    if let Some(host_path) = &volume.host_path {
        return check_host_path(host_path);
    }
    let own = directory.join(&volume.name);
    if volume.empty_dir.is_some() {
        return empty_directory(&own, inputs.group()).map_err(|error| error.to_string());
    }
    let mut files = Files::new();
    if let Some(map) = &volume.config_map {
        let reference = Reference { kind: Kind::ConfigMap, name: &map.name, optional: map.optional };
        add_entries(&mut files, reference, map.items.as_deref(), map.default_mode, inputs, sources).await?;
    } else if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let reference = Reference { kind: Kind::Secret, name, optional: secret.optional };
        add_entries(&mut files, reference, secret.items.as_deref(), secret.default_mode, inputs, sources).await?;
    } else if let Some(source) = &volume.downward_api {
        add_downward(&mut files, source.items.iter().flatten(), source.default_mode, inputs)?;
    } else if let Some(projected) = &volume.projected {
        add_projected(&mut files, projected, inputs, sources).await?;
        if let Some(server) = inputs.api_server.filter(|_| volume.is_api_access()) {
            let kubeconfig = kubeconfig(server, &inputs.facts.namespace);
            add(&mut files, KUBECONFIG, kubeconfig.into_bytes(), projected.default_mode.unwrap_or(DEFAULT_MODE))?;
        }
    } else {
        let kind = volume.unsupported_kind().unwrap_or("unknown");
        return Err(format!("this node has no volumes of kind {kind}"));
    }
    write_files(&own, &files, inputs.group()).map_err(|error| error.to_string())
}

/// Where the content of a volume is.
pub(crate) fn source_path(directory: &Path, volume: &Volume) -> PathBuf {
    match &volume.host_path {
        Some(host_path) => PathBuf::from(&host_path.path),
        None => directory.join(&volume.name),
    }
}

fn empty_directory(own: &Path, group: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(own)?;
    set_access(own, 0o777, group.map(|group| (group, SET_GROUP)))
}

/// The mode of a file or directory and, with a group, also that and what the group may do.
fn set_access(path: &Path, mode: u32, group: Option<(u32, u32)>) -> io::Result<()> {
    let mut mode = mode;
    if let Some((group, mode_of_group)) = group {
        chown(path, None, Some(group))?;
        mode |= mode_of_group;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Makes what is missing and may be made, and checks what is there (PL-119). Without a type anything will do, and a
/// directory is made for want of it, as by the container runtimes below a kubelet. Texts are those of its
/// `checkTypeInternal`.
fn check_host_path(source: &HostPathVolumeSource) -> Result<(), String> {
    use std::os::unix::fs::FileTypeExt as _;
    let path = Path::new(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let made = match kind {
        "" | "DirectoryOrCreate" if !path.exists() => make_host_directory(path),
        "FileOrCreate" if !path.exists() => fs::File::create_new(path).map(drop),
        _ => Ok(()),
    };
    made.map_err(|error| format!("hostPath {}: {error}", source.path))?;
    // What is missing is of no kind.
    let found = fs::metadata(path).map(|found| found.file_type()).ok();
    let is = |fits: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(fits);
    let (fits, wanted) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "file"),
        "Socket" => (is(|it| it.is_socket()), "socket file"),
        "CharDevice" => (is(|it| it.is_char_device()), "character device"),
        "BlockDevice" => (is(|it| it.is_block_device()), "block device"),
        _ => return Ok(()),
    };
    if fits { Ok(()) } else { Err(format!("hostPath type check failed: {} is not a {wanted}", source.path)) }
}

fn make_host_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

#[derive(Clone, Copy)]
struct Reference<'a> {
    kind: Kind,
    name: &'a str,
    optional: Option<bool>,
}

async fn add_entries(
    files: &mut Files,
    reference: Reference<'_>,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    inputs: Inputs<'_>,
    sources: &Sources,
) -> Result<(), String> {
    let optional = reference.optional == Some(true);
    let content = match sources.get(reference.kind, &inputs.facts.namespace, reference.name).await {
        Ok(content) => content,
        Err(Missing::NotFound(_)) if optional => return Ok(()),
        Err(missing) => return Err(missing.into_message()),
    };
    let mode = mode.unwrap_or(DEFAULT_MODE);
    let Some(items) = items else {
        for (key, value) in &content.entries {
            add(files, key, value.clone(), mode)?;
        }
        return Ok(());
    };
    for item in items {
        match content.entries.get(&item.key) {
            Some(value) => add(files, &item.path, value.clone(), item.mode.unwrap_or(mode))?,
            None if optional => {}
            None => {
                return Err(match reference.kind {
                    Kind::ConfigMap => format!("configmap references non-existent config key: {}", item.key),
                    Kind::Secret => format!("references non-existent secret key: {}", item.key),
                });
            }
        }
    }
    Ok(())
}

fn add_downward<'a>(
    files: &mut Files,
    items: impl Iterator<Item = &'a DownwardAPIVolumeFile>,
    mode: Option<i32>,
    inputs: Inputs<'_>,
) -> Result<(), String> {
    for item in items {
        let value = match (&item.field_ref, &item.resource_field_ref) {
            (Some(selector), _) => downward::field(inputs.facts, selector)?,
            (None, Some(selector)) => {
                downward::resource(inputs.spec, &Container::default(), selector, inputs.allocatable)?
            }
            (None, None) => continue,
        };
        add(files, &item.path, value.into_bytes(), item.mode.or(mode).unwrap_or(DEFAULT_MODE))?;
    }
    Ok(())
}

async fn add_projected(
    files: &mut Files,
    projected: &ProjectedVolumeSource,
    inputs: Inputs<'_>,
    sources: &Sources,
) -> Result<(), String> {
    let mode = projected.default_mode;
    for VolumeProjection { config_map, secret, downward_api, service_account_token, .. } in
        projected.sources.iter().flatten()
    {
        if let Some(map) = config_map {
            let reference = Reference { kind: Kind::ConfigMap, name: &map.name, optional: map.optional };
            add_entries(files, reference, map.items.as_deref(), mode, inputs, sources).await?;
        }
        if let Some(secret) = secret {
            let reference = Reference { kind: Kind::Secret, name: &secret.name, optional: secret.optional };
            add_entries(files, reference, secret.items.as_deref(), mode, inputs, sources).await?;
        }
        if let Some(downward) = downward_api {
            add_downward(files, downward.items.iter().flatten(), mode, inputs)?;
        }
        if let Some(wanted) = service_account_token {
            let token = sources.tokens().get(inputs.facts, wanted).await?;
            add(files, &wanted.path, token.into_bytes(), mode.unwrap_or(DEFAULT_MODE))?;
        }
    }
    Ok(())
}

/// The credentials of a volume as a kubeconfig. Its paths are relative, so that it works wherever the volume is seen.
fn kubeconfig(server: &str, namespace: &str) -> String {
    format!(
        "\
apiVersion: v1
kind: Config
clusters:
- name: tally
  cluster:
    server: {server}
    certificate-authority: ca.crt
users:
- name: pod
  user:
    tokenFile: token
contexts:
- name: pod
  context:
    cluster: tally
    user: pod
    namespace: {namespace}
current-context: pod
"
    )
}

/// The API checks paths; a file outside its volume would be worse than a second check (INV-52).
fn add(files: &mut Files, path: &str, content: Vec<u8>, mode: i32) -> Result<(), String> {
    let path = PathBuf::from(path);
    let is_safe = path.components().all(|part| matches!(part, Component::Normal(_))) && path.components().count() > 0;
    if !is_safe {
        return Err(format!("the path {path:?} leaves its volume"));
    }
    files.insert(path, (content, mode));
    Ok(())
}

/// Writes all files at once: they are links through `..data` to a directory that is switched atomically (PL-115).
fn write_files(own: &Path, files: &Files, group: Option<u32>) -> io::Result<()> {
    let set_directory = |path: &Path| set_access(path, 0o755, group.map(|group| (group, SET_GROUP)));
    let data = own.join("..data");
    if is_written(&data, files) {
        return Ok(());
    }
    fs::create_dir_all(own)?;
    set_directory(own)?;
    let current = fs::read_link(&data).ok();
    let next = if current.as_deref() == Some(Path::new("..0")) { "..1" } else { "..0" };
    let target = own.join(next);
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    fs::create_dir(&target)?;
    set_directory(&target)?;
    for (path, (content, mode)) in files {
        let mut parent = target.clone();
        for name in path.parent().iter().flat_map(|parent| parent.components()) {
            parent.push(name);
            if !parent.exists() {
                fs::create_dir(&parent)?;
                set_directory(&parent)?;
            }
        }
        let file = target.join(path);
        fs::write(&file, content)?;
        let mode = u32::try_from(*mode).unwrap_or(0o644) & 0o777;
        set_access(&file, mode, group.map(|group| (group, GROUP_READS)))?;
    }
    let fresh = own.join("..data_tmp");
    let _ = fs::remove_file(&fresh);
    symlink(next, &fresh)?;
    fs::rename(&fresh, &data)?;
    for name in files.keys().filter_map(|path| path.components().next()) {
        let link = own.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(name), &link)?;
        }
    }
    if let Some(old) = current.filter(|old| old != Path::new(next)) {
        fs::remove_dir_all(own.join(old))?;
    }
    remove_stale_links(own)
}

fn is_written(data: &Path, files: &Files) -> bool {
    let count = count_files(data);
    count == Some(files.len())
        && files.iter().all(|(path, (content, _))| fs::read(data.join(path)).is_ok_and(|written| written == *content))
}

/// How many files there are below; `None` if there is no such directory.
fn count_files(directory: &Path) -> Option<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory).ok()?.flatten() {
        count += match entry.file_type() {
            Ok(kind) if kind.is_dir() => count_files(&entry.path()).unwrap_or(0),
            _ => 1,
        };
    }
    Some(count)
}

/// Links to files that are not there any more.
fn remove_stale_links(own: &Path) -> io::Result<()> {
    for entry in fs::read_dir(own)?.flatten() {
        let is_ours = !entry.file_name().as_encoded_bytes().starts_with(b"..");
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_symlink()) && !entry.path().exists() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn files(list: &[(&str, &str, i32)]) -> Files {
        let mut files = Files::new();
        for (path, content, mode) in list {
            add(&mut files, path, content.as_bytes().to_vec(), *mode).unwrap();
        }
        files
    }

    #[test]
    fn files_are_written_and_switched_as_a_whole() {
        let directory = TempDir::new().unwrap();
        let own = directory.path().join("v");
        write_files(&own, &files(&[("a", "1", 0o644), ("d/e", "2", 0o400)]), None).unwrap();
        assert_eq!(fs::read_to_string(own.join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(own.join("d/e")).unwrap(), "2");
        assert_eq!(fs::metadata(own.join("d/e")).unwrap().permissions().mode() & 0o777, 0o400);
        write_files(&own, &files(&[("a", "3", 0o644)]), None).unwrap();
        assert_eq!(fs::read_to_string(own.join("a")).unwrap(), "3");
        assert!(!own.join("..0").exists(), "the old directory is gone");
        assert!(fs::symlink_metadata(own.join("d")).is_err(), "and links to what was in it");
        let before = fs::read_link(own.join("..data")).unwrap();
        write_files(&own, &files(&[("a", "3", 0o644)]), None).unwrap();
        assert_eq!(fs::read_link(own.join("..data")).unwrap(), before, "nothing is written if nothing changed");
    }

    /// As root a group that nobody is in, else the only one that can be given.
    #[test]
    fn files_are_readable_for_the_fs_group() {
        use std::os::unix::fs::MetadataExt as _;
        let own_group = rustix::process::getegid().as_raw();
        let group = if rustix::process::geteuid().is_root() { 54321 } else { own_group };
        let directory = TempDir::new().unwrap();
        let own = directory.path().join("v");
        write_files(&own, &files(&[("a", "1", 0o400), ("d/e/f", "2", 0o600)]), Some(group)).unwrap();
        for (path, mode) in [("a", 0o440), ("d/e/f", 0o640), ("d/e", 0o2755), ("d", 0o2755), ("", 0o2755)] {
            let found = fs::metadata(own.join(path)).unwrap();
            assert_eq!((found.mode() & 0o7777, found.gid()), (mode, group), "{path:?}");
        }
        let empty = directory.path().join("empty");
        empty_directory(&empty, Some(group)).unwrap();
        let found = fs::metadata(&empty).unwrap();
        assert_eq!((found.mode() & 0o7777, found.gid()), (0o2777, group));
    }

    #[test]
    fn paths_that_leave_the_volume_are_refused() {
        for path in ["..", "../x", "/x", "a/../../b", ""] {
            assert!(add(&mut Files::new(), path, Vec::new(), 0).is_err(), "{path}");
        }
    }

    #[test]
    fn host_paths_are_checked_against_their_type() {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let check = |name: &str, kind: &str| {
            check_host_path(&HostPathVolumeSource { path: path(name), type_: Some(kind.to_owned()) })
        };
        let refused =
            |name: &str, wanted: &str| Err(format!("hostPath type check failed: {} is not a {wanted}", path(name)));
        for (kind, wanted) in [
            ("Directory", "directory"),
            ("File", "file"),
            ("Socket", "socket file"),
            ("CharDevice", "character device"),
            ("BlockDevice", "block device"),
        ] {
            assert_eq!(check("none", kind), refused("none", wanted), "PL-119");
        }
        assert_eq!(check("d", "DirectoryOrCreate"), Ok(()));
        assert_eq!(check("d", "Directory"), Ok(()));
        assert_eq!(check("d", "File"), refused("d", "file"));
        assert_eq!(check("f", "FileOrCreate"), Ok(()));
        assert_eq!(check("f", ""), Ok(()));
        assert_eq!(check("f", "Directory"), refused("f", "directory"));
        assert_eq!(check("f", "Socket"), refused("f", "socket file"));
    }

    #[test]
    fn a_host_path_without_a_type_is_made_if_it_is_missing() {
        let directory = TempDir::new().unwrap();
        let own = directory.path().join("a/b");
        for type_ in [None, Some(String::new())] {
            assert_eq!(check_host_path(&HostPathVolumeSource { path: own.display().to_string(), type_ }), Ok(()));
            let mode = fs::metadata(&own).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777 & !0o755, 0, "others may not write, whatever the umask");
            fs::remove_dir(&own).unwrap();
        }
    }

    #[test]
    fn the_token_that_admission_adds_is_recognised() {
        let volume = |value: serde_json::Value| serde_json::from_value::<Volume>(value).unwrap();
        let token = json!({"sources": [{"serviceAccountToken": {"path": "token"}}]});
        assert!(volume(json!({"name": "kube-api-access-x", "projected": token})).is_api_access());
        assert!(!volume(json!({"name": "mine", "projected": token})).is_api_access());
        assert!(!volume(json!({"name": "kube-api-access-x", "emptyDir": {}})).is_api_access());
        assert_eq!(volume(json!({"name": "v", "nfs": {"server": "s"}})).unsupported_kind(), Some("nfs"));
    }
}
