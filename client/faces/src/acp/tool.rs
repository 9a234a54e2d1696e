//! A tool call as editors show it.
//!
//! Owns the row that a call is shown with, and how files and changes are. Must not know which call it
//! is.

use agentd_protocol::line::{FileChange, ToolLocation};
use serde_json::Value;

use super::wire::{Location, Output};

/// Longest title, in characters: one row.
const TITLE: usize = 200;

/// What is done, in a row: a command as it is, else the name and what it is about.
pub(super) fn title(name: &str, input: &Value) -> String {
    let text = |field: &str| {
        let text = input.get(field)?.as_str()?.trim();
        (!text.is_empty()).then_some(text)
    };
    let about = [
        "path",
        "file_path",
        "filePath",
        "pattern",
        "query",
        "url",
        "uri",
    ];
    let title = match (text("command"), text("title")) {
        (Some(command), _) => command.to_owned(),
        (None, Some(title)) => title.to_owned(),
        (None, None) => match about.iter().find_map(|field| text(field)) {
            Some(about) => format!("{name} {about}"),
            None => name.to_owned(),
        },
    };
    short(&title)
}

/// The first row of a text, with a mark where more of it is left out.
pub(super) fn short(text: &str) -> String {
    let row = text.lines().next().unwrap_or_default();
    let mut title: String = row.chars().take(TITLE).collect();
    if title.len() < text.trim_end().len() {
        title.push('…');
    }
    title
}

/// The files that it is about, where they are named whole.
pub(super) fn locations(said: &[ToolLocation]) -> Vec<Location> {
    let whole = said.iter().filter(|one| one.path.starts_with('/'));
    whole
        .map(|one| Location {
            path: one.path.clone(),
            line: one.line,
        })
        .collect()
}

/// What a call shows at its end: what it changed, and what it gave. Agents that have no other way
/// to show a change write it into their output, which is not shown twice.
pub(super) fn content(output: &str, diff: &[FileChange]) -> Vec<Output> {
    let changes = diff.iter().filter_map(change);
    let mut content: Vec<Output> = changes.collect();
    let shown = diff
        .iter()
        .any(|one| output.starts_with(&format!("--- {}\n", one.path)));
    if !output.is_empty() && !shown {
        content.push(Output::text(output));
    }
    content
}

/// One file of a change.
pub(super) fn change(change: &FileChange) -> Option<Output> {
    let path = change.path.clone();
    match (&change.new, &change.diff) {
        (Some(new_text), _) => Some(Output::Diff {
            path,
            old_text: change.old.clone(),
            new_text: new_text.clone(),
        }),
        (None, Some(diff)) => Some(Output::text(format!("{path}\n{diff}"))),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn acp_tool_title_is_one_short_row() {
        let long = "x".repeat(300);
        for (name, input, expected) in [
            ("bash", json!({"command": "ls -l"}), "ls -l"),
            ("bash", json!({"command": "a\nb"}), "a…"),
            ("execute", json!({"title": "list"}), "list"),
            ("read", json!({"path": "/a b"}), "read /a b"),
            ("mine", json!({"command": 5}), "mine"),
            ("mine", json!(null), "mine"),
            (
                "bash",
                json!({"command": long}),
                &format!("{}…", "x".repeat(200)),
            ),
        ] {
            assert_eq!(title(name, &input), expected);
        }
    }

    #[test]
    fn acp_tool_locations_are_whole_paths() {
        let at = |path: &str| ToolLocation {
            path: path.to_owned(),
            line: Some(3),
        };
        let told = locations(&[at("/a"), at("a")]);
        assert_eq!(json!(told), json!([{"path": "/a", "line": 3}]));
    }

    #[test]
    fn acp_tool_change_is_shown_once() {
        let change = FileChange {
            path: "/a".to_owned(),
            new: Some("x".to_owned()),
            ..FileChange::default()
        };
        let diff = json!({"type": "diff", "path": "/a", "newText": "x"});
        let text =
            |text: &str| json!({"type": "content", "content": {"type": "text", "text": text}});
        let shown = |output| json!(content(output, std::slice::from_ref(&change)));
        assert_eq!(shown("--- /a\n+++ /a\n+x\n"), json!([diff]));
        assert_eq!(shown("done"), json!([diff, text("done")]));
        assert_eq!(shown(""), json!([diff]));
        assert_eq!(json!(content("done", &[])), json!([text("done")]));
    }
}
