//! Files of one volume that would overwrite or contain each other (JA-W3).

use k8s_openapi::api::core::v1 as core;

use super::zero::{list, text};
use crate::field::quoted;

/// One warning for each pair of overlapping paths, by volume.
pub(super) fn warnings(volumes: &[core::Volume]) -> Vec<String> {
    let mut found = Vec::new();
    for volume in volumes {
        if let Some(source) = &volume.config_map {
            let kind = format!("ConfigMap {}", quoted(&source.name));
            overlaps(&mut found, &volume.name, &kind, keys(list(&source.items), ""));
        }
        if let Some(source) = &volume.secret {
            let kind = format!("Secret {}", quoted(text(&source.secret_name)));
            overlaps(&mut found, &volume.name, &kind, keys(list(&source.items), ""));
        }
        if let Some(source) = &volume.downward_api {
            overlaps(&mut found, &volume.name, "DownwardAPI", files(list(&source.items), ""));
        }
        if let Some(source) = &volume.projected {
            projected(&mut found, &volume.name, list(&source.sources));
        }
    }
    found
}

/// A file and, in projected volumes, where it comes from.
#[derive(Debug, Clone, PartialEq)]
struct File {
    path: String,
    source: String,
}

impl File {
    fn new(path: &str, source: &str) -> Self {
        Self { path: path.trim_end_matches('/').to_owned(), source: source.to_owned() }
    }

    fn shown(&self) -> String {
        let path = quoted(&self.path);
        if self.source.is_empty() { path } else { format!("{path} ({})", self.source) }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let within = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
        !self.path.is_empty()
            && !other.path.is_empty()
            && (self.path == other.path || within(&self.path, &other.path) || within(&other.path, &self.path))
    }
}

fn keys(items: &[core::KeyToPath], source: &str) -> Vec<File> {
    items.iter().map(|item| File::new(&item.path, source)).collect()
}

fn files(items: &[core::DownwardAPIVolumeFile], source: &str) -> Vec<File> {
    items.iter().map(|item| File::new(&item.path, source)).collect()
}

fn overlaps(found: &mut Vec<String>, volume: &str, kind: &str, files: Vec<File>) {
    for (i, file) in files.iter().enumerate() {
        for other in files[..i].iter().filter(|other| file.overlaps(other)) {
            let (volume, file, other) = (quoted(volume), file.shown(), other.shown());
            found.push(format!("volume {volume} ({kind}): overlapping paths: {file} with {other}"));
        }
    }
}

fn projected(found: &mut Vec<String>, volume: &str, sources: &[core::VolumeProjection]) {
    let mut all = Vec::new();
    for source in sources {
        if *source == core::VolumeProjection::default() {
            found.push(format!("volume {} (Projected) has no sources provided", quoted(volume)));
        }
        for file in projected_files(source) {
            for other in all.iter().filter(|other| file.overlaps(other)) {
                let (volume, file, other) = (quoted(volume), file.shown(), other.shown());
                found.push(format!("volume {volume} (Projected): overlapping paths: {file} with {other}"));
            }
            all.push(file);
        }
    }
}

/// The files of the first source that has any, in upstream's order of kinds.
fn projected_files(source: &core::VolumeProjection) -> Vec<File> {
    if let Some(config_map) = source.config_map.as_ref().filter(|config_map| config_map.items.is_some()) {
        return keys(list(&config_map.items), &format!("ConfigMap {}", quoted(&config_map.name)));
    }
    if let Some(secret) = source.secret.as_ref().filter(|secret| secret.items.is_some()) {
        return keys(list(&secret.items), &format!("Secret {}", quoted(&secret.name)));
    }
    if let Some(downward) = source.downward_api.as_ref().filter(|downward| downward.items.is_some()) {
        return files(list(&downward.items), "DownwardAPI");
    }
    if let Some(token) = &source.service_account_token {
        return vec![File::new(&token.path, "ServiceAccountToken")];
    }
    if let Some(bundle) = &source.cluster_trust_bundle {
        let name = bundle.name.as_ref().or(bundle.signer_name.as_ref()).map(String::as_str).unwrap_or_default();
        return vec![File::new(&bundle.path, &format!("ClusterTrustBundle {}", quoted(name)))];
    }
    let Some(certificate) = &source.pod_certificate else { return Vec::new() };
    let paths = [
        (text(&certificate.certificate_chain_path), "PodCertificate chain"),
        (text(&certificate.key_path), "PodCertificate key"),
        (text(&certificate.credential_bundle_path), "PodCertificate credential bundle"),
    ];
    paths.iter().filter(|(path, _)| !path.is_empty()).map(|(path, kind)| File::new(path, kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_overlap_when_one_contains_the_other() {
        let cases = [
            ("a", "a", true),
            ("a/b", "a", true),
            ("a", "a/b", true),
            ("a/", "a", true),
            ("ab", "a", false),
            ("", "a", false),
            ("a", "b", false),
        ];
        for (a, b, overlap) in cases {
            assert_eq!(File::new(a, "").overlaps(&File::new(b, "")), overlap, "{a} {b}");
        }
    }
}
