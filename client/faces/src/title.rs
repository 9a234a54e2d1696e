//! What a tool call does, in a row.
//!
//! Owns which of its input is shown. Must not know who shows it.

use serde_json::Value;

/// Longest title, in characters: one row.
const TITLE: usize = 200;

/// What is done, in a row: a command as it is, else the name and what it is about.
pub(crate) fn title(name: &str, input: &Value) -> String {
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
pub(crate) fn short(text: &str) -> String {
    let row = text.lines().next().unwrap_or_default();
    let mut title: String = row.chars().take(TITLE).collect();
    if title.len() < text.trim_end().len() {
        title.push('…');
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tool_title_is_one_short_row() {
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
}
