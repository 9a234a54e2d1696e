//! The two streams of the program.
//!
//! Owns writing to standard output and standard error, what is safe on a terminal, and how an error
//! looks. Must not know what it prints.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use super::closed_stdout;
use super::style::Style;
use super::table::wrapped;

/// Writes to standard output at once.
///
/// # Errors
/// When it can't be written; a reader that left is `BrokenPipe`.
pub fn out(text: &str) -> io::Result<()> {
    write(&[text])
}

/// Whatever can't be written is an error that says so, a reader that left apart: it has what it
/// wanted.
fn write(parts: &[&str]) -> io::Result<()> {
    is_open()?;
    let mut stdout = io::stdout().lock();
    let mut write = || {
        for part in parts {
            stdout.write_all(part.as_bytes())?;
        }
        stdout.flush()
    };
    write().map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => error,
        kind => io::Error::new(kind, format!("can't write to standard output: {error}")),
    })
}

/// Can anything be written to standard output?
///
/// # Errors
/// When it was closed before the program began.
pub fn is_open() -> io::Result<()> {
    match closed_stdout::was_closed() {
        true => Err(io::Error::other("standard output is closed")),
        false => Ok(()),
    }
}

/// Writes one line to standard output.
///
/// # Errors
/// As [`out`].
pub fn out_line(text: &str) -> io::Result<()> {
    // `println!` would panic where the reader has left.
    write(&[text, "\n"])
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
    if !line.contains(|c| obeyed(c) || joins(c)) {
        return Cow::Borrowed(line);
    }
    let mut shown = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        if obeyed(c) || joins(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _infallible = write!(shown, "\\u{unit:04x}");
            }
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
    let note = format!("note: {}\n", one_line(text));
    err(&folded(&note, &Style::of_stderr()));
}

/// `error: …` and `hint: …` on standard error.
pub fn error(text: &str, hint: Option<&str>) {
    err(&folded(&error_text(text, hint), &Style::of_stderr()));
}

/// Lines that are broken between words where the terminal ends.
fn folded(text: &str, style: &Style) -> String {
    let lines = text.lines().map(|line| wrapped(line, "  ", style) + "\n");
    lines.collect()
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

/// Text from elsewhere, with everything spelt out that a terminal would obey, and that would keep
/// somebody from seeing what is there: escapes, other controls except newline and tab, other ends of
/// lines, marks that reorder text, and what has no looks of its own.
#[must_use]
pub fn safe(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| obeyed(c) || joins(c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    let mut before = None;
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        // Languages and emoji need these; in what is ASCII they only hide.
        let is_of_words = |beside: Option<char>| beside.is_none_or(|c| !c.is_ascii());
        let is_needed = is_of_words(before) && is_of_words(next) && before.or(next).is_some();
        if c == '\r' && next == Some('\n') {
            // One end of a line.
        } else if obeyed(c) || (joins(c) && !is_needed) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        before = Some(c);
    }
    Cow::Owned(shown)
}

/// The same in one line: newlines and tabs are spelt out, too.
#[must_use]
pub fn safe_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 16);
    for (number, line) in text.split('\n').enumerate() {
        shown.push_str(if number == 0 { "" } else { "\\n" });
        shown.push_str(&safe(line).replace('\t', "\\t"));
    }
    shown
}

/// Does a terminal do something at it, or show nothing of it?
fn obeyed(c: char) -> bool {
    // In order: marks of direction; ends of lines; what has no width, or looks like nothing.
    let is_direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_end = matches!(c, '\u{2028}' | '\u{2029}');
    let is_unseen = matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e00ff}'
            | '\u{e01f0}'..='\u{e0fff}'
    );
    let is_control = c.is_control() && c != '\n' && c != '\t';
    is_control || is_direction || is_end || is_unseen
}

/// Does it only say whether its neighbours are joined?
const fn joins(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
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
    fn safe_text_spells_out_what_is_not_seen() {
        for hidden in [
            '\u{85}',
            '\u{ad}',
            '\u{200b}',
            '\u{200c}',
            '\u{200d}',
            '\u{2028}',
            '\u{2029}',
            '\u{2060}',
            '\u{3164}',
            '\u{feff}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e007f}',
        ] {
            let text = format!("rm a{hidden}b");
            let spelt = format!("rm a{}b", hidden.escape_unicode());
            assert_eq!(safe(&text), spelt);
            assert_eq!(error_text(&text, None), format!("error: {spelt}\n"));
        }
        for kept in ["👨\u{200d}👩", "می\u{200c}خواهم", "❤\u{fe0f}", "a\u{301}"] {
            assert_eq!(safe(kept), kept);
        }
        assert_eq!(safe("\u{200d}"), "\\u{200d}");
    }

    #[test]
    fn safe_line_is_one_whatever_it_was() {
        assert_eq!(
            safe_line("a\r\nb\tc\u{2028}d\n"),
            "a\\u{d}\\nb\\tc\\u{2028}d\\n"
        );
    }

    #[test]
    fn json_on_a_terminal_stays_the_same_value() {
        let line = "{\"text\":\"a\u{9b}b\u{202e}\u{e0041}\"}";
        let shown = safe_json(line);
        assert_eq!(shown, r#"{"text":"a\u009bb\u202e\udb40\udc41"}"#);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(line));
    }

    #[test]
    fn hint_is_broken_between_words() {
        let narrow = Style {
            columns: Some(24),
            ..Style::PLAIN
        };
        let error = error_text("nobody is there", Some("`agentctl start` starts it"));
        assert_eq!(
            folded(&error, &narrow),
            "error: nobody is there\nhint: `agentctl start`\n  starts it\n"
        );
    }

    #[test]
    fn error_is_sentence_and_hint_without_full_stops() {
        assert_eq!(
            error_text("the session is busy.", Some("wait, or use `--mode queue`.")),
            "error: the session is busy\nhint: wait, or use `--mode queue`\n"
        );
        assert_eq!(error_text("a\nb\x1b", None), "error: a\n  b\\u{1b}\n");
    }
}
