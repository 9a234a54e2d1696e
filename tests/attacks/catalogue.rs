//! The attempts, as they stand in the files of `rows/`.
//!
//! Owns the areas and how a row is written. Must not know how one is run.
//!
//! A row is a paragraph of fields, `field: value`; lines that go on begin with two spaces, and `#`
//! begins a comment. Each has a `name`, which is a sentence, what is tried (`try`), and what `must`
//! be said then; ` | ` is between what may be said instead. `KEY` is the planted key: no other row
//! may bring it. What other fields mean, the module says that runs the area.

use std::path::Path;

/// What is attacked, or from where; each is a file.
pub const AREAS: &[&str] = &[
    "files",
    "tools",
    "races",
    "sockets",
    "network",
    "processes",
    "kernel",
    "inside",
    "users",
    "http",
    "webhooks",
    "ssh",
    "configuration",
    "store",
];

/// One attempt.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    fields: Vec<(String, String)>,
}

impl Row {
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn tries(&self) -> &str {
        self.field("try").unwrap()
    }

    pub fn must(&self) -> &str {
        self.field("must").unwrap()
    }

    /// Is what was said as the row has it?
    pub fn judge(&self, must: &str, said: &str, key: &str) -> Result<(), String> {
        let fault = |why: &str| Err(format!("{}: {why}; it said:\n{said}", self.name));
        let has_key = said.contains(key);
        match must.split(" | ").any(|may| may == "KEY") {
            true if !has_key => fault("the key didn't come"),
            true => Ok(()),
            false if has_key => fault("the key came"),
            false if must.split(" | ").any(|may| said.contains(may)) => Ok(()),
            false => fault(&format!("expected `{must}`")),
        }
    }
}

/// The attempts of an area.
pub fn rows(area: &str) -> Vec<Row> {
    let rows = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks/rows");
    let text = std::fs::read_to_string(rows.join(format!("{area}.txt"))).unwrap();
    let paragraphs = text.split("\n\n");
    let rows: Vec<Row> = paragraphs.filter_map(parse).collect();
    for row in &rows {
        assert!(
            row.field("try").is_some() && row.field("must").is_some(),
            "{row:?}"
        );
    }
    rows
}

fn parse(paragraph: &str) -> Option<Row> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in paragraph.lines().filter(|line| !line.starts_with('#')) {
        if let (Some(more), Some((_, value))) = (line.strip_prefix("  "), fields.last_mut()) {
            value.push('\n');
            value.push_str(more);
        } else if !line.is_empty() {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
            fields.push((name.to_owned(), value.trim_start().to_owned()));
        }
    }
    let at = fields.iter().position(|(name, _)| name == "name")?;
    let (_, name) = fields.remove(at);
    Some(Row { name, fields })
}

/// Says all that is wrong at once.
pub fn none_failed(area: &str, failed: &[String]) {
    assert!(
        failed.is_empty(),
        "{} of {area}:\n{}",
        failed.len(),
        failed.join("\n---\n")
    );
}
