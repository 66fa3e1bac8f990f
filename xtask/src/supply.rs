//! What the product is built of (INV-55): exactly the versions that are locked, each known by its checksum, under licences
//! that go together with ours.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::counts::Counts;
use crate::project::{self, cargo};
use crate::stage::{Outcome, Stages};

/// Licences under which others may give us code that we hand on under ours.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub(crate) fn run() -> Result<bool> {
    let mut stages = Stages::default();
    Ok(stages.run("supply", check))
}

/// Packages of other platforms are locked like all; they are not built here and may not even be there.
pub(crate) fn check() -> Result<Outcome> {
    let platform = host()?;
    let mut command = cargo(&["metadata", "--locked", "--format-version", "1", "--filter-platform", &platform]);
    let output = command.output().context("ask cargo for its packages")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read what cargo says")?;
    let lock = fs::read_to_string(project::root().join("Cargo.lock")).context("read Cargo.lock")?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let complaints: Vec<String> = packages.iter().flat_map(of_package).chain(unlocked(&lock)).collect();
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    println!("{} packages", packages.len());
    let counts = Counts { passed: 0, failed: complaints.len() as u64 };
    Ok(if complaints.is_empty() { Outcome::Passed(counts) } else { Outcome::Failed(counts) })
}

/// The platform that this toolchain builds for.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("ask rustc for its platform")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no platform")?.to_owned())
}

/// What is wrong with a package. Our own come from no registry.
fn of_package(package: &Value) -> Option<String> {
    let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
    if package["source"].as_str().is_some_and(|source| !source.starts_with("registry+")) {
        return Some(format!("{name} comes from somewhere else than a registry"));
    }
    let licence = package["license"].as_str().unwrap_or_default();
    (!allows(licence)).then(|| format!("{name} has a licence that was not considered: `{licence}`"))
}

/// Packages of a registry whose content the lock file does not fix.
fn unlocked(lock: &str) -> impl Iterator<Item = String> {
    let packages = lock.split("[[package]]").skip(1);
    packages.filter(|package| package.contains("\nsource = ") && !package.contains("\nchecksum = ")).map(|package| {
        let name = package.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or("a package");
        format!("{name} is locked without a checksum")
    })
}

/// Whether an expression of SPDX, or the older `A/B`, can be met with the licences above.
fn allows(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) && rest.is_empty()
}

fn any(words: &mut &[&str]) -> bool {
    let mut met = all(words);
    while take(words, "OR") {
        met |= all(words);
    }
    met
}

fn all(words: &mut &[&str]) -> bool {
    let mut met = one(words);
    while take(words, "AND") {
        met &= one(words);
    }
    met
}

fn one(words: &mut &[&str]) -> bool {
    if take(words, "(") {
        let met = any(words);
        return take(words, ")") && met;
    }
    let Some((licence, rest)) = words.split_first() else { return false };
    *words = rest;
    if take(words, "WITH")
        && let Some((exception, rest)) = words.split_first()
    {
        *words = rest;
        return LICENCES.contains(&&*format!("{licence} WITH {exception}"));
    }
    LICENCES.contains(licence)
}

fn take(words: &mut &[&str], word: &str) -> bool {
    let found = words.first() == Some(&word);
    if found {
        *words = &words[1..];
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn licences_are_expressions() {
        for allowed in [
            "MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 OR GPL-2.0-only",
            "(MIT OR GPL-2.0-only) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
        ] {
            assert!(allows(allowed), "{allowed}");
        }
        for refused in ["", "GPL-3.0-only", "MIT AND GPL-2.0-only", "(MIT", "MIT)", "Apache-2.0 WITH X", "MIT AND"] {
            assert!(!allows(refused), "{refused}");
        }
    }

    #[test]
    fn packages_come_from_a_registry_under_a_known_licence() {
        let package = |source: Value, licence: Value| {
            of_package(&json!({"name": "a", "version": "1", "source": source, "license": licence}))
        };
        assert_eq!(package(Value::Null, json!("Apache-2.0")), None);
        assert_eq!(package(json!("registry+x"), json!("MIT")), None);
        assert!(package(json!("git+x"), json!("MIT")).unwrap().contains("somewhere else"));
        assert!(package(json!("registry+x"), Value::Null).unwrap().contains("licence"));
    }

    #[test]
    fn locked_packages_have_checksums() {
        let lock = "version = 4\n\n[[package]]\nname = \"own\"\n\n[[package]]\nname = \"b\"\nsource = \"registry+x\"\n";
        assert_eq!(unlocked(lock).collect::<Vec<_>>(), ["\"b\" is locked without a checksum"]);
        assert_eq!(unlocked(&format!("{lock}checksum = \"0\"\n")).count(), 0);
    }
}
