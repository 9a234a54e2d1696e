//! The tool `search`.
//!
//! Owns which lines are told, and how much of each: the first files by name, whoever finds them
//! first.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use cap_std::fs::Dir;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};

use super::walk::{Walk, glob};
use super::{Here, Wants, open, open_in, short};
use crate::tool::output::{self, MOST_LINES};
use crate::tool::places::Access;
use crate::tool::schema::arguments;
use crate::tool::{Surroundings, ToolOutcome};

/// Lines told when nobody says how many.
const SOME: u64 = 200;
/// Characters told of a line: longer ones are generated.
const MOST_CHARS: usize = 500;
/// A file with a longer line isn't searched beyond it.
const MOST_LINE: usize = 8 << 20;

arguments! {
    /// What `search` takes.
    pub(super) Wanted {
        pattern: String = "A regular expression, for one line.",
        path: Option<String> = "The directory or file: absolute, or relative to the workspace; \
                                the workspace when left out.",
        glob: Option<String> = "Only files whose names fit, like `*.rs` or `src/**/*.rs`.",
        ignore_case: Option<bool> = "Are upper and lower case the same?",
        files_only: Option<bool> = "Tell only the names of the files?",
        limit: Option<u64> = "How many lines; 200 when left out.",
    }
}

impl Wants for Wanted {
    const NAME: &'static str = "search";
    const DESCRIPTION: &'static str = "Searches text files for a regular expression. What `.gitignore` leaves out isn't searched.";
    const ACCESS: Access = Access::Read;

    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(".")
    }

    fn done(&self, here: &Here) -> Result<ToolOutcome, String> {
        search(here, self)
    }
}

/// A line that fits.
type Line = (u64, String);

/// What was found so far.
struct Matches {
    /// The first files by name, each with its first lines.
    kept: BTreeMap<PathBuf, Vec<Line>>,
    kept_lines: usize,
    lines: u64,
    files: u64,
    most: usize,
    most_of_a_file: usize,
}

impl Matches {
    fn add(&mut self, path: PathBuf, lines: Vec<Line>, all: u64) {
        self.lines += all;
        self.files += 1;
        self.kept_lines += lines.len();
        self.kept.insert(path, lines);
        while let Some(last) = self.kept.last_entry()
            && self.kept_lines - last.get().len() >= self.most
        {
            self.kept_lines -= last.remove().len();
        }
    }
}

fn search(here: &Here, wanted: &Wanted) -> Result<ToolOutcome, String> {
    let Here { place, around, .. } = here;
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(wanted.ignore_case == Some(true))
        .line_terminator(Some(b'\n'))
        .build(&wanted.pattern)
        .map_err(|error| {
            format!("`pattern`: expected a regular expression for one line: {error}")
        })?;
    let limit = usize::try_from(wanted.limit.unwrap_or(SOME));
    let found = Mutex::new(Matches {
        kept: BTreeMap::new(),
        kept_lines: 0,
        lines: 0,
        files: 0,
        most: limit.map_or(MOST_LINES, |limit| limit.min(MOST_LINES)),
        // Where only names are shown, a file with many hits takes no more room than one with one.
        most_of_a_file: if wanted.files_only == Some(true) {
            1
        } else {
            usize::MAX
        },
    });
    let note = match place.dir() {
        Ok(dir) => search_tree(here, wanted, (&dir, &matcher, &found))?,
        Err(_) => {
            let (file, _) = open(place)?;
            let lines = lines_of(&matcher, &mut searcher(), &file, &found);
            let (lines, all) = lines.map_err(|error| format!("can't search it: {error}"))?;
            if all > 0 {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.add(place.path.clone(), lines, all);
            }
            None
        }
    };
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(told(&found, wanted.files_only == Some(true), note, around))
}

fn search_tree(
    here: &Here,
    wanted: &Wanted,
    (dir, matcher, found): (&Dir, &RegexMatcher, &Mutex<Matches>),
) -> Result<Option<String>, String> {
    let Here {
        rules,
        place,
        around,
    } = here;
    let only = glob(&place.path, wanted.glob.as_deref())?;
    let walk = Walk {
        rules,
        around,
        place,
        depth: None,
        all: false,
    };
    let ended = walk.take(|| {
        let only = &only;
        let mut searcher = searcher();
        move |entry: &ignore::DirEntry| {
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            let fits = |only: &ignore::overrides::Override| {
                only.matched(entry.path(), false).is_whitelist()
            };
            if !is_file || !only.as_ref().is_none_or(fits) {
                return;
            }
            let Ok(below) = entry.path().strip_prefix(&place.path) else {
                return;
            };
            // What can't be read is as good as absent, as in the walk.
            let Ok((file, _)) = open_in(dir, below) else {
                return;
            };
            if let Ok((lines, all)) = lines_of(matcher, &mut searcher, &file, found)
                && all > 0
            {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.add(entry.path().to_owned(), lines, all);
            }
        }
    });
    Ok(ended.note())
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        // As `read` tells text from what is none.
        .binary_detection(BinaryDetection::quit(0))
        .line_number(true)
        .heap_limit(Some(MOST_LINE))
        .build()
}

/// The first lines of a file that fit, and how many do.
fn lines_of(
    matcher: &RegexMatcher,
    searcher: &mut Searcher,
    file: &std::fs::File,
    found: &Mutex<Matches>,
) -> io::Result<(Vec<Line>, u64)> {
    let most = {
        let found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.most.min(found.most_of_a_file)
    };
    let mut lines = Lines {
        kept: Vec::new(),
        all: 0,
        most,
    };
    searcher.search_file(matcher, file, &mut lines)?;
    Ok((lines.kept, lines.all))
}

struct Lines {
    kept: Vec<Line>,
    all: u64,
    most: usize,
}

impl Sink for Lines {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.all += 1;
        if self.kept.len() < self.most {
            let line = cut(found.bytes());
            self.kept.push((found.line_number().unwrap_or(0), line));
        }
        Ok(true)
    }
}

fn cut(line: &[u8]) -> String {
    // A character has four bytes at most.
    let start = &line[..line.len().min(4 * MOST_CHARS + 4)];
    let text = String::from_utf8_lossy(start);
    let text = text.trim_end_matches(['\n', '\r']);
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn told(
    found: &Matches,
    files_only: bool,
    note: Option<String>,
    around: &Surroundings,
) -> ToolOutcome {
    let mut text = String::new();
    let mut left = found.most;
    for (path, lines) in &found.kept {
        text.push_str(&format!("{}\n", short(path, around).display()));
        for (number, line) in lines.iter().take(if files_only { 0 } else { left }) {
            text.push_str(&format!("{number}: {line}\n"));
        }
        left = left.saturating_sub(lines.len());
    }
    let told = found.kept_lines.min(found.most) as u64;
    let left_out = if files_only {
        found.files > found.kept.len() as u64
    } else {
        found.lines > told
    };
    if left_out {
        text.push_str(&format!(
            "[{} lines in {} files fit; the rest was left out: name a directory, a glob or a \
             narrower pattern]\n",
            found.lines, found.files
        ));
    }
    text.push_str(&note.unwrap_or_default());
    if text.is_empty() {
        text = "[no line fits]\n".to_owned();
    }
    let mut outcome = ToolOutcome::shown(true, output::shown(&text, &around.spill, &around.call));
    outcome.truncated |= left_out;
    outcome
}
