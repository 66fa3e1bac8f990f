//! Address ranges such as `10.9.8.0/24` (upstream's `IsValidCIDRForLegacyField` with strict validation).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use batch_types::field::{Error, Path};

/// Which families of addresses some ranges belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Families {
    One,
    Both,
}

/// What is wrong with a range.
pub(super) fn validate(at: &Path, value: &str) -> Option<Error> {
    let Some(range) = parse(value) else {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        return Some(Error::invalid(at, value, detail));
    };
    let detail = if range.leading_zeros {
        "must not have leading 0s in IP or prefix length"
    } else if matches!(range.address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        "must not have an IPv4-mapped IPv6 address"
    } else if range.has_host_bits() {
        "must not have bits set beyond the prefix length"
    } else {
        return None;
    };
    Some(Error::invalid(at, value, detail))
}

/// What a valid range should rather look like.
pub(super) fn warning(at: &Path, value: &str) -> Option<String> {
    let range = parse(value)?;
    let canonical = format!("{}/{}", range.address, range.prefix);
    (range.address.is_ipv6() && canonical != value)
        .then(|| format!("{at}: IPv6 CIDR value \"{value}\" should be in RFC 5952 canonical format (\"{canonical}\")"))
}

/// Whether both families occur; the text of the first range that cannot be read.
pub(super) fn families(values: &[&str]) -> Result<Families, String> {
    let mut four = false;
    let mut six = false;
    for (at, value) in values.iter().enumerate() {
        match parse(value).ok_or_else(|| format!("invalid CIDR[{at}]: <nil> (invalid CIDR address: {value})"))?.address
        {
            IpAddr::V4(_) => four = true,
            // An IPv4 address in disguise counts as one.
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => four = true,
            IpAddr::V6(_) => six = true,
        }
    }
    Ok(if four && six { Families::Both } else { Families::One })
}

struct Range {
    address: IpAddr,
    prefix: u32,
    /// Old parsers ignored them, others read octal numbers.
    leading_zeros: bool,
}

impl Range {
    fn has_host_bits(&self) -> bool {
        let (bits, width) = match self.address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), Ipv4Addr::BITS),
            IpAddr::V6(address) => (address.to_bits(), Ipv6Addr::BITS),
        };
        let host_bits = width - self.prefix;
        // The shift by the whole width is the prefix 0 of IPv6.
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        bits & !mask != 0
    }
}

/// Reads a range leniently: leading zeros in numbers are noted, not refused.
fn parse(value: &str) -> Option<Range> {
    let (address, prefix) = value.split_once('/')?;
    let (address, zeros) = match address.contains(':') {
        true => (IpAddr::V6(address.parse().ok()?), false),
        false => parse_v4(address)?,
    };
    let width = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
    let (prefix, zeros_in_prefix) = parse_number(prefix, width)?;
    Some(Range { address, prefix, leading_zeros: zeros || zeros_in_prefix })
}

fn parse_v4(text: &str) -> Option<(IpAddr, bool)> {
    let mut octets = [0u8; 4];
    let mut zeros = false;
    let mut parts = text.split('.');
    for octet in &mut octets {
        let (number, leading_zeros) = parse_number(parts.next()?, u32::from(u8::MAX))?;
        *octet = u8::try_from(number).ok()?;
        zeros |= leading_zeros;
    }
    parts.next().is_none().then_some((IpAddr::from(octets), zeros))
}

/// A decimal number up to `max`, and whether it is written with needless zeros.
fn parse_number(text: &str, max: u32) -> Option<(u32, bool)> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u32 = text.parse().ok()?;
    (number <= max).then_some((number, text.len() > 1 && text.starts_with('0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_strict() {
        let at = Path::new("x");
        let cases = [
            ("10.9.8.0/24", None),
            ("0.0.0.0/0", None),
            ("::/0", None),
            ("2001:DB8::/64", None),
            ("10.9.8.0", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")),
            ("10.9.8.0/33", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")),
            ("10.9.8/24", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")),
            ("10.9.8.0/+4", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")),
            ("010.9.8.0/24", Some("must not have leading 0s in IP or prefix length")),
            ("10.9.8.0/024", Some("must not have leading 0s in IP or prefix length")),
            ("::ffff:10.0.0.0/120", Some("must not have an IPv4-mapped IPv6 address")),
            ("10.9.8.1/24", Some("must not have bits set beyond the prefix length")),
            ("fd00::1/64", Some("must not have bits set beyond the prefix length")),
        ];
        for (value, expected) in cases {
            let expected = expected.map(|detail| format!("x: Invalid value: \"{value}\": {detail}"));
            assert_eq!(validate(&at, value).map(|error| error.to_string()), expected, "{value}");
        }
    }

    #[test]
    fn unusual_spelling_is_warned_about() {
        let at = Path::new("x");
        assert_eq!(warning(&at, "2001:db8::/64"), None);
        assert_eq!(warning(&at, "10.9.8.0/24"), None);
        assert_eq!(
            warning(&at, "2001:DB8:0::/64").as_deref(),
            Some("x: IPv6 CIDR value \"2001:DB8:0::/64\" should be in RFC 5952 canonical format (\"2001:db8::/64\")")
        );
    }

    #[test]
    fn families_are_told_apart() {
        assert_eq!(families(&["10.0.0.0/8", "fd00::/8"]), Ok(Families::Both));
        assert_eq!(families(&["10.0.0.0/8", "11.0.0.0/8"]), Ok(Families::One));
        assert_eq!(families(&["y"]), Err("invalid CIDR[0]: <nil> (invalid CIDR address: y)".to_owned()));
    }
}
