//! How lists look to people. Must not know what is in them.

use std::io;

use agentd_terminal::output;
use agentd_terminal::style::Style;
use agentd_terminal::table::{self, Cell, Column};
use serde_json::Value;

/// As much of the first column, and of the last one, is seen before columns on the right are left
/// out.
const LEAST: usize = 14;

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

/// The same in the width that there is: what is on the right gives way first.
pub(super) fn fitted(head: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    print(&in_width(head, rows, &Style::of_stdout()))
}

fn in_width(head: &[&str], rows: &[Vec<String>], style: &Style) -> String {
    let last = head.len().saturating_sub(1);
    let columns: Vec<Column<'_>> = (head.iter().enumerate())
        .map(|(place, head)| match place {
            0 => Column::cut(head, LEAST).that_stays(),
            place if place == last => Column::cut(head, LEAST),
            _ => Column::new(head),
        })
        .collect();
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| Cell::from(cell.as_str())).collect())
        .collect();
    table::table(&columns, &rows, style)
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
    match output::out(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_providers_fits_its_terminal() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row([
                "anthropic",
                "ANTHROPIC_API_KEY (environment)",
                "https://api.anthropic.com/v1/messages",
            ]),
            row([
                "a-provider-with-a-long-name",
                "",
                "there is no address, and it is none of those known",
            ]),
        ];
        for columns in [80, 60, 40, 20] {
            let style = Style {
                columns: Some(columns),
                ..Style::PLAIN
            };
            let shown = in_width(&["PROVIDER", "KEY", "ADDRESS"], &rows, &style);
            let widest = shown.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{columns}: {shown}");
            assert!(shown.contains("anthropic"), "{shown}");
        }
    }
}
