//! What was lost of the store, until somebody says that they know.
//!
//! Owns the list beside the store: a line for each loss, in words. It is on the disk before what
//! was lost can't be told any more, and outlives every start. Must not know how a loss is found.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::loss::Loss;
use super::schema::{self, FILE};

/// More is not told: each is a sentence, and whoever breaks a store that often knows it.
const MOST: usize = 16;

fn list(database: &Path) -> PathBuf {
    schema::beside(database, ".losses")
}

/// As it is noted.
fn line_of(loss: &Loss) -> String {
    loss.to_string().replace('\n', " ")
}

/// Adds one, in whatever process finds it.
pub(super) fn note(database: &Path, loss: &Loss) {
    let line = line_of(loss);
    if let Err(error) = add(database, &line) {
        tracing::error!(%error, line, "what was lost of the store can't be noted");
    }
}

fn add(database: &Path, line: &str) -> io::Result<()> {
    let known = of(database)?;
    if known.len() >= MOST || known.iter().any(|known| known == line) {
        return Ok(());
    }
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(list(database))?;
    file.write_all(format!("{line}\n").as_bytes())?;
    file.sync_all()?;
    match database.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Takes one back that turned out to be none.
pub(super) fn forget(database: &Path, loss: &Loss) {
    let line = line_of(loss);
    let without = || -> io::Result<()> {
        let known = of(database)?;
        if !known.contains(&line) {
            return Ok(());
        }
        let left: Vec<String> = known.into_iter().filter(|known| *known != line).collect();
        fs::remove_file(list(database))?;
        left.iter().try_for_each(|line| add(database, line))
    };
    if let Err(error) = without() {
        tracing::warn!(%error, line, "what was not lost of the store stays noted");
    }
}

/// All that nobody has accepted yet, the oldest first.
pub(super) fn of(database: &Path) -> io::Result<Vec<String>> {
    match fs::read(list(database)) {
        Ok(text) => {
            let text = String::from_utf8_lossy(&text);
            Ok(text.lines().take(MOST).map(str::to_owned).collect())
        }
        Err(none) if none.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The same for a start, which tells what it found itself even where that can't be noted.
pub(super) fn beside(database: &Path, found: Option<&Loss>) -> Vec<String> {
    of(database).unwrap_or_else(|error| {
        tracing::warn!(%error, "what was lost of the store before can't be read");
        found.iter().map(ToString::to_string).collect()
    })
}

/// What was lost of the store in a directory and isn't accepted yet, the oldest first.
///
/// # Errors
/// When the list is there and can't be read.
pub fn losses(dir: &Path) -> io::Result<Vec<String>> {
    of(&dir.join(FILE))
}

/// Forgets what was lost: somebody has seen it. A daemon that runs notices. Gives what it was.
///
/// # Errors
/// When the list can't be read or taken away.
pub fn accept_losses(dir: &Path) -> io::Result<Vec<String>> {
    let database = dir.join(FILE);
    let accepted = of(&database)?;
    schema::remove(&list(&database))?;
    Ok(accepted)
}
