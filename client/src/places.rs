//! Where agentd's files are: a pure function of the environment.
//!
//! Owns the table of ARCHITECTURE part 7 for clients. Must not know what is in those files beyond
//! how a store begins, nor read the environment itself beyond [`Environment::of_process`].

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Which rules for paths apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// XDG directories.
    Linux,
    /// `~/Library/Application Support`.
    MacOs,
}

/// What the paths depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment {
    /// The rules.
    pub system: System,
    /// Our own.
    pub uid: u32,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// `$XDG_STATE_HOME`.
    pub xdg_state_home: Option<PathBuf>,
    /// `$AGENTD_SOCKET`.
    pub agentd_socket: Option<PathBuf>,
    /// `$AGENTD_STATE_DIR`.
    pub agentd_state_dir: Option<PathBuf>,
    /// Is `/run/user/$UID` a directory of ours? Only asked without `$XDG_RUNTIME_DIR`.
    pub run_user_is_ours: bool,
}

impl Environment {
    /// The one of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let uid = nix::unistd::Uid::effective().as_raw();
        let absolute = |name: &str| absolute(std::env::var_os(name));
        let xdg_runtime_dir = absolute("XDG_RUNTIME_DIR");
        let run_user_is_ours = xdg_runtime_dir.is_none()
            && std::fs::symlink_metadata(run_user(uid))
                .is_ok_and(|found| found.is_dir() && found.uid() == uid);
        Self {
            system: if cfg!(target_os = "macos") {
                System::MacOs
            } else {
                System::Linux
            },
            uid,
            home: absolute("HOME"),
            xdg_runtime_dir,
            xdg_state_home: absolute("XDG_STATE_HOME"),
            // A relative socket is the user's own words, taken as they are.
            agentd_socket: std::env::var_os("AGENTD_SOCKET")
                .filter(|value| !value.is_empty())
                .map(PathBuf::from),
            agentd_state_dir: std::env::var_os("AGENTD_STATE_DIR")
                .filter(|value| !value.is_empty())
                .map(PathBuf::from),
            run_user_is_ours,
        }
    }

    /// The socket when nothing names one.
    #[must_use]
    pub fn default_socket(&self) -> PathBuf {
        if self.system == System::MacOs
            && let Some(home) = &self.home
        {
            return application_support(home).join("agentd.sock");
        }
        let directory = match &self.xdg_runtime_dir {
            Some(runtime) => runtime.join("agentd"),
            None if self.run_user_is_ours => run_user(self.uid).join("agentd"),
            None => PathBuf::from(format!("/tmp/agentd-{}", self.uid)),
        };
        directory.join("agentd.sock")
    }

    /// The state directory; none without a home.
    #[must_use]
    pub fn state_dir(&self) -> Option<PathBuf> {
        if let Some(named) = &self.agentd_state_dir {
            return Some(named.clone());
        }
        if self.system == System::MacOs {
            return self.home.as_deref().map(application_support);
        }
        let state_home = self.xdg_state_home.clone();
        state_home
            .or_else(|| Some(self.home.as_ref()?.join(".local/state")))
            .map(|base| base.join("agentd"))
    }
}

/// The file of the store, as it looks from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreFile {
    /// There never was one.
    None,
    /// It is there.
    There,
    /// There was one.
    Gone,
    /// It is no store.
    Damaged,
}

/// How every file of SQLite begins.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// How the store's file is. What is in it is the daemon's to read.
#[must_use]
pub fn store_file(environment: &Environment) -> StoreFile {
    let Some(state) = environment.state_dir() else {
        return StoreFile::None;
    };
    let mut begins = Vec::new();
    let opened = std::fs::File::open(state.join("agentd.db"));
    let read = opened.and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut begins));
    let was_there = state.join("agentd.db.epoch").exists();
    match read {
        // Whoever can't read it says so.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => StoreFile::There,
        Ok(1..) if begins != MAGIC => StoreFile::Damaged,
        Ok(1..) => StoreFile::There,
        Ok(0) | Err(_) if was_there => StoreFile::Gone,
        // Made a moment ago, and empty yet.
        Ok(_) => StoreFile::There,
        Err(_) => StoreFile::None,
    }
}

/// The directory, and whose it is, when what would be made in the state directory would be somebody
/// else's: `sudo` keeps `HOME` where it is told to. Root's own is nobody else's.
#[must_use]
pub fn foreign_state(environment: &Environment) -> Option<(PathBuf, u32)> {
    let state = environment.state_dir()?;
    let mut there = state.ancestors();
    let (dir, found) = there.find_map(|dir| Some((dir, std::fs::metadata(dir).ok()?)))?;
    let owner = found.uid();
    (owner != environment.uid && owner != 0).then(|| (dir.to_owned(), owner))
}

/// A directory as it is compared: absolute, without needless slashes. Links stay.
#[must_use]
pub fn plain(dir: &Path) -> PathBuf {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    dir.components().collect()
}

/// What a command needs to find this user's service manager: a shell of `su` or cron has no runtime
/// directory, and the manager may be there all the same.
#[must_use]
pub fn of_manager() -> Option<(&'static str, PathBuf)> {
    const NAME: &str = "XDG_RUNTIME_DIR";
    let is_set = std::env::var_os(NAME).is_some();
    (!is_set).then(|| (NAME, run_user(nix::unistd::Uid::effective().as_raw())))
}

fn run_user(uid: u32) -> PathBuf {
    PathBuf::from(format!("/run/user/{uid}"))
}

fn application_support(home: &Path) -> PathBuf {
    home.join("Library/Application Support/agentd")
}

/// The XDG specification says that a relative path is to be ignored.
fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linux() -> Environment {
        Environment {
            system: System::Linux,
            uid: 1000,
            home: Some("/home/u".into()),
            xdg_runtime_dir: None,
            xdg_state_home: None,
            agentd_socket: None,
            agentd_state_dir: None,
            run_user_is_ours: false,
        }
    }

    #[test]
    fn socket_is_in_runtime_run_user_or_tmp() {
        let mut environment = linux();
        let socket = |e: &Environment| e.default_socket().display().to_string();
        assert_eq!(socket(&environment), "/tmp/agentd-1000/agentd.sock");
        environment.run_user_is_ours = true;
        assert_eq!(socket(&environment), "/run/user/1000/agentd/agentd.sock");
        environment.xdg_runtime_dir = Some("/x".into());
        assert_eq!(socket(&environment), "/x/agentd/agentd.sock");
        environment.system = System::MacOs;
        assert_eq!(
            socket(&environment),
            "/home/u/Library/Application Support/agentd/agentd.sock"
        );
    }

    #[test]
    fn state_directory_is_named_or_xdg_or_home() {
        let mut environment = linux();
        let state = |e: &Environment| e.state_dir().map(|path| path.display().to_string());
        assert_eq!(
            state(&environment).as_deref(),
            Some("/home/u/.local/state/agentd")
        );
        environment.xdg_state_home = Some("/s".into());
        assert_eq!(state(&environment).as_deref(), Some("/s/agentd"));
        environment.agentd_state_dir = Some("/named".into());
        assert_eq!(state(&environment).as_deref(), Some("/named"));
        let homeless = Environment {
            home: None,
            ..linux()
        };
        assert_eq!(state(&homeless), None);
    }

    #[test]
    fn state_in_the_home_of_another_is_foreign() {
        let dir = tempfile::tempdir().unwrap();
        let owner = std::fs::metadata(dir.path()).unwrap().uid();
        let of = |uid| Environment {
            uid,
            home: Some(dir.path().to_owned()),
            ..linux()
        };
        assert_eq!(foreign_state(&of(owner)), None);
        // Root's is taken for everybody's: only root could have made it so.
        let expected = (owner != 0).then(|| (dir.path().to_owned(), owner));
        assert_eq!(foreign_state(&of(owner + 1)), expected);
    }

    #[test]
    fn a_relative_xdg_directory_is_ignored() {
        assert_eq!(absolute(Some("run".into())), None);
        assert_eq!(absolute(Some("".into())), None);
        assert_eq!(absolute(Some("/run".into())), Some("/run".into()));
    }
}
