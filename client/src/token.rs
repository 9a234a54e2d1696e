//! The word that opens HTTP: a file of this user's only, made once, replaced when asked.
//!
//! Owns the file, what it may look like, and when it has to be read again. Must not know who
//! compares the word, nor print it.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agentd_base::TOKEN_PREFIX;
use nix::fcntl::OFlag;
use nix::unistd::Uid;

use crate::key;
use crate::places::Environment;

/// Fewer could be guessed.
const SHORTEST: usize = 32;
/// More than any header needs.
const LONGEST: usize = 255;
/// Two changes of a file that are further apart bear different times, whatever its filesystem: FAT
/// counts in steps of 2 s.
const FRESH: Duration = Duration::from_secs(4);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Neither `HOME` nor a variable of agentd's names a directory.
    #[error("there is no state directory for the token: set `HOME` or `AGENTD_STATE_DIR`")]
    Nowhere,
    /// The file can't be read or written.
    #[error("the token `{}`: {error}", .path.display())]
    File {
        /// Where it is to be.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// It is there, and is not to be believed.
    #[error("the token `{}` {why}; `agentctl token --new` makes another", .path.display())]
    Unfit {
        /// Where it is.
        path: PathBuf,
        /// What was found, and what was expected.
        why: String,
    },
}

/// Where it is: `http.token` of the state directory.
///
/// # Errors
/// Without a state directory.
pub fn path(environment: &Environment) -> Result<PathBuf, TokenError> {
    let dir = environment.state_dir().ok_or(TokenError::Nowhere)?;
    Ok(dir.join("http.token"))
}

/// The token that is in the file now.
///
/// # Errors
/// When the file is not there, can be read by others, or has something else in it.
pub fn read(path: &Path) -> Result<String, TokenError> {
    read_as(path).map(|(_, token)| token)
}

/// The token, and what its file looks like.
fn read_as(path: &Path) -> Result<(FileIdentity, String), TokenError> {
    let failed = |error| failed(path, error);
    let unfit = |why: String| TokenError::Unfit {
        path: path.to_owned(),
        why,
    };
    let opened = OpenOptions::new()
        .read(true)
        // A link may lead to a file of anybody's; a pipe would wait for somebody to write.
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path);
    let file = opened.map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let us = Uid::effective().as_raw();
    if !found.is_file() || found.uid() != us {
        return Err(unfit(format!("is no file of uid {us}")));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(unfit(format!("has the mode {mode:04o}, expected 0600")));
    }
    let mut text = String::new();
    // With its newline, and one more, which shows that it is too long.
    let most = u64::try_from(LONGEST + 2).unwrap_or(u64::MAX);
    file.take(most).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim_end_matches('\n');
    let plain = token.bytes().all(|byte| byte.is_ascii_graphic());
    if !plain || !(SHORTEST..=LONGEST).contains(&token.len()) {
        let expected = format!("expected {SHORTEST} to {LONGEST} visible characters of ASCII");
        return Err(unfit(format!("has something else in it, {expected}")));
    }
    Ok((FileIdentity::of(&found), token.to_owned()))
}

/// What can't stay the same when a file is replaced, written to, or given to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileIdentity {
    device: u64,
    inode: u64,
    /// Changes with every change, and can't be set; in seconds and nanoseconds since 1970.
    changed: (i64, i64),
}

impl FileIdentity {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// Did it change so lately that another change may bear the same time?
    fn is_fresh(&self) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        // A time to come is of a clock that was set back: it may come once more.
        changed.elapsed().is_ok_and(|age| age < FRESH) || changed > SystemTime::now()
    }
}

/// The token of a file, read again when the file is another or has changed.
#[derive(Debug)]
pub struct Token {
    path: PathBuf,
    known: Option<(FileIdentity, String)>,
}

impl Token {
    /// Of this file, which need not be there yet.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path, known: None }
    }

    /// The token that counts now.
    ///
    /// # Errors
    /// As [`read`].
    pub fn now(&mut self) -> Result<&str, TokenError> {
        let looks = std::fs::symlink_metadata(&self.path);
        let look = looks.as_ref().ok().map(FileIdentity::of);
        let known = self.known.take();
        let known = known.filter(|(known, _)| Some(*known) == look && !known.is_fresh());
        let known = known.map_or_else(|| read_as(&self.path), Ok)?;
        Ok(&self.known.insert(known).1)
    }
}

/// The token; makes one when there is none. Two who do that at once get the same.
///
/// # Errors
/// As [`read`], and when it can't be written.
pub fn ensure(path: &Path) -> Result<String, TokenError> {
    match read(path) {
        Err(TokenError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let made = beside(path)?;
    // Unlike a rename this takes nobody's place: who is second reads what the first one made.
    let linked = std::fs::hard_link(&made, path);
    let _left_over = std::fs::remove_file(&made);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(path, error)),
        _ => read(path),
    }
}

/// Another token; the one before opens nothing from now on.
///
/// # Errors
/// When it can't be written. Which one counts then is what [`read`] gives.
pub fn renew(path: &Path) -> Result<String, TokenError> {
    let made = beside(path)?;
    std::fs::rename(&made, path).map_err(|error| {
        let _left_over = std::fs::remove_file(&made);
        failed(path, error)
    })?;
    // Or a power cut would bring back the one before.
    let dir = path.parent().map(File::open).transpose();
    let kept = dir.and_then(|dir| dir.map_or(Ok(()), |dir| dir.sync_all()));
    kept.map_err(|error| failed(path, error))?;
    read(path)
}

/// Writes a new token to a file of its own in the same directory.
fn beside(path: &Path) -> Result<PathBuf, TokenError> {
    let failed = |error| failed(path, error);
    if let Some(dir) = path.parent().filter(|dir| !dir.exists()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(failed)?;
    }
    let random = || key::random().map_err(failed);
    let token = format!("{TOKEN_PREFIX}{}{}", random()?, random()?);
    let made = path.with_extension(random()?);
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&made);
    let written = opened.and_then(|mut file: File| {
        file.write_all(format!("{token}\n").as_bytes())?;
        file.sync_all()
    });
    match written {
        Ok(()) => Ok(made),
        Err(error) => {
            let _left_over = std::fs::remove_file(&made);
            Err(failed(error))
        }
    }
}

fn failed(path: &Path, error: io::Error) -> TokenError {
    TokenError::File {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn token_is_private_and_made_once_unless_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/http.token");
        let token = ensure(&path).unwrap();
        let random = token.strip_prefix(TOKEN_PREFIX).unwrap();
        assert_eq!(random.len(), 64);
        assert_eq!(ensure(&path).unwrap(), token);
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        let state = path.parent().unwrap();
        assert_eq!(state.metadata().unwrap().mode() & 0o7777, 0o700);
        let other = renew(&path).unwrap();
        assert_ne!(other, token);
        assert_eq!(read(&path).unwrap(), other);
        assert_eq!(std::fs::read_dir(state).unwrap().count(), 1);
    }

    #[test]
    fn token_made_by_many_at_once_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.token");
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let made: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| ensure(&path).unwrap()))
                .collect();
            made.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0]));
    }

    /// Its file is the same, however it changed.
    #[test]
    fn token_that_is_kept_is_never_old() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.token");
        let mut token = Token::new(path.clone());
        assert!(token.now().is_err());
        let first = ensure(&path).unwrap();
        assert_eq!(token.now().unwrap(), first);
        let second = renew(&path).unwrap();
        assert_eq!(token.now().unwrap(), second);
        std::fs::write(&path, &first).unwrap();
        assert_eq!(token.now().unwrap(), first);
        std::fs::write(&path, &second).unwrap();
        assert_eq!(token.now().unwrap(), second);
        // Its content isn't looked at again, and whoever may read it is.
        let look = FileIdentity::of(&path.symlink_metadata().unwrap());
        let changed = (look.changed.0 - 60, look.changed.1);
        token.known = Some((FileIdentity { changed, ..look }, first));
        assert_eq!(token.now().unwrap(), second);
        mode(&path, 0o640);
        assert!(token.now().is_err());
        mode(&path, 0o600);
        assert_eq!(token.now().unwrap(), second);
        std::fs::remove_file(&path).unwrap();
        assert!(token.now().is_err());
    }

    #[test]
    fn token_that_others_can_read_opens_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.token");
        ensure(&path).unwrap();
        mode(&path, 0o640);
        assert!(read(&path).unwrap_err().to_string().contains("0640"));
        mode(&path, 0o600);
        for text in ["", "short\n", &"x".repeat(256), &format!("{:032}\u{7}", 1)] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(ensure(&path), Err(TokenError::Unfit { .. })));
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(read(&path).is_err());
    }
}
