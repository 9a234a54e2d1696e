//! Codex's items: which are tool calls, and what they do, need and give.
//!
//! Owns how an item looks in a tool trace. Must not know turns.

use agentd_core::worker::ToolAbout;
use agentd_protocol::line::{FileChange, ToolKind, ToolLocation};
use serde_json::json;

use crate::adapter::object::Object;
use crate::adapter::tool;

/// A tool call as it begins.
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) input: String,
    pub(super) read_only: bool,
    /// What it does, for the question about it.
    pub(super) about: String,
}

/// Items that are neither a tool call nor anything that a sender would miss.
const SILENT: &[&str] = &[
    "agentMessage",
    "contextCompaction",
    "enteredReviewMode",
    "exitedReviewMode",
    "hookPrompt",
    "plan",
    "reasoning",
    "subAgentActivity",
    "userMessage",
];

/// The item as a tool call, if it is one. One of a newer version is taken as it is.
pub(super) fn tool(kind: &str, item: &Object<'_>) -> Option<Tool> {
    if kind.is_empty() || SILENT.contains(&kind) {
        return None;
    }
    let text = |name| item.string(name).unwrap_or_default();
    let raw = |name| item.raw(name).unwrap_or("{}").to_owned();
    let (mut name, mut read_only, mut about) = (kind.to_owned(), false, String::new());
    let input = match kind {
        "commandExecution" => {
            let actions = item.objects("commandActions");
            let reads = |action: &Object<'_>| {
                let kind = action.string("type").unwrap_or_default();
                ["read", "listFiles", "search"].contains(&kind.as_str())
            };
            read_only = !actions.is_empty() && actions.iter().all(reads);
            json!({"command": text("command"), "cwd": text("cwd")}).to_string()
        }
        "fileChange" => {
            about = changes(item, true);
            if item.objects("changes").len() > 1 {
                // However long the changes are, each file is named.
                about = format!("{}\n\n{about}", changes(item, false));
            }
            format!("{{\"changes\":{}}}", item.raw("changes").unwrap_or("[]"))
        }
        "mcpToolCall" => {
            name = format!("{}.{}", text("server"), text("tool"));
            read_only = item.is_true("readOnlyHint");
            raw("arguments")
        }
        "dynamicToolCall" => {
            name = text("tool");
            raw("arguments")
        }
        "webSearch" => {
            read_only = true;
            json!({"query": text("query")}).to_string()
        }
        "imageView" => {
            read_only = true;
            json!({"path": text("path")}).to_string()
        }
        "collabAgentToolCall" => {
            json!({"tool": text("tool"), "prompt": text("prompt")}).to_string()
        }
        _ => "{}".to_owned(),
    };
    Some(Tool {
        name,
        input,
        read_only,
        about,
    })
}

/// What kind of call it is, and which files it is about.
pub(super) fn described(kind: &str, tool: &Tool) -> ToolAbout {
    if kind != "fileChange" {
        return tool::about(&tool.name, &tool.input, tool.read_only);
    }
    let input = Object::parse(tool.input.as_bytes());
    let diff = input.map(|input| changed_files(&input)).unwrap_or_default();
    let location = |change: &FileChange| ToolLocation {
        path: change.path.clone(),
        line: None,
    };
    ToolAbout {
        kind: ToolKind::Edit,
        locations: diff.iter().map(location).collect(),
        diff,
    }
}

/// The files of a change, each with its diff; none of another item.
pub(super) fn changed(kind: &str, item: &Object<'_>) -> Option<Vec<FileChange>> {
    (kind == "fileChange").then(|| changed_files(item))
}

/// Codex's changes, each a path and a diff, as a program reads them.
pub(super) fn changed_files(of: &Object<'_>) -> Vec<FileChange> {
    let changes = of.objects("changes");
    let change = |change: &Object<'_>| {
        Some(FileChange {
            path: change.string("path")?,
            diff: Some(change.string("diff")?),
            ..FileChange::default()
        })
    };
    changes.iter().filter_map(change).collect()
}

/// Did the call work, and what did it give?
pub(super) fn result(kind: &str, item: &Object<'_>) -> (bool, String) {
    let status = item.string("status").unwrap_or_default();
    let code: Option<i64> = item.get("exitCode");
    let ok = matches!(status.as_str(), "" | "completed")
        && code.unwrap_or(0) == 0
        && item.raw("error").is_none()
        && item.raw("success") != Some("false");
    let output = match kind {
        "commandExecution" => item.string("aggregatedOutput"),
        "fileChange" => Some(changes(item, false)).filter(|_| ok),
        "mcpToolCall" => {
            let error = item.object("error");
            let error = error.and_then(|error| error.string("message"));
            error.or_else(|| Some(texts(&item.object("result")?, "content")))
        }
        "dynamicToolCall" => Some(texts(item, "contentItems")),
        _ => None,
    };
    let output = output.filter(|output| !output.is_empty());
    let output = output.unwrap_or_else(|| match (ok, code) {
        (true, _) => String::new(),
        (false, Some(code)) => format!("exit code {code}"),
        (false, None) => status,
    });
    (ok, output)
}

/// The files of a change, one a line, with or without what changes in them.
fn changes(item: &Object<'_>, whole: bool) -> String {
    let lines = item
        .objects("changes")
        .iter()
        .fold(String::new(), |all, change| {
            let text = |name| change.string(name).unwrap_or_default();
            let kind = change.object("kind").and_then(|kind| kind.string("type"));
            let kind = kind.unwrap_or_else(|| "change".to_owned());
            let diff = if whole { text("diff") } else { String::new() };
            format!("{all}{kind} {}\n{diff}", text("path"))
        });
    lines.trim_end().to_owned()
}

/// The texts of a list of parts.
fn texts(of: &Object<'_>, name: &str) -> String {
    let parts = of.objects(name);
    let texts = parts.iter().filter_map(|part| part.string("text"));
    texts.collect::<Vec<_>>().join("\n")
}
