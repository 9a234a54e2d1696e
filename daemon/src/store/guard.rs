//! Whether the store's files are still those that their names lead to.
//!
//! Owns how that is told. Must not know what is done about it.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::schema::beside;

/// What became of one of the files under a running daemon.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Displaced {
    #[error("`{}` was taken away while agentd runs", .0.display())]
    Gone(PathBuf),
    #[error("`{}` was replaced by another file while agentd runs", .0.display())]
    Replaced(PathBuf),
    #[error("`{}` was cut off while agentd runs", .0.display())]
    Cut(PathBuf),
}

/// The files as they were when they were opened.
pub(super) struct Guard {
    database: File,
    /// SQLite makes them when it needs them, and takes them away with the last connection only.
    beside: [File; 2],
}

struct File {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    /// It never grows shorter, in bytes: nothing here gives pages back to the file system.
    least: u64,
}

impl Guard {
    /// Of a database that has just been opened.
    pub(super) fn of(database: &Path) -> Self {
        let file = |path| File {
            path,
            identity: None,
            least: 0,
        };
        let mut guard = Self {
            database: file(database.to_owned()),
            beside: ["-wal", "-shm"].map(|end| file(beside(database, end))),
        };
        // Who takes it away in this very moment is found out by nobody.
        let _seen = guard.look(true);
        guard
    }

    /// The database was opened again, and the others may have been made anew for that.
    pub(super) fn reopened(&mut self) {
        self.beside.iter_mut().for_each(|file| file.identity = None);
    }

    /// Are they still there? What can't be looked at now is. While the database is closed only it
    /// has to be: the others are made anew when it is opened.
    pub(super) fn look(&mut self, is_open: bool) -> Result<(), Displaced> {
        if let Some(found) = self.database.look()? {
            self.database.least = self.database.least.max(found.len());
        }
        let beside = self.beside.iter_mut().filter(|_| is_open);
        for file in beside {
            file.look()?;
        }
        Ok(())
    }
}

impl File {
    fn look(&mut self) -> Result<Option<Metadata>, Displaced> {
        let found = match fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound && self.identity.is_some() => {
                return Err(Displaced::Gone(self.path.clone()));
            }
            Err(_unknown) => return Ok(None),
        };
        // Of the name, and compared with what it led to: an open file would still be there when its
        // name is gone.
        let identity = (found.dev(), found.ino());
        if *self.identity.get_or_insert(identity) != identity {
            return Err(Displaced::Replaced(self.path.clone()));
        }
        if found.len() < self.least {
            return Err(Displaced::Cut(self.path.clone()));
        }
        Ok(Some(found))
    }
}
