//! The conditions of a rule: how each is written, when it holds, and the words for either.
//!
//! Owns the syntax of their values. Must not know in which file they are written.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use globset::{GlobBuilder, GlobMatcher};
use regex::{Regex, RegexBuilder};

use crate::classify::{Class, Difficulty};
use crate::facts::{Asked, Facts};

/// Bytes that a compiled expression may take: one that is larger is hardly meant, and a hundred of
/// them are in memory together.
const PATTERN_BYTES: usize = 512 * 1024;
/// Bytes that looking for it may take besides.
const SEARCH_BYTES: usize = 256 * 1024;

/// One condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The send says `auto` itself.
    Named,
    /// How long the prompt is, in characters.
    Chars(Bound),
    /// What is attached.
    Attachments(Attached),
    /// In which directory.
    Cwd(Glob),
    /// With this label; `*` is any value.
    Label(String, String),
    /// At which time of day.
    Between(Between),
    /// What the prompt says.
    Text(Pattern),
    /// What kind of task it is: one of these.
    Class(Vec<Class>),
    /// How hard it seems: one of these.
    Difficulty(Vec<Difficulty>),
}

impl Condition {
    /// Those that look at the whole prompt come last.
    pub(crate) const fn cost(&self) -> u8 {
        match self {
            Self::Named | Self::Attachments(_) | Self::Label(..) | Self::Between(_) => 0,
            Self::Cwd(_) => 1,
            Self::Chars(_) => 2,
            Self::Text(_) => 3,
            Self::Class(_) | Self::Difficulty(_) => 4,
        }
    }

    pub(crate) fn holds(&self, facts: &Facts<'_>) -> bool {
        match self {
            Self::Named => facts.asked == Asked::ByName,
            Self::Chars(bound) => bound.holds(chars(facts)),
            Self::Attachments(kind) => kind.holds(&facts.attachments),
            Self::Cwd(glob) => facts.directories.iter().any(|dir| glob.holds(dir)),
            Self::Label(key, wanted) => facts
                .labels
                .get(key)
                .is_some_and(|value| wanted == "*" || value == wanted),
            Self::Between(between) => between.holds(facts.minute),
            Self::Text(pattern) => pattern.regex.is_match(facts.text),
            Self::Class(any) => any.contains(&facts.classified().0),
            Self::Difficulty(any) => any.contains(&facts.classified().1),
        }
    }

    /// That it holds, in words.
    pub(crate) fn why(&self, facts: &Facts<'_>) -> String {
        match self {
            Self::Named => "`agent` is `auto`".to_owned(),
            Self::Chars(bound) => format!("`chars` is {}, which is {bound}", chars(facts)),
            Self::Attachments(kind) => format!("`attachments` is {}", kind.name()),
            Self::Cwd(glob) => format!("`cwd` is in `{}`", glob.source),
            Self::Label(key, _) => {
                let value = facts.labels.get(key).map_or("", String::as_str);
                format!("`label.{key}` is `{value}`")
            }
            Self::Between(between) => format!("it is {}, between {between}", Clock(facts.minute)),
            Self::Text(pattern) => format!("`text` matches `{}`", pattern.source),
            Self::Class(_) => format!("`class` is {}", facts.classified().0),
            Self::Difficulty(_) => format!("`difficulty` is {}", facts.classified().1),
        }
    }

    /// That it doesn't, in words.
    pub(crate) fn why_not(&self, facts: &Facts<'_>) -> String {
        match self {
            Self::Named => "the send doesn't say `auto` itself".to_owned(),
            Self::Chars(bound) => format!("`chars` is {}, not {bound}", chars(facts)),
            Self::Attachments(kind) => format!("`attachments` is not {}", kind.name()),
            Self::Cwd(glob) => format!("`cwd` is not in `{}`", glob.source),
            Self::Label(key, wanted) => match facts.labels.get(key) {
                Some(value) => format!("`label.{key}` is `{value}`, not `{wanted}`"),
                None => format!("there is no label `{key}`"),
            },
            Self::Between(between) => {
                format!("it is {}, not between {between}", Clock(facts.minute))
            }
            Self::Text(pattern) => format!("`text` doesn't match `{}`", pattern.source),
            Self::Class(any) => format!("`class` is {}, not {}", facts.classified().0, one_of(any)),
            Self::Difficulty(any) => {
                format!(
                    "`difficulty` is {}, not {}",
                    facts.classified().1,
                    one_of(any)
                )
            }
        }
    }
}

fn one_of(any: &[impl Display]) -> String {
    let names: Vec<String> = any.iter().map(ToString::to_string).collect();
    names.join(" or ")
}

fn chars(facts: &Facts<'_>) -> u64 {
    facts.text.chars().count() as u64
}

/// A bound of a number, as `> 20000` or `<= 80`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    more: bool,
    equal: bool,
    number: u64,
}

impl Bound {
    const fn holds(self, found: u64) -> bool {
        if self.more {
            found > self.number || self.equal && found == self.number
        } else {
            found < self.number || self.equal && found == self.number
        }
    }
}

impl FromStr for Bound {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected `>`, `>=`, `<` or `<=` and a number, as in \"> 20000\"";
        let text = text.trim();
        let (more, rest) = match (text.strip_prefix('>'), text.strip_prefix('<')) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(EXPECTED),
        };
        let (equal, rest) = match rest.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let number = rest.trim().parse().map_err(|_| EXPECTED)?;
        Ok(Self {
            more,
            equal,
            number,
        })
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = if self.more { '>' } else { '<' };
        let equal = if self.equal { "=" } else { "" };
        write!(f, "{sign}{equal} {}", self.number)
    }
}

/// What is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attached {
    /// A picture at least.
    Image,
    /// A PDF document at least.
    Pdf,
    /// A text at least.
    Text,
    /// Anything.
    Any,
    /// Nothing.
    None,
}

impl Attached {
    /// Each of them.
    pub const ALL: &[Self] = &[Self::Image, Self::Pdf, Self::Text, Self::Any, Self::None];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Pdf => "pdf",
            Self::Text => "text",
            Self::Any => "any",
            Self::None => "none",
        }
    }

    fn holds(self, types: &[&str]) -> bool {
        let any = |is: fn(&str) -> bool| types.iter().any(|mime| is(mime));
        match self {
            Self::Image => any(|mime| mime.starts_with("image/")),
            Self::Pdf => any(|mime| mime == "application/pdf"),
            Self::Text => any(|mime| mime.starts_with("text/")),
            Self::Any => !types.is_empty(),
            Self::None => types.is_empty(),
        }
    }
}

/// Directories, as `~/projects/**`. What ends in `/**` is the directory itself, too.
#[derive(Clone, Debug)]
pub struct Glob {
    source: String,
    within: GlobMatcher,
    itself: Option<GlobMatcher>,
}

impl Glob {
    /// With `~` for this home.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn new(source: &str, home: Option<&str>) -> Result<Self, String> {
        let whole = match (source.strip_prefix('~'), home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                format!("{}{rest}", globset::escape(home.trim_end_matches('/')))
            }
            _ => source.to_owned(),
        };
        if !whole.starts_with(['/', '*']) {
            return Err("expected an absolute path, or one that begins with `~/` or `**/`".into());
        }
        let compiled = |text: &str| {
            let glob = GlobBuilder::new(text).literal_separator(true).build();
            glob.map(|glob| glob.compile_matcher())
                .map_err(|error| error.kind().to_string())
        };
        let itself = whole.strip_suffix("/**").filter(|dir| !dir.is_empty());
        Ok(Self {
            source: source.to_owned(),
            itself: itself.map(compiled).transpose()?,
            within: compiled(&whole)?,
        })
    }

    fn holds(&self, directory: &str) -> bool {
        let itself = self.itself.as_ref();
        self.within.is_match(directory) || itself.is_some_and(|glob| glob.is_match(directory))
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.within.glob() == other.within.glob()
    }
}

impl Eq for Glob {}

/// A regular expression, which takes time in proportion to the prompt, whatever it says.
#[derive(Clone, Debug)]
pub struct Pattern {
    source: String,
    regex: Regex,
}

impl Pattern {
    /// The text may have it anywhere.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn new(source: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(source)
            .size_limit(PATTERN_BYTES)
            .dfa_size_limit(SEARCH_BYTES)
            .build();
        let regex = built.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                format!("is larger than {PATTERN_BYTES} bytes when it is compiled, the limit")
            }
            other => {
                // The last line says what; those before draw where.
                let text = other.to_string();
                let last = text.lines().last().unwrap_or_default();
                last.strip_prefix("error: ").unwrap_or(last).to_owned()
            }
        })?;
        Ok(Self {
            source: source.to_owned(),
            regex,
        })
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Pattern {}

/// A part of each day, as `22:00-06:00`: its first minute is in it, its last isn't.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Between {
    from: u16,
    to: u16,
}

impl Between {
    const fn holds(self, minute: u16) -> bool {
        if self.from <= self.to {
            self.from <= minute && minute < self.to
        } else {
            self.from <= minute || minute < self.to
        }
    }
}

impl FromStr for Between {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected two different times of day, as in \"22:00-06:00\"";
        let minute = |text: &str| {
            let (hours, minutes) = text.trim().split_once(':')?;
            let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
            let plain = (1..=2).contains(&hours.len()) && minutes.len() == 2;
            let number = |part: &str| part.parse::<u16>().ok();
            let (hours, minutes) = (plain && digits(hours) && digits(minutes))
                .then(|| Some((number(hours)?, number(minutes)?)))
                .flatten()?;
            // The end of a day may be written as 24:00.
            let at = hours * 60 + minutes;
            (minutes < 60 && at <= 24 * 60).then_some(at)
        };
        let times = text.split_once('-');
        let times = times.and_then(|(from, to)| Some((minute(from)?, minute(to)?)));
        match times {
            Some((from, to)) if from != to && from < 24 * 60 => Ok(Self { from, to }),
            _ => Err(EXPECTED),
        }
    }
}

impl Display for Between {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", Clock(self.from), Clock(self.to))
    }
}

/// A time of day.
struct Clock(u16);

impl Display for Clock {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}
