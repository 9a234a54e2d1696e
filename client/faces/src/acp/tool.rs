//! A tool call as editors show it.
//!
//! Owns what is guessed of a call from its name and input, as agents say no more. Must not know how a
//! call ended.

use serde_json::Value;

use super::wire::Location;

/// Longest title, in characters: one row.
const TITLE: usize = 200;

/// Words of tools' names for each kind of the protocol, the first that fits.
const KINDS: &[(&str, &[&str])] = &[
    (
        "execute",
        &["bash", "shell", "exec", "terminal", "command", "execute"],
    ),
    (
        "search",
        &["grep", "glob", "search", "find", "ls", "list", "codebase"],
    ),
    ("fetch", &["fetch", "web", "http", "browse", "url"]),
    ("delete", &["delete", "remove", "rm", "unlink"]),
    ("move", &["move", "rename", "mv"]),
    (
        "edit",
        &[
            "edit",
            "write",
            "patch",
            "replace",
            "create",
            "notebookedit",
        ],
    ),
    ("read", &["read", "view", "cat", "open"]),
    ("think", &["think", "plan", "todo", "todowrite"]),
];

/// What a tool does, by its name.
pub(super) fn kind(name: &str, read_only: bool) -> &'static str {
    let words = words(name);
    let is = |kind: &&(&str, &[&str])| words.iter().any(|word| kind.1.contains(&word.as_str()));
    match KINDS.iter().find(is) {
        Some((kind, _)) => kind,
        None if read_only => "read",
        None => "other",
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

/// The files that it is about, where the input names them whole.
pub(super) fn locations(input: &Value) -> Vec<Location> {
    let fields = ["path", "file_path", "filePath", "notebook_path"];
    let found = fields.iter().filter_map(|field| input.get(field)?.as_str());
    let whole = found.filter(|path| path.starts_with('/'));
    let mut all: Vec<Location> = whole
        .map(|path| Location {
            path: path.to_owned(),
        })
        .collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn acp_tool_kind_is_of_its_name() {
        for (name, read_only, expected) in [
            ("bash", false, "execute"),
            ("run_shell_command", false, "execute"),
            ("Bash", false, "execute"),
            ("WebFetch", false, "fetch"),
            ("webfetch", false, "other"),
            ("MultiEdit", false, "edit"),
            ("write", false, "edit"),
            ("read_file", true, "read"),
            ("ls", true, "search"),
            ("Grep", true, "search"),
            ("execute", false, "execute"),
            ("mcp__calendar__next", true, "read"),
            ("mcp__calendar__add", false, "other"),
            ("already", false, "other"),
            ("", false, "other"),
        ] {
            assert_eq!(kind(name, read_only), expected, "{name}");
        }
    }

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
        let path = |input: Value| locations(&input).pop().map(|found| found.path);
        assert_eq!(path(json!({"path": "/a"})), Some("/a".to_owned()));
        assert_eq!(path(json!({"path": "a"})), None);
        assert_eq!(path(json!({"path": ["/a"]})), None);
    }
}
