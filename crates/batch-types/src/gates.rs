//! Feature gates of the Job API that can be switched off and on again.
//!
//! Upstream has locked them on; here they keep the effect their design documents describe. What a gate changes is
//! beside the rule it changes (`job::default`, `job::prepare_for_create`, `job::validate_status_update`, the
//! controllers).

use std::str::FromStr;

/// Which gates are on. All are, unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// `spec.managedBy` is kept, and `/status` is checked strictly (JA-S9…S30).
    pub job_managed_by: bool,
    /// `spec.podReplacementPolicy` is kept and defaulted (JA-D6).
    pub job_pod_replacement_policy: bool,
    /// `spec.ttlSecondsAfterFinished` is kept and acted upon.
    pub ttl_after_finished: bool,
}

impl Gates {
    /// Every gate as upstream has it since it became generally available.
    pub const DEFAULT: Self = Self { job_managed_by: true, job_pod_replacement_policy: true, ttl_after_finished: true };

    /// The names `--feature-gates` knows, in the order of the help text.
    pub const NAMES: [&'static str; 3] = ["JobManagedBy", "JobPodReplacementPolicy", "TTLAfterFinished"];

    fn gate_mut(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            "JobManagedBy" => Some(&mut self.job_managed_by),
            "JobPodReplacementPolicy" => Some(&mut self.job_pod_replacement_policy),
            "TTLAfterFinished" => Some(&mut self.ttl_after_finished),
            _ => None,
        }
    }
}

impl Default for Gates {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The value of `--feature-gates` as in `JobManagedBy=false,TTLAfterFinished=true`. Empty elements and blanks around
/// names and values are ignored, as upstream does.
impl FromStr for Gates {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut gates = Self::DEFAULT;
        for element in text.split(',').map(str::trim).filter(|element| !element.is_empty()) {
            let (name, value) =
                element.split_once('=').ok_or_else(|| Error::MissingValue { name: element.to_owned() })?;
            let (name, value) = (name.trim(), value.trim());
            let gate = gates.gate_mut(name).ok_or_else(|| Error::Unknown { name: name.to_owned() })?;
            *gate = parse_bool(value)
                .ok_or_else(|| Error::NotABoolean { name: name.to_owned(), value: value.to_owned() })?;
        }
        Ok(gates)
    }
}

/// Why a `--feature-gates` value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("missing bool value for feature gate `{name}`")]
    MissingValue { name: String },
    #[error("unrecognized feature gate: `{name}` (known: {})", Gates::NAMES.join(", "))]
    Unknown { name: String },
    #[error("invalid value `{value}` for feature gate `{name}`: use `true` or `false`")]
    NotABoolean { name: String, value: String },
}

/// The spellings Go's flags accept.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_on_unless_switched_off() {
        assert_eq!("".parse(), Ok(Gates::DEFAULT));
        assert_eq!(
            " JobManagedBy = false, TTLAfterFinished=true,,".parse(),
            Ok(Gates { job_managed_by: false, ..Gates::DEFAULT })
        );
        assert_eq!("TTLAfterFinished=false,TTLAfterFinished=true".parse(), Ok(Gates::DEFAULT));
    }

    #[test]
    fn mistakes_are_named() {
        let text = |value: &str| value.parse::<Gates>().unwrap_err().to_string();
        assert_eq!(text("JobManagedBy"), "missing bool value for feature gate `JobManagedBy`");
        assert_eq!(
            text("Job=true"),
            "unrecognized feature gate: `Job` (known: JobManagedBy, JobPodReplacementPolicy, TTLAfterFinished)"
        );
        assert_eq!(
            text("JobManagedBy=no"),
            "invalid value `no` for feature gate `JobManagedBy`: use `true` or `false`"
        );
    }

    #[test]
    fn every_listed_name_is_a_gate() {
        for name in Gates::NAMES {
            assert_ne!(format!("{name}=false").parse(), Ok(Gates::DEFAULT), "{name}");
        }
    }
}
