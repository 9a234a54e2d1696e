//! The line that is redrawn while a turn says nothing.
//!
//! Owns how it looks, and that it goes away. Must not know what a turn is doing.

use std::ffi::OsString;
use std::time::Duration;

use agentd_protocol::spoken::span;
use agentd_terminal::question::Size;

use super::output;

const BRAILLE: &[char] = &['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const ASCII: &[char] = &['|', '/', '-', '\\'];

/// What moves, on standard error.
pub(super) struct Spinner {
    frames: &'static [char],
    step: usize,
    drawn: bool,
}

impl Spinner {
    /// One, where standard error is a terminal that can redraw a line.
    pub(super) fn of_terminal() -> Option<Self> {
        output::err_is_terminal().then(|| Self {
            frames: frames(|name| std::env::var_os(name)),
            step: 0,
            drawn: false,
        })
    }

    /// Draws the next picture: these words, and the time.
    pub(super) fn draw(&mut self, words: &str, waited: Duration) {
        let frame = self.frames[self.step % self.frames.len()];
        self.step += 1;
        self.drawn = true;
        let columns = Size::of_terminal().columns;
        let row = row(frame, words, waited, columns);
        output::err(&format!("\r{row}\x1b[K"));
    }

    /// Takes it away, if it is there.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            output::err("\r\x1b[K");
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The pictures that this locale has characters for: the first of the variables that is set says
/// which characters those are, as everywhere in POSIX.
fn frames(variable: impl Fn(&str) -> Option<OsString>) -> &'static [char] {
    let mut set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let locale = set.find_map(|name| variable(name).filter(|value| !value.is_empty()));
    let locale = locale.unwrap_or_default().to_string_lossy().to_lowercase();
    if locale.contains("utf-8") || locale.contains("utf8") {
        BRAILLE
    } else {
        ASCII
    }
}

/// One row of the terminal, and never more: what is drawn over it must cover all of it.
fn row(frame: char, words: &str, waited: Duration, columns: usize) -> String {
    // Tenths of a second would only flicker.
    let time = span(Duration::from_secs(waited.as_secs().max(1)));
    let taken = time.len() + 6;
    let mut room = columns.saturating_sub(taken);
    let safe = output::safe_line(words);
    let mut shown = String::new();
    for c in safe.chars() {
        let wide = if c.is_ascii() { 1 } else { 2 };
        if wide > room {
            break;
        }
        room -= wide;
        shown.push(c);
    }
    let row = format!("{frame} {shown}, {time}");
    // The last column stays free: some terminals go on to the next row when it is filled. Where there
    // is no room for the words their first ones count.
    if room == 0 && taken > columns {
        return format!("{frame} {time}")
            .chars()
            .take(columns.saturating_sub(1))
            .collect();
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinner_is_of_characters_the_locale_has() {
        let of = |set: &[(&str, &str)]| {
            frames(|name| {
                let found = set.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        for set in [
            &[("LANG", "de_DE.UTF-8")][..],
            &[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")],
        ] {
            assert_eq!(of(set), BRAILLE, "{set:?}");
        }
        for set in [
            &[][..],
            &[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")],
            &[("LC_CTYPE", "POSIX"), ("LANG", "de_DE.UTF-8")],
        ] {
            assert_eq!(of(set), ASCII, "{set:?}");
        }
    }

    #[test]
    fn spinner_fits_into_one_row() {
        let row = |words: &str| row('|', words, Duration::from_secs(12), 30);
        assert_eq!(row("thinking"), "| thinking, 12 s");
        assert_eq!(row("a\nb\x1b"), "| a\\nb\\u{1b}, 12 s");
        let long = row(&"x".repeat(100));
        assert!(long.len() < 30 && long.ends_with("x, 12 s"), "{long}");
        for columns in 1..20 {
            for words in ["w is working", "", "漢字漢字"] {
                let row = super::row('⠋', words, Duration::from_secs(1), columns);
                let width = row
                    .chars()
                    .map(|c| if c == '漢' || c == '字' { 2 } else { 1 });
                assert!(width.sum::<usize>() < columns.max(2), "{columns}: {row}");
            }
        }
        let wide = row(&"漢".repeat(100));
        assert!(wide.chars().count() < 25, "{wide}");
    }
}
