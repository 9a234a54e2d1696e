//! How lists look to people. Must not know what is in them.

use std::io::{self, Write as _};

use serde_json::Value;

/// Rows below a head, each column as wide as it has to be.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let mut out = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let blanks = width - cell.chars().count().min(*width);
            line.push_str(cell);
            line.push_str(&" ".repeat(blanks + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    print(&out)
}

/// One JSON object on a line.
pub(super) fn json(value: &Value) -> io::Result<()> {
    print(&format!("{value}\n"))
}

/// A sentence.
pub(super) fn line(text: &str) -> io::Result<()> {
    print(&format!("{text}\n"))
}

/// A reader that left has what it wanted.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
