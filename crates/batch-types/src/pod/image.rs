//! Image references, as far as the default pull policy needs them (JA-D25).

/// The pull policy of an image that does not say: always for `latest`, which is what no tag and no digest means.
/// A reference that does not parse is left to whoever pulls it.
pub(super) fn default_pull_policy(image: &str) -> &'static str {
    match tag(image) {
        Some("latest") => "Always",
        _ => "IfNotPresent",
    }
}

/// The tag, `latest` if there is neither tag nor digest, nothing if the reference is malformed.
fn tag(image: &str) -> Option<&str> {
    let is_identifier = image.len() == 64 && image.bytes().all(is_lower_hex);
    let (name, tag, digest) = split(image);
    let well_formed = !is_identifier && is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
    if !well_formed {
        return None;
    }
    Some(match (tag, digest) {
        (Some(tag), _) => tag,
        (None, Some(_)) => "",
        (None, None) => "latest",
    })
}

/// `name[:tag][@digest]`; a colon before the last slash belongs to the registry's port.
fn split(image: &str) -> (&str, Option<&str>, Option<&str>) {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let path_start = rest.rfind('/').map_or(0, |at| at + 1);
    match rest[path_start..].split_once(':') {
        Some((last, tag)) => (&rest[..path_start + last.len()], Some(tag), digest),
        None => (rest, None, digest),
    }
}

/// `[registry/]path/…`. The first element is a registry if it looks like a host; paths are lower case.
fn is_name(name: &str) -> bool {
    const PATH_BYTES_MAX: usize = 255;
    let (registry, path) = match name.split_once('/') {
        Some((first, rest)) if is_registry_like(first) => (Some(first), rest),
        _ => (None, name),
    };
    // Names without a registry are prefixed with `library/` if they have one element only.
    let is_official = !path.contains('/') && registry.is_none_or(|registry| registry.ends_with("docker.io"));
    let length = path.len() + if is_official { "library/".len() } else { 0 };
    registry.is_none_or(is_registry) && length <= PATH_BYTES_MAX && path.split('/').all(is_path_component)
}

fn is_registry_like(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|c| c.is_ascii_uppercase())
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let is_label = |label: &str| {
        let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        edge(label.bytes().next())
            && edge(label.bytes().last())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
    };
    let is_v6 = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        inner.is_some_and(|inner| !inner.is_empty() && inner.bytes().all(|c| c.is_ascii_hexdigit() || c == b':'))
    };
    port.is_none_or(|port| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit()))
        && (is_v6(host) || host.split('.').all(is_label))
}

/// Lower-case words joined by a dot, one or two underscores, or dashes.
fn is_path_component(component: &str) -> bool {
    let is_word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = component.as_bytes();
    let starts_and_ends_with_word =
        bytes.first().is_some_and(|&c| is_word(c)) && bytes.last().is_some_and(|&c| is_word(c));
    let separators = component.split(|c: char| u8::try_from(c).is_ok_and(is_word)).filter(|run| !run.is_empty());
    starts_and_ends_with_word
        && separators.into_iter().all(|run| matches!(run, "." | "_" | "__") || run.bytes().all(|c| c == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|c| is_word(c) || matches!(c, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let digits = match digest.split_once(':') {
        Some(("sha256", digits)) if digits.len() == 64 => digits,
        Some(("sha384", digits)) if digits.len() == 96 => digits,
        Some(("sha512", digits)) if digits.len() == 128 => digits,
        _ => return false,
    };
    digits.bytes().all(is_lower_hex)
}

fn is_lower_hex(c: u8) -> bool {
    matches!(c, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_is_always_pulled() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let always = [
            "busybox",
            "busybox:latest",
            "images.example/app",
            "images.example:5000/team/app",
            "images.example:5000/team/app:latest",
            "localhost/app",
            "[::1]:5000/app",
            &format!("busybox:latest@{digest}"),
            "a__b/c--d",
        ];
        for image in always {
            assert_eq!(default_pull_policy(image), "Always", "{image}");
        }
        let if_not_present = [
            "busybox:1.36",
            "images.example:5000/app:v1",
            &format!("busybox@{digest}"),
            // Malformed ones.
            "",
            " busybox",
            "Busybox",
            "a//b",
            "a:b:c",
            "busybox@sha256:abc",
            "busybox:",
            "a___b",
            &"a".repeat(64),
        ];
        for image in if_not_present {
            assert_eq!(default_pull_policy(image), "IfNotPresent", "{image}");
        }
    }
}
