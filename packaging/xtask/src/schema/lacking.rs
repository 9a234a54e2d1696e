//! What the packages that are written by hand lack of the protocol.
//!
//! Owns which type of which package is which object of the schema, and how the names that a type has are
//! found in its text. Must not know whether something should be there: whoever adds it to the
//! protocol sees here where it isn't yet.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::members;
use crate::root;

/// How a language says that a type has a member.
#[derive(Clone, Copy)]
enum Has {
    /// `    name: type`
    PythonField,
    /// `json["name"]`, with what stands before the bracket.
    SwiftRead(&'static str),
    /// `("name", …)`
    SwiftPair,
}

/// A type written by hand, and the object that it is.
struct Type {
    file: &'static str,
    /// Where it begins.
    begins: &'static str,
    has: Has,
    object: &'static str,
    /// Names that are the package's own.
    own: &'static [&'static str],
}

const fn python(
    file: &'static str,
    begins: &'static str,
    object: &'static str,
    own: &'static [&'static str],
) -> Type {
    Type {
        file,
        begins,
        has: Has::PythonField,
        object,
        own,
    }
}

const fn swift(file: &'static str, begins: &'static str, has: Has, object: &'static str) -> Type {
    Type {
        file,
        begins,
        has,
        object,
        own: &[],
    }
}

const ROWS: &str = "client/python/src/agentd/rows.py";
const RESULT: &str = "client/python/src/agentd/result.py";
const TYPES: &str = "client/python/src/agentd/types.py";
const LINE: &str = "macos/Sources/AgentKit/Wire/Line.swift";
const STATUS: &str = "macos/Sources/AgentKit/Wire/Status.swift";
const REQUEST: &str = "macos/Sources/AgentKit/Wire/Request.swift";

const PYTHON: &[Type] = &[
    python(ROWS, "class Job(", "JobRow", &[]),
    python(ROWS, "class SessionInfo(", "SessionRow", &[]),
    python(ROWS, "class HistoryTurn(", "TurnRow", &[]),
    python(ROWS, "class Agent(", "AgentRow", &[]),
    python(ROWS, "class Model(", "ModelRow", &[]),
    python(ROWS, "class Mode(", "ModeRow", &[]),
    python(ROWS, "class Question(", "QuestionRow", &[]),
    python(ROWS, "class Usage(", "UsageRow", &[]),
    python(ROWS, "class Schedule(", "ScheduleRow", &[]),
    python(ROWS, "class Run(", "RunRow", &[]),
    python(RESULT, "class Cost", "Cost", &[]),
    python(
        RESULT,
        "class Result(",
        "MessageEndLine",
        &["error", "final_response", "notes", "raw"],
    ),
    python(TYPES, "class Attachment(", "Attachment", &[]),
    python(
        TYPES,
        "class Options(",
        "SendRequest",
        &["callback_url", "tools"],
    ),
];

const JSON: Has = Has::SwiftRead("json");

const SWIFT: &[Type] = &[
    swift(LINE, "struct Accepted:", JSON, "AcceptedLine"),
    swift(LINE, "struct Delta:", JSON, "MessageDeltaLine"),
    swift(LINE, "struct ToolStart:", JSON, "ToolStartLine"),
    swift(LINE, "struct ToolEnd:", JSON, "ToolEndLine"),
    swift(LINE, "struct Question:", JSON, "QuestionRow"),
    swift(LINE, "struct TurnResult:", JSON, "MessageEndLine"),
    swift(LINE, "struct ErrorLine:", JSON, "ErrorLine"),
    swift(LINE, "struct SlashCommand:", JSON, "CommandRow"),
    swift(LINE, "struct Model:", JSON, "ModelRow"),
    swift(LINE, "struct Mode:", JSON, "ModeRow"),
    swift(LINE, "struct Pins:", JSON, "SetModelLine"),
    swift(LINE, "struct HelloAnswer:", JSON, "HelloLine"),
    swift(STATUS, "struct Status:", JSON, "StatusLine"),
    swift(
        STATUS,
        "struct Status:",
        Has::SwiftRead("daemon"),
        "DaemonFacts",
    ),
    swift(STATUS, "struct Status:", Has::SwiftRead("rpc"), "RpcFacts"),
    swift(STATUS, "struct Status:", Has::SwiftRead("row"), "WorkerRow"),
    swift(REQUEST, "struct Send:", Has::SwiftPair, "SendRequest"),
];

struct Package {
    name: &'static str,
    sources: &'static str,
    types: &'static [Type],
}

const PACKAGES: &[Package] = &[
    Package {
        name: "Python",
        sources: "client/python/src",
        types: PYTHON,
    },
    Package {
        name: "Swift",
        sources: "macos/Sources",
        types: SWIFT,
    },
];

const HEAD: &str = "\
What the Python and the Swift package have no name for, written by `cargo xtask schema`. What lines say
besides can be read from `raw` or `json`, and asked by `request`.
";

/// All of it, a line for each type.
pub(super) fn list(document: &Value) -> anyhow::Result<String> {
    let mut list = HEAD.to_owned();
    for package in PACKAGES {
        let _infallible = writeln!(list, "\n{}", package.name);
        let text = all_text(package.sources)?;
        let requests = document["requests"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str());
        let missing = requests.filter(|name| !text.contains(&format!("\"{name}\"")));
        told(&mut list, "requests", missing);
        let codes = document["$defs"]["Code"]["enum"]
            .as_array()
            .into_iter()
            .flatten();
        // For what is not known there is another word in each.
        let codes = codes
            .filter_map(Value::as_str)
            .filter(|code| *code != "unknown");
        told(
            &mut list,
            "codes",
            codes.filter(|code| !text.contains(&format!("\"{code}\""))),
        );
        for one in package.types {
            let found = found(one)?;
            let members = members(document, one.object);
            ensure!(!members.is_empty(), "the schema has no `{}`", one.object);
            let missing = members
                .into_iter()
                .filter(|name| !addressing(name) && !found.contains(*name));
            let name = one.begins.trim_end_matches([':', '(']);
            let name = name.rsplit(' ').next().unwrap_or_default();
            told(&mut list, &format!("{name}, {}", one.object), missing);
        }
    }
    Ok(list)
}

fn told<'a>(list: &mut String, what: &str, missing: impl Iterator<Item = &'a str>) {
    let missing: Vec<&str> = missing.collect();
    let missing = if missing.is_empty() {
        "nothing".to_owned()
    } else {
        missing.join(" ")
    };
    let _infallible = writeln!(list, "  {what}: {missing}");
}

/// Each line has these, and who reads it does before it is a type.
fn addressing(name: &str) -> bool {
    ["id", "type", "seq"].contains(&name)
}

/// What a type has and the protocol doesn't.
pub(super) fn strange(document: &Value) -> anyhow::Result<Vec<String>> {
    let mut strange = Vec::new();
    for one in PACKAGES.iter().flat_map(|package| package.types) {
        let members = members(document, one.object);
        for name in found(one)? {
            if !members.contains(&name.as_str()) && !one.own.contains(&name.as_str()) {
                strange.push(format!("{} {} {name}", one.file, one.begins));
            }
        }
    }
    Ok(strange)
}

/// The members that a type has.
fn found(of: &Type) -> anyhow::Result<BTreeSet<String>> {
    let text = fs::read_to_string(root().join(of.file))
        .with_context(|| format!("can't read `{}`", of.file))?;
    let from = text.find(of.begins);
    let from = from.with_context(|| format!("{} has no `{}`", of.file, of.begins))?;
    let ends = match of.has {
        Has::PythonField => "\n\n\n",
        Has::SwiftRead(_) | Has::SwiftPair => "\n}\n",
    };
    let text = &text[from..];
    let text = &text[..text.find(ends).unwrap_or(text.len())];
    let found: BTreeSet<String> = match of.has {
        Has::PythonField => text.lines().filter_map(python_field).collect(),
        Has::SwiftRead(from) => quoted(text, &format!("{from}[\"")),
        Has::SwiftPair => quoted(text, "(\""),
    };
    ensure!(
        !found.is_empty(),
        "{} has no members in `{}`",
        of.file,
        of.begins
    );
    Ok(found)
}

fn python_field(line: &str) -> Option<String> {
    let (name, _) = line.strip_prefix("    ")?.split_once(": ")?;
    let fine = |c: char| c.is_ascii_lowercase() || c == '_';
    (!name.is_empty() && name.chars().all(fine)).then(|| name.to_owned())
}

fn quoted(text: &str, before: &str) -> BTreeSet<String> {
    let each = text.split(before).skip(1);
    each.filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

/// Every source of a package.
fn all_text(below: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut places = vec![root().join(below)];
    while let Some(place) = places.pop() {
        for entry in
            fs::read_dir(&place).with_context(|| format!("can't read `{}`", place.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                places.push(path);
            } else if path
                .extension()
                .is_some_and(|end| end == "py" || end == "swift")
            {
                text.push_str(&fs::read_to_string(&path)?);
            }
        }
    }
    Ok(text)
}
