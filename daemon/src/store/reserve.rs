//! A file beside the store that keeps room on the disk, for what can't be refused.
//!
//! Owns that room: when it is taken, let go and taken again. Must not know what is written then.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::{disk, schema};

/// Some hundred ends of turns: of those that run when a disk becomes full, as no other begins then.
pub(super) const ROOM: u64 = 2 * 1024 * 1024;
/// What is left to others when it is taken again: a disk that was full need not become empty.
const REST: u64 = 256 * 1024;
/// A block of `st_blocks`, whatever the file system's are.
const BLOCK: u64 = 512;

/// The file, and what became of it.
pub(super) struct Reserve {
    file: PathBuf,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There never was any, of this process.
    Missing,
    Held,
    /// Its room is used, or about to be.
    LetGo,
}

impl Reserve {
    /// Of this database. Nothing is taken yet.
    pub(super) fn of(database: &Path) -> Self {
        Self {
            file: schema::beside(database, ".reserve"),
            state: State::Missing,
        }
    }

    /// Takes the room, if that leaves enough for everything else. Is it held now?
    pub(super) fn take(&mut self) -> bool {
        if self.state == State::Held {
            return true;
        }
        let taken = match fs::symlink_metadata(&self.file) {
            Ok(found) if found.is_file() && found.blocks() * BLOCK >= ROOM => Ok(()),
            Ok(_) => fs::remove_file(&self.file).and_then(|()| self.fill()),
            Err(_) => self.fill(),
        };
        match taken {
            Ok(()) => self.state = State::Held,
            Err(why) => {
                // A part of it keeps nothing for anybody.
                let _gone = fs::remove_file(&self.file);
                tracing::debug!(%why, "no room is kept for a full disk");
            }
        }
        self.state == State::Held
    }

    fn fill(&self) -> io::Result<()> {
        let parent = self.file.parent().unwrap_or(&self.file);
        let is_tight = match self.state {
            State::LetGo => disk::free_bytes(parent).is_ok_and(|free| free < ROOM + REST),
            State::Missing | State::Held => disk::is_tight(parent, ROOM),
        };
        if is_tight {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        occupy(&mut options.open(&self.file)?)
    }

    /// Gives the room up. Was there any?
    pub(super) fn let_go(&mut self) -> bool {
        if self.state != State::Held {
            return false;
        }
        self.state = State::LetGo;
        let gone = fs::remove_file(&self.file);
        if let Err(why) = &gone {
            tracing::warn!(%why, "the room that is kept for a full disk can't be had");
        }
        gone.is_ok()
    }

    /// Is what was kept used, and not there again?
    pub(super) fn is_let_go(&self) -> bool {
        self.state == State::LetGo
    }
}

/// Blocks and not a hole: what the file system only promises is no room.
#[cfg(target_os = "linux")]
fn occupy(file: &mut File) -> io::Result<()> {
    // So much fits into any `off_t`.
    let length = libc::off_t::try_from(ROOM).unwrap_or(libc::off_t::MAX);
    nix::fcntl::posix_fallocate(file, 0, length).map_err(io::Error::from)
}

#[cfg(not(target_os = "linux"))]
fn occupy(file: &mut File) -> io::Result<()> {
    use std::io::Write as _;

    for _ in 0..ROOM / 4096 {
        file.write_all(&[0; 4096])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_blocks_that_come_and_go() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join(schema::FILE);
        let file = schema::beside(&path, ".reserve");
        let mut reserve = Reserve::of(&path);
        assert!(!reserve.let_go() && !reserve.is_let_go());
        assert!(reserve.take() && !reserve.is_let_go());
        assert!(fs::metadata(&file).unwrap().blocks() * BLOCK >= ROOM);
        // The next daemon finds it.
        let mut next = Reserve::of(&path);
        assert!(next.take() && next.let_go() && next.is_let_go());
        assert!(!file.exists() && !next.let_go());
        // A hole keeps no room.
        File::create(&file).unwrap().set_len(ROOM).unwrap();
        assert!(next.take() && !next.is_let_go());
        assert!(fs::metadata(&file).unwrap().blocks() * BLOCK >= ROOM);
    }
}
