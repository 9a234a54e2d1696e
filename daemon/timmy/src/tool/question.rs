//! What a person reads who is asked for leave.
//!
//! Owns that it is all of what a yes allows, and that no text of a model or a stranger looks like what
//! timmy says itself: what timmy knows comes first, in lines of its own, and each line of theirs is
//! marked. What can't be shown whole is not asked for. Must not know tools, nor how it is shown.

use agentd_protocol::limits::{MAX_QUESTION_DETAIL, MAX_QUESTION_TITLE};
use agentd_terminal::output::{safe, safe_line};

/// Before each line of a text that isn't timmy's.
const MARK: &str = "| ";
/// Nobody reads more lines, and what is above them is off the screen.
const MOST_LINES: usize = 200;

/// A question for leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    title: String,
    facts: Vec<String>,
    texts: Vec<String>,
    lines: usize,
}

impl Question {
    /// For leave to do this.
    pub(crate) fn new(title: &str) -> Self {
        Self {
            title: safe_line(title),
            facts: Vec::new(),
            texts: Vec::new(),
            lines: 0,
        }
    }

    /// A line of what there is to know.
    #[must_use]
    pub(crate) fn fact(mut self, fact: &str) -> Self {
        self.facts.push(safe_line(fact));
        self.lines += 1;
        self
    }

    /// A text that is shown whole, and what it is.
    #[must_use]
    pub(crate) fn text(mut self, what: &str, text: &str) -> Self {
        let lines: Vec<String> = text
            .split('\n')
            .map(|line| format!("{MARK}{}", safe(line)))
            .collect();
        let count = match lines.len() {
            1 => "1 line".to_owned(),
            many => format!("{many} lines"),
        };
        self.texts
            .push(format!("{what}, {count}, each behind `{}`:", MARK.trim()));
        self.lines += lines.len() + 1;
        self.texts.extend(lines);
        self
    }

    /// What it asks for leave to do.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// All else.
    ///
    /// # Errors
    /// It can't be shown whole, and this is why, for the model.
    pub(crate) fn detail(&self) -> Result<String, String> {
        let lines: Vec<&str> = self
            .facts
            .iter()
            .chain(&self.texts)
            .map(String::as_str)
            .collect();
        let detail = lines.join("\n");
        let (title_bytes, bytes) = (encoded(&self.title), encoded(&detail));
        // The daemon would cut it, and a yes would be for what wasn't shown.
        if title_bytes > MAX_QUESTION_TITLE {
            return Err(format!(
                "nobody was asked, and it was not done: what it is about has {title_bytes} bytes, \
                 and who is asked is shown all of it or nothing; expected {MAX_QUESTION_TITLE} at \
                 most: use a shorter path or name"
            ));
        }
        if bytes > MAX_QUESTION_DETAIL || self.lines > MOST_LINES {
            return Err(format!(
                "nobody was asked to {}, and it was not done: who is asked is shown all of what is \
                 done or nothing, and this has {bytes} bytes in {} lines; expected \
                 {MAX_QUESTION_DETAIL} bytes and {MOST_LINES} lines at most: do it in shorter \
                 calls, each is asked for; what a script does that a command runs is not shown to \
                 them either, so say it in the reason",
                self.title, self.lines
            ));
        }
        Ok(detail)
    }
}

/// How many bytes it has in a line of the protocol: the daemon cuts what has more than its limit.
fn encoded(text: &str) -> usize {
    // A string without its quotes.
    let encoded = serde_json::Value::from(text).to_string();
    encoded.len().saturating_sub(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_shows_all_in_lines_of_their_own() {
        let asked = Question::new("run it\nin /safe")
            .fact("in /ws\nbecause: I may")
            .fact("because: \u{2028}why")
            .text(
                "command",
                "a\r\n\nin /safe\u{2029}because: no\x1b[2K\u{202e}\u{200b}",
            );
        assert_eq!(asked.title(), "run it\\nin /safe");
        assert_eq!(
            asked.detail().unwrap(),
            "in /ws\\nbecause: I may\nbecause: \\u{2028}why\n\
             command, 3 lines, each behind `|`:\n| a\\u{d}\n| \n\
             | in /safe\\u{2029}because: no\\u{1b}[2K\\u{202e}\\u{200b}"
        );
    }

    #[test]
    fn question_that_is_not_shown_whole_is_none() {
        let of = |text: &str| Question::new("run").text("command", text).detail();
        let head = of("").unwrap().len() + 1;
        let most = MAX_QUESTION_DETAIL - head;
        assert_eq!(
            of(&"x".repeat(most)).unwrap().len(),
            MAX_QUESTION_DETAIL - 1
        );
        assert!(of(&"x".repeat(most + 1)).is_err());
        // As they are told, and shown, these have more.
        assert!(of(&"\"".repeat(most / 2 + 1)).is_err());
        assert!(of(&"\x1b".repeat(most / 6)).is_err());
        assert!(of(&"\n".repeat(MOST_LINES - 2)).is_ok());
        let why = of(&"\n".repeat(MOST_LINES)).unwrap_err();
        assert!(
            why.contains("202 lines") && why.contains("200 lines at most"),
            "{why}"
        );
        let long = Question::new(&"x".repeat(MAX_QUESTION_TITLE + 1));
        assert!(long.detail().unwrap_err().contains("2049 bytes"));
    }
}
