//! Links from one file of this repository to another.
//!
//! Owns how links and headings are found. Must not follow one that leads elsewhere.

use std::path::{Path, PathBuf};

/// Directories that hold no documents of ours.
const SKIPPED: &[&str] = &[
    "target",
    ".git",
    "fixtures",
    "corpus",
    "node_modules",
    "licences",
];

pub fn broken(root: &Path) -> Vec<String> {
    let mut documents = Vec::new();
    collect(root, &mut documents);
    assert!(
        documents.len() > 20,
        "only {} documents found",
        documents.len()
    );
    let mut broken = Vec::new();
    for document in &documents {
        let text = std::fs::read_to_string(document).unwrap();
        let name = document.strip_prefix(root).unwrap().display().to_string();
        for (line, target) in links(&text) {
            if let Err(why) = follow(document, target) {
                broken.push(format!("{name}:{line}: `{target}`: {why}"));
            }
        }
    }
    broken
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            if !SKIPPED.contains(&name.as_str()) && !name.starts_with('.') {
                collect(&path, found);
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found.sort();
}

/// Each target with its line, outside of blocks and of code within lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            inside = !inside;
        }
        if inside {
            continue;
        }
        let starts = line.match_indices("](").map(|(at, found)| at + found.len());
        let images = line
            .match_indices("src=\"")
            .map(|(at, found)| at + found.len());
        for start in starts.chain(images) {
            let end = line[start..]
                .find([')', '"', ' '])
                .unwrap_or(line.len() - start);
            found.push((number + 1, &line[start..start + end]));
        }
    }
    found
}

fn follow(from: &Path, target: &str) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => from.to_owned(),
        file => from.parent().unwrap().join(file),
    };
    if !path.exists() {
        return Err("there is no such file".to_owned());
    }
    if heading.is_empty() {
        return Ok(());
    }
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let headings: Vec<String> = headings(&text);
    match headings.iter().any(|one| one == heading) {
        true => Ok(()),
        false => Err(format!(
            "no such heading; there are {}",
            headings.join(", ")
        )),
    }
}

/// As GitHub and mdBook name them.
fn headings(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside;
        }
        let title = line.trim_start_matches('#');
        if inside || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let letters = title.trim().to_lowercase();
        let kept = letters
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        found.push(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    found
}
