//! `cargo xtask house`: how large the code is, and how entangled.
//!
//! Owns what is counted, and how; it reads the sources as text. Must not know what is good: the limits
//! are in `circles.rs` and `tests/it/tidy.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::circles::{CRATES, circles, edges, sources, split};

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

pub(crate) fn run() -> anyhow::Result<()> {
    let (mut all, mut all_files) = (Lines::default(), 0);
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    println!(
        "| crate | files | code | docs | comments | of code | tests | largest circle of files |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|---|");
    for name in CRATES {
        let (tests, product) = sources(name)?;
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

    #[test]
    fn house_lines_are_of_code_comments_and_tests() {
        let text =
            "//! Doc.\n\nfn a() {\n    // Why.\n}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let lines = Lines::of(text);
        assert_eq!((lines.docs, lines.code, lines.comments), (1, 2, 1));
        assert_eq!(lines.tests, 5);
    }

    #[test]
    fn house_types_are_those_declared() {
        let text =
            "pub(crate) struct A<T>(T);\nenum B {\ntype C = u8;\nfn d() {}\npub trait E: Sized {";
        let found: Vec<_> = declared(text).collect();
        assert_eq!(found, ["A", "B", "E"]);
    }
}
