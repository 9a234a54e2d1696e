//! The tool `list`.
//!
//! Owns which names are told, and in what order.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::walk::{Walk, glob};
use super::{Here, Wants, short};
use crate::tool::ToolOutcome;
use crate::tool::output::{self, MOST_LINES};
use crate::tool::places::Access;
use crate::tool::schema::arguments;

/// Names told when nobody says how many.
const SOME: u64 = 500;

arguments! {
    /// What `list` takes.
    pub(super) Wanted {
        path: Option<String> = "The directory: absolute, or relative to the workspace; the \
                                workspace when left out.",
        depth: Option<u64> = "How deep to go: 1 when left out, without end with a glob.",
        glob: Option<String> = "Only files whose names fit, like `*.rs` or `src/**/*.rs`.",
        all: Option<bool> = "Also what `.gitignore` leaves out?",
        limit: Option<u64> = "How many names; 500 when left out.",
    }
}

impl Wants for Wanted {
    const NAME: &'static str = "list";
    const DESCRIPTION: &'static str = "Lists files and directories, or finds files by name. Directories end with `/`. What \
        `.gitignore` leaves out isn't shown.";
    const ACCESS: Access = Access::Read;

    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(".")
    }

    fn done(&self, here: &Here) -> Result<ToolOutcome, String> {
        list(here, self)
    }
}

/// The first names, and how many there are.
#[derive(Default)]
struct Names {
    kept: BTreeSet<Vec<u8>>,
    all: u64,
}

fn list(here: &Here, wanted: &Wanted) -> Result<ToolOutcome, String> {
    let Here {
        rules,
        place,
        around,
    } = here;
    let shown = short(&place.path, around).display();
    place
        .dir()
        .map_err(|error| format!("can't list {shown}: {error}; expected a directory"))?;
    let only = glob(&place.path, wanted.glob.as_deref())?;
    let depth = match (wanted.depth, &only) {
        (Some(depth), _) => usize::try_from(depth).ok(),
        (None, Some(_)) => None,
        (None, None) => Some(1),
    };
    let most = usize::try_from(wanted.limit.unwrap_or(SOME))
        .map_or(MOST_LINES, |limit| limit.min(MOST_LINES));
    let names = Mutex::new(Names::default());
    let walk = Walk {
        rules,
        around,
        place,
        depth,
        all: wanted.all == Some(true),
    };
    let ended = walk.take(|| {
        let (names, only) = (&names, &only);
        move |entry: &ignore::DirEntry| {
            let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
            let fits = only
                .as_ref()
                // In an `Override` of the crate `ignore` what fits is "whitelisted", and a
                // directory that doesn't fit may have files that do.
                .is_none_or(|only| !is_dir && only.matched(entry.path(), is_dir).is_whitelist());
            if entry.depth() > 0 && fits {
                let mut name = below(entry.path(), &place.path);
                if is_dir {
                    name.push(b'/');
                }
                let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
                names.all += 1;
                // Threads come by in no order: the first by name are kept, so that two calls tell
                // the same.
                names.kept.insert(name);
                if names.kept.len() > most {
                    names.kept.pop_last();
                }
            }
        }
    });
    let names = names.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    for name in &names.kept {
        text.push_str(&String::from_utf8_lossy(name));
        text.push('\n');
    }
    let left = names.all - names.kept.len() as u64;
    if left > 0 {
        text.push_str(&format!(
            "[{left} of {} left out: name a directory or a glob]\n",
            names.all
        ));
    }
    text.push_str(&ended.note().unwrap_or_default());
    if text.is_empty() {
        text = format!("[nothing in {shown}]\n");
    }
    let mut outcome = ToolOutcome::shown(true, output::shown(&text, &around.spill, &around.call));
    outcome.truncated |= left > 0;
    Ok(outcome)
}

fn below(path: &Path, dir: &Path) -> Vec<u8> {
    let below = path.strip_prefix(dir).unwrap_or(path);
    below.as_os_str().as_encoded_bytes().to_vec()
}
