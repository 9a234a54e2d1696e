//! Going through a tree of files, as `list` and `search` do.
//!
//! Owns which files are seen: not what the rules of `.gitignore` leave out, nothing private, and
//! nothing behind a link.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use agentd_base::shared::lock;
use cap_std::fs::Dir;
use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, WalkBuilder, WalkState};

use super::ignored::Ignored;
use crate::tool::Surroundings;
use crate::tool::places::{AllowedPath, Rules};

/// Threads for one walk: a second one helps, and other sessions want to work as well.
const THREADS: usize = 4;
/// A walk takes no longer, on whatever disk; then it says so.
const WITHIN: Duration = Duration::from_secs(60);
/// What a version control system keeps for itself.
const OF_VERSIONS: &[&str] = &[".git", ".hg", ".jj", ".svn"];

/// A walk to be taken.
pub(super) struct Walk<'a> {
    pub(super) rules: &'a Arc<Rules>,
    pub(super) around: &'a Surroundings,
    pub(super) place: &'a AllowedPath,
    /// How deep; without end when absent.
    pub(super) depth: Option<usize>,
    /// Also what the rules leave out?
    pub(super) all: bool,
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WalkEnd {
    /// Everything was seen.
    Whole,
    /// It took too long.
    Late,
    /// The turn is over.
    Cancelled,
}

impl Walk<'_> {
    /// Takes it: `visitor` makes one visitor for each thread, which sees everything below the
    /// place, or only the place if it is a file, in no order.
    pub(super) fn take<V: FnMut(&DirEntry) + Send>(&self, visitor: impl Fn() -> V) -> WalkEnd {
        let mut builder = WalkBuilder::new(&self.place.path);
        let root = self.place.base();
        let private = self.rules.private_within(root);
        // The library's own way reads whatever is there to its end.
        let ignored = (!self.all).then(|| Ignored::below(root));
        let beneath = Arc::new(Beneath::new(self.place));
        let begins = &Arc::clone(&beneath);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        builder
            .standard_filters(false)
            .git_global(!self.all)
            .follow_links(false)
            .max_depth(self.depth)
            .threads(cores.min(THREADS))
            .filter_entry(move |entry| {
                let is_of_versions = OF_VERSIONS.iter().any(|name| entry.file_name() == *name);
                let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                let is_left_out = || {
                    let ignored = ignored.as_ref().filter(|_| entry.depth() > 0);
                    ignored.is_some_and(|ignored| ignored.leaves_out(entry.path(), is_dir))
                };
                !(private.has(entry.path()) || (is_of_versions && is_dir) || is_left_out())
                    && beneath.has(entry)
            });
        let until = Instant::now() + WITHIN;
        builder.build_parallel().run(|| {
            let mut visit = visitor();
            Box::new(move |entry| {
                if self.around.cancel.is_cancelled() || Instant::now() > until {
                    return WalkState::Quit;
                }
                // What can't be read is as good as absent; the rest is still worth seeing.
                if let Ok(entry) = entry
                    && (entry.depth() > 0 || begins.has(&entry))
                {
                    visit(&entry);
                }
                WalkState::Continue
            })
        });
        if self.around.cancel.is_cancelled() {
            WalkEnd::Cancelled
        } else if Instant::now() > until {
            WalkEnd::Late
        } else {
            WalkEnd::Whole
        }
    }
}

/// Which entries are there without a way through a link. A directory may have become one while it
/// was walked through, and then the names are those of somewhere else.
struct Beneath {
    place: AllowedPath,
    /// The directory that a thread looks into: its names come one after the other.
    open: Mutex<HashMap<ThreadId, OpenDir>>,
}

/// None is one that is no directory any more.
type OpenDir = (PathBuf, Option<Arc<Dir>>);

impl Beneath {
    fn new(place: &AllowedPath) -> Self {
        Self {
            place: place.clone(),
            open: Mutex::default(),
        }
    }

    fn has(&self, entry: &DirEntry) -> bool {
        if entry.path() == self.place.base() {
            return self.place.base_dir().is_ok();
        }
        let dir = entry.path().parent().and_then(|dir| self.dir(dir));
        dir.is_some_and(|dir| dir.symlink_metadata(entry.file_name()).is_ok())
    }

    fn dir(&self, path: &Path) -> Option<Arc<Dir>> {
        let mut open = lock(&self.open);
        let thread = std::thread::current().id();
        match open.get(&thread) {
            Some((known, dir)) if known == path => dir.clone(),
            _ => {
                let dir = self.place.dir_beneath(path).ok().map(Arc::new);
                open.insert(thread, (path.to_owned(), dir.clone()));
                dir
            }
        }
    }
}

impl WalkEnd {
    /// What is said of it.
    pub(super) fn note(self) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::Late => Some(format!(
                "[stopped after {} s: not everything was seen; name a smaller directory]\n",
                WITHIN.as_secs()
            )),
            Self::Cancelled => Some("[cancelled: not everything was seen]\n".to_owned()),
        }
    }
}

/// A pattern of file names, as in `.gitignore`.
///
/// # Errors
/// What is wrong with it, for the model.
pub(super) fn glob(root: &Path, pattern: Option<&str>) -> Result<Option<Override>, String> {
    let Some(pattern) = pattern else {
        return Ok(None);
    };
    // Here a `!` would turn the meaning around.
    let said = |error: ignore::Error| {
        format!("`glob`: expected a pattern like `*.rs` or `src/**/*.rs`: {error}")
    };
    if pattern.is_empty() || pattern.starts_with('!') {
        return Err(format!(
            "`glob`: expected a pattern like `*.rs` or `src/**/*.rs`, found `{pattern}`"
        ));
    }
    let mut builder = OverrideBuilder::new(root);
    builder.add(pattern).map_err(said)?;
    builder.build().map(Some).map_err(said)
}
