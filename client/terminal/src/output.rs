//! The two streams of the program.
//!
//! Owns writing to standard output and standard error, what is safe on a terminal, and how an error
//! looks. Must not know what it prints.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// Writes to standard output at once.
///
/// # Errors
/// When it can't be written; a reader that left is `BrokenPipe`.
pub fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes one line to standard output.
///
/// # Errors
/// As [`out`].
pub fn out_line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

/// Writes one line of JSON to standard output; on a terminal it is still JSON, and harmless.
///
/// # Errors
/// As [`out`].
pub fn out_json(line: &str) -> io::Result<()> {
    if out_is_terminal() {
        out_line(&safe_json(line))
    } else {
        out_line(line)
    }
}

/// JSON allows such characters only inside of strings, where they may be spelt out.
fn safe_json(line: &str) -> Cow<'_, str> {
    if !line.contains(obeyed) {
        return Cow::Borrowed(line);
    }
    let mut shown = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        if obeyed(c) {
            let _infallible = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Writes to standard error. Whoever closed it doesn't want to know.
pub fn err(text: &str) {
    let _closed = io::stderr().lock().write_all(text.as_bytes());
}

/// `note: …` on standard error.
pub fn note(text: &str) {
    err(&format!("note: {}\n", one_line(text)));
}

/// `error: …` and `hint: …` on standard error.
pub fn error(text: &str, hint: Option<&str>) {
    err(&error_text(text, hint));
}

/// The shape of an error.
#[must_use]
pub fn error_text(text: &str, hint: Option<&str>) -> String {
    let mut shown = format!("error: {}\n", one_line(text.trim_end_matches('.')));
    if let Some(hint) = hint {
        let _infallible = writeln!(shown, "hint: {}", one_line(hint.trim_end_matches('.')));
    }
    shown
}

/// Is standard output a terminal?
#[must_use]
pub fn out_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Is standard error a terminal that can redraw a line?
#[must_use]
pub fn err_is_terminal() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Text from elsewhere, with everything spelt out that a terminal would obey: escapes, other
/// controls except newline and tab, and marks that reorder text.
#[must_use]
pub fn safe(text: &str) -> Cow<'_, str> {
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\r' && chars.peek() == Some(&'\n') {
            continue;
        }
        if obeyed(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

fn obeyed(c: char) -> bool {
    let bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    bidi || (c.is_control() && c != '\n' && c != '\t')
}

fn one_line(text: &str) -> String {
    safe(text.trim_end()).replace('\n', "\n  ")
}

/// `1 turn`, `2 turns`.
#[must_use]
pub fn counted(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {one}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_kind_is_no_plural() {
        let shown = [0, 1, 2].map(|number| counted(number, "turn"));
        assert_eq!(shown, ["0 turns", "1 turn", "2 turns"]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_spelt_out() {
        assert_eq!(safe("plain\n\ttext ü 漢"), "plain\n\ttext ü 漢");
        assert_eq!(safe("a\x1b[2Jb\r\nc\rd"), "a\\u{1b}[2Jb\nc\\u{d}d");
        assert_eq!(safe("\u{9b}31m\u{7f}"), "\\u{9b}31m\\u{7f}");
        assert_eq!(safe("x\u{202e}y\u{2066}z"), "x\\u{202e}y\\u{2066}z");
    }

    #[test]
    fn json_on_a_terminal_stays_the_same_value() {
        let line = "{\"text\":\"a\u{9b}b\u{202e}\"}";
        let shown = safe_json(line);
        assert_eq!(shown, r#"{"text":"a\u009bb\u202e"}"#);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(line));
    }

    #[test]
    fn an_error_is_a_sentence_and_a_hint_without_full_stops() {
        assert_eq!(
            error_text("the session is busy.", Some("wait, or use `--mode queue`.")),
            "error: the session is busy\nhint: wait, or use `--mode queue`\n"
        );
        assert_eq!(error_text("a\nb\x1b", None), "error: a\n  b\\u{1b}\n");
    }
}
