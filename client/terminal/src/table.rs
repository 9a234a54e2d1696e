//! Rows under each other, and sentences, in the width that there is.
//!
//! Owns how wide a column is, wide characters included, which columns give way on a narrow terminal,
//! and where a line is broken. Must not know what is in them.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::output::safe;
use crate::style::{Style, Tone};

/// Blanks between two columns.
const GAP: usize = 2;

/// A column of a table. Those on the right are left out first where there is no room.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    head: &'a str,
    least: Option<usize>,
    stays: bool,
}

impl<'a> Column<'a> {
    /// One that is shown whole, or not at all.
    #[must_use]
    pub const fn new(head: &'a str) -> Self {
        Self {
            head,
            least: None,
            stays: false,
        }
    }

    /// One whose cells may be cut, to no less than this.
    #[must_use]
    pub const fn cut(head: &'a str, least: usize) -> Self {
        Self {
            least: Some(least),
            ..Self::new(head)
        }
    }

    /// The same, and never left out.
    #[must_use]
    pub const fn that_stays(self) -> Self {
        Self {
            stays: true,
            ..self
        }
    }
}

/// What is in one place of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A text, and what it is.
    #[must_use]
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// A table without lines: two blanks between its columns, each row in one line.
#[must_use]
pub fn table(columns: &[Column<'_>], rows: &[Vec<Cell>], style: &Style) -> String {
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| row.iter().map(flat).collect())
        .collect();
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|place| {
            let cells = rows.iter().filter_map(|row| row.get(place));
            let widest = cells.map(|cell| cell.text.width()).max().unwrap_or(0);
            widest.max(columns[place].head.width())
        })
        .collect();
    let shown = match style.columns {
        Some(room) => fit(columns, &mut widths, room),
        None => (0..columns.len()).collect(),
    };
    let mut text = String::new();
    let head: Vec<Cell> = columns
        .iter()
        .map(|column| Cell::toned(column.head, Tone::Head))
        .collect();
    for row in std::iter::once(&head).chain(&rows) {
        line(&mut text, row, &shown, &widths, style);
    }
    text
}

/// A cell in one line, safe.
fn flat(cell: &Cell) -> Cell {
    let text = safe(&cell.text).replace(['\n', '\t'], " ");
    Cell::toned(text, cell.tone)
}

/// Which columns are shown, and how wide those are that can be cut.
fn fit(columns: &[Column<'_>], widths: &mut [usize], room: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let least = |place: usize, width: usize| columns[place].least.unwrap_or(width).min(width);
    let taken = |shown: &[usize], width: &dyn Fn(usize) -> usize| {
        let all: usize = shown.iter().map(|place| width(*place) + GAP).sum();
        all.saturating_sub(GAP)
    };
    loop {
        let at_least = taken(&shown, &|place| least(place, widths[place]));
        let last = shown.iter().rposition(|place| !columns[*place].stays);
        match last {
            Some(last) if at_least > room => shown.remove(last),
            _ => break,
        };
    }
    // From the right, too: what comes first is what the table is about.
    for place in shown.iter().rev().copied() {
        let over = taken(&shown, &|place| widths[place]).saturating_sub(room);
        let least = least(place, widths[place]);
        widths[place] = widths[place].saturating_sub(over).max(least);
    }
    // Even what stays may be too much.
    for place in shown.iter().rev().copied() {
        let over = taken(&shown, &|place| widths[place]).saturating_sub(room);
        widths[place] = widths[place].saturating_sub(over).max(1);
    }
    shown
}

fn line(text: &mut String, row: &[Cell], shown: &[usize], widths: &[usize], style: &Style) {
    let mut blanks = 0;
    for place in shown {
        let Some(cell) = row.get(*place) else {
            continue;
        };
        let cut = cut(&cell.text, widths[*place], style);
        if !cut.is_empty() {
            text.push_str(&" ".repeat(blanks));
            text.push_str(&style.paint(cell.tone, &cut));
            blanks = 0;
        }
        blanks += widths[*place].saturating_sub(cut.width()) + GAP;
    }
    text.push('\n');
}

/// As much of a text as fits, with a sign that there is more.
#[must_use]
pub fn cut(text: &str, room: usize, style: &Style) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let sign = style.ellipsis();
    let sign = if sign.width() < room { sign } else { "" };
    let mut left = room - sign.width();
    let mut cut = String::new();
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        cut.push(c);
    }
    cut.truncate(cut.trim_end().len());
    cut.push_str(sign);
    cut
}

/// A text of one paragraph, broken between words where the terminal ends. What follows the first
/// line begins with `indent`.
#[must_use]
pub fn wrapped(text: &str, indent: &str, style: &Style) -> String {
    let Some(room) = style.columns else {
        return text.to_owned();
    };
    let mut shown = String::new();
    let mut taken = 0;
    // Several blanks are a column.
    for word in text.split_inclusive(' ') {
        let wide = word.trim_end().width();
        if taken + wide > room && taken > indent.width() {
            shown.truncate(shown.trim_end().len());
            shown.push('\n');
            shown.push_str(indent);
            taken = indent.width();
        }
        shown.push_str(word);
        taken += word.width();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<const N: usize>(rows: &[[&str; N]]) -> Vec<Vec<Cell>> {
        let row = |row: &[&str; N]| row.iter().map(|text| Cell::from(*text)).collect();
        rows.iter().map(row).collect()
    }

    fn wide(columns: usize) -> Style {
        Style {
            columns: Some(columns),
            ..Style::PLAIN
        }
    }

    #[test]
    fn table_columns_fit_wide_characters() {
        let rows = rows(&[["漢字", "x"], ["a\nb", "y"]]);
        let columns = [Column::new("n"), Column::new("m")];
        assert_eq!(
            table(&columns, &rows, &Style::PLAIN),
            "n     m\n漢字  x\na b   y\n"
        );
    }

    #[test]
    fn table_drops_columns_from_the_right_first() {
        let columns = [
            Column::new("JOB").that_stays(),
            Column::new("STATE"),
            Column::new("AGENT"),
            Column::cut("PROMPT", 8).that_stays(),
        ];
        let rows = rows(&[["j1", "completed", "claude", "write a poem about it"]]);
        assert_eq!(
            table(&columns, &rows, &wide(46)),
            "JOB  STATE      AGENT   PROMPT\n\
             j1   completed  claude  write a poem about it\n"
        );
        assert_eq!(
            table(&columns, &rows, &wide(36)),
            "JOB  STATE      AGENT   PROMPT\n\
             j1   completed  claude  write a poe…\n"
        );
        assert_eq!(
            table(&columns, &rows, &wide(30)),
            "JOB  STATE      PROMPT\n\
             j1   completed  write a poem…\n"
        );
        for columns_there in 5..60 {
            for line in table(&columns, &rows, &wide(columns_there)).lines() {
                assert!(line.width() <= columns_there, "{columns_there}: {line}");
            }
        }
    }

    #[test]
    fn table_in_ascii_is_cut_with_full_stops() {
        let ascii = Style {
            unicode: false,
            ..wide(8)
        };
        let columns = [Column::cut("PROMPT", 4)];
        let shown = table(&columns, &rows(&[["write a poem"]]), &ascii);
        assert_eq!(shown, "PROMPT\nwrite...\n");
    }

    #[test]
    fn table_colours_take_no_room() {
        let coloured = Style {
            coloured: true,
            ..Style::PLAIN
        };
        let columns = [Column::new("A"), Column::new("B")];
        let rows = [vec![Cell::toned("x", Tone::Good), Cell::from("y")]];
        assert_eq!(
            table(&columns, &rows, &coloured),
            "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n\x1b[32mx\x1b[0m  y\n"
        );
    }

    #[test]
    fn sentence_is_broken_between_words() {
        let text = "turns    1 in flight, 3 sent, 0 failed";
        assert_eq!(
            wrapped(text, "         ", &wide(24)),
            "turns    1 in flight, 3\n         sent, 0 failed"
        );
        assert_eq!(wrapped(text, "  ", &Style::PLAIN), text);
    }
}
