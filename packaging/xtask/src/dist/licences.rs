//! The copyright notices and licences of the crates that are in the programs.
//!
//! Owns which files of a crate those are, and how they are put together. Must not know where the
//! result goes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use super::said;
use crate::cargo;

const HEAD: &str = "\
The programs of agentd contain the crates below, and Rust's standard library (the Rust Project
Developers, MIT OR Apache-2.0). The texts are the crates' own; one that several have stands once.
";
/// How the names of such files begin.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// The texts of all crates that a bill of materials names; those of this workspace have their own.
pub(super) fn texts(bill: &Path) -> anyhow::Result<String> {
    let bill: Value = serde_json::from_str(&fs::read_to_string(bill)?)?;
    let components = bill["components"].as_array().into_iter().flatten();
    let named: BTreeSet<_> = components.filter_map(name_and_version).collect();
    let metadata = said(cargo().args(["metadata", "--format-version=1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    // Each text with who has it, and who has none.
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut without, mut found) = (Vec::new(), 0);
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let Some((name, version)) = name_and_version(package).filter(|is| named.contains(is))
        else {
            continue;
        };
        found += 1;
        if package["source"].is_null() {
            continue;
        }
        let manifest = package["manifest_path"].as_str().context("no manifest")?;
        let dir = Path::new(manifest).parent().context("no directory")?;
        let files = files(dir).with_context(|| format!("can't read `{}`", dir.display()))?;
        if files.is_empty() {
            let licence = package["license"].as_str().unwrap_or("not said");
            let authors = package["authors"].as_array().into_iter().flatten();
            let authors: Vec<_> = authors.filter_map(Value::as_str).collect();
            without.push(format!(
                "{name} {version}: {licence} {}",
                authors.join(", ")
            ));
        }
        for (file, text) in files {
            let owner = format!("{name} {version}: {file}");
            owners.entry(text).or_default().push(owner);
        }
    }
    anyhow::ensure!(
        found == named.len(),
        "the bill of materials names {} crates, and cargo knows {found} of them",
        named.len()
    );
    let mut parts: Vec<(Vec<String>, String)> = owners
        .into_iter()
        .map(|(text, mut owners)| {
            owners.sort();
            (owners, text)
        })
        .collect();
    parts.sort();
    without.sort();
    let mut all = HEAD.to_owned();
    if !without.is_empty() {
        let without = without.join("\n").replace(" \n", "\n");
        all.push_str(&format!("\nWithout a text of their own:\n{without}\n"));
    }
    for (owners, text) in parts {
        let rule = "=".repeat(80);
        all.push_str(&format!(
            "\n{rule}\n{}\n\n{}\n",
            owners.join("\n"),
            text.trim_end()
        ));
    }
    Ok(all)
}

fn name_and_version(of: &Value) -> Option<(String, String)> {
    let text = |key: &str| of[key].as_str().map(str::to_owned);
    Some((text("name")?, text("version")?))
}

/// Below a crate's directory, and what it contains of others.
fn files(dir: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let lower = name.to_lowercase();
        if !NAMES.iter().any(|begin| lower.starts_with(begin)) {
            continue;
        }
        if entry.path().is_dir() {
            for (inner, text) in all_of(&entry.path())? {
                found.push((format!("{name}/{inner}"), text));
            }
        } else {
            found.push((name, read(&entry.path())?));
        }
    }
    Ok(found)
}

fn all_of(dir: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    let files = entries.iter().filter(|entry| entry.path().is_file());
    files
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Ok((name, read(&entry.path())?))
        })
        .collect()
}

fn read(file: &Path) -> anyhow::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(file)?).replace("\r\n", "\n"))
}
