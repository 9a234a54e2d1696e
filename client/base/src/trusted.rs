//! Files that nobody else can change: what they say is run as the user.
//!
//! Owns who may own and write a file and what is on the way to it, links included, as sshd has it of
//! its users' files (`StrictModes` of `sshd_config(5)`), with two things that are fine here: a group
//! that is the user's alone, as Debian's sshd has it, and whatever lies where nobody else gets to.
//! Must not know what is in them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use nix::unistd::{Gid, Group, Uid, User};

/// Links on the way to a file; the kernel follows as many (`path_resolution(7)`).
const LINKS: usize = 40;
/// The user as which owners are shown that a user namespace has no number for.
const UNMAPPED: u32 = 65534;

/// Why a file isn't trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Untrusted {
    /// The file that was asked about.
    pub file: PathBuf,
    /// It, or what is on the way to it.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// The command that mends it.
    pub hint: String,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, path) = (self.file.display(), self.path.display());
        let Self { what, hint, .. } = self;
        write!(
            f,
            "`{file}` says what is run as you, and `{path}` isn't yours alone: {what}; hint: {hint}"
        )
    }
}

impl std::error::Error for Untrusted {}

/// A path as it can be typed into a shell.
#[must_use]
pub fn typed(path: &Path) -> String {
    let path = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-+,:@%".contains(c);
    match path.chars().all(plain) && !path.is_empty() {
        true => path.into_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// What is wrong with a file or directory, and the command that mends it.
struct Fault {
    path: PathBuf,
    what: String,
    hint: String,
}

/// Who looks, and what is to be made of other owners.
struct Looker {
    uid: u32,
    /// Are there owners without a number here?
    unmapped: bool,
}

/// Is there anything on the way to a file, or the file itself, that somebody else could change? What
/// isn't there can't be read either, and is no fault.
///
/// # Errors
/// The first such thing.
pub fn check(file: &Path) -> Result<(), Untrusted> {
    let full = |map: String| {
        let mut words = map.split_ascii_whitespace();
        words.next() == Some("0") && words.next_back() == Some("4294967295")
    };
    let looker = Looker {
        uid: nix::unistd::geteuid().as_raw(),
        unmapped: fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !full(map)),
    };
    looker.walk(file).map_err(|Fault { path, what, hint }| {
        let of_caller = "`sudo -H`, which takes root's own home; or do it without sudo";
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let hint = match is_of_caller(&path) || is_home_of_another(&path, home.as_deref()) {
            true => of_caller.to_owned(),
            false => hint,
        };
        Untrusted {
            file: file.to_owned(),
            path,
            what,
            hint,
        }
    })
}

/// Is it of whoever called `sudo`, which has left us that user's `HOME`? Then it is right as it is.
fn is_of_caller(path: &Path) -> bool {
    let caller = std::env::var("SUDO_UID").ok();
    let caller = caller.and_then(|uid| uid.parse::<u32>().ok());
    caller.is_some_and(|caller| fs::symlink_metadata(path).is_ok_and(|it| it.uid() == caller))
}

/// Is it somebody else's home, which is left us as ours, or in it? To give it to us would take it
/// from them.
fn is_home_of_another(path: &Path, home: Option<&Path>) -> bool {
    let owner = |path: &Path| fs::symlink_metadata(path).ok().map(|it| it.uid());
    home.is_some_and(|home| {
        let of_home = owner(home).filter(|uid| *uid != 0);
        nix::unistd::geteuid().is_root()
            && path.starts_with(home)
            && of_home.is_some()
            && owner(path) == of_home
    })
}

impl Looker {
    fn walk(&self, file: &Path) -> Result<(), Fault> {
        let mut left: VecDeque<OsString> = words(file);
        let mut place = PathBuf::from("/");
        let mut links = 0;
        // Of the directory that the next name is in: others may make names in it if it is sticky.
        let mut shared = false;
        // Does a directory on the way let nobody else through?
        let mut closed = false;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                place.pop();
                closed = false;
                continue;
            }
            let path = place.join(&name);
            let Ok(found) = fs::symlink_metadata(&path) else {
                return Ok(());
            };
            if found.is_symlink() {
                links += 1;
                let Some(to) = fs::read_link(&path).ok().filter(|_| links <= LINKS) else {
                    return Ok(());
                };
                self.check_owner(&path, &found, shared)?;
                if to.is_absolute() {
                    place = PathBuf::from("/");
                    closed = false;
                }
                for word in words(&to).into_iter().rev() {
                    left.push_front(word);
                }
                continue;
            }
            self.check_owner(&path, &found, shared || !found.is_dir())?;
            if !closed {
                self.check_mode(&path, &found)?;
            }
            closed |= found.mode() & 0o011 == 0;
            shared = found.mode() & 0o1000 != 0;
            place = path;
        }
        Ok(())
    }

    /// Where others may make names, or of what is read, it has to be known whose it is.
    fn check_owner(&self, path: &Path, found: &Metadata, known: bool) -> Result<(), Fault> {
        let owner = found.uid();
        let ours = owner == self.uid || owner == 0;
        if ours || owner == UNMAPPED && self.unmapped && !known {
            return Ok(());
        }
        Err(Fault {
            path: path.to_owned(),
            what: format!("it belongs to user {owner}, who could change it"),
            hint: format!("sudo chown -h {} {}", self.uid, typed(path)),
        })
    }

    fn check_mode(&self, path: &Path, found: &Metadata) -> Result<(), Fault> {
        let mode = found.mode() & 0o7777;
        let sticky = found.is_dir() && mode & 0o1000 != 0;
        let by_others = mode & 0o002 != 0;
        let by_group = mode & 0o020 != 0 && !self.has_alone(Gid::from_raw(found.gid()));
        if sticky || !by_others && !by_group {
            return Ok(());
        }
        Err(Fault {
            path: path.to_owned(),
            what: format!("its mode is {mode:04o}: others could change it"),
            hint: format!("chmod go-w {}", typed(path)),
        })
    }

    /// Is nobody else in a group, which is named as the user is?
    fn has_alone(&self, group: Gid) -> bool {
        let user = User::from_uid(Uid::from_raw(self.uid)).ok().flatten();
        let group = Group::from_gid(group).ok().flatten();
        let (Some(user), Some(group)) = (user, group) else {
            return false;
        };
        user.gid == group.gid
            && user.name == group.name
            && group.mem.iter().all(|member| *member == user.name)
    }
}

/// The names of a path, `..` among them.
fn words(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A file in two directories of its own.
    fn planted() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("a/b/config.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        for ancestor in file.ancestors().take(4) {
            mode(ancestor, 0o755);
        }
        mode(&file, 0o644);
        (dir, file)
    }

    #[test]
    fn trusted_hints_can_be_typed_into_shells() {
        for (path, shown) in [
            ("/h/.config/agentd/env", "/h/.config/agentd/env"),
            ("/h/Application Support/env", "'/h/Application Support/env'"),
            ("/it's", r"'/it'\''s'"),
            ("~/env", "'~/env'"),
        ] {
            assert_eq!(typed(Path::new(path)), shown);
        }
    }

    #[test]
    fn trusted_files_are_for_others_to_read() {
        let (dir, file) = planted();
        assert_eq!(check(&file), Ok(()));
        assert_eq!(check(&dir.path().join("missing/file")), Ok(()));
    }

    #[test]
    fn trusted_files_are_for_nobody_else_to_write() {
        for (up, wrong) in [(0, 0o646), (1, 0o757), (2, 0o777)] {
            let (_dir, file) = planted();
            let path = file.ancestors().nth(up).unwrap();
            mode(path, wrong);
            let why = check(&file).unwrap_err();
            assert_eq!(
                (&*why.path, why.hint.contains("go-w")),
                (path, true),
                "{why:?}"
            );
        }
        let (dir, file) = planted();
        mode(&file, 0o666);
        mode(dir.path(), 0o700);
        assert_eq!(check(&file), Ok(()), "nobody else gets there");
        let (_dir, file) = planted();
        mode(file.parent().unwrap(), 0o1777);
        assert_eq!(check(&file), Ok(()), "sticky, and it is ours");
    }

    #[test]
    fn trusted_files_are_for_no_group_of_others() {
        let (_dir, file) = planted();
        let looker = Looker {
            uid: nix::unistd::geteuid().as_raw(),
            unmapped: false,
        };
        mode(&file, 0o664);
        let group = Gid::from_raw(fs::metadata(&file).unwrap().gid());
        assert_eq!(looker.walk(&file).is_ok(), looker.has_alone(group));
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&file, None, Some(1234)).unwrap();
            let why = check(&file).unwrap_err();
            assert!(why.what.contains("0664"), "{why:?}");
        }
    }

    #[test]
    fn trusted_links_lead_to_trusted_files() {
        let (dir, file) = planted();
        let (other, target) = planted();
        fs::remove_file(&file).unwrap();
        symlink(&target, &file).unwrap();
        assert_eq!(check(&file), Ok(()));
        mode(target.parent().unwrap(), 0o777);
        assert_eq!(check(&file).unwrap_err().path, target.parent().unwrap());
        drop(other);
        fs::remove_file(&file).unwrap();
        symlink("../b/config.toml", &file).unwrap();
        assert_eq!(check(&file), Ok(()), "it leads nowhere");
        drop(dir);
    }

    #[test]
    fn trusted_files_belong_to_their_user() {
        if !nix::unistd::geteuid().is_root() {
            // Nobody else can give a file away.
            let stranger = Looker {
                uid: nix::unistd::geteuid().as_raw() + 1,
                unmapped: false,
            };
            let (_dir, file) = planted();
            assert!(stranger.walk(&file).is_err());
            return;
        }
        for up in [0, 1, 2] {
            let (_dir, file) = planted();
            let path = file.ancestors().nth(up).unwrap();
            std::os::unix::fs::chown(path, Some(1234), None).unwrap();
            let why = check(&file).unwrap_err();
            assert_eq!(why.path, path, "{why:?}");
            assert!(why.what.contains("user 1234"), "{why:?}");
        }
        let (dir, file) = planted();
        let link = dir.path().join("link");
        symlink(&file, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(1234), None).unwrap();
        assert_eq!(check(&link).unwrap_err().path, link);
    }
}
