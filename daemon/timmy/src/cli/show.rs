//! How lists look to people. Must not know what is in them.

use std::io::{self, Write as _};

use agentd_terminal::style::Style;
use agentd_terminal::table::{self, Cell, Column};
use serde_json::Value;

/// Rows below a head, whole: a model's name that is cut can't be typed.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let columns: Vec<Column<'_>> = head.iter().map(|head| Column::new(head)).collect();
    let cells = |row: &Vec<String>| row.iter().map(Cell::from).collect();
    let rows: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
    let style = Style {
        columns: None,
        ..Style::of_stdout()
    };
    print(&table::table(&columns, &rows, &style))
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
