//! How what is written looks: in which colours, how wide, and in which characters.
//!
//! Owns the choice of `--color`, and what the environment says. Colours are the sixteen of the
//! terminal's own palette, so that they are readable on whatever it shows. Must not know what is
//! written.

use std::env;
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicU8, Ordering};

use terminal_size::{Width, terminal_size_of};

/// Narrower than this, nothing is made to fit: whoever has such a terminal scrolls.
const LEAST_COLUMNS: usize = 20;

/// When there are colours: `--color`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Colours {
    /// On a terminal, unless the environment says otherwise.
    #[default]
    Auto,
    /// In a file, too.
    Always,
    /// Nowhere.
    Never,
}

static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// What `--color` says, for everything that this process writes.
pub fn choose(colours: Colours) {
    let number = match colours {
        Colours::Auto => 0,
        Colours::Always => 1,
        Colours::Never => 2,
    };
    CHOSEN.store(number, Ordering::Relaxed);
}

fn chosen() -> Colours {
    match CHOSEN.load(Ordering::Relaxed) {
        1 => Colours::Always,
        2 => Colours::Never,
        _ => Colours::Auto,
    }
}

/// What a piece of text is, as its colour tells.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// What stands above others.
    Head,
    /// Well done.
    Good,
    /// Gone wrong.
    Bad,
    /// On its way.
    Busy,
    /// It waits, or somebody should look at it.
    Waits,
    /// Of less interest.
    Faint,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Head => "1",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Busy => "36",
            Self::Waits => "33",
            Self::Faint => "2",
        }
    }
}

/// How something is to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Has it colours?
    pub coloured: bool,
    /// May it have characters that aren't ASCII?
    pub unicode: bool,
    /// Columns that there are; none where nobody counts them.
    pub columns: Option<usize>,
}

impl Style {
    /// As it is written to a file.
    pub const PLAIN: Self = Self {
        coloured: false,
        unicode: true,
        columns: None,
    };

    /// That of standard output.
    #[must_use]
    pub fn of_stdout() -> Self {
        let columns = terminal_size_of(io::stdout());
        Self::of(io::stdout().is_terminal(), columns.map(|(width, _)| width))
    }

    /// That of standard error.
    #[must_use]
    pub fn of_stderr() -> Self {
        let columns = terminal_size_of(io::stderr());
        Self::of(io::stderr().is_terminal(), columns.map(|(width, _)| width))
    }

    fn of(terminal: bool, columns: Option<Width>) -> Self {
        let said = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let columns = columns.map(|Width(columns)| usize::from(columns));
        Self {
            coloured: is_coloured(chosen(), terminal, said),
            unicode: is_unicode(said),
            // Some terminals don't know their width, and say 0.
            columns: columns
                .filter(|columns| terminal && *columns > 0)
                .map(|columns| columns.max(LEAST_COLUMNS)),
        }
    }

    /// A text in the colour of its tone.
    #[must_use]
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        if self.coloured && tone != Tone::Plain && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", tone.code())
        } else {
            text.to_owned()
        }
    }

    /// What stands between two ends of a range.
    #[must_use]
    pub const fn dash(&self) -> &'static str {
        if self.unicode { "–" } else { "-" }
    }

    /// What stands for the rest of something.
    #[must_use]
    pub const fn ellipsis(&self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }
}

/// <https://no-color.org> and <https://bixense.com/clicolors>: who says no is heard first.
fn is_coloured(chosen: Colours, terminal: bool, said: impl Fn(&str) -> Option<String>) -> bool {
    match chosen {
        Colours::Always => true,
        Colours::Never => false,
        Colours::Auto if said("NO_COLOR").is_some() => false,
        Colours::Auto if said("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
        Colours::Auto => {
            let plain = said("TERM").is_none_or(|term| term == "dumb");
            terminal && !plain && said("CLICOLOR").is_none_or(|value| value != "0")
        }
    }
}

/// Does the locale's encoding have all characters? The first of the three that is set counts.
fn is_unicode(said: impl Fn(&str) -> Option<String>) -> bool {
    let mut names = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let locale = names.find_map(said).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among<'a>(set: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn colours_are_as_the_option_and_environment_say() {
        let auto =
            |terminal, set: &[(&str, &str)]| is_coloured(Colours::Auto, terminal, among(set));
        let xterm = ("TERM", "xterm");
        assert!(auto(true, &[xterm]) && !auto(false, &[xterm]));
        assert!(!auto(true, &[xterm, ("NO_COLOR", "1")]));
        assert!(!auto(true, &[("TERM", "dumb")]) && !auto(true, &[]));
        assert!(auto(false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!auto(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!auto(true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]));
        let set = [("NO_COLOR", "1")];
        assert!(is_coloured(Colours::Always, false, among(&set)));
        assert!(!is_coloured(Colours::Never, true, among(&[])));
    }

    #[test]
    fn locale_without_utf8_gets_ascii() {
        let unicode = |set: &[(&str, &str)]| is_unicode(among(set));
        assert!(unicode(&[("LANG", "de_DE.UTF-8")]));
        assert!(unicode(&[("LC_ALL", "C.utf8"), ("LANG", "C")]));
        assert!(!unicode(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(!unicode(&[]));
    }

    #[test]
    fn painted_text_is_itself_without_colours() {
        let coloured = Style {
            coloured: true,
            ..Style::PLAIN
        };
        assert_eq!(coloured.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(coloured.paint(Tone::Plain, "x"), "x");
        assert_eq!(Style::PLAIN.paint(Tone::Bad, "x"), "x");
    }
}
