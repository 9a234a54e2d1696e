//! By what a session is open in one process only.
//!
//! Owns the file `timmy.lock`, one byte of which stands for each session. The kernel gives a byte
//! back when its process dies, however it dies. Must not know what a session is.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::schema::private;
use super::store::StoreError;

/// The sessions that are open here.
#[derive(Default, Debug)]
pub(super) struct Locks(Mutex<SessionLock>);

#[derive(Default, Debug)]
struct SessionLock {
    file: Option<File>,
    held: BTreeSet<i64>,
}

impl Locks {
    fn held(&self) -> MutexGuard<'_, SessionLock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that is open here and nowhere else, until this is dropped.
#[derive(Debug)]
pub(super) struct Open {
    locks: Arc<Locks>,
    id: i64,
}

impl Open {
    pub(super) const fn id(&self) -> i64 {
        self.id
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut locks = self.locks.held();
        locks.held.remove(&self.id);
        if let Some(file) = &locks.file {
            // The kernel does it when the process ends, should it not be possible now.
            let _held = set_lock(file, self.id, libc::F_UNLCK as libc::c_short);
        }
    }
}

/// Opens a session here, if it isn't open anywhere.
pub(super) fn lock(locks: &Arc<Locks>, directory: &Path, id: i64) -> Result<Open, StoreError> {
    let mut all = locks.held();
    let failed = |why: io::Error| StoreError::Failed(directory.join("timmy.lock"), why.to_string());
    let file = match all.file.take() {
        Some(file) => file,
        None => private(&directory.join("timmy.lock")).map_err(failed)?,
    };
    // The kernel would give the same handle its byte once more, so this process looks itself first.
    let taken = !all.held.contains(&id)
        && set_lock(&file, id, libc::F_WRLCK as libc::c_short).map_err(failed)?;
    all.file = Some(file);
    if !taken {
        return Err(StoreError::Open);
    }
    all.held.insert(id);
    drop(all);
    Ok(Open {
        locks: Arc::clone(locks),
        id,
    })
}

/// Takes or gives back a session's byte of the lock file; was it to be had?
fn set_lock(file: &File, id: i64, kind: libc::c_short) -> io::Result<bool> {
    use nix::fcntl::{FcntlArg, fcntl};
    let lock = libc::flock {
        l_type: kind,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: id,
        l_len: 1,
        l_pid: 0,
    };
    #[cfg(target_os = "linux")]
    // Not `F_SETLK`: that is the process's, and closing any other handle of the file gives it back
    // (fcntl(2), "Open file description locks").
    let how = FcntlArg::F_OFD_SETLK(&lock);
    #[cfg(not(target_os = "linux"))]
    let how = FcntlArg::F_SETLK(&lock);
    match fcntl(file, how) {
        Ok(_) => Ok(true),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
        Err(why) => Err(why.into()),
    }
}
