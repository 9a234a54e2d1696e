//! The files that a command is given: the system's programs, the toolchains, and its roots.
//!
//! Owns the lists, and how much of a tree is granted. Nothing can be taken from a grant, so what is
//! private in a tree divides it. Must not know how a grant is made to count.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Landlock;
use crate::tool::Surroundings;
use crate::tool::anchor::{Inode, Lost};
use crate::tool::places::{Access, Rules, search_path};

/// Grants for one command: each costs a descriptor at its start, and a look at it.
pub(super) const MOST_GRANTS: usize = 4_000;

/// What any program needs to run; what a system lacks is left out. `/proc` tells a process of
/// itself; landlock keeps the memory and environment of others closed.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
];
/// Where names are looked up when there is a network, as a link in `/etc` says.
const RESOLVERS: &[&str] = &[
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
];
/// Tools below the home, and what they have fetched: to be read only, or a command could plant
/// what runs later without a sandbox. Tokens are beside these, not in them; a
/// configuration of Cargo's that has one is left out.
const TOOLCHAINS: &[&str] = &[
    ".asdf",
    ".bun",
    ".cargo/bin",
    ".cargo/config",
    ".cargo/config.toml",
    ".cargo/env",
    ".cargo/git",
    ".cargo/registry",
    ".config/git/attributes",
    ".config/git/ignore",
    ".deno/bin",
    ".local/bin",
    ".local/lib",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".sdkman",
    ".volta",
    "go/bin",
    "go/pkg",
];
/// The same, where a variable says that they are elsewhere; with what they mean at home.
const MOVED: &[(&str, &str)] = &[("CARGO_HOME", ".cargo/"), ("RUSTUP_HOME", ".rustup")];

/// What is granted to one command.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Grants {
    /// Directories that have to be the ones that they are now, or nothing is run.
    pub(crate) same: Vec<(Inode, PathBuf)>,
    /// Files and trees to be read, and run.
    pub(crate) read: Vec<PathBuf>,
    /// Trees in which everything may be done.
    pub(crate) write: Vec<PathBuf>,
    /// Trees whose names may be seen.
    pub(crate) list: Vec<PathBuf>,
    /// The network?
    pub(crate) network: bool,
    /// How much of landlock is used.
    pub(crate) landlock: Landlock,
}

impl Grants {
    /// What a command of this call gets: paths without links.
    ///
    /// # Errors
    /// The workspace isn't the directory any more that it was when the session began.
    pub(crate) fn of(rules: &Rules, around: &Surroundings, network: bool) -> Result<Self, Lost> {
        let roots = rules.roots(around)?;
        let mut grants = Self {
            network,
            landlock: rules.landlock,
            ..Self::default()
        };
        // What a command could have put in the place of a toolchain is granted as what it is.
        let is_work = |path: &Path| {
            let mut work = roots.iter().filter(|root| root.access == Access::Write);
            work.any(|root| path.starts_with(root.dir()) && !rules.is_private(root.dir(), path))
        };
        let fixed = SYSTEM
            .iter()
            .chain(network.then_some(RESOLVERS).into_iter().flatten());
        for named in fixed.map(PathBuf::from).chain(toolchains(rules)) {
            let Some(tree) = settled(&named).filter(|_| !is_work(&named)) else {
                continue;
            };
            grants.open(&tree, Access::Read, &|path| {
                of_everybody(rules, &named, path)
            });
        }
        // The right to see names reaches into all that is below, a home's too.
        grants.list.clear();
        grants.read.extend(program_dirs(rules, &is_work));
        for root in &roots {
            let dir = root.dir();
            // Looked at again by the process that becomes the command: until then it may be
            // swapped.
            grants.same.push((root.anchor.inode, dir.to_owned()));
            grants.open(dir, root.access, &|path| of_root(rules, dir, path));
        }
        Ok(grants)
    }

    /// Grants a tree as far as `part` says: nothing can be taken from a grant, so it is given for
    /// each part.
    fn open(&mut self, dir: &Path, access: Access, part: &dyn Fn(&Path) -> Part) {
        match part(dir) {
            Part::None => return,
            Part::Whole => {
                let granted = match access {
                    Access::Read => &mut self.read,
                    Access::Write => &mut self.write,
                };
                granted.push(dir.to_owned());
                return;
            }
            Part::Readable => return self.open(dir, Access::Read, &|_| Part::Whole),
            Part::Some => self.list.push(dir.to_owned()),
        }
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in entries {
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            // What is beyond isn't granted: a command lacks files rather than having too many.
            let is_full = self.read.len() + self.write.len() + self.list.len() >= MOST_GRANTS;
            // A grant would be of what the link points to.
            if !is_link && !is_full {
                self.open(&entry.path(), access, part);
            }
        }
    }

    /// As the sandboxed process is told.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let each = [
            ("--read", &self.read),
            ("--write", &self.write),
            ("--list", &self.list),
        ];
        let mut arguments: Vec<OsString> = Vec::new();
        for (Inode { device, number }, path) in &self.same {
            let which = format!("{device}:{number}");
            arguments.extend(["--same".into(), which.into(), path.into()]);
        }
        for (word, paths) in each {
            arguments.extend(paths.iter().flat_map(|path| [word.into(), path.into()]));
        }
        arguments.extend(["--landlock".into(), self.landlock.0.to_string().into()]);
        arguments.extend(self.network.then(|| "--network".into()));
        arguments
    }
}

/// How much of a file or directory is granted.
enum Part {
    Whole,
    /// The whole, to be read.
    Readable,
    /// What is in it is looked at one by one.
    Some,
    None,
}

/// Of a tree that any command may read: all but agentd's own, and a home in it.
fn of_everybody(rules: &Rules, tree: &Path, path: &Path) -> Part {
    let Ok(path) = path.canonicalize() else {
        return Part::None;
    };
    // Tools may be below the home.
    let home = rules.home.iter().filter(|home| !tree.starts_with(home));
    let kept_out = || {
        let tokens = rules.secret.iter();
        rules.private.iter().chain(tokens).chain(home.clone())
    };
    if kept_out().any(|out| path.starts_with(out)) {
        Part::None
    } else if kept_out().any(|out| out.starts_with(&path)) {
        Part::Some
    } else {
        Part::Whole
    }
}

/// Of a workspace: all but what is private in it.
fn of_root(rules: &Rules, root: &Path, path: &Path) -> Part {
    let is_home = rules.home.as_deref().is_some_and(|home| home == root);
    // A place of tokens that isn't there yet divides nothing.
    let is_around = || {
        let secret = rules.secret.iter();
        let mut there = secret.filter(|place| place.starts_with(path) && place.exists());
        let mut programs = rules.programs_within(root);
        there.next().is_some()
            || rules.private.iter().any(|own| own.starts_with(path))
            || programs.any(|dir| dir.starts_with(path) && dir.exists())
    };
    if rules.is_private(root, path) {
        Part::None
    } else if rules.is_program(root, path) {
        Part::Readable
    } else if (is_home && path == root) || is_around() {
        Part::Some
    } else {
        Part::Whole
    }
}

fn toolchains(rules: &Rules) -> Vec<PathBuf> {
    let home = rules.home.iter();
    let mut found: Vec<_> = home
        .flat_map(|home| TOOLCHAINS.iter().map(|below| home.join(below)))
        .collect();
    for (variable, at_home) in MOVED {
        let elsewhere = rules
            .environment
            .iter()
            .filter(|(name, _)| name == variable);
        for (_, dir) in elsewhere {
            let below = TOOLCHAINS
                .iter()
                .filter_map(|path| path.strip_prefix(at_home));
            found.extend(below.map(|below| Path::new(dir).join(below)));
        }
    }
    found.retain(|path| path.is_absolute());
    found
}

/// A path without links, of what is there.
fn settled(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// The directories that programs are looked up in, but for one that holds more than programs.
fn program_dirs(rules: &Rules, is_work: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let dirs = search_path(&rules.environment).unwrap_or_default();
    dirs.into_iter()
        .filter(|dir| !is_work(dir))
        .filter_map(|dir| settled(&dir))
        .filter(|dir| {
            let own = rules.private.iter().chain(&*rules.secret);
            let kept_out = rules.home.iter().chain(own.clone());
            !kept_out.clone().any(|path| path.starts_with(dir))
                && !own.clone().any(|path| dir.starts_with(path))
        })
        .collect()
}
