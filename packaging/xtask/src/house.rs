//! `cargo xtask house`: how large the code is, and how entangled.
//!
//! Owns what is counted, and how; it reads the sources as text. Must not know what is good: the limits
//! are in `tests/it/tidy.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::root;

const CRATES: &[&str] = &[
    "client/base",
    "client/protocol",
    "client",
    "client/terminal",
    "client/voice",
    "client/serve",
    "client/cli",
    "daemon/core",
    "daemon",
    "daemon/timmy",
    "packaging/xtask",
];
/// Of names that several types have, as many are shown.
const SHOWN: usize = 15;

/// Lines of some files.
#[derive(Clone, Copy, Default)]
struct Lines {
    /// Neither blank nor comments, without tests.
    code: usize,
    comments: usize,
    docs: usize,
    /// Of tests, blank ones too.
    tests: usize,
}

impl Lines {
    fn add(&mut self, other: Self) {
        self.code += other.code;
        self.comments += other.comments;
        self.docs += other.docs;
        self.tests += other.tests;
    }

    fn of(text: &str) -> Self {
        let (product, tests) = split(text);
        let mut lines = Self {
            tests: tests.lines().count(),
            ..Self::default()
        };
        for line in product.lines().map(str::trim_start) {
            match line {
                "" => {}
                line if line.starts_with("///") || line.starts_with("//!") => lines.docs += 1,
                line if line.starts_with("//") => lines.comments += 1,
                _ => lines.code += 1,
            }
        }
        lines
    }
}

/// The product's part of a file and its tests, which stand at its end.
fn split(text: &str) -> (&str, &str) {
    let at = text.find("\n#[cfg(test)]\nmod tests {");
    text.split_at(at.unwrap_or(text.len()))
}

struct File {
    /// Below `src`.
    path: PathBuf,
    text: String,
}

pub(crate) fn run() -> anyhow::Result<()> {
    let (mut all, mut all_files) = (Lines::default(), 0);
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    println!(
        "| crate | files | code | docs | comments | of code | tests | largest circle of files |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|---|");
    for name in CRATES {
        let dir = root().join(name).join("src");
        let mut files = Vec::new();
        read(&dir, &dir, &mut files).with_context(|| format!("can't read `{}`", dir.display()))?;
        let (tests, product): (Vec<File>, Vec<File>) = files.into_iter().partition(is_of_tests);
        let mut lines = Lines {
            tests: tests.iter().map(|file| file.text.lines().count()).sum(),
            ..Lines::default()
        };
        for file in &product {
            lines.add(Lines::of(&file.text));
            for declared in declared(split(&file.text).0) {
                let place = format!("{name}/{}", file.path.display());
                types.entry(declared).or_default().push(place);
            }
        }
        row(
            name,
            product.len(),
            lines,
            &largest(circles(&edges(&product))),
        );
        all.add(lines);
        all_files += product.len();
    }
    row("all", all_files, all, "");
    let several = types.iter().filter(|(_, places)| places.len() > 1);
    let mut several: Vec<_> = several.collect();
    several.sort_by_key(|(name, places)| (std::cmp::Reverse(places.len()), (*name).clone()));
    let declared: usize = types.values().map(Vec::len).sum();
    let shared: usize = several.iter().map(|(_, places)| places.len()).sum();
    println!(
        "\n{declared} types; {shared} have a name that another one has, too. The most of these:\n"
    );
    for (name, places) in several.into_iter().take(SHOWN) {
        println!("- `{name}`: {}", places.join(", "));
    }
    Ok(())
}

fn row(name: &str, files: usize, lines: Lines, circle: &str) {
    let Lines {
        code,
        comments,
        docs,
        tests,
    } = lines;
    let share = |part: usize| format!("{:.1} %", part as f64 * 100.0 / (code.max(1)) as f64);
    println!(
        "| {name} | {files} | {code} | {docs} | {comments} | {} | {tests} | {circle} |",
        share(comments)
    );
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

/// The types that a text declares.
fn declared(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| word.starts_with("pub"));
        let kind = words.next()?;
        if !["struct", "enum", "trait", "union"].contains(&kind) {
            return None;
        }
        let name = words.next()?;
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
        let name = &name[..end.unwrap_or(name.len())];
        (!name.is_empty()).then(|| name.to_owned())
    })
}

/// Which file uses which others of its crate, as far as paths that begin with `crate::` or `super::`
/// say it.
fn edges(files: &[File]) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
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
fn circles(edges: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>) -> Vec<BTreeSet<&Vec<String>>> {
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

fn largest(circles: Vec<BTreeSet<&Vec<String>>>) -> String {
    let largest = circles.into_iter().max_by_key(BTreeSet::len);
    let largest = largest.filter(|circle| circle.len() > 1);
    largest.map_or_else(String::new, |circle| {
        let names: Vec<_> = circle.iter().map(|name| name.join("/")).collect();
        let shown = names.iter().take(6).cloned().collect::<Vec<_>>().join(", ");
        format!("{}: {shown} …", names.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn house_lines_are_of_code_comments_and_tests() {
        let text =
            "//! Doc.\n\nfn a() {\n    // Why.\n}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let lines = Lines::of(text);
        assert_eq!((lines.docs, lines.code, lines.comments), (1, 2, 1));
        assert_eq!(lines.tests, 5);
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
    fn house_types_are_those_declared() {
        let text =
            "pub(crate) struct A<T>(T);\nenum B {\ntype C = u8;\nfn d() {}\npub trait E: Sized {";
        let found: Vec<_> = declared(text).collect();
        assert_eq!(found, ["A", "B", "E"]);
    }
}
