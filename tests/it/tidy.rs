//! The workspace's own rules: who may use whom, how long a file may be, what is never written.
//!
//! Reads the sources of this workspace; must not build or run anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A longer file is two files.
const MOST_LINES: usize = 600;
/// A longer name of a test is a sentence that nobody reads: "begins with the feature" has to be seen
/// in a list of them.
const MOST_WORDS: usize = 8;
/// Directories that hold sources.
const ROOTS: &[&str] = &["client", "daemon", "tests", "packaging"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

struct Source {
    /// Below the workspace.
    path: String,
    text: String,
}

impl Source {
    /// Is it tests and nothing else? By its name, or because its parent says so.
    fn is_test(&self, all: &[Source]) -> bool {
        let (dir, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let by_name = dir.split('/').any(|part| part == "tests") || name.ends_with("tests.rs");
        let module = format!("#[cfg(test)]\nmod {};", name.trim_end_matches(".rs"));
        let by_parent = |parent: &Source| {
            parent.path.strip_suffix(".rs").is_some_and(|parent| {
                parent == dir || parent == format!("{dir}/mod") || parent == format!("{dir}/lib")
            }) && parent.text.contains(&module)
        };
        by_name || all.iter().any(by_parent)
    }

    /// What stands before the tests of the file, without comments, each line with its number.
    fn product(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("\nmod tests {");
        let product = &self.text[..end.unwrap_or(self.text.len())];
        let lines = product.lines().enumerate();
        lines
            .map(|(number, line)| (number + 1, line.trim_start()))
            .filter(|(_, line)| !line.starts_with("//"))
    }
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for dir in ROOTS {
        collect(&root().join(dir), "rs", &mut found);
    }
    let sources: Vec<Source> = found
        .into_iter()
        .map(|path| Source {
            text: std::fs::read_to_string(&path).unwrap(),
            path: below_root(&path),
        })
        .collect();
    assert!(sources.len() > 80, "only {} sources found", sources.len());
    sources
}

fn below_root(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn collect(dir: &Path, end: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, end, found);
        } else if path.extension().is_some_and(|found| found == end) {
            found.push(path);
        }
    }
    found.sort();
}

fn none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_opens_with_what_it_owns() {
    let sources = sources();
    let wrong: Vec<_> = sources
        .iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.path.clone())
        .collect();
    none("these don't open with `//!`", &wrong);
}

#[test]
fn no_file_is_too_long() {
    let sources = sources();
    let wrong: Vec<_> = sources
        .iter()
        .map(|source| (source.text.lines().count(), &source.path))
        .filter(|(lines, _)| *lines > MOST_LINES)
        .map(|(lines, path)| format!("{path}: {lines}"))
        .collect();
    none("these are longer than 600 lines", &wrong);
}

/// The names of the tests in a text.
fn tests_in(text: &str) -> impl Iterator<Item = &str> {
    let marks = ["#[test]", "#[tokio::test"];
    let mut lines = text.lines().map(str::trim_start);
    std::iter::from_fn(move || {
        lines.find(|line| marks.iter().any(|mark| line.starts_with(mark)))?;
        lines.find_map(|line| {
            let rest = line.strip_prefix("async ").unwrap_or(line);
            rest.strip_prefix("fn ")?.split('(').next()
        })
    })
}

#[test]
fn test_names_have_at_most_eight_words() {
    let text = "#[test]\n#[cfg(unix)]\nfn a_b() {}\n  #[tokio::test(x)]\n  async fn c() {}\n";
    assert_eq!(tests_in(text).collect::<Vec<_>>(), ["a_b", "c"]);
    let mut long = Vec::new();
    for source in sources() {
        let names = tests_in(&source.text).filter(|name| name.split('_').count() > MOST_WORDS);
        long.extend(names.map(|name| format!("{}: {name}", source.path)));
    }
    assert!(
        long.is_empty(),
        "names of tests have more than {MOST_WORDS} words:\n{}",
        long.join("\n")
    );
}

#[test]
fn product_never_unwraps_and_has_nothing_to_do() {
    let mut wrong = Vec::new();
    let all = sources();
    assert!(all.iter().any(|source| source.is_test(&all)));
    for source in all.iter().filter(|source| !source.is_test(&all)) {
        for (number, line) in source.product() {
            for never in [
                ".unwrap()",
                "todo!(",
                "unimplemented!(",
                "dbg!(",
                "FIXME",
                "XXX",
            ] {
                if line.contains(never) {
                    wrong.push(format!("{}:{number}: {line}", source.path));
                }
            }
        }
    }
    none("these must go", &wrong);
}

#[test]
fn no_path_of_a_machine_is_written_down() {
    // Put together here, so that this file has none either.
    let never = ["/work", "/home/", "/Users/", "/root"].map(|dir| match dir.strip_suffix('/') {
        Some(_) => dir.to_owned(),
        None => format!("{dir}/"),
    });
    let mut wrong = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| source.path != "tests/it/tidy.rs")
    {
        for (number, line) in source.text.lines().enumerate() {
            let word = |at: usize| {
                line[..at]
                    .chars()
                    .next_back()
                    .is_none_or(|c| !c.is_alphanumeric())
            };
            if never.iter().any(|dir| line.find(dir).is_some_and(word)) && !is_made_up(line) {
                wrong.push(format!("{}:{}: {line}", source.path, number + 1));
            }
        }
    }
    none("these name a machine's directory", &wrong);
}

/// The homes of people who don't exist.
fn is_made_up(line: &str) -> bool {
    ["/home/u", "/Users/u", "/home/me", "/home/ann", "/home/x"]
        .iter()
        .any(|home| line.contains(home))
}

#[test]
fn daemon_parts_use_only_what_they_may() {
    let may: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("adapter", &[][..]),
        ("store", &["failpoint"]),
        ("platform", &[]),
        ("config", &["adapter", "platform"]),
        ("worker", &["adapter", "platform", "config"]),
        ("webhook", &["store", "config", "failpoint"]),
        ("cron", &["store", "failpoint"]),
        (
            "server",
            &["worker", "store", "platform", "config", "webhook", "cron"],
        ),
        ("cli", &["config", "platform", "server"]),
        ("failpoint", &[]),
    ]);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for source in sources() {
        let Some(inside) = source.path.strip_prefix("daemon/src/") else {
            continue;
        };
        let part = inside.split(['/', '.']).next().unwrap();
        if part == "lib" {
            continue;
        }
        let allowed = may
            .get(part)
            .unwrap_or_else(|| panic!("`{part}` has no rule"));
        for (number, line) in source.text.lines().enumerate() {
            let uses = line.split("crate::").skip(1);
            for used in uses.map(|rest| {
                rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .unwrap()
            }) {
                seen += 1;
                let is_part = may.contains_key(used);
                if is_part && used != part && !allowed.contains(&used) {
                    wrong.push(format!("{}:{}: {line}", source.path, number + 1));
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} uses found");
    none("these cross a layer", &wrong);
}

/// The crates of this workspace that a manifest names for the product, not for its tests.
fn crates_used(manifest: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(manifest)).unwrap();
    let mut section = "";
    let mut used = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]")
            && !section.contains("dev-")
            && !section.contains("workspace")
        {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if name.starts_with("agentd") || name == "timmy" {
                used.push(name.to_owned());
            }
        }
    }
    used.sort();
    used
}

#[test]
fn the_manifests_keep_the_layers_apart() {
    for (manifest, may) in [
        ("client/base/Cargo.toml", &[][..]),
        ("client/protocol/Cargo.toml", &[]),
        ("client/Cargo.toml", &["agentd-base", "agentd-protocol"]),
        ("client/terminal/Cargo.toml", &[]),
        (
            "client/voice/Cargo.toml",
            &["agentd-base", "agentd-client", "agentd-protocol"],
        ),
        (
            "client/faces/Cargo.toml",
            &["agentd-base", "agentd-client", "agentd-protocol"],
        ),
        (
            "client/serve/Cargo.toml",
            &[
                "agentd-client",
                "agentd-faces",
                "agentd-protocol",
                "agentd-terminal",
            ],
        ),
        (
            "client/cli/Cargo.toml",
            &[
                "agentd-base",
                "agentd-client",
                "agentd-faces",
                "agentd-protocol",
                "agentd-serve",
                "agentd-terminal",
                "agentd-voice",
            ],
        ),
        ("daemon/core/Cargo.toml", &["agentd-protocol"]),
        ("daemon/route/Cargo.toml", &["agentd-protocol"]),
        (
            "daemon/Cargo.toml",
            &[
                "agentd-base",
                "agentd-core",
                "agentd-protocol",
                "agentd-route",
            ],
        ),
        (
            "daemon/timmy/Cargo.toml",
            &[
                "agentd-base",
                "agentd-client",
                "agentd-protocol",
                "agentd-terminal",
            ],
        ),
        ("packaging/xtask/Cargo.toml", &["agentd-protocol"]),
        ("Cargo.toml", &["agentd-cli", "agentd-daemon", "timmy"]),
    ] {
        assert_eq!(crates_used(manifest), may, "{manifest}");
    }
    let core = std::fs::read_to_string(root().join("daemon/core/Cargo.toml")).unwrap();
    let product = core.split("[dev-dependencies]").next().unwrap();
    for never in ["tokio", "nix", "libc", "rusqlite", "tracing"] {
        assert!(!product.contains(never), "the core must not know {never}");
    }
    let client = std::fs::read_to_string(root().join("client/Cargo.toml")).unwrap();
    for never in ["clap", "anyhow", "axum"] {
        assert!(!client.contains(never), "the library must not know {never}");
    }
}

/// A crate without examples isn't asked for them: that takes `cargo test` three seconds each.
#[test]
fn doc_examples_are_in_crates_that_run_them() {
    let opens = |line: &&str| line.trim_start().starts_with("//") && line.contains("```");
    let fenced = |source: &&Source| source.text.lines().any(|line| opens(&line));
    let mut wrong = Vec::new();
    for source in sources().iter().filter(fenced) {
        let parts = Path::new(&source.path).ancestors();
        let mut manifests = parts.map(|part| root().join(part).join("Cargo.toml"));
        let manifest = manifests.find(|manifest| manifest.is_file()).unwrap();
        let manifest = std::fs::read_to_string(manifest).unwrap();
        if manifest.contains("doctest = false") {
            wrong.push(source.path.clone());
        }
    }
    none("examples that are never run", &wrong);
}

#[test]
fn the_core_is_pure() {
    let mut wrong = Vec::new();
    for source in sources() {
        if !source.path.starts_with("daemon/core/src/") {
            continue;
        }
        for (number, line) in source.product() {
            let impure = [
                "std::fs",
                "std::net",
                "std::thread",
                "std::env",
                "Instant::now",
                "SystemTime",
                "println!",
            ];
            if impure.iter().any(|never| line.contains(never)) {
                wrong.push(format!("{}:{number}: {line}", source.path));
            }
        }
    }
    none("these are not pure", &wrong);
}

#[test]
fn core_owners_know_neither_value_nor_rules() {
    let owners = ["jobs", "sessions", "pool", "peers", "outbox", "indexes"];
    let mut wrong = Vec::new();
    let mut seen = 0;
    for source in sources() {
        let inside = source.path.strip_prefix("daemon/core/src/");
        let owner = inside.and_then(|inside| inside.split_once('/'));
        if !owner.is_some_and(|(owner, _)| owners.contains(&owner)) {
            continue;
        }
        seen += 1;
        for (number, line) in source.product() {
            let above = ["crate::state", "crate::rules", "crate::apply"];
            if above.iter().any(|never| line.contains(never)) {
                wrong.push(format!("{}:{number}: {line}", source.path));
            }
        }
    }
    assert!(seen > 20, "only {seen} files of owners found");
    none("these know what is above them", &wrong);
}

#[test]
fn socket_library_is_named_in_two_files() {
    let all = sources();
    let users: Vec<&str> = all
        .iter()
        .filter(|source| !source.is_test(&all))
        .filter(|source| {
            source
                .product()
                .any(|(_, line)| line.contains("interprocess::"))
        })
        .map(|source| source.path.as_str())
        .collect();
    assert_eq!(
        users,
        ["client/src/endpoint.rs", "daemon/src/server/listen.rs"]
    );
}

/// Each line of the tables says which test shows it: a row without one says nothing, or names what is
/// never said.
#[test]
fn faces_readme_names_tests_that_exist() {
    let readme = std::fs::read_to_string(root().join("client/faces/README.md")).unwrap();
    let is_test = |word: &&str| {
        word.matches('_').count() >= 2
            && word
                .chars()
                .all(|one| one.is_ascii_lowercase() || one == '_')
    };
    let sources = sources();
    let mut seen = 0;
    for line in readme.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let last = cells.last().unwrap().trim();
        let named: Vec<&str> = last.split('`').filter(is_test).collect();
        let is_row = !last.is_empty() && !last.starts_with("test") && !last.starts_with("--");
        assert!(!is_row || !named.is_empty(), "no test shows it: {line}");
        for name in named {
            let begins = format!("fn {name}(");
            assert!(
                sources.iter().any(|source| source.text.contains(&begins)),
                "there is no test `{name}`: {line}"
            );
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen} tests are named");
}
