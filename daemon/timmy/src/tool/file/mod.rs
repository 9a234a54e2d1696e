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
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::{Dir, FileType, FileTypeExt as _, Metadata, OpenOptions, OpenOptionsExt as _};
use cap_std::fs::{MetadataExt as _, Permissions, PermissionsExt as _};
use nix::fcntl::OFlag;
use serde_json::{Map, Value};

use super::places::{self, Access, AllowedPath, Rules};
use super::schema::Arguments;
use super::{Surroundings, Tool, ToolOutcome};
use crate::model::{Boxed, ToolSpec};

/// What an edit takes into memory; more is generated, or not text.
const MOST_EDITED: u64 = 10 << 20;

/// The tools; those that change nothing come first.
pub(crate) fn tools(rules: &Arc<Rules>) -> Vec<Arc<dyn Tool>> {
    vec![
        FileTool::<read::Wanted>::with(rules),
        FileTool::<list::Wanted>::with(rules),
        FileTool::<search::Wanted>::with(rules),
        FileTool::<write::Wanted>::with(rules),
        FileTool::<edit::Wanted>::with(rules),
    ]
}

/// Where a call of one of these tools works.
struct Here {
    rules: Arc<Rules>,
    place: AllowedPath,
    around: Surroundings,
}

/// What a call wants; each tool has a type for that.
trait Wants: Arguments + Send + Sync + 'static {
    const NAME: &'static str;
    /// For the model.
    const DESCRIPTION: &'static str;
    const ACCESS: Access;

    /// Where.
    fn path(&self) -> &str;

    /// What it puts there, and what each of these is: shown to whom is asked.
    fn texts(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// Does it. Blocks.
    fn done(&self, here: &Here) -> Result<ToolOutcome, String>;
}

/// The tool whose calls want this.
struct FileTool<W> {
    rules: Arc<Rules>,
    wants: PhantomData<fn() -> W>,
}

impl<W: Wants> FileTool<W> {
    fn with(rules: &Arc<Rules>) -> Arc<dyn Tool> {
        Arc::new(Self {
            rules: Arc::clone(rules),
            wants: PhantomData,
        })
    }
}

impl<W: Wants> Tool for FileTool<W> {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: W::NAME.to_owned(),
            description: W::DESCRIPTION.to_owned(),
            schema: W::schema(),
        }
    }

    fn is_read_only(&self) -> bool {
        W::ACCESS == Access::Read
    }

    /// Finds the place that the call names, and does the work elsewhere, so that other sessions go on
    /// meanwhile.
    fn run<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        around: &'a Surroundings,
    ) -> Boxed<'a, Result<ToolOutcome, String>> {
        Box::pin(async move {
            let wanted = W::parse(arguments)?;
            let (rules, texts) = (&self.rules, wanted.texts());
            let place = places::find(rules, around, wanted.path(), W::ACCESS, &texts).await?;
            drop(texts);
            let here = Here {
                rules: Arc::clone(rules),
                place,
                around: around.clone(),
            };
            let working = tokio::task::spawn_blocking(move || wanted.done(&here));
            working
                .await
                .map_err(|error| format!("this tool broke: {error}"))?
        })
    }
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
    // In the same directory, as a rename stays within a file system; `create_new` follows no link
    // that somebody put there.
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
        // As late as can be: no system call replaces a file only if it's still the same.
        if dir.symlink_metadata(name).ok().map(|now| stamp(&now)) != old.map(stamp) {
            return Err(io::Error::other(
                "somebody else changed it meanwhile: read it again",
            ));
        }
        // The name isn't synced: after a power cut it may lead to the old file, which is whole as
        // well.
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
