//! What README.md and the book of `docs` say, tried: each block is run, checked, or says what it would
//! need, and each link leads somewhere.
//!
//! Owns what is done with a block of which language and mark. How blocks are found, run and checked is
//! in the modules; none of them knows what the documents are about.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]
#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the harness is part of the tests: a failure there is a failed test"
)]

mod blocks;
mod chapter;
mod checks;
mod links;
mod record;
mod settings;
#[path = "../it/support.rs"]
mod support;

use std::path::{Path, PathBuf};

use blocks::{Block, Mark};

/// A newcomer reads it to its end.
const README_LINES: usize = 150;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and the chapters, below the workspace.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("README.md")];
    for entry in std::fs::read_dir(root().join("docs/src")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "md") {
            found.push(path.strip_prefix(root()).unwrap().to_owned());
        }
    }
    found.sort();
    found
}

fn read(document: &Path) -> String {
    std::fs::read_to_string(root().join(document)).unwrap()
}

fn none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn docs_blocks_are_run_or_checked() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for document in documents() {
        for block in blocks::of(&document, &read(&document)) {
            count += 1;
            if let Err(why) = checks::check(&block) {
                wrong.push(format!("{}: {why}", block.place()));
            }
        }
    }
    none("these blocks are wrong", &wrong);
    assert!(count > 40, "only {count} blocks found");
}

#[test]
fn docs_commands_do_what_they_show() {
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        let mut chapters = Vec::new();
        for document in documents() {
            let blocks = blocks::of(&document, &read(&document));
            if blocks.iter().any(|block| block.mark == Mark::Run) {
                chapters.push(scope.spawn(move || chapter::run(&blocks)));
            }
        }
        assert!(chapters.len() > 4, "only {} chapters run", chapters.len());
        for chapter in chapters {
            wrong.extend(chapter.join().unwrap().err());
        }
    });
    none("these chapters didn't do what they say", &wrong);
}

#[test]
fn docs_links_lead_to_files_and_headings() {
    none("these links lead nowhere", &links::broken(root()));
}

#[test]
fn docs_summary_names_every_chapter() {
    let summary = read(Path::new("docs/src/SUMMARY.md"));
    let missing: Vec<String> = documents()
        .iter()
        .filter_map(|document| document.file_name()?.to_str())
        .filter(|name| !["README.md", "SUMMARY.md"].contains(name))
        .filter(|name| !summary.contains(&format!("({name})")))
        .map(str::to_owned)
        .collect();
    none("these chapters are not in SUMMARY.md", &missing);
}

#[test]
fn readme_is_short() {
    let lines = read(Path::new("README.md")).lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines");
}

#[test]
fn recordings_show_what_happens() {
    none(
        "these recordings are wrong; `cargo xtask record` makes them anew",
        &record::all(),
    );
}

#[test]
fn settings_chapter_names_every_key() {
    let chapter = read(Path::new("docs/src/configuration.md"));
    let missing: Vec<String> = settings::keys()
        .into_iter()
        .filter(|(table, key)| !settings::names(&chapter, table, key))
        .map(|(table, key)| format!("`{key}` of [{table}]"))
        .collect();
    none(
        "docs/src/configuration.md doesn't say what these mean",
        &missing,
    );
}

#[test]
fn settings_chapter_has_the_defaults_in_force() {
    let chapter = read(Path::new("docs/src/configuration.md"));
    none(
        "docs/src/configuration.md has other defaults",
        &settings::other_defaults(&chapter),
    );
}

/// The lines of a Rust block of README.md, which no doctest can compile without lines that a reader
/// would have to skip.
fn compiled_elsewhere(block: &Block) -> bool {
    let chapter = read(Path::new("docs/src/programs.md"));
    let compiled = blocks::of(Path::new("docs/src/programs.md"), &chapter);
    let mut compiled = compiled
        .iter()
        .filter(|one| one.language.starts_with("rust"));
    compiled.any(|one| one.text.contains(&block.text))
}
