//! Rows under each other.
//!
//! Owns how wide a column is, wide characters included. Must not know what is in it.

use comfy_table::{ContentArrangement, Table, presets};

use crate::output::safe;

/// A table without lines: its columns as wide as they need, two blanks between them.
#[must_use]
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        // A row stays one line, however narrow the terminal: it may be searched for.
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(head);
    for row in rows {
        table.add_row(row.iter().map(|cell| safe(cell).replace('\n', " ")));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut shown = String::new();
    for line in table.lines() {
        shown.push_str(line.trim_end());
        shown.push('\n');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_fit_wide_characters() {
        let rows = [["漢字", "x"], ["a\nb", "y"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&["n", "m"], &rows), "n     m\n漢字  x\na b   y\n");
    }
}
