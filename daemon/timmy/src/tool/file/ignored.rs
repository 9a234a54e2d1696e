//! What the rules of `.gitignore` and `.ignore` leave out of a walk.
//!
//! Owns which rules are read, and how much of them: a command can make such a file as long as the
//! disk, or a pipe. Must not know what a walk is for.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use agentd_base::shared::lock;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::tool::places::repository;

/// Bytes of one file of rules, and of all of a walk; what is longer has none.
const MOST: u64 = 64 * 1024;
const MOST_TOGETHER: u64 = 4 * 1024 * 1024;
/// Files with rules: those of the first go before those of the next.
const FILES: [&str; 3] = [".ignore", ".gitignore", ".git/info/exclude"];

/// The rules of one walk, read as it comes by.
pub(super) struct Ignored {
    /// The rules of directories above don't count.
    top: PathBuf,
    read: Mutex<Read>,
}

/// Rules that there are, the innermost first.
type Chain = Arc<[Gitignore]>;

#[derive(Default)]
struct Read {
    /// For what is in a directory.
    chains: HashMap<PathBuf, Chain>,
    bytes: u64,
}

impl Ignored {
    /// Those of the repository that `dir` is in, or of `dir` and below.
    pub(super) fn below(dir: &Path) -> Self {
        Self {
            top: repository(dir).to_owned(),
            read: Mutex::default(),
        }
    }

    /// Is a file or directory left out? The innermost rule that fits says so.
    pub(super) fn leaves_out(&self, path: &Path, is_dir: bool) -> bool {
        let Some(dir) = path.parent() else {
            return false;
        };
        // Held while a file is read: two threads that come by read and count it once.
        let chain = self.chain(&mut lock(&self.read), dir);
        for rules in &*chain {
            match rules.matched(path, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }

    fn chain(&self, read: &mut Read, dir: &Path) -> Chain {
        if let Some(known) = read.chains.get(dir) {
            return Arc::clone(known);
        }
        if !dir.starts_with(&self.top) {
            return Arc::default();
        }
        let own = read.rules(dir);
        let above = dir.parent().map(|dir| self.chain(read, dir));
        let above = above.unwrap_or_default();
        // Most directories have none: they share those of the one above.
        let chain = match own.is_empty() {
            true => above,
            false => own.into_iter().chain(above.iter().cloned()).collect(),
        };
        read.chains.insert(dir.to_owned(), Arc::clone(&chain));
        chain
    }
}

impl Read {
    fn rules(&mut self, dir: &Path) -> Vec<Gitignore> {
        let found = FILES.iter().filter_map(|file| {
            let has_room = self.bytes < MOST_TOGETHER;
            let text = has_room.then(|| text(&dir.join(file))).flatten()?;
            self.bytes += text.len() as u64;
            let mut builder = GitignoreBuilder::new(dir);
            for line in text.lines() {
                // Git passes over what it can't read, too.
                let _wrong = builder.add_line(None, line);
            }
            builder.build().ok()
        });
        found.collect()
    }
}

/// The text of a regular file that isn't too long.
fn text(file: &Path) -> Option<String> {
    let mut options = OpenOptions::new();
    // To open a pipe that nobody writes to would wait for ever (fifo(7)).
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(file).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > MOST {
        return None;
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("repo/.git/info")).unwrap();
        std::fs::create_dir_all(dir.path().join("repo/inner/deep")).unwrap();
        dir
    }

    #[test]
    fn ignored_files_are_those_of_git() {
        let dir = place();
        let repo = dir.path().join("repo");
        for (file, rules) in [
            ("../.gitignore", "a"),
            (".git/info/exclude", "secret\n"),
            (".gitignore", "*.o\nbuild/\n/only\n!kept.o\n"),
            ("inner/.gitignore", "!b.o\nc\n"),
            ("inner/.ignore", "!c\n"),
        ] {
            std::fs::write(repo.join(file), rules).unwrap();
        }
        let ignored = Ignored::below(&repo.join("inner"));
        for (path, is_dir, expected) in [
            ("a", false, false),
            ("secret", false, true),
            ("a.o", false, true),
            ("kept.o", false, false),
            ("inner/a.o", false, true),
            ("inner/b.o", false, false),
            ("inner/c", false, false),
            ("inner/deep/build", true, true),
            ("inner/deep/build", false, false),
            ("only", false, true),
            ("inner/only", false, false),
        ] {
            assert_eq!(
                ignored.leaves_out(&repo.join(path), is_dir),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn ignored_rules_are_short_files() {
        let dir = place();
        let repo = dir.path().join("repo");
        let file = repo.join(".gitignore");
        std::fs::write(&file, "*.o\n").unwrap();
        std::fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        nix::unistd::mkfifo(&repo.join(".ignore"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(!Ignored::below(&repo).leaves_out(&repo.join("a.o"), false));
    }
}
