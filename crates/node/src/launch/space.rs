//! How much room the volumes of a pod take on disk, against the limits that it sets itself (PL-67, PL-114).

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use api_schema::Quantity;

use crate::pod::{PodSpec, Volume};

/// Does the pod have a volume with a limit?
pub(crate) fn is_limited(spec: &PodSpec) -> bool {
    spec.volumes.iter().any(|volume| limit(volume).is_some())
}

/// The message of the eviction, if a volume is larger than it may be. Looks at all its files, which may take a while.
pub(crate) fn exceeded(directory: &Path, spec: &PodSpec) -> Option<String> {
    spec.volumes.iter().find_map(|volume| {
        let (text, bytes) = limit(volume)?;
        let is_over = is_larger(&directory.join(&volume.name), bytes);
        is_over.then(|| format!("Usage of EmptyDir volume \"{}\" exceeds the limit \"{text}\". ", volume.name))
    })
}

/// The limit as it is written, and in bytes. Zero is none.
fn limit(volume: &Volume) -> Option<(&str, u64)> {
    let text = &volume.empty_dir.as_ref()?.size_limit.as_ref()?.0;
    let bytes = u64::try_from(Quantity::parse(text).ok()?.value()).ok()?;
    (bytes > 0).then_some((text, bytes))
}

/// Do files and directories occupy more than that? Counted as `du` does: a file with several names once, links as they
/// are. What cannot be read, or vanishes meanwhile, counts nothing.
fn is_larger(directory: &Path, limit: u64) -> bool {
    let mut bytes: u64 = 0;
    let mut seen = HashSet::new();
    let mut left: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if found.nlink() > 1 && !found.is_dir() && !seen.insert((found.dev(), found.ino())) {
                continue;
            }
            bytes = bytes.saturating_add(found.blocks().saturating_mul(512));
            if bytes > limit {
                return true;
            }
            if found.is_dir() {
                left.push(entry.path());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_may_be_as_large_as_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join("v");
        fs::create_dir_all(volume.join("d")).unwrap();
        fs::write(volume.join("d/file"), vec![1; 100 << 10]).unwrap();
        fs::hard_link(volume.join("d/file"), volume.join("again")).unwrap();
        std::os::unix::fs::symlink("/usr", volume.join("link")).unwrap();
        let exceeded = |limit: &str| {
            let spec = json!({"volumes": [{"name": "other", "emptyDir": {}}, {"name": "v", "emptyDir": {"sizeLimit": limit}}]});
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            exceeded(directory.path(), &spec)
        };
        assert_eq!(exceeded("160Ki"), None, "directories take some, but links and second names do not");
        let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"99Ki\". ";
        assert_eq!(exceeded("99Ki").as_deref(), Some(message), "PL-67");
        assert_eq!(exceeded("0"), None);
        assert!(!is_limited(&PodSpec::default()));
    }
}
