//! What kind of task a prompt is, and how hard it seems: by its words, its length and what is in it.
//!
//! Owns the classes, and how cues (`classify/cues.txt`) add up. A prompt in whose words nothing says
//! what it is has the class `other`: a rule that asks for a class had better not hold than hold by
//! chance. Deterministic, and asks nobody. Must not know rules or agents.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Formatter};
use std::sync::LazyLock;

/// The cues, as people read them.
const CUES: &str = include_str!("classify/cues.txt");
/// So many words of a prompt are looked at from its beginning, and so many from its end: what is asked
/// stands there, and what it is about between.
const FIRST: usize = 200;
const LAST: usize = 60;
/// A cue counts for more among so many words at the beginning.
const OPENING: usize = 3;
/// Chat is short.
const CHAT: usize = 12;

/// What programs say when they fail.
const FAILURES: &[&str] = &[
    "traceback (most recent",
    "error[e",
    "npm err!",
    "exception in thread",
    "panicked at",
    "segmentation fault",
    "core dumped",
    "typeerror:",
    "keyerror:",
    "referenceerror",
    "modulenotfounderror",
    "syntaxerror:",
    "undefined reference",
    "nullpointerexception",
    "error: ",
    "stack trace",
];
/// What ends in `?` and begins so asks for something to be done.
const REQUESTS: &[&str] = &[
    "can",
    "could",
    "would",
    "kannst",
    "könntest",
    "können",
    "peux",
    "pourrais",
    "pouvez",
    "puedes",
    "podrías",
];

/// What kind of task a prompt is. Of several that have the same cues the first counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Look at code or a change, and judge it.
    CodeReview,
    /// Find out why something fails, and mend it.
    Debugging,
    /// Say it in another language.
    Translation,
    /// Say it in fewer words.
    Summary,
    /// Count, convert, sort or extract what is in tables and files.
    Data,
    /// Write or improve prose.
    Writing,
    /// Do something on a machine: run, install, move, deploy.
    Command,
    /// Write or change code.
    CodeChange,
    /// Say what is so, and why.
    Question,
    /// Greetings, thanks and small talk.
    Chat,
    /// Nothing says what it is.
    Other,
}

impl Class {
    /// Each of them.
    pub const ALL: &[Self] = &[
        Self::CodeReview,
        Self::Debugging,
        Self::Translation,
        Self::Summary,
        Self::Data,
        Self::Writing,
        Self::Command,
        Self::CodeChange,
        Self::Question,
        Self::Chat,
        Self::Other,
    ];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CodeReview => "code-review",
            Self::Debugging => "debugging",
            Self::Translation => "translation",
            Self::Summary => "summary",
            Self::Data => "data",
            Self::Writing => "writing",
            Self::Command => "command",
            Self::CodeChange => "code-change",
            Self::Question => "question",
            Self::Chat => "chat",
            Self::Other => "other",
        }
    }
}

impl Display for Class {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How hard a prompt seems.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Difficulty {
    /// One small step, or one fact.
    Easy,
    /// Several steps, or some thought.
    Medium,
    /// Many parts, or easy to get wrong.
    Hard,
}

impl Difficulty {
    /// Each of them.
    pub const ALL: &[Self] = &[Self::Easy, Self::Medium, Self::Hard];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Easy => "easy",
            Self::Medium => "medium",
            Self::Hard => "hard",
        }
    }
}

impl Display for Difficulty {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a cue speaks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum For {
    Class(Class),
    Hard,
    Easy,
}

/// One cue.
struct Cue {
    speaks_for: For,
    weight: i32,
    words: Vec<&'static str>,
}

/// All cues by the first character of their first word.
static BY_LETTER: LazyLock<HashMap<char, Vec<Cue>>> = LazyLock::new(|| {
    let mut all: HashMap<char, Vec<Cue>> = HashMap::new();
    for cue in CUES.lines().filter_map(line).flatten() {
        let letter = cue.words.first().and_then(|word| word.chars().next());
        all.entry(letter.unwrap_or(' ')).or_default().push(cue);
    }
    all
});

/// The cues of a line; a test holds each line to its syntax.
fn line(line: &'static str) -> Option<Vec<Cue>> {
    let (head, cues) = line.split_once(": ")?;
    let (name, weight) = head.split_once(' ')?;
    let weight = weight.parse().ok()?;
    let class = Class::ALL.iter().find(|class| class.name() == name);
    let speaks_for = match (class, name) {
        (Some(class), _) => For::Class(*class),
        (None, "hard") => For::Hard,
        (None, "easy") => For::Easy,
        (None, _) => return None,
    };
    let cue = |words: &'static str| Cue {
        speaks_for,
        weight,
        words: words.split_whitespace().collect(),
    };
    Some(cues.split('|').map(cue).collect())
}

impl Cue {
    fn begins(&self, words: &[String]) -> bool {
        let is = |(cue, word): (&&str, &String)| match cue.strip_suffix('*') {
            Some(beginning) => word.starts_with(beginning),
            None => word == cue,
        };
        self.words.len() <= words.len() && self.words.iter().zip(words).all(is)
    }
}

/// What the cues of a prompt add up to.
#[derive(Default)]
struct Sums(HashMap<For, i32>);

impl Sums {
    fn add(&mut self, speaks_for: For, weight: i32) {
        *self.0.entry(speaks_for).or_default() += weight;
    }

    fn class(&mut self, class: Class, weight: i32) {
        self.add(For::Class(class), weight);
    }

    fn of(&self, speaks_for: For) -> i32 {
        self.0.get(&speaks_for).copied().unwrap_or(0)
    }

    /// Each cue once, wherever it stands first.
    fn count(&mut self, words: &[String]) {
        let mut seen = HashSet::new();
        for at in 0..words.len() {
            let rest = &words[at..];
            let letter = rest[0].chars().next();
            let cues = letter.and_then(|letter| BY_LETTER.get(&letter));
            for cue in cues.into_iter().flatten().filter(|cue| cue.begins(rest)) {
                if seen.insert((cue.speaks_for, &cue.words)) {
                    let times = if at < OPENING { 3 } else { 2 };
                    self.add(cue.speaks_for, times * cue.weight);
                }
            }
        }
    }
}

/// What a prompt is. What is attached says nothing of it by itself, and a cue's word says more.
#[must_use]
pub fn classify(text: &str) -> (Class, Difficulty) {
    let (prose, has_code) = prose_of(text);
    let words = words_of(&prose);
    let mut sums = Sums::default();
    sums.count(&words);
    let beginning: String = text.chars().take(20_000).collect();
    let low = beginning.to_lowercase();
    if FAILURES.iter().any(|failure| low.contains(failure)) {
        sums.class(Class::Debugging, 12);
    }
    if ["```diff", "\n@@ ", "diff --git"]
        .iter()
        .any(|sign| low.contains(sign))
    {
        sums.class(Class::CodeReview, 8);
    }
    if has_code {
        // Code by itself doesn't say what is to become of it.
        for (class, weight) in [
            (Class::CodeReview, 2),
            (Class::Debugging, 2),
            (Class::CodeChange, 1),
        ] {
            if sums.of(For::Class(class)) > 0 {
                sums.class(class, weight);
            }
        }
    }
    if is_tabular(&prose) {
        sums.class(Class::Data, 6);
    }
    let asks = words
        .first()
        .is_none_or(|word| !REQUESTS.contains(&word.as_str()));
    let trimmed = prose.trim();
    if asks && (trimmed.ends_with('?') || trimmed.starts_with('¿')) {
        sums.class(Class::Question, 4);
    }
    if words.len() > CHAT {
        sums.class(Class::Chat, -6);
    }
    let scored = Class::ALL.iter().rev();
    let best = scored.max_by_key(|class| sums.of(For::Class(**class)));
    let best = best.filter(|class| sums.of(For::Class(**class)) > 0);
    let class = best.copied().unwrap_or(Class::Other);
    (class, difficulty(class, &sums, (text, &prose, words.len())))
}

fn difficulty(class: Class, sums: &Sums, (text, prose, words): (&str, &str, usize)) -> Difficulty {
    if class == Class::Chat {
        return match words > CHAT {
            true => Difficulty::Medium,
            false => Difficulty::Easy,
        };
    }
    let commas = prose.matches([',', ';', ':']).count();
    let ands = [" and ", " und ", " et ", " y "];
    let clauses = commas
        + ands
            .iter()
            .map(|and| prose.matches(and).count())
            .sum::<usize>();
    let is = i32::from;
    let long = is(text.len() > 1500) + 2 * is(text.len() > 4000);
    // Twice each, as the cues are.
    let hard =
        sums.of(For::Hard) + 2 * (long + is(words >= 20) + is(words >= 28) + is(clauses >= 4));
    let easy = sums.of(For::Easy) + 2 * (is(words <= 6) + is(words <= 9));
    if hard >= 8 && hard > easy {
        Difficulty::Hard
    } else if easy >= 4 && hard < 4 {
        Difficulty::Easy
    } else {
        Difficulty::Medium
    }
}

/// A prompt without the code between its fences; was there any?
fn prose_of(text: &str) -> (String, bool) {
    let (mut prose, mut within, mut has_code) = (String::new(), false, false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            (within, has_code) = (!within, true);
        } else if !within {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    (prose, has_code)
}

/// Its words in lower case; of a long one the first and the last.
fn words_of(prose: &str) -> Vec<String> {
    let is_letter = |c: char| c.is_alphanumeric();
    let word = |word: &str| word.to_lowercase();
    let mut words = prose
        .split(|c| !is_letter(c))
        .filter(|word| !word.is_empty());
    let mut found: Vec<String> = words.by_ref().take(FIRST).map(word).collect();
    let mut last: Vec<&str> = words.rev().take(LAST).collect();
    last.reverse();
    found.extend(last.into_iter().map(word));
    found
}

/// Have lines behind each other as many separators?
fn is_tabular(prose: &str) -> bool {
    let lines: Vec<&str> = prose
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(50)
        .collect();
    let alike = |separator: char| {
        let count = |line: &str| line.matches(separator).count();
        lines
            .windows(2)
            .any(|two| count(two[0]) > 0 && count(two[0]) == count(two[1]))
    };
    lines.len() >= 3 && [',', ';', '|'].into_iter().any(alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cues_are_all_read() {
        let given = CUES
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        for given in given {
            let cues = line(given).unwrap_or_else(|| panic!("{given}"));
            for cue in cues {
                assert!(!cue.words.is_empty(), "{given}");
                let plain = |word: &&str| {
                    word.trim_end_matches('*')
                        .chars()
                        .all(|c| c.is_alphanumeric())
                        && word.to_lowercase() == **word
                };
                assert!(cue.words.iter().all(plain), "{:?}", cue.words);
            }
        }
    }

    #[test]
    fn classes_of_odd_prompts_are_other() {
        for text in ["", " ", "…", "```", "```\nlet x = 1;\n```", "xyzzy"] {
            assert_eq!(classify(text).0, Class::Other, "{text:?}");
        }
        let long = "word ".repeat(200_000);
        assert_eq!(classify(&long), (Class::Other, Difficulty::Hard));
    }
}
