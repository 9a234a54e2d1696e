//! What a tool call does, from its name and its input.
//!
//! Owns the one table for agents that say neither what kind a call is nor what it changes. Must not
//! know any agent's wire.

use agentd_core::worker::ToolAbout;
use agentd_protocol::line::{FileChange, ToolKind, ToolLocation};

use super::object::Object;

/// Words of tools' names for each kind, the first that fits.
const KINDS: &[(ToolKind, &[&str])] = &[
    (
        ToolKind::Execute,
        &["bash", "shell", "exec", "terminal", "command", "execute"],
    ),
    (ToolKind::Think, &["think", "plan", "todo"]),
    (
        ToolKind::Search,
        &["grep", "glob", "search", "find", "ls", "list", "codebase"],
    ),
    (
        ToolKind::Fetch,
        &["fetch", "webfetch", "web", "http", "browse", "url"],
    ),
    (ToolKind::Delete, &["delete", "remove", "rm", "unlink"]),
    (ToolKind::Move, &["move", "rename", "mv"]),
    (
        ToolKind::Edit,
        &["edit", "write", "patch", "replace", "create"],
    ),
    (ToolKind::Read, &["read", "view", "cat", "open"]),
];

/// Fields of an input that name the file.
const PATHS: &[&str] = &["path", "file_path", "filePath", "notebook_path"];
/// The text that is replaced, and what takes its place.
const OLD: &[&str] = &["old", "old_string", "oldText", "old_text", "oldString"];
const NEW: &[&str] = &["new", "new_string", "newText", "new_text", "newString"];

/// All that a call's name and input say.
pub(super) fn about(name: &str, input: &str, read_only: bool) -> ToolAbout {
    let mut about = ToolAbout {
        kind: kind(name, read_only),
        ..ToolAbout::default()
    };
    let Some(input) = Object::parse(input.as_bytes()) else {
        return about;
    };
    let Some(path) = text(&input, PATHS).filter(|path| !path.is_empty()) else {
        return about;
    };
    if about.kind == ToolKind::Edit {
        about.diff = changes(&input, &path);
    }
    // Where it begins to read. An edit's place is not in its input.
    let line = match about.kind {
        ToolKind::Read => input.get("offset").filter(|line| *line > 0),
        _ => None,
    };
    about.locations.push(ToolLocation { path, line });
    about
}

/// What a tool does, by its name.
fn kind(name: &str, read_only: bool) -> ToolKind {
    let words = words(name);
    let is = |kind: &&(ToolKind, &[&str])| words.iter().any(|word| kind.1.contains(&word.as_str()));
    match KINDS.iter().find(is) {
        Some((kind, _)) => *kind,
        None if read_only => ToolKind::Read,
        None => ToolKind::Other,
    }
}

/// `WebFetch`, `web_fetch` and `run-shell` have two words each; the whole name is one, too.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        let begins = c.is_uppercase() && !before.is_uppercase();
        if begins || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.push(name.to_lowercase());
    words.retain(|word| !word.is_empty());
    words
}

/// One passage, several of them, or the whole file.
fn changes(input: &Object<'_>, path: &str) -> Vec<FileChange> {
    let change = |old, new| FileChange {
        path: path.to_owned(),
        old,
        new: Some(new),
        diff: None,
    };
    let passage = |of: &Object<'_>| {
        Some(change(
            Some(text(of, OLD)?),
            text(of, NEW).unwrap_or_default(),
        ))
    };
    let one = passage(input).or_else(|| Some(change(None, input.string("content")?)));
    let several = input.objects("edits");
    one.into_iter()
        .chain(several.iter().filter_map(passage))
        .collect()
}

fn text(of: &Object<'_>, fields: &[&str]) -> Option<String> {
    fields.iter().find_map(|field| of.string(field))
}

/// The same of a `tool_start` as this protocol has it: what it tells itself comes first.
pub(super) fn told(line: &Object<'_>, name: &str, input: &str, read_only: bool) -> ToolAbout {
    let read = about(name, input, read_only);
    ToolAbout {
        kind: line.get("kind").unwrap_or(read.kind),
        locations: line.get("locations").unwrap_or(read.locations),
        diff: read.diff,
    }
}

/// The changes of a `tool_end`; one that says nothing new is none.
pub(super) fn told_changes(line: &Object<'_>) -> Vec<FileChange> {
    let mut changes: Vec<FileChange> = line.get("diff").unwrap_or_default();
    changes.retain(|change| change.new.is_some() || change.diff.is_some());
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn tool_kind_is_of_its_name() {
        for (name, read_only, expected) in [
            ("bash", false, "execute"),
            ("run_shell_command", false, "execute"),
            ("commandExecution", false, "execute"),
            ("WebFetch", false, "fetch"),
            ("webfetch", false, "fetch"),
            ("MultiEdit", false, "edit"),
            ("NotebookEdit", false, "edit"),
            ("TodoWrite", false, "think"),
            ("read_file", true, "read"),
            ("imageView", true, "read"),
            ("ls", true, "search"),
            ("Grep", true, "search"),
            ("mcp__calendar__next", true, "read"),
            ("mcp__calendar__add", false, "other"),
            ("already", false, "other"),
            ("", false, "other"),
        ] {
            assert_eq!(kind(name, read_only).name(), expected, "{name}");
        }
    }

    #[test]
    fn tool_change_is_read_of_its_input() {
        let said = |name: &str, input: Value| {
            let about = about(name, &input.to_string(), false);
            let diff = about.diff.into_iter();
            diff.map(|one| (one.old, one.new.unwrap()))
                .collect::<Vec<_>>()
        };
        let passage = |old: &str, new: &str| (Some(old.to_owned()), new.to_owned());
        for (name, input, expected) in [
            (
                "Edit",
                json!({"file_path": "/a", "old_string": "x", "new_string": "y"}),
                vec![passage("x", "y")],
            ),
            (
                "edit",
                json!({"path": "a", "edits": [{"oldText": "x", "newText": "y"}, 5, {"oldText": "z"}]}),
                vec![passage("x", "y"), passage("z", "")],
            ),
            (
                "write",
                json!({"path": "a", "content": "x"}),
                vec![(None, "x".to_owned())],
            ),
            ("read", json!({"path": "a", "content": "x"}), Vec::new()),
            ("edit", json!({"old": "x", "new": "y"}), Vec::new()),
            ("edit", json!({"path": "a", "old": 5}), Vec::new()),
            ("edit", json!(["a"]), Vec::new()),
        ] {
            assert_eq!(said(name, input.clone()), expected, "{name} {input}");
        }
    }

    #[test]
    fn tool_words_of_the_agent_come_first() {
        let told = |line: Value| {
            let line = line.to_string();
            told(
                &Object::parse(line.as_bytes()).unwrap(),
                "read",
                r#"{"path":"/a"}"#,
                true,
            )
        };
        let said = told(json!({"kind": "fetch", "locations": [{"path": "/b"}]}));
        assert_eq!(
            (said.kind, &*said.locations[0].path),
            (ToolKind::Fetch, "/b")
        );
        let said = told(json!({"kind": 5, "locations": [{"line": 1}]}));
        assert_eq!(
            (said.kind, &*said.locations[0].path),
            (ToolKind::Read, "/a")
        );
        let line = json!({"diff": [{"path": "/a", "new": ""}, {"path": "/b"}]}).to_string();
        assert_eq!(
            told_changes(&Object::parse(line.as_bytes()).unwrap()).len(),
            1
        );
    }

    #[test]
    fn tool_location_is_read_of_its_input() {
        let said = |name: &str, input: Value| about(name, &input.to_string(), true).locations;
        let at = |line| {
            vec![ToolLocation {
                path: "/a".to_owned(),
                line,
            }]
        };
        assert_eq!(
            said("Read", json!({"file_path": "/a", "offset": 7})),
            at(Some(7))
        );
        assert_eq!(
            said("Read", json!({"file_path": "/a", "offset": -7})),
            at(None)
        );
        assert_eq!(said("grep", json!({"path": "/a", "offset": 7})), at(None));
        assert_eq!(said("bash", json!({"command": "ls"})), []);
        assert_eq!(said("read", json!({"path": ["/a"]})), []);
    }
}
