//! What a program that was asked one thing printed, in a few words for people.
//!
//! Owns what is taken of it and how much. Must not know what was asked.

/// What it printed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Printed {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// A longer version is no version; it is cut.
const MOST_CHARS: usize = 40;
/// Enough for a sentence with a path; it is cut.
const MOST_WORDS: usize = 160;

impl Printed {
    /// The version in it: the first word with digits around a dot, else the first line, cut to
    /// what can be shown.
    pub(super) fn version(&self) -> Option<String> {
        version(&self.stdout).or_else(|| version(&self.stderr))
    }

    /// What it says first.
    pub(super) fn first_line(&self) -> Option<String> {
        let (out, err) = (lossy(&self.stdout), lossy(&self.stderr));
        let mut lines = out.lines().chain(err.lines()).map(str::trim);
        Some(shown(lines.find(|line| !line.is_empty())?, MOST_WORDS))
    }

    /// The line of a failure that says most to a person.
    pub(super) fn words(&self) -> Option<String> {
        // What went wrong is said there.
        let (err, out) = (lossy(&self.stderr), lossy(&self.stdout));
        let lines = || err.lines().chain(out.lines()).map(str::trim);
        let telling = lines().find(|line| {
            let line = line.to_ascii_lowercase();
            line.contains("error:") || line.contains("not found")
        });
        let line = telling.or_else(|| lines().find(|line| !line.is_empty()))?;
        Some(shown(line, MOST_WORDS)).filter(|words| !words.is_empty())
    }

    /// All of it.
    pub(super) fn text(&self) -> String {
        lossy(&self.stdout) + "\n" + &lossy(&self.stderr)
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(text: &str, most: usize) -> String {
    let mut plain = text.chars().filter(|c| !c.is_control());
    let mut shown: String = plain.by_ref().take(most).collect();
    if plain.next().is_some() && most == MOST_WORDS {
        shown.push('…');
    }
    shown
}

fn version(printed: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(printed);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let numbered =
        |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
    let word = line
        .split(|c: char| c.is_whitespace() || "(),;:/".contains(c))
        .map(|word| word.trim_start_matches('v'))
        .find(numbered);
    Some(shown(word.unwrap_or(line), MOST_CHARS)).filter(|shown| !shown.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_cut_to_something_printable() {
        let long = "x".repeat(500);
        for (printed, expected) in [
            ("2.1.329 (Claude Code)\n", Some("2.1.329")),
            ("codex-cli 0.169.0\n", Some("0.169.0")),
            ("\n\nHermes Agent v0.19.0 (2026.3.2)\n", Some("0.19.0")),
            ("OpenClaw 2026.9.6-beta+1 (abc)", Some("2026.9.6-beta+1")),
            ("goose/1.8.0\x1b[0m", Some("1.8.0[0m")),
            ("\x1b[31mdev build\x07", Some("[31mdev build")),
            (&long, Some(&long[..MOST_CHARS])),
            ("\n \x07 \n", None),
            ("", None),
        ] {
            assert_eq!(
                version(printed.as_bytes()).as_deref(),
                expected,
                "{printed:?}"
            );
        }
        assert_eq!(version(b"\xff\xfe").as_deref(), Some("\u{fffd}\u{fffd}"));
    }

    #[test]
    fn failures_words_are_one_bounded_line() {
        let words = |stdout: &str, stderr: &str| {
            let printed = Printed {
                stdout: stdout.into(),
                stderr: stderr.into(),
            };
            printed.words()
        };
        let node = "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module '/x/cli.js'\n    at x\n\nNode.js v22\n";
        let long = "é".repeat(500);
        for (stdout, stderr, expected) in [
            ("", node, Some("Error: Cannot find module '/x/cli.js'")),
            (
                "",
                "env: 'node': No such file or directory\n",
                Some("env: 'node': No such file or directory"),
            ),
            (
                "hello",
                "\n\n\x1b[31mbroken\x1b[0m\nmore",
                Some("[31mbroken[0m"),
            ),
            ("only here", "", Some("only here")),
            ("", "\n", None),
        ] {
            assert_eq!(words(stdout, stderr).as_deref(), expected);
        }
        let cut = words("", &long).unwrap();
        assert_eq!(cut.chars().count(), MOST_WORDS + 1);
    }
}
