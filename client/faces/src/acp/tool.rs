//! A tool call as editors show it.
//!
//! Owns how files and changes are. Must not know which call it is.

use super::wire::{Location, Output};
pub(super) use crate::title::{short, title};
use agentd_protocol::line::{FileChange, ToolLocation};

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
