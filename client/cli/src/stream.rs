//! The text of a turn as it grows.
//!
//! Pure: deltas in, what to print out. Owns what was printed already, so that a text told again
//! isn't printed again. Must not know where it is printed.

use super::whole;

/// What of a turn's text was printed.
#[derive(Clone, Default, Debug)]
pub struct TextView {
    message: Option<u32>,
    printed: String,
    mid_line: bool,
}

impl TextView {
    /// Has anything been printed?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.message.is_none()
    }

    /// Does the next thing printed go on in a row of text?
    #[must_use]
    pub const fn is_mid_line(&self) -> bool {
        self.mid_line
    }

    /// Its row was ended by something else on the same screen.
    pub const fn broken(&mut self) {
        self.mid_line = false;
    }

    /// A piece of a message; `offset` counts the bytes of that message before it.
    pub fn delta(&mut self, message: u32, offset: u64, text: &str) -> String {
        let mut shown = String::new();
        if self.message != Some(message) {
            if self.mid_line {
                shown.push('\n');
            }
            self.message = Some(message);
            self.printed.clear();
        }
        let told = u64::try_from(self.printed.len()).unwrap_or(u64::MAX);
        let known = usize::try_from(told.saturating_sub(offset)).unwrap_or(usize::MAX);
        // What isn't at a boundary isn't the text we have: then all of it is new.
        let fresh = text.get(known.min(text.len())..).unwrap_or(text);
        self.printed.push_str(fresh);
        shown.push_str(fresh);
        if let Some(last) = shown.chars().last() {
            self.mid_line = last != '\n';
        }
        shown
    }

    /// Was the whole of this printed, which is only the beginning and the end of it?
    #[must_use]
    pub fn has_whole_of(&self, cut: &str) -> bool {
        whole::is_of(cut, &self.printed)
    }

    /// The end of a text of which all was printed: the end of its last line.
    pub fn end_printed(&mut self) -> &'static str {
        match std::mem::take(&mut self.mid_line) {
            true => "\n",
            false => "",
        }
    }

    /// The end: what of the whole text wasn't printed yet, and the end of its last line.
    pub fn end(&mut self, whole: &str) -> String {
        let mut shown = match whole.strip_prefix(self.printed.as_str()) {
            Some(rest) => rest.to_owned(),
            // A shortened final text, or an earlier message's: it was printed.
            None if self.printed.starts_with(whole) => String::new(),
            None if self.mid_line => format!("\n{whole}"),
            None => whole.to_owned(),
        };
        let ends = if shown.is_empty() {
            !self.mid_line
        } else {
            shown.ends_with('\n')
        };
        if !ends {
            shown.push('\n');
        }
        self.mid_line = false;
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_told_again_is_printed_once() {
        let mut view = TextView::default();
        assert_eq!(view.delta(0, 0, "hello "), "hello ");
        assert_eq!(view.delta(0, 0, "hello wor"), "wor");
        assert_eq!(view.delta(0, 9, "ld"), "ld");
        assert_eq!(view.delta(0, 0, "hello"), "");
        assert_eq!(view.end("hello world"), "\n");
    }

    #[test]
    fn stream_starts_messages_on_lines_and_completes_ends() {
        let mut view = TextView::default();
        assert_eq!(view.delta(0, 0, "one"), "one");
        assert_eq!(view.delta(1, 0, "tw"), "\ntw");
        assert_eq!(view.end("two"), "o\n");
    }

    #[test]
    fn stream_without_deltas_is_the_whole_text() {
        assert_eq!(TextView::default().end("all\n"), "all\n");
        assert_eq!(TextView::default().end("all"), "all\n");
        assert_eq!(TextView::default().end(""), "");
    }

    #[test]
    fn stream_printed_whole_ends_without_its_cut() {
        let mut view = TextView::default();
        assert!(!view.has_whole_of("a\n[… 3 bytes left out …]\ne"));
        let _printed = view.delta(0, 0, "abcde");
        assert!(view.has_whole_of("a\n[… 3 bytes left out …]\ne"));
        assert_eq!((view.end_printed(), view.end_printed()), ("\n", ""));
    }

    #[test]
    fn stream_end_that_differs_is_printed_whole() {
        let mut view = TextView::default();
        let _printed = view.delta(0, 0, "draft");
        assert_eq!(view.end("final"), "\nfinal\n");
    }
}
