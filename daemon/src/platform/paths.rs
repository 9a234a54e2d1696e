//! Where things live: one table for both systems, and the care taken of our directories.
//!
//! Owns the defaults and their overrides. The client has its own copy of the socket's rule, and
//! both are tested by `tests/fixtures/v1/paths.json`. Must not know what is in the files.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
};
use std::path::{Path, PathBuf};

use agentd_base::configuration;

/// Which table is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Os {
    /// XDG directories.
    Linux,
    /// `~/Library`.
    MacOs,
}

impl Os {
    /// The one this is built for.
    pub const HERE: Os = if cfg!(target_os = "macos") {
        Os::MacOs
    } else {
        Os::Linux
    };

    /// Longest path of a socket in bytes: the field in the kernel's address, less its end.
    #[must_use]
    pub const fn socket_limit(self) -> usize {
        match self {
            Os::Linux => 107,
            // The field has 104 bytes there, its end included.
            Os::MacOs => 103,
        }
    }
}

/// What the table depends on, so that it can be asked for another machine.
pub struct Host<'a> {
    /// Whose table.
    pub os: Os,
    /// A variable of the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The user.
    pub uid: u32,
    /// Is `/run/user/$UID` there, a directory, and the user's?
    pub run_user_is_ours: bool,
}

/// Where this daemon's things are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    /// The socket.
    pub socket: PathBuf,
    /// Directory of `agentd.db`, `daemon.lock` and `instances/`.
    pub state: PathBuf,
    /// The configuration file.
    pub config: PathBuf,
    /// The file of secrets beside it.
    pub env_file: PathBuf,
}

/// A path that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// What is wrong with it, and what to do.
    #[error("{0}")]
    Unfit(String),
    /// The system said no.
    #[error("can't use the directory `{}`: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// The socket's path, without looking at the file system.
pub fn default_socket(host: &Host<'_>) -> Result<PathBuf, PathError> {
    if let Some(socket) = set(host, "AGENTD_SOCKET") {
        return Ok(PathBuf::from(socket));
    }
    let dir = match host.os {
        Os::MacOs => application_support(host)?,
        Os::Linux => match absolute(host, "XDG_RUNTIME_DIR") {
            Some(dir) => dir.join("agentd"),
            None if host.run_user_is_ours => {
                PathBuf::from(format!("/run/user/{}/agentd", host.uid))
            }
            None => PathBuf::from(format!("/tmp/agentd-{}", host.uid)),
        },
    };
    Ok(dir.join("agentd.sock"))
}

/// The whole table.
pub fn paths(host: &Host<'_>) -> Result<Paths, PathError> {
    let state = match (set(host, "AGENTD_STATE_DIR"), host.os) {
        (Some(dir), _) => PathBuf::from(dir),
        (None, Os::MacOs) => application_support(host)?,
        (None, Os::Linux) => match absolute(host, "XDG_STATE_HOME") {
            Some(dir) => dir.join("agentd"),
            None => home(host)?.join(".local/state/agentd"),
        },
    };
    let variable = |name: &str| (host.env)(name).map(Into::into);
    let config = match configuration::file(&variable) {
        Some(file) => file,
        None => return Err(no_home()),
    };
    Ok(Paths {
        socket: default_socket(host)?,
        state,
        env_file: configuration::env_file(&config),
        config,
    })
}

/// The table for this process.
pub fn here() -> Result<Paths, PathError> {
    let uid = nix::unistd::getuid().as_raw();
    let run_user = PathBuf::from(format!("/run/user/{uid}"));
    let run_user_is_ours =
        fs::symlink_metadata(run_user).is_ok_and(|found| found.is_dir() && found.uid() == uid);
    paths(&Host {
        os: Os::HERE,
        env: &|name| std::env::var(name).ok(),
        uid,
        run_user_is_ours,
    })
}

/// Is the path short enough for a socket?
pub fn check_socket_length(path: &Path, os: Os) -> Result<(), PathError> {
    let (found, limit) = (path.as_os_str().len(), os.socket_limit());
    if found > limit {
        let path = path.display();
        return Err(PathError::Unfit(format!(
            "the socket's path is {found} bytes, the limit here is {limit}: `{path}`; hint: set \
             `AGENTD_SOCKET` to a shorter path"
        )));
    }
    Ok(())
}

/// Makes sure that a directory of our own is there, ours, and closed to others.
///
/// Only for directories that belong to agentd alone: its mode is repaired. A directory that others
/// may write to, a link, or somebody else's is refused and not changed. So is one with a pipe or a
/// device in it: each of our files there is opened at a start.
pub fn private_dir(path: &Path) -> Result<(), PathError> {
    let io = |source| PathError::Io {
        path: path.to_owned(),
        source,
    };
    let unfit = |why: &str| Err(PathError::Unfit(format!("`{}` {why}", path.display())));
    make_durably(path)
        .or_else(|error| match fs::symlink_metadata(path) {
            Ok(_something_is_there) => Ok(()),
            Err(_) => Err(error),
        })
        .map_err(io)?;
    let found = fs::symlink_metadata(path).map_err(io)?;
    if !found.is_dir() {
        let found = if found.is_symlink() {
            "a symbolic link"
        } else {
            "a file"
        };
        return unfit(&format!(
            "is {found}, expected a directory of yours; hint: move it away"
        ));
    }
    // From here on it is the opened directory, whatever the name leads to by then.
    let dir = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)
        .map_err(io)?;
    let found = dir.metadata().map_err(io)?;
    let ours = nix::unistd::geteuid().as_raw();
    if found.uid() != ours {
        let owner = found.uid();
        return unfit(&format!(
            "belongs to uid {owner}, expected {ours}; hint: choose another directory"
        ));
    }
    // Sticky: made for many users, as `/tmp` is. Root owns that one, too.
    if found.mode() & 0o1000 != 0 {
        return unfit(
            "is open to other users, so nothing private can be there; hint: use a directory below it",
        );
    }
    if found.mode() & 0o777 != 0o700 {
        dir.set_permissions(fs::Permissions::from_mode(0o700))
            .map_err(io)?;
    }
    let odd = fs::read_dir(path).map_err(io)?.flatten().find(|entry| {
        // What a link leads to is what would be read.
        let found = match entry.file_type() {
            Ok(kind) if kind.is_symlink() => fs::metadata(entry.path()).map(|to| to.file_type()),
            found => found,
        };
        found.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device() || kind.is_block_device())
    });
    match odd {
        Some(entry) => Err(PathError::Unfit(format!(
            "`{}` is a pipe or a device; expected a file; hint: move it away",
            entry.path().display()
        ))),
        None => Ok(()),
    }
}

/// Makes a directory and those it is in. The name of each is on the disk before anything in it can
/// be: a file is only as durable as the names that lead to it.
fn make_durably(path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent().filter(|_| !path.is_dir()) else {
        return Ok(());
    };
    make_durably(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // What is named by a relative path of one part is in the current directory.
    let parent = Some(parent).filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if let Err(error) = fs::File::open(parent).and_then(|parent| parent.sync_all()) {
        // Not everywhere can a directory be synced, or even opened.
        tracing::warn!(%error, dir = %parent.display(), "a directory can't be synced");
    }
    Ok(())
}

fn application_support(host: &Host<'_>) -> Result<PathBuf, PathError> {
    Ok(home(host)?.join("Library/Application Support/agentd"))
}

fn home(host: &Host<'_>) -> Result<PathBuf, PathError> {
    absolute(host, "HOME").ok_or_else(no_home)
}

fn no_home() -> PathError {
    let why = "`HOME` is not set; hint: set it, or set `AGENTD_SOCKET`, `AGENTD_STATE_DIR` and \
               `AGENTD_CONFIG`";
    PathError::Unfit(why.to_owned())
}

/// An empty variable counts as none.
fn set(host: &Host<'_>, name: &str) -> Option<String> {
    (host.env)(name).filter(|value| !value.is_empty())
}

/// A relative directory is ignored, as the XDG specification asks.
fn absolute(host: &Host<'_>, name: &str) -> Option<PathBuf> {
    set(host, name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        name: String,
        os: String,
        env: BTreeMap<String, String>,
        uid: u32,
        run_user_is_ours: bool,
        socket: PathBuf,
        state: PathBuf,
        config: PathBuf,
    }

    #[test]
    fn every_row_of_the_shared_table_is_kept() {
        let table = include_str!("../../../tests/fixtures/v1/paths.json");
        let cases: Vec<Case> = serde_json::from_str(table).unwrap();
        assert!(cases.len() > 8);
        for case in cases {
            let found = paths(&Host {
                os: if case.os == "macos" {
                    Os::MacOs
                } else {
                    Os::Linux
                },
                env: &|name| case.env.get(name).cloned(),
                uid: case.uid,
                run_user_is_ours: case.run_user_is_ours,
            })
            .unwrap();
            assert_eq!(found.socket, case.socket, "{}", case.name);
            assert_eq!(found.state, case.state, "{}", case.name);
            assert_eq!(found.config, case.config, "{}", case.name);
        }
    }

    #[test]
    fn socket_path_is_as_long_as_kernels_take() {
        for (os, limit) in [(Os::Linux, 107), (Os::MacOs, 103)] {
            let path = |bytes: usize| PathBuf::from(format!("/{}", "x".repeat(bytes - 1)));
            assert!(check_socket_length(&path(limit), os).is_ok());
            let error = check_socket_length(&path(limit + 1), os).unwrap_err();
            assert!(error.to_string().contains("AGENTD_SOCKET"), "{error}");
        }
    }

    #[test]
    fn runtime_directory_is_repaired_and_links_are_refused() {
        let dir = tempfile::TempDir::new().unwrap();
        let ours = dir.path().join("a/b");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        private_dir(&ours).unwrap();
        assert_eq!(mode(&ours), 0o700);
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o755)).unwrap();
        private_dir(&ours).unwrap();
        assert_eq!(mode(&ours), 0o700);

        let refused = |path: &Path| private_dir(path).unwrap_err().to_string();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        assert!(refused(&link).contains("is a symbolic link, expected"));
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(refused(&file).contains("is a file, expected"));

        fs::set_permissions(&ours, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(refused(&ours).contains("is open to other users"));
        assert_eq!(mode(&ours), 0o1777, "what is shared is never closed");
    }
}
