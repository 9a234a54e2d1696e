//! The line that answers a refused request.
//!
//! Owns how much of a request its refusal repeats. Must not know why anything is refused.

use super::ErrorLine;
use crate::envelope::Rejected;
use crate::limits::MAX_REFUSAL;

impl ErrorLine {
    /// The answer to a refused request.
    #[must_use]
    pub fn refusal(rejected: Rejected) -> Self {
        Self {
            code: rejected.code,
            error: cut(rejected.error),
            hint: rejected.hint.map(cut),
            choices: rejected.choices,
            retryable: rejected.code.retryable(),
            turn: None,
            seq: None,
            replayed: false,
        }
    }
}

/// A value that was asked for may be as long as a line to the daemon: one from it is shorter.
fn cut(mut text: String) -> String {
    if text.len() > MAX_REFUSAL {
        let at = text.floor_char_boundary(MAX_REFUSAL);
        let more = text.len() - at;
        text.truncate(at);
        text.push_str(&format!("… ({more} bytes more)"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_LINE_OUT;
    use crate::line::{Line, Telling};
    use crate::{Envelope, Request};

    #[test]
    fn refusal_of_something_long_is_a_short_line() {
        let long = "\u{1}ü".repeat(MAX_LINE_OUT);
        let line = serde_json::json!({"prompt": "hi", "start_at": long}).to_string();
        let envelope = Envelope::parse(line.as_bytes()).unwrap();
        let rejected = Request::decode(&envelope).unwrap_err();
        let body = Line::Error(Box::new(ErrorLine::refusal(rejected))).body();
        let line = body.render(None, None, Telling::First);
        assert!(line.len() <= MAX_LINE_OUT, "{} bytes", line.len());
        assert!(line.contains("`start_at` is") && line.contains("bytes more)"));
    }
}
