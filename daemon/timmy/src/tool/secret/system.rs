//! What of the system's configuration isn't everybody's to read: passwords, keys of hosts, of
//! networks and of servers.
//!
//! Owns finding it, by the modes that say so: no list knows every server. A superuser's commands own
//! such files, and a group may be given some. Must not know what is done about them.

use std::fs::{DirEntry, Metadata};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

/// Where systems keep it.
const CONFIGURATIONS: &[&str] = &["/etc", "/usr/local/etc"];
/// Entries that are looked at: a large system has some thousands.
const MOST_ENTRIES: usize = 20_000;
/// Others may read a file, or go into a directory.
const OTHERS_READ: u32 = 0o004;
const OTHERS_ENTER: u32 = 0o001;

/// Files and directories there that this process can read and not everybody can.
pub(crate) fn places() -> Vec<PathBuf> {
    let trees = CONFIGURATIONS.iter().map(PathBuf::from);
    let trees = trees.filter_map(|tree| tree.canonicalize().ok());
    trees.flat_map(|tree| closed(&tree, MOST_ENTRIES)).collect()
}

/// The same of one tree. What there is no time to look into counts as closed.
fn closed(tree: &Path, most: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = most;
    let mut open = vec![tree.to_owned()];
    while let Some(dir) = open.pop() {
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        for entry in entries {
            // What a link leads to is elsewhere.
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            left = left.saturating_sub(1);
            match look(&entry) {
                _ if left == 0 => found.push(entry.path()),
                Look::Closed => found.push(entry.path()),
                Look::Directory => open.push(entry.path()),
                Look::Open => {}
            }
        }
        if left == 0 {
            found.append(&mut open);
        }
    }
    found
}

enum Look {
    /// Not everybody's.
    Closed,
    /// One that everybody may go into.
    Directory,
    /// Everybody's, or nobody's.
    Open,
}

fn look(entry: &DirEntry) -> Look {
    let Ok(found) = entry.metadata() else {
        return Look::Open;
    };
    let (others, may) = if found.is_dir() {
        (OTHERS_ENTER, AccessFlags::X_OK)
    } else if found.is_file() {
        (OTHERS_READ, AccessFlags::R_OK)
    } else {
        return Look::Open;
    };
    match (has(&found, others), found.is_dir()) {
        (true, true) => Look::Directory,
        (true, false) => Look::Open,
        // Whoever can't read it has no need of being kept from it.
        (false, _) if is_ours(&entry.path(), may) => Look::Closed,
        (false, _) => Look::Open,
    }
}

fn has(found: &Metadata, mode: u32) -> bool {
    found.permissions().mode() & mode != 0
}

/// May this process? A superuser may, with or without capabilities: such files are its own.
fn is_ours(path: &Path, may: AccessFlags) -> bool {
    nix::unistd::geteuid().is_root() || faccessat(AT_FDCWD, path, may, AtFlags::AT_EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions, write};

    use super::*;

    #[test]
    fn system_secret_is_what_others_cannot_read() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().canonicalize().unwrap();
        let at = |name: &str| tree.join(name);
        for (name, mode) in [("ssh", 0o755), ("ssh/keys", 0o711), ("private", 0o750)] {
            create_dir(at(name)).unwrap();
            set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        }
        for (name, mode) in [
            ("hosts", 0o644),
            ("shadow", 0o640),
            ("ssh/config", 0o644),
            ("ssh/host_key", 0o600),
            ("ssh/keys/key", 0o440),
            ("ssh/keys/key.pub", 0o444),
            ("private/inner", 0o644),
        ] {
            write(at(name), "").unwrap();
            set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink("shadow", at("link")).unwrap();
        let mut found = closed(&tree, MOST_ENTRIES);
        found.sort();
        let expected = ["private", "shadow", "ssh/host_key", "ssh/keys/key"];
        assert_eq!(found, expected.map(at));
        // Of what isn't looked at nothing is open.
        for most in 1..=5 {
            let found = closed(&tree, most);
            for private in expected.map(at) {
                assert!(
                    found.iter().any(|place| private.starts_with(place)),
                    "{most}: {}",
                    private.display()
                );
            }
        }
    }
}
