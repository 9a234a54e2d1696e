//! `cargo xtask msrv`: no dependency asks for a newer Rust than the workspace promises.
//!
//! Owns the comparison. Must not know why a dependency is there.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cargo;

/// Dependencies are those of the platforms we build for; others are never compiled.
const PLATFORMS: &[&str] = &["x86_64-unknown-linux-gnu", "aarch64-apple-darwin"];

pub(crate) fn run() -> anyhow::Result<()> {
    let mut command = cargo();
    command.args(["metadata", "--format-version=1", "--locked"]);
    for platform in PLATFORMS {
        command.args(["--filter-platform", platform]);
    }
    let said = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("can't run cargo")?;
    if !said.status.success() {
        bail!("`cargo metadata` failed");
    }
    let metadata: Value = serde_json::from_slice(&said.stdout)?;
    let used: BTreeSet<&str> = list(&metadata["resolve"]["nodes"])
        .filter_map(|node| node["id"].as_str())
        .collect();
    let packages: Vec<&Value> = list(&metadata["packages"])
        .filter(|package| package["id"].as_str().is_some_and(|id| used.contains(id)))
        .collect();
    let ours = packages
        .iter()
        .find(|package| package["name"] == "agentd")
        .and_then(|package| package["rust_version"].as_str())
        .context("the workspace has no rust-version")?;
    let promised = numbers(ours).context("the workspace's rust-version is no version")?;
    let mut newer = Vec::new();
    for package in &packages {
        let Some(needed) = package["rust_version"].as_str() else {
            continue;
        };
        if numbers(needed).is_none_or(|needed| needed > promised) {
            let (name, version) = (&package["name"], &package["version"]);
            newer.push(format!("{name} {version} needs Rust {needed}"));
        }
    }
    if !newer.is_empty() {
        bail!(
            "the workspace promises Rust {ours}, but {}",
            newer.join(", ")
        );
    }
    println!("{} packages build with Rust {ours}", packages.len());
    Ok(())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `1.89` and `1.89.0` are the same version.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let mut numbers = [0; 3];
    for (place, part) in version.split('.').enumerate() {
        *numbers.get_mut(place)? = part.parse().ok()?;
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(numbers("1.89"), numbers("1.89.0"));
        assert!(numbers("1.9") < numbers("1.89"));
        assert_eq!(numbers("1.89.0.1"), None);
        assert_eq!(numbers("stable"), None);
    }
}
