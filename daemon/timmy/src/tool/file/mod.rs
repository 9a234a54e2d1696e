//! The toolset `file`: reading, writing, editing, listing and searching files.
//!
//! Owns how a file is opened and replaced. Where that may be is said by `places`.

mod edit;
mod ignored;
mod list;
mod read;
mod search;
mod walk;
mod write;

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::{Dir, FileType, FileTypeExt as _, Metadata, OpenOptions, OpenOptionsExt as _};
use cap_std::fs::{MetadataExt as _, Permissions, PermissionsExt as _};
use nix::fcntl::OFlag;

use super::places::{self, Access, AllowedPath, Rules};
use super::{Surroundings, Tool, ToolOutcome};

/// What an edit takes into memory; more is generated, or not text.
const MOST_EDITED: u64 = 10 << 20;

/// The tools; those that change nothing come first.
pub(crate) fn tools(rules: &Arc<Rules>) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(read::Read(Arc::clone(rules))),
        Arc::new(list::List(Arc::clone(rules))),
        Arc::new(search::Search(Arc::clone(rules))),
        Arc::new(write::Write(Arc::clone(rules))),
        Arc::new(edit::Edit(Arc::clone(rules))),
    ]
}

/// Where a call of one of these tools works.
struct Here {
    rules: Arc<Rules>,
    place: AllowedPath,
    around: Surroundings,
}

/// What a call wants.
trait Wants: Send + Sync + 'static {
    /// Where.
    fn path(&self) -> &str;

    /// What it puts there, and what each of these is: shown to whom is asked.
    fn texts(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }
}

/// One call of any of these tools: reads what it wants, finds the place that this names, and does
/// the work elsewhere, so that other sessions go on meanwhile.
async fn at<W: Wants>(
    (rules, access): (&Arc<Rules>, Access),
    around: &Surroundings,
    wanted: Result<W, String>,
    work: fn(&Here, &W) -> Result<ToolOutcome, String>,
) -> ToolOutcome {
    let done = async {
        let wanted = wanted?;
        let here = Here {
            rules: Arc::clone(rules),
            place: places::find(rules, around, wanted.path(), access, &wanted.texts()).await?,
            around: around.clone(),
        };
        let working = tokio::task::spawn_blocking(move || work(&here, &wanted));
        working
            .await
            .map_err(|error| format!("this tool broke: {error}"))?
    };
    done.await.unwrap_or_else(ToolOutcome::failed)
}

/// Opens a file for reading, if it is one: nothing else is even touched.
fn open(place: &AllowedPath) -> Result<(File, Metadata), String> {
    let said = |error: io::Error| format!("can't read {}: {error}", place.path.display());
    if place.dir().is_ok() {
        return Err(is_no_file(&place.path, "a directory: use `list`"));
    }
    let (dir, name) = place.parent().map_err(said)?;
    let found = dir.symlink_metadata(&name).map_err(said)?;
    refuse_others(place, found.file_type())?;
    open_in(&dir, name.as_ref()).map_err(said)
}

/// Opens a file that was found to be one; should it have become a pipe meanwhile, nobody waits.
fn open_in(dir: &Dir, name: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits());
    let file = dir.open_with(name, &options)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file any more"));
    }
    Ok((file.into_std(), found))
}

fn refuse_others(place: &AllowedPath, kind: FileType) -> Result<(), String> {
    let is = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory: use `list`"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_symlink() {
        "a link that has just changed: try again"
    } else {
        "a device"
    };
    Err(is_no_file(&place.path, is))
}

fn is_no_file(path: &Path, is: &str) -> String {
    format!("{} is {is}; expected a file", path.display())
}

/// Puts a file in the place of another, or of none, at once: who reads sees one or the other, and
/// so does who looks after a crash.
///
/// # Errors
/// Why not; then everything is as it was.
fn replace(dir: &Dir, name: &OsStr, content: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let random = std::hash::RandomState::new().build_hasher().finish();
    let temporary = format!(".timmy-{random:016x}.tmp");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if old.is_some() {
        // Until it has the mode of the old one, which may be nobody else's to read.
        options.mode(0o600);
    }
    let written = dir.open_with(&temporary, &options).and_then(|mut file| {
        if let Some(old) = old {
            file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        }
        file.write_all(content)?;
        file.sync_all()?;
        if dir.symlink_metadata(name).ok().map(|now| stamp(&now)) != old.map(stamp) {
            return Err(io::Error::other(
                "somebody else changed it meanwhile: read it again",
            ));
        }
        dir.rename(&temporary, dir, name)
    });
    if written.is_err() {
        let _was_not_made = dir.remove_file(&temporary);
    }
    written
}

/// What changes when a file does.
fn stamp(found: &Metadata) -> (u64, u64, i64, i64) {
    (found.ino(), found.len(), found.mtime(), found.mtime_nsec())
}

/// A path as the model writes it: without the workspace.
fn short<'a>(path: &'a Path, around: &Surroundings) -> &'a Path {
    let workspace = around.cwd.canonicalize();
    let below = workspace.ok().and_then(|dir| path.strip_prefix(dir).ok());
    below.filter(|path| *path != Path::new("")).unwrap_or(path)
}

#[cfg(test)]
mod tests;
