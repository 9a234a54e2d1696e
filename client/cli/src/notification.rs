//! A word to the terminal that a long turn has ended.
//!
//! Owns the escape sequences. Must not know turns.

use std::time::Duration;

use super::output;

/// What is told where, when something took longer than that.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Notification {
    /// What is quicker needs no word: whoever waits for it looks on.
    pub(super) after: Duration,
}

impl Notification {
    /// Of an option in seconds.
    pub(super) fn of(after: Option<f64>) -> Option<Self> {
        let after = Duration::try_from_secs_f64(after?).ok()?;
        Some(Self { after })
    }

    /// Tells it, where standard error is a terminal and it took long enough.
    pub(super) fn tell(self, text: &str, took: Duration) {
        if took >= self.after && output::err_is_terminal() {
            let in_tmux = std::env::var_os("TMUX").is_some_and(|tmux| !tmux.is_empty());
            output::err(&sequence(text, in_tmux));
        }
    }
}

/// OSC 9, which most terminals of today show as a notification and all others skip, and a bell for
/// those. tmux passes on what is wrapped for it, where `allow-passthrough` lets it.
fn sequence(text: &str, in_tmux: bool) -> String {
    let text = output::safe_line(text);
    let osc = format!("\x1b]9;{text}\x07");
    if in_tmux {
        format!("\x1bPtmux;\x1b{osc}\x1b\\\x07")
    } else {
        format!("{osc}\x07")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_is_one_sequence_whatever_the_text() {
        assert_eq!(
            sequence("a\x1b]0;b\x07", false),
            "\x1b]9;a\\u{1b}]0;b\\u{7}\x07\x07"
        );
        assert_eq!(sequence("a", true), "\x1bPtmux;\x1b\x1b]9;a\x07\x1b\\\x07");
    }

    #[test]
    fn notification_has_a_time_it_waits_for() {
        assert_eq!(Notification::of(None), None);
        let after = Notification::of(Some(10.0)).map(|one| one.after);
        assert_eq!(after, Some(Duration::from_secs(10)));
        assert_eq!(Notification::of(Some(f64::INFINITY)), None);
    }
}
