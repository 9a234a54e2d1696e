//! The keys of `config.toml`, as the programs themselves name them.
//!
//! Owns how they are asked for: a wrong key is answered with those that there are. Must not know what
//! one means.

use crate::support::{Finished, Place};

/// Keys of the top level that are no tables.
const VALUES: &[&str] = &["default_agent", "alias"];
/// A key that nothing is near to.
const WRONG: &str = "zzzzzzzzzzzz = 1";

/// Each table with what makes the program that reads it look at it.
const TABLES: &[(&str, &str)] = &[
    ("", ""),
    ("agents.NAME", "[agents.claude]\n"),
    ("client", "[client]\n"),
    ("pool", "[pool]\n"),
    ("retention", "[retention]\n"),
    ("route", "[[route]]\n"),
    ("route.when", "[[route]]\n[route.when]\n"),
    ("route.use", "[[route]]\n[route.use]\n"),
    ("models", "[models]\n"),
    (
        "providers.NAME",
        "[providers.mine]\nbase_url = \"http://127.0.0.1:1\"\n",
    ),
    ("timmy", "[timmy]\n"),
    ("timmy.mcp.NAME", "[timmy.mcp.mine]\n"),
];

/// Each key with the table that it is of.
pub fn keys() -> Vec<(String, String)> {
    let mut keys = Vec::new();
    for (table, text) in TABLES {
        let place = Place::new(&format!("{text}{WRONG}\n"));
        let said = [
            place.agentctl(&["config", "show"]),
            place.agentctl(&["provider", "list"]),
        ];
        let said = said
            .iter()
            .find_map(known)
            .unwrap_or_else(|| panic!("[{table}]: {said:?}"));
        keys.extend(said.into_iter().map(|key| ((*table).to_owned(), key)));
    }
    assert!(keys.len() > 30, "only {keys:?}");
    for (_, key) in keys.iter().filter(|(table, _)| table.is_empty()) {
        let is_known = VALUES.contains(&key.as_str())
            || TABLES
                .iter()
                .any(|(table, _)| table.split('.').next() == Some(key));
        assert!(
            is_known,
            "[{key}] is in neither TABLES nor VALUES of this test"
        );
    }
    keys
}

fn known(said: &Finished) -> Option<Vec<String>> {
    let (_, list) = said.stderr.split_once("known here: ")?;
    let list = list.lines().next()?;
    Some(list.split(", ").map(|key| key.trim().to_owned()).collect())
}

/// Has the chapter a row for it below the heading of its table?
pub fn names(chapter: &str, table: &str, key: &str) -> bool {
    rows(chapter).any(|(of, cells)| of == table && cells[0] == format!("`{key}`"))
}

/// The rows of all tables, each with the `[table]` that the heading above it names.
fn rows(chapter: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    let mut table = "";
    chapter.lines().filter_map(move |line| {
        if let Some(heading) = line.strip_prefix("## ") {
            let named = heading
                .split_once("`[")
                .and_then(|(_, rest)| rest.split_once("]`"));
            table = named.map_or("", |(name, _)| name.trim_matches(['[', ']']));
        }
        let cells = line.strip_prefix("| ")?.trim_end_matches('|');
        Some((table, cells.split(" | ").map(str::trim).collect()))
    })
}

/// The defaults of the chapter that the daemon doesn't have.
pub fn other_defaults(chapter: &str) -> Vec<String> {
    let place = Place::new("[agents.claude]\ncommand = [\"/bin/true\"]\n");
    let shown = place.agentctl(&["config", "show"]).stdout;
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (table, cells) in rows(chapter) {
        let key = cells[0].trim_matches('`');
        let full = match table {
            "" => key.to_owned(),
            table => format!("{}.{key}", table.replace("NAME", "claude")),
        };
        let found = shown.lines().find_map(|line| {
            line.strip_prefix(&format!("{full} = "))?
                .strip_suffix("  # default")
        });
        let Some(value) = found else {
            continue;
        };
        let default = cells.get(2).copied().unwrap_or_default();
        if default.starts_with("that of the name") {
            continue;
        }
        compared += 1;
        // What is no value is in parentheses there.
        let word = value
            .strip_prefix('(')
            .and_then(|word| word.strip_suffix(')'));
        let same = default == format!("`{value}`") || word == Some(default);
        if !same {
            wrong.push(format!(
                "{full}: the daemon says {value}, the chapter {default}"
            ));
        }
    }
    if compared < 8 {
        wrong.push(format!("only {compared} defaults were compared:\n{shown}"));
    }
    wrong
}
