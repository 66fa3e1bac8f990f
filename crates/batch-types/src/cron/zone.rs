//! Time zones by name, as Go's `time.LoadLocation` understands names (CJ-49, JA-CJ12).
//!
//! Go looks in the system's database first. Here there is only the one that is built into the binary, because nothing in
//! this crate reads files: the same name means the same on every machine, and new rules of a zone come with a new build.

use jiff::tz::TimeZone;
use teeth::{Mutation, is};

/// Why a zone could not be loaded, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unknown time zone {0}")]
    Unknown(String),
    /// Names that would leave the database's folder.
    #[error("time: invalid location name")]
    InvalidName,
}

/// A zone as schedules mean it.
#[derive(Debug, Clone, PartialEq)]
pub enum Zone {
    /// `Local`: whatever zone the process that asks is in.
    Local,
    Named(TimeZone),
}

/// The zone of a name. Names are case-sensitive; empty means UTC.
pub fn load(name: &str) -> Result<Zone, Error> {
    match name {
        "" | "UTC" => return Ok(Zone::Named(TimeZone::UTC)),
        "Local" => return Ok(Zone::Local),
        _ if is(Mutation::V07) => return at_the_end_of(name),
        _ if name.contains("..") || name.starts_with(['/', '\\']) => return Err(Error::InvalidName),
        _ => {}
    }
    let unknown = || Error::Unknown(name.to_owned());
    let zone = TimeZone::get(name).map_err(|_| unknown())?;
    // The lookup ignores case and has a name of its own for "unknown"; Go does neither.
    if zone.iana_name() != Some(name) || zone.is_unknown() {
        return Err(unknown());
    }
    Ok(Zone::Named(zone))
}

/// REG-V07: whatever a name leads to if it is a path. In no build that is shipped.
fn at_the_end_of(name: &str) -> Result<Zone, Error> {
    let mut path = Vec::new();
    for part in name.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            path.pop();
        } else {
            path.push(part);
        }
    }
    TimeZone::get(&path.join("/")).map(Zone::Named).map_err(|_| Error::Unknown(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_of_every_age_are_known() {
        for name in [
            "UTC",
            "GMT",
            "GMT0",
            "Zulu",
            "Europe/Rome",
            "America/New_York",
            "CST6CDT",
            "Etc/GMT+12",
            "Etc/GMT-14",
            "Etc/UTC",
            "America/Argentina/ComodRivadavia",
            "America/North_Dakota/New_Salem",
            "Factory",
            "W-SU",
            "Asia/Kathmandu",
            "Asia/Katmandu",
            "Europe/Kiev",
            "Europe/Kyiv",
            "US/Pacific",
            "Australia/Lord_Howe",
        ] {
            assert!(matches!(load(name), Ok(Zone::Named(_))), "{name}");
        }
        assert_eq!(load(""), Ok(Zone::Named(TimeZone::UTC)));
        assert_eq!(load("Local"), Ok(Zone::Local));
    }

    /// REG-V07, INV-52: no name is a path, also if there is a zone where it would lead.
    #[test]
    fn reg_v07_other_names_are_refused() {
        for name in [
            "./UTC",
            "Europe//Rome",
            "local",
            "europe/rome",
            "Europe/InvalidRome",
            " Europe/Rome",
            "utc",
            "Etc/Unknown",
            "+02:00",
            "EST5",
        ] {
            assert_eq!(load(name).unwrap_err().to_string(), format!("unknown time zone {name}"));
        }
        for name in ["../etc", "/UTC", "\\UTC", "Europe/../UTC", "../zoneinfo/UTC", "/usr/share/zoneinfo/UTC"] {
            assert_eq!(load(name).unwrap_err().to_string(), "time: invalid location name");
        }
    }
}
