//! `client/PROTOCOL.md` is true: every example is run, every table compared with the code.

use std::collections::BTreeMap;
use std::net::Shutdown;

use agentd_protocol::request::SEND_FIELDS;
use agentd_protocol::{Code, RequestKind};
use serde_json::{Map, Value};

use crate::support::Daemon;

const PAGE: &str = include_str!("../../client/PROTOCOL.md");
/// Stands for any value.
const ANY: &str = "\u{1}";

#[test]
fn every_example_of_the_contract_holds() {
    let blocks = blocks(PAGE);
    assert!(blocks.len() >= 12, "only {} examples found", blocks.len());
    for (at, block) in blocks {
        // A store of its own, so that its first job is `j1`.
        let daemon = Daemon::start();
        run(&daemon, at, &block);
    }
}

fn run(daemon: &Daemon, at: usize, block: &[&str]) {
    let mut client = daemon.connect();
    let asked = block.iter().filter(|line| line.starts_with("> ")).count();
    if asked > 1 {
        // This reader may take longer than 100 ms between its lines.
        client.request(r#"{"type":"hello"}"#);
    }
    for (number, line) in block.iter().enumerate() {
        let at = at + number;
        if let Some(line) = line.strip_prefix("> ") {
            client.send(line);
            continue;
        }
        let pattern = line
            .strip_prefix("< ")
            .unwrap_or_else(|| panic!("line {at}: neither `> ` nor `< `"));
        let expected = pattern_of(pattern);
        let found = client
            .next()
            .unwrap_or_else(|| panic!("line {at}: closed before {pattern}"));
        if let Err(why) = fits(&expected, &found) {
            panic!("PROTOCOL.md line {at}: {why}\nexpected {pattern}\nfound    {found}");
        }
    }
    if asked > 1 {
        client.stream.shutdown(Shutdown::Write).unwrap();
    }
    assert_eq!(
        client.rest(),
        Vec::<Value>::new(),
        "after the example at line {at}"
    );
}

/// The fenced examples, each with the number of its first line.
fn blocks(page: &str) -> Vec<(usize, Vec<&str>)> {
    let mut all: Vec<(usize, Vec<&str>)> = Vec::new();
    let mut inside = false;
    for (number, line) in page.lines().enumerate() {
        match line {
            "```jsonl" => {
                inside = true;
                all.push((number + 2, Vec::new()));
            }
            "```" => inside = false,
            line if inside => all.last_mut().unwrap().1.push(line),
            _ => {}
        }
    }
    all
}

/// Turns `…` outside of strings into members and values that JSON can hold.
fn pattern_of(text: &str) -> Value {
    let (mut json, mut open, mut quoted, mut escaped) = (String::new(), Vec::new(), false, false);
    for c in text.chars() {
        if quoted {
            json.push(c);
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '…' if json.ends_with(':') || open.last() == Some(&'[') => {
                json.push_str("\"\\u0001\"")
            }
            '…' => json.push_str("\"\\u0001\":0"),
            c => {
                match c {
                    '"' => quoted = true,
                    '{' | '[' => open.push(c),
                    '}' | ']' => drop(open.pop()),
                    _ => {}
                }
                json.push(c);
            }
        }
    }
    serde_json::from_str(&json).unwrap_or_else(|why| panic!("{why}: {text}"))
}

fn fits(expected: &Value, found: &Value) -> Result<(), String> {
    let unlike = || Err(format!("expected {expected}, found {found}"));
    match (expected, found) {
        (Value::String(any), _) if any == ANY => Ok(()),
        (Value::String(expected), Value::String(found)) => {
            if like(expected, found) {
                Ok(())
            } else {
                unlike()
            }
        }
        (Value::Object(expected), Value::Object(found)) => object_fits(expected, found),
        (Value::Array(expected), Value::Array(found)) => {
            let and_more = expected.last().is_some_and(|last| last == ANY);
            let count = expected.len() - usize::from(and_more);
            if found.len() < count || (!and_more && found.len() > count) {
                return unlike();
            }
            expected[..count]
                .iter()
                .zip(found)
                .try_for_each(|(expected, found)| fits(expected, found))
        }
        _ if expected == found => Ok(()),
        _ => unlike(),
    }
}

fn object_fits(expected: &Map<String, Value>, found: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in expected.iter().filter(|(key, _)| *key != ANY) {
        let there = found.get(key).ok_or_else(|| format!("no `{key}`"))?;
        fits(value, there).map_err(|why| format!("`{key}`: {why}"))?;
    }
    let more = found.keys().find(|key| !expected.contains_key(*key));
    match more {
        Some(key) if !expected.contains_key(ANY) => Err(format!("`{key}` is not in the example")),
        _ => Ok(()),
    }
}

/// `…` in a string stands for any part of it.
fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The rows of the table under a heading: the first cell's name, and all cells.
fn table(heading: &str) -> BTreeMap<String, Vec<String>> {
    let part = PAGE.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let part = part.split("\n## ").next().unwrap();
    part.lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| {
            let name = row.split('`').next().unwrap().to_owned();
            let cells = row.split('|').map(|cell| cell.trim().to_owned()).collect();
            (name, cells)
        })
        .collect()
}

#[test]
fn protocol_lists_the_codes_of_the_code() {
    let table = table("9. Codes");
    let listed: Vec<&str> = table.keys().map(String::as_str).collect();
    let mut known: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    known.sort_unstable();
    assert_eq!(listed, known);
    for code in Code::ALL {
        let row = &table[code.name()];
        let retryable = if code.retryable() { "yes" } else { "no" };
        assert_eq!(row[1], retryable, "{code}");
        assert!(row[2].len() > 10, "{code} has no meaning");
    }
}

#[test]
fn the_table_of_requests_is_what_is_served() {
    let daemon = Daemon::start();
    let hello = daemon.connect().request(r#"{"type":"hello"}"#);
    let served: Vec<&str> = hello["capabilities"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let table = table("5. Requests");
    let listed: Vec<&str> = table.keys().map(String::as_str).collect();
    let names: Vec<&str> = RequestKind::names().collect();
    assert_eq!(listed, names);
    assert_eq!(served, names);
}

#[test]
fn requests_of_python_change_what_they_do_here() {
    let pages = [
        include_str!("../../client/python/src/agentd/_core.py"),
        include_str!("../../client/python/src/agentd/aio.py"),
    ];
    let calls = pages.iter().flat_map(|page| page.split(".ask(\"").skip(1));
    let mut seen = 0;
    for call in calls {
        let (name, rest) = call.split_once('"').unwrap();
        let changes = rest.lines().next().unwrap().contains("changes=True");
        let kind = RequestKind::named(name).unwrap();
        assert_eq!(changes, kind.rules().effect.changes(), "{name}");
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} calls found");
}

#[test]
fn protocol_has_every_field_of_a_send() {
    let part = PAGE.split("\n## 4. A send\n").nth(1).unwrap();
    let part = part.split("\n## ").next().unwrap();
    for field in SEND_FIELDS {
        assert!(
            part.contains(&format!("`{field}`")) || PAGE.contains(&format!("- `{field}` ")),
            "{field}"
        );
    }
}

#[test]
fn protocol_examples_that_are_untrue_are_found() {
    let found: Value = serde_json::from_str(r#"{"type":"x","n":[1,2],"s":"one two"}"#).unwrap();
    for (pattern, holds) in [
        (r#"{"type":"x",…}"#, true),
        (r#"{"s":"one…","n":…,"type":"x"}"#, true),
        (r#"{"type":"x","n":[1,…],"s":"…two"}"#, true),
        (r#"{"type":"x"}"#, false),
        (r#"{"type":"y",…}"#, false),
        (r#"{"type":"x","n":[1],…}"#, false),
        (r#"{"m":…,…}"#, false),
        (r#"{"s":"…three",…}"#, false),
    ] {
        assert_eq!(
            fits(&pattern_of(pattern), &found).is_ok(),
            holds,
            "{pattern}"
        );
    }
}
