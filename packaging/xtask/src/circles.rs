//! Files of a crate that lead to each other in a circle.
//!
//! Owns which file uses which, as far as its text says so; methods of one type that stand in several
//! files use each other without a word. Must not know what is good: but for how many files may be in
//! one circle, which the test says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::root;

/// All crates.
pub(crate) const CRATES: &[&str] = &[
    "client/base",
    "client/protocol",
    "client",
    "client/terminal",
    "client/voice",
    "client/faces",
    "client/serve",
    "client/cli",
    "daemon/core",
    "daemon/route",
    "daemon",
    "daemon/timmy",
    "packaging/xtask",
];

/// The product's part of a file and its tests, which stand at its end.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let at = text.find("\n#[cfg(test)]\nmod tests {");
    text.split_at(at.unwrap_or(text.len()))
}

pub(crate) struct File {
    /// Below `src`.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// The files of a crate: its tests, and the product's.
pub(crate) fn sources(name: &str) -> anyhow::Result<(Vec<File>, Vec<File>)> {
    let dir = root().join(name).join("src");
    let mut files = Vec::new();
    read(&dir, &dir, &mut files).with_context(|| format!("can't read `{}`", dir.display()))?;
    Ok(files.into_iter().partition(is_of_tests))
}

fn read(dir: &Path, src: &Path, files: &mut Vec<File>) -> std::io::Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read(&path, src, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path)?;
            let path = path.strip_prefix(src).unwrap_or(&path).to_owned();
            files.push(File { path, text });
        }
    }
    Ok(())
}

fn is_of_tests(file: &File) -> bool {
    let mut parts = file.path.components().map(|part| part.as_os_str());
    parts.any(|part| part == "tests" || part == "tests.rs" || part == "fuzzing.rs")
}

/// Which file uses which others of its crate, as far as paths that begin with `crate::` or `super::`
/// say it.
pub(crate) fn edges(files: &[File]) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let modules: BTreeSet<Vec<String>> = files.iter().map(|file| module(&file.path)).collect();
    let of = |file: &File| {
        let own = module(&file.path);
        let used = used(split(&file.text).0, &own);
        // A path leads to the longest beginning of it that is a file.
        let found = used.into_iter().filter_map(|path| {
            let mut ends = (1..=path.len()).rev();
            let end = ends.find(|end| modules.contains(&path[..*end]))?;
            Some(path[..end].to_vec())
        });
        let found = found.filter(|used| *used != own).collect();
        (own.clone(), found)
    };
    files.iter().map(of).collect()
}

/// The module that a file is.
fn module(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let mut parts: Vec<String> = path
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if parts
        .last()
        .is_some_and(|last| last == "mod" || last == "lib" || last == "main")
    {
        parts.pop();
    }
    parts
}

/// The paths that a text names, from the crate's root.
fn used(text: &str, own: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (begin, from) in [("crate::", &[][..]), ("super::", parent(own))] {
        for (at, _) in text.match_indices(begin) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let rest = &text[at + begin.len()..];
            for path in paths(rest) {
                found.push([from, &path].concat());
            }
        }
    }
    found
}

fn parent(own: &[String]) -> &[String] {
    own.split_last().map_or(&[], |(_, above)| above)
}

/// `a::b`, or of `a::{b::c, d}` each.
fn paths(text: &str) -> Vec<Vec<String>> {
    let word = |text: &str| -> usize {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
        end.unwrap_or(text.len())
    };
    let mut path = Vec::new();
    let mut rest = text;
    loop {
        let end = word(rest);
        if end == 0 {
            break;
        }
        path.push(rest[..end].to_owned());
        let Some(after) = rest[end..].strip_prefix("::") else {
            return vec![path];
        };
        rest = after;
    }
    let Some(group) = rest.strip_prefix('{') else {
        return vec![path];
    };
    let mut found = Vec::new();
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                let one = group[begin..at].trim();
                for below in paths(one).into_iter().filter(|below| !below.is_empty()) {
                    found.push([&*path, &below].concat());
                }
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// The files that lead to each other and back: each such set.
pub(crate) fn circles(
    edges: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
) -> Vec<BTreeSet<&Vec<String>>> {
    let reached: BTreeMap<_, _> = edges
        .keys()
        .map(|from| (from, reach(edges, from)))
        .collect();
    let mut circles: Vec<BTreeSet<&Vec<String>>> = Vec::new();
    for (from, to) in &reached {
        if circles.iter().any(|circle| circle.contains(*from)) {
            continue;
        }
        let back =
            |other: &&&Vec<String>| reached.get(**other).is_some_and(|it| it.contains(*from));
        let circle: BTreeSet<_> = to.iter().filter(back).copied().collect();
        if !circle.is_empty() {
            circles.push(circle);
        }
    }
    circles
}

fn reach<'a>(
    edges: &'a BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
    from: &Vec<String>,
) -> BTreeSet<&'a Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<_> = edges.get(from).into_iter().flatten().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(edges.get(next).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many files may lead to each other.
    const MOST: usize = 5;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn house_circles_are_found_through_groups_and_parents() {
        let files = [
            file("a.rs", "use crate::b::{c::C, D};\n"),
            file("b/mod.rs", ""),
            file("b/c.rs", "use super::super::x;\nuse crate::d::Thing;\n"),
            file("d.rs", "fn f() { crate::a::g() }\n"),
            file("e.rs", "use crate::a::A;\n"),
        ];
        let edges = edges(&files);
        let circles = circles(&edges);
        let names: Vec<Vec<String>> = circles
            .iter()
            .map(|circle| circle.iter().map(|name| name.join("/")).collect())
            .collect();
        assert_eq!(names, [["a", "b/c", "d"]]);
    }

    #[test]
    fn house_no_circle_of_files_is_large() {
        for name in CRATES {
            let (_, product) = sources(name).unwrap();
            let edges = edges(&product);
            for circle in circles(&edges) {
                let files: Vec<_> = circle.iter().map(|file| file.join("/")).collect();
                assert!(files.len() <= MOST, "{name}: {}", files.join(", "));
            }
        }
    }
}
