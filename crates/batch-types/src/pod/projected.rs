//! Projected volumes: several sources laid into one directory (JA-P10).

use std::collections::HashSet;

use k8s_openapi::api::core::v1 as core;

use super::options::Options;
use super::report::{Place, Report};
use super::syntax;
use super::volumes::{require, validate_downward_file, validate_item};
use super::zero::{list, text};
use crate::selector::{self, Tolerance};
use crate::{field, meta, names};

const TOKEN_SECONDS_MIN: i64 = 10 * 60;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
const CERTIFICATE_SECONDS_MIN: i32 = 3600;
/// 91 days, and one day for the project's own signers (upstream's certificates API).
const CERTIFICATE_SECONDS_MAX: i32 = 91 * 24 * 3600;
const KUBERNETES_CERTIFICATE_SECONDS_MAX: i32 = 24 * 3600;

pub(super) fn validate(
    report: &mut Report,
    at: &Place<'_>,
    projected: &core::ProjectedVolumeSource,
    options: &Options,
) {
    syntax::file_mode(report, &at.child("defaultMode"), projected.default_mode);
    let mut paths = Paths { at, taken: HashSet::new() };
    let sources_at = at.child("sources");
    for (i, source) in list(&projected.sources).iter().enumerate() {
        let source_at = sources_at.index(i);
        validate_source(report, at, &source_at, source, &mut paths, options);
    }
}

/// The files already projected into the volume. Conflicts are reported at the volume, not at the source.
struct Paths<'a> {
    at: &'a Place<'a>,
    taken: HashSet<&'a str>,
}

impl<'a> Paths<'a> {
    fn claim(&mut self, report: &mut Report, path: &'a str, shown: &str) {
        if !self.taken.insert(path) {
            report.invalid(self.at, shown, "conflicting duplicate paths");
        }
    }
}

fn validate_source<'a>(
    report: &mut Report,
    volume_at: &Place<'_>,
    at: &Place<'_>,
    source: &'a core::VolumeProjection,
    paths: &mut Paths<'a>,
    options: &Options,
) {
    let mut sources = 0;
    if let Some(secret) = &source.secret {
        sources += 1;
        validate_keys(report, &at.child("secret"), &secret.name, list(&secret.items), paths);
    }
    if let Some(config_map) = &source.config_map {
        sources += 1;
        validate_keys(report, &at.child("configMap"), &config_map.name, list(&config_map.items), paths);
    }
    if let Some(downward_api) = &source.downward_api {
        sources += 1;
        let at = at.child("downwardAPI");
        for file in list(&downward_api.items) {
            validate_downward_file(report, &at, file);
            if !file.path.is_empty() {
                paths.claim(report, &file.path, &file.path);
            }
        }
    }
    if let Some(token) = &source.service_account_token {
        sources += 1;
        validate_token(report, volume_at, &at.child("serviceAccountToken"), token, options);
    }
    if let Some(bundle) = &source.cluster_trust_bundle {
        sources += 1;
        validate_trust_bundle(report, &at.child("clusterTrustBundle"), bundle);
        paths.claim(report, &bundle.path, &bundle.path);
    }
    if let Some(certificate) = &source.pod_certificate {
        sources += 1;
        validate_certificate(report, &at.child("podCertificate"), certificate, paths);
    }
    if sources > 1 {
        report.forbidden(at, "may not specify more than 1 volume type per source");
    }
}

fn validate_keys<'a>(
    report: &mut Report,
    at: &Place<'_>,
    name: &str,
    items: &'a [core::KeyToPath],
    paths: &mut Paths<'a>,
) {
    require(report, &at.child("name"), name);
    let at = at.child("items");
    for (i, item) in items.iter().enumerate() {
        validate_item(report, &at.index(i), item);
        if !item.path.is_empty() {
            paths.claim(report, &item.path, name);
        }
    }
}

fn validate_token(
    report: &mut Report,
    volume_at: &Place<'_>,
    at: &Place<'_>,
    token: &core::ServiceAccountTokenProjection,
    options: &Options,
) {
    let seconds = token.expiration_seconds.unwrap_or_default();
    if seconds < TOKEN_SECONDS_MIN {
        let text = "may not specify a duration less than 10 minutes";
        report.invalid(&at.child("expirationSeconds"), seconds, text);
    }
    if seconds > TOKEN_SECONDS_MAX {
        let text = "may not specify a duration larger than 2^32 seconds";
        report.invalid(&at.child("expirationSeconds"), seconds, text);
    }
    if token.path.is_empty() {
        report.required(&volume_at.child("path"), "");
    } else if !options.non_local_token_path {
        syntax::local_non_reserved_path(report, &volume_at.child("path"), &token.path);
    }
}

/// Reached only for objects stored with the field: on create it is dropped (JA-C7).
fn validate_trust_bundle(report: &mut Report, at: &Place<'_>, bundle: &core::ClusterTrustBundleProjection) {
    match (&bundle.name, &bundle.signer_name) {
        (Some(_), Some(_)) => {
            let shown = serde_json::to_value(bundle).unwrap_or_default();
            report.invalid(at, shown, "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            if name.is_empty() {
                report.required(&at.child("name"), "must be a valid object name");
            }
            for message in trust_bundle_name(name) {
                let text = format!("not a valid clustertrustbundlename: {message}");
                report.invalid(&at.child("name"), name.as_str(), text);
            }
            if let Some(label_selector) = &bundle.label_selector {
                let shown = selector::value(Some(label_selector));
                let text = "labelSelector must be unset if name is specified";
                report.invalid(&at.child("labelSelector"), shown, text);
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                report.required(&at.child("signerName"), "must be a valid signer name");
            }
            validate_signer_name(report, &at.child("signerName"), signer);
            if let Some(label_selector) = &bundle.label_selector {
                report.extend(selector::validate(
                    label_selector,
                    Tolerance::default(),
                    &at.child("labelSelector").path(),
                ));
            }
        }
        (None, None) => report.required(at, "either name or signerName must be specified"),
    }
    require(report, &at.child("path"), &bundle.path);
    syntax::local_non_reserved_path(report, &at.child("path"), &bundle.path);
}

/// A bundle of a signer is named `signer:domain:name`, any other bundle like every object.
fn trust_bundle_name(name: &str) -> Vec<String> {
    let Some((signer, rest)) = name.rsplit_once(':') else { return names::dns_subdomain(name) };
    if signer.is_empty() {
        return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
    }
    names::dns_subdomain(rest)
}

fn validate_certificate<'a>(
    report: &mut Report,
    at: &Place<'_>,
    certificate: &'a core::PodCertificateProjection,
    paths: &mut Paths<'a>,
) {
    validate_signer_name(report, &at.child("signerName"), &certificate.signer_name);
    if let Some(annotations) = &certificate.user_annotations {
        validate_user_annotations(report, &at.child("userAnnotations"), annotations);
    }
    if !KEY_TYPES.contains(&certificate.key_type.as_str()) {
        report.not_supported_text(&at.child("keyType"), &certificate.key_type, &KEY_TYPES);
    }
    if let Some(seconds) = certificate.max_expiration_seconds {
        let at = at.child("maxExpirationSeconds");
        if seconds < CERTIFICATE_SECONDS_MIN {
            report.invalid(&at, seconds, "if provided, maxExpirationSeconds must be >= 3600");
        }
        let max = if is_kubernetes_signer(&certificate.signer_name) {
            KUBERNETES_CERTIFICATE_SECONDS_MAX
        } else {
            CERTIFICATE_SECONDS_MAX
        };
        if seconds > max {
            report.invalid(&at, seconds, format!("if provided, maxExpirationSeconds must be <= {max}"));
        }
    }
    let files = [
        ("credentialBundlePath", text(&certificate.credential_bundle_path)),
        ("keyPath", text(&certificate.key_path)),
        ("certificateChainPath", text(&certificate.certificate_chain_path)),
    ];
    for (name, path) in files.into_iter().filter(|(_, path)| !path.is_empty()) {
        syntax::local_non_reserved_path(report, &at.child(name), path);
        paths.claim(report, path, path);
    }
    if files.iter().all(|(_, path)| path.is_empty()) {
        let text = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        report.required(at, text);
    }
}

fn validate_user_annotations(
    report: &mut Report,
    at: &Place<'_>,
    annotations: &std::collections::BTreeMap<String, String>,
) {
    for key in annotations.keys().map(|key| key.to_lowercase()) {
        let messages = names::qualified_name(&key);
        if key.is_empty() {
            report.required(at, "");
        } else if messages.is_empty() && !key.contains('/') {
            report.invalid(at, key.as_str(), "must be a domain-prefixed key (such as \"acme.io/foo\")");
        } else {
            report.each_invalid(at, &key, messages);
        }
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > meta::ANNOTATIONS_SIZE_MAX {
        report.too_long(at, meta::ANNOTATIONS_SIZE_MAX);
    }
}

fn is_kubernetes_signer(signer: &str) -> bool {
    let host = signer.split_once('/').map_or(signer, |(host, _)| host);
    host == "kubernetes.io" || host.ends_with(".kubernetes.io")
}

/// `example.com/signer-name`: a domain of at least two labels, one slash, dotted subdomains.
fn validate_signer_name(report: &mut Report, at: &Place<'_>, signer: &str) {
    const DOMAIN_MAX: usize = 253;
    const SIGNER_MAX: usize = DOMAIN_MAX + 1 + (253 + 63 + 1);
    if signer.is_empty() {
        return report.required(at, "");
    }
    let (domain, path) = match signer.split_once('/') {
        Some((domain, path)) if !path.contains('/') => (domain, path),
        _ => {
            let text = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            return report.invalid(at, signer, text);
        }
    };
    if domain.len() > DOMAIN_MAX {
        report.too_long(at, DOMAIN_MAX);
    }
    validate_parts(report, at, domain, names::dns_label);
    if !domain.contains('.') {
        report.invalid(at, domain, "should be a domain with at least two segments separated by dots");
    }
    validate_parts(report, at, path, names::dns_subdomain);
    if signer.len() > SIGNER_MAX {
        report.too_long(at, SIGNER_MAX);
    }
}

/// Reports the first dotted part that is malformed; the others would read the same.
fn validate_parts(report: &mut Report, at: &Place<'_>, whole: &str, check: fn(&str) -> Vec<String>) {
    for part in whole.split('.') {
        let messages = check(part);
        let done = !messages.is_empty();
        for message in messages {
            report.invalid(at, whole, format!("validating label {}: {message}", field::quoted(part)));
        }
        if done {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::pod::testing::{check_volumes, pod_errors};

    #[test]
    fn projected_sources() {
        check_volumes(&[
            (
                json!({"projected": {"sources": [
                    {"secret": {"name": "s", "items": [{"key": "k", "path": "a"}]}},
                    {"configMap": {"name": "c"}},
                    {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    {"serviceAccountToken": {"path": "token"}},
                ]}}),
                &[],
            ),
            (
                json!({"projected": {"defaultMode": 1000, "sources": [
                    {"secret": {"items": [{"key": "k", "path": "a"}]}, "configMap": {"name": "c"}},
                    {"configMap": {"name": "c", "items": [{"key": "k", "path": "a"}]}},
                    {"serviceAccountToken": {"path": "../t", "expirationSeconds": 599}},
                    {"serviceAccountToken": {"path": "", "expirationSeconds": 4294967297i64}},
                ]}}),
                &[
                    "projected.defaultMode: Invalid value: 1000: must be a number between 0 and 0777 (octal), both inclusive",
                    "projected.sources[0].secret.name: Required value",
                    "projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
                    "projected: Invalid value: \"c\": conflicting duplicate paths",
                    "projected.sources[2].serviceAccountToken.expirationSeconds: Invalid value: 599: may not specify a \
                     duration less than 10 minutes",
                    "projected.path: Invalid value: \"../t\": must not contain '..'",
                    "projected.sources[3].serviceAccountToken.expirationSeconds: Invalid value: 4294967297: may not specify \
                     a duration larger than 2^32 seconds",
                    "projected.path: Required value",
                ],
            ),
        ]);
    }

    #[test]
    fn a_pod_without_account_gets_no_token() {
        let spec = |account: &str| {
            json!({"spec": {"serviceAccountName": account, "volumes": [
                {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]}})
        };
        assert_eq!(pod_errors(&spec("me")), [""; 0]);
        assert_eq!(
            pod_errors(&spec("")),
            ["spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when \
              serviceAccountName is not set"]
        );
    }

    #[test]
    fn bundles_and_certificates_name_their_signer() {
        check_volumes(&[
            (
                json!({"projected": {"sources": [
                    {"clusterTrustBundle": {"name": "example.com:signer:one", "path": "a"}},
                    {"clusterTrustBundle": {"signerName": "example.com/signer", "path": "b"}},
                    {"podCertificate": {"signerName": "example.com/signer", "keyType": "ED25519", "keyPath": "k"}},
                ]}}),
                &[],
            ),
            (
                json!({"projected": {"sources": [
                    {"clusterTrustBundle": {"path": "a"}},
                    {"clusterTrustBundle": {"signerName": "example", "path": "/b"}},
                    {"clusterTrustBundle": {"signerName": "example/signer", "path": "c"}},
                ]}}),
                &[
                    "projected.sources[0].clusterTrustBundle: Required value: either name or signerName must be specified",
                    "projected.sources[1].clusterTrustBundle.signerName: Invalid value: \"example\": must be a fully \
                     qualified domain and path of the form 'example.com/signer-name'",
                    "projected.sources[1].clusterTrustBundle.path: Invalid value: \"/b\": must be a relative path",
                    "projected.sources[2].clusterTrustBundle.signerName: Invalid value: \"example\": should be a domain \
                     with at least two segments separated by dots",
                ],
            ),
        ]);
        check_volumes(&[(
            json!({"projected": {"sources": [{"podCertificate": {
                "signerName": "kubernetes.io/kube-apiserver-client", "keyType": "RSA", "maxExpirationSeconds": 86401,
            }}]}}),
            &[
                "projected.sources[0].podCertificate.keyType: Unsupported value: \"RSA\": supported values: \"RSA3072\", \
                 \"RSA4096\", \"ECDSAP256\", \"ECDSAP384\", \"ECDSAP521\", \"ED25519\"",
                "projected.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 86401: if provided, \
                 maxExpirationSeconds must be <= 86400",
                "projected.sources[0].podCertificate: Required value: specify at least one of credentialBundlePath, \
                 keyPath, and certificateChainPath",
            ],
        )]);
    }
}
