//! IP addresses in fields that predate strict validation.
//!
//! Such fields accept what Go's old parser accepted, so that existing objects can be told apart: an address that only
//! the old parser takes is refused in new data with a reason, and shown with its modern spelling in warnings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::report::{Place, Report};
use crate::field::quoted;

/// Refuses what is no address, or one written in a way that programs disagree about.
pub(super) fn validate(report: &mut Report, at: &Place<'_>, value: &str) {
    let Some(ip) = parse_sloppy(value) else {
        return report.invalid(at, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    };
    if value.parse::<IpAddr>().is_err() {
        report.invalid(at, value, "must not have leading 0s");
    } else if is_mapped(ip) {
        report.invalid(at, value, "must not be an IPv4-mapped IPv6 address");
    }
}

/// What to say about an address that is valid but not in its preferred form.
pub(super) fn warning(at: &Place<'_>, value: &str) -> Option<String> {
    let ip = parse_sloppy(value)?;
    let at = at.path();
    if value.parse::<IpAddr>().is_err() || is_mapped(ip) {
        let preferred = quoted(&ip.to_canonical().to_string());
        return Some(format!("{at}: non-standard IP address {} is invalid: use {preferred}", quoted(value)));
    }
    let canonical = ip.to_string();
    (ip.is_ipv6() && canonical != value).then(|| {
        let (value, canonical) = (quoted(value), quoted(&canonical));
        format!("{at}: IPv6 address {value} should be in RFC 5952 canonical format ({canonical})")
    })
}

/// Whether a list of addresses has at most one of each family, and exactly both.
pub(super) fn is_dual_stack(values: &[&str]) -> bool {
    let families: Vec<bool> =
        values.iter().filter_map(|value| parse_sloppy(value)).map(|ip| ip.to_canonical().is_ipv6()).collect();
    values.len() == 2 && families.contains(&true) && families.contains(&false)
}

/// An address as Go's parser read it before 1.17: leading zeros mean nothing.
pub(super) fn parse_sloppy(value: &str) -> Option<IpAddr> {
    if !value.contains(':') {
        return parse_sloppy_v4(value).map(IpAddr::V4);
    }
    let (head, v4) = match value.rsplit_once(':') {
        Some((head, tail)) if tail.contains('.') => (head, Some(parse_sloppy_v4(tail)?)),
        _ => (value, None),
    };
    let trim = |group: &str| {
        let significant = group.trim_start_matches('0');
        if group.len() > 4 {
            if significant.is_empty() { "0" } else { significant }.to_owned()
        } else {
            group.to_owned()
        }
    };
    let groups: Vec<String> = head.split(':').map(trim).collect();
    let mut text = groups.join(":");
    if let Some(v4) = v4 {
        text.push_str(&format!(":{v4}"));
    }
    text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

fn parse_sloppy_v4(value: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = value.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        let significant = part.trim_start_matches('0');
        *octet = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Path;

    fn problem(value: &str) -> Option<String> {
        let path = Path::new("ip");
        let mut report = Report::default();
        validate(&mut report, &Place::root(&path), value);
        report.into_errors().pop().map(|error| error.detail)
    }

    #[test]
    fn addresses_must_mean_the_same_to_everyone() {
        for good in ["10.9.8.7", "::1", "2001:db8::ffff", "2001:DB8:0:0::1", "0.0.0.0"] {
            assert_eq!(problem(good), None, "{good}");
        }
        for bad in ["ten", "", "10.9.8", "10.9.8.7.6", "256.1.1.1", "10.9.8.7/8", "fe80::1%eth0", "1..2.3"] {
            assert!(problem(bad).is_some_and(|text| text.starts_with("must be a valid IP address")), "{bad}");
        }
        assert_eq!(problem("010.9.8.7").as_deref(), Some("must not have leading 0s"));
        assert_eq!(problem("::ffff:1.2.3.4").as_deref(), Some("must not be an IPv4-mapped IPv6 address"));
    }

    #[test]
    fn warnings_give_the_preferred_form() {
        let path = Path::new("ip");
        let of = |value: &str| warning(&Place::root(&path), value);
        assert_eq!(of("10.0.0.1"), None);
        assert_eq!(of("2001:db8::1"), None);
        assert_eq!(
            of("2001:DB8:0::1").as_deref(),
            Some("ip: IPv6 address \"2001:DB8:0::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")")
        );
        assert_eq!(
            of("010.0.0.1").as_deref(),
            Some("ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"")
        );
    }

    #[test]
    fn dual_stack_is_one_address_of_each_family() {
        assert!(is_dual_stack(&["10.0.0.1", "::1"]));
        assert!(!is_dual_stack(&["10.0.0.1", "10.0.0.2"]));
        assert!(!is_dual_stack(&["10.0.0.1", "::1", "::2"]));
    }
}
