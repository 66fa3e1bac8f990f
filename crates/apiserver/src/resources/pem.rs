//! Whether two PEM texts look like a certificate and its key (the reading half of Go's `tls.X509KeyPair`).
//!
//! The certificate itself is not parsed, so a pair that does not match goes unnoticed; a warning would be all it gets.

use base64::{Engine, engine::general_purpose::STANDARD};

const BEGIN: &str = "-----BEGIN ";
const DASHES: &str = "-----";

/// What is missing, in Go's words.
pub(super) fn key_pair_problem(certificate: &[u8], key: &[u8]) -> Option<String> {
    certificate_problem(&block_types(certificate)).or_else(|| key_problem(&block_types(key)))
}

fn certificate_problem(types: &[String]) -> Option<String> {
    if types.iter().any(|block| block == "CERTIFICATE") {
        return None;
    }
    Some(match types {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [one] if one.ends_with("PRIVATE KEY") => {
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may \
             have been switched"
                .to_owned()
        }
        skipped => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
             following types: [{}]",
            skipped.join(" ")
        ),
    })
}

fn key_problem(types: &[String]) -> Option<String> {
    if types.iter().any(|block| block == "PRIVATE KEY" || block.ends_with(" PRIVATE KEY")) {
        return None;
    }
    Some(match types {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [one] if one == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        skipped => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of \
             the following types: [{}]",
            skipped.join(" ")
        ),
    })
}

/// The types of all well-formed blocks, in order.
fn block_types(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut types = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(block) = line.strip_prefix(BEGIN).and_then(|rest| rest.trim_end().strip_suffix(DASHES)) else {
            continue;
        };
        let end = format!("-----END {block}{DASHES}");
        let mut rest = lines.clone();
        let body: Vec<&str> = rest.by_ref().take_while(|line| line.trim_end() != end).collect();
        if is_base64(&body) && text.contains(&end) {
            types.push(block.to_owned());
            lines = rest;
        }
    }
    types
}

/// The body without its headers (`Proc-Type: …`) is base64.
fn is_base64(body: &[&str]) -> bool {
    let content: String = body.iter().filter(|line| !line.contains(':')).map(|line| line.trim()).collect();
    STANDARD.decode(content).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: &str) -> String {
        format!("-----BEGIN {kind}-----\neHg=\n-----END {kind}-----\n")
    }

    #[test]
    fn problems_are_gos() {
        let (certificate, key) = (block("CERTIFICATE"), block("EC PRIVATE KEY"));
        let cases = [
            (certificate.as_str(), key.as_str(), None),
            ("x", "x", Some("tls: failed to find any PEM data in certificate input")),
            (
                &key,
                &key,
                Some(
                    "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM \
                     inputs may have been switched",
                ),
            ),
            (&certificate, "", Some("tls: failed to find any PEM data in key input")),
            (
                &certificate,
                &certificate,
                Some("tls: found a certificate rather than a key in the PEM for the private key"),
            ),
            (
                &format!("{}{}", block("A"), block("B")),
                &key,
                Some(
                    "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of \
                     the following types: [A B]",
                ),
            ),
        ];
        for (certificate, key, expected) in cases {
            assert_eq!(key_pair_problem(certificate.as_bytes(), key.as_bytes()).as_deref(), expected);
        }
    }

    #[test]
    fn broken_blocks_do_not_count() {
        let unfinished = "-----BEGIN CERTIFICATE-----\neHg=\n";
        let garbage = "-----BEGIN CERTIFICATE-----\n***\n-----END CERTIFICATE-----\n";
        for text in [unfinished, garbage] {
            assert_eq!(block_types(text.as_bytes()), [""; 0]);
        }
        let encrypted =
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\neHg=\n-----END RSA PRIVATE KEY-----";
        assert_eq!(block_types(encrypted.as_bytes()), ["RSA PRIVATE KEY"]);
    }
}
