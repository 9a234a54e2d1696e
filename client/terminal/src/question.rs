//! How what an agent asks leave for is laid out on a terminal.
//!
//! Owns the rows: each shows where a line of the text begins, so that no text can look like another
//! line by filling the screen's width. Must not know who asks, nor what for.

use terminal_size::{Height, Width};

use super::output::safe;

/// Before the first row of each line.
const FIRST: &str = "  ";
/// Before each further one. No first row can begin so.
const FURTHER: &str = "↪ ";
/// Columns that both take.
const MARK: usize = 2;
/// A tab is at most so wide.
const TAB: usize = 8;
/// Narrower than this, rows are not made: whoever has such a terminal scrolls.
const LEAST_COLUMNS: usize = 20;

/// A terminal's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Characters of one row.
    pub columns: usize,
    /// Rows that are seen at once.
    pub rows: usize,
}

impl Size {
    /// That of standard error, where questions are shown, or the usual one.
    #[must_use]
    pub fn of_terminal() -> Self {
        let found = terminal_size::terminal_size_of(std::io::stderr());
        let (Width(columns), Height(rows)) = found.unwrap_or((Width(80), Height(24)));
        Self {
            // Some terminals don't know their width, and say 0.
            columns: match usize::from(columns) {
                0 => 80,
                columns => columns,
            },
            rows: usize::from(rows),
        }
    }
}

/// All of a text, safe, in rows that fit.
#[must_use]
pub fn rows(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(LEAST_COLUMNS);
    let mut rows = Vec::new();
    for line in text.split('\n') {
        let mut row = FIRST.to_owned();
        let mut taken = MARK;
        for c in safe(line).chars() {
            let wide = width(c);
            // The last column stays free: some terminals go on to the next row when it is filled.
            if taken + wide >= columns && taken > MARK {
                rows.push(std::mem::replace(&mut row, FURTHER.to_owned()));
                taken = MARK;
            }
            row.push(c);
            taken += wide;
        }
        rows.push(row);
    }
    rows
}

/// How somebody is asked for a yes: when not all is on the screen, how much there is.
#[must_use]
pub fn approve(rows: usize, size: Size) -> String {
    // The title is above, and this below.
    if rows + 2 > size.rows {
        format!("approve all of the {rows} rows above? Scroll up to see them. [y/N] ")
    } else {
        "approve? [y/N] ".to_owned()
    }
}

/// Columns that a character takes at most.
const fn width(c: char) -> usize {
    match c {
        '\t' => TAB,
        _ if c.is_ascii() => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_rows_show_where_each_line_begins() {
        let text = format!("| echo {}in /safe\u{2028}\nb", " ".repeat(13));
        assert_eq!(
            rows(&text, 22),
            ["  | echo             ", "↪  in /safe\\u{2028}", "  b"]
        );
        for row in rows(&"漢\t".repeat(30), 22) {
            let taken: usize = row.chars().skip(2).map(width).sum();
            assert!(taken + MARK < 22, "{row}");
        }
        assert_eq!(rows("", 80), ["  "]);
    }

    #[test]
    fn question_of_more_than_a_screen_says_so() {
        let size = Size {
            columns: 80,
            rows: 24,
        };
        assert_eq!(approve(22, size), "approve? [y/N] ");
        assert!(approve(23, size).contains("all of the 23 rows"));
    }
}
