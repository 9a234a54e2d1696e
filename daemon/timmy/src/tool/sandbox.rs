//! What a command may reach: the files and sockets of its own work, and nothing that tells keys.
//!
//! Owns the list of what is granted, and making it so: this program starts itself anew with
//! `__sandboxed`, gives up all else, and becomes the command. Landlock guards files, signals and
//! other processes' memory; a filter of system calls guards sockets, of which landlock knows TCP
//! only. A superuser's command loses its capabilities. Must not know why a command is run.
//!
//! Not guarded: how much memory, time and disk a command takes; what another program makes of the
//! files it writes (a hook of a repository, a build script); and mode, owner and times of the user's
//! other files, of which landlock knows nothing, and which no filter tells from those of its work.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::Surroundings;
use super::places::{Access, Rules};

/// The hidden word by which this program starts itself.
pub(crate) const SANDBOXED: &str = "__sandboxed";
/// What a command's shell would say of a program that can't be started.
const CANNOT_START: u8 = 126;
/// Grants for one command: each costs a descriptor at its start, and a look at it.
const MOST_GRANTS: usize = 4_000;

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
/// what runs later without a sandbox. Tokens are beside these, not in them.
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
    ".config/git/config",
    ".config/git/ignore",
    ".deno/bin",
    ".gitconfig",
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
    /// Files and trees to be read, and run.
    pub(crate) read: Vec<PathBuf>,
    /// Trees in which everything may be done.
    pub(crate) write: Vec<PathBuf>,
    /// Trees whose names may be seen.
    pub(crate) list: Vec<PathBuf>,
    /// The network?
    pub(crate) network: bool,
}

impl Grants {
    /// What a command of this call gets.
    pub(crate) fn of(rules: &Rules, around: &Surroundings, network: bool) -> Self {
        let mut grants = Self {
            network,
            ..Self::default()
        };
        let fixed = SYSTEM
            .iter()
            .chain(network.then_some(RESOLVERS).into_iter().flatten());
        for tree in fixed.map(PathBuf::from).chain(toolchains(rules)) {
            grants.open(&tree, Access::Read, &|path| {
                of_everybody(rules, &tree, path)
            });
        }
        // The right to see names reaches into all that is below, a home's too.
        grants.list.clear();
        grants.read.extend(search_path(rules));
        for root in rules.roots(around) {
            grants.open(&root.dir, root.access, &|path| {
                of_root(rules, &root.dir, path)
            });
        }
        grants
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
            Part::Some => self.list.push(dir.to_owned()),
        }
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in entries {
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let is_full = self.read.len() + self.write.len() + self.list.len() >= MOST_GRANTS;
            // A grant would be of what the link points to.
            if !is_link && !is_full {
                self.open(&entry.path(), access, part);
            }
        }
    }

    fn arguments(&self) -> Vec<OsString> {
        let each = [
            ("--read", &self.read),
            ("--write", &self.write),
            ("--list", &self.list),
        ];
        let mut arguments: Vec<OsString> = Vec::new();
        for (word, paths) in each {
            arguments.extend(paths.iter().flat_map(|path| [word.into(), path.into()]));
        }
        arguments.extend(self.network.then(|| "--network".into()));
        arguments
    }
}

/// How much of a file or directory is granted.
enum Part {
    Whole,
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
    let kept_out = || rules.private.iter().chain(home.clone());
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
    if rules.is_private(root, path) {
        Part::None
    } else if (is_home && path == root) || rules.private.iter().any(|own| own.starts_with(path)) {
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

/// The directories that programs are looked up in, but for one that holds more than programs.
fn search_path(rules: &Rules) -> Vec<PathBuf> {
    let path = rules.environment.iter().find(|(name, _)| name == "PATH");
    let dirs = path
        .iter()
        .flat_map(|(_, path)| std::env::split_paths(path));
    dirs.filter(|dir| dir.is_absolute())
        .filter_map(|dir| dir.canonicalize().ok())
        .filter(|dir| {
            let kept_out = rules.home.iter().chain(&rules.private);
            !kept_out.clone().any(|path| path.starts_with(dir))
                && !rules.private.iter().any(|path| dir.starts_with(path))
        })
        .collect()
}

/// The arguments with which this program becomes `command` with nothing but the grants, or with
/// all that the user may do.
pub(crate) fn arguments(grants: Option<&Grants>, command: &[OsString]) -> Vec<OsString> {
    let mut arguments = vec![SANDBOXED.into()];
    match grants {
        Some(grants) => arguments.extend(grants.arguments()),
        None => arguments.push("--bare".into()),
    }
    arguments.push("--".into());
    arguments.extend_from_slice(command);
    arguments
}

/// Becomes a command, as [`arguments`] say. Comes back only when that fails: nothing was run.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let error = become_command(arguments);
    // The command's output is where somebody looks.
    let _nobody_reads = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!("timmy: the command was not run: {error}\n"),
    );
    ExitCode::from(CANNOT_START)
}

fn become_command(mut arguments: impl Iterator<Item = OsString>) -> anyhow::Error {
    let mut grants = Some(Grants::default());
    while let Some(word) = arguments.next() {
        let mut path = || PathBuf::from(arguments.next().unwrap_or_default());
        match (word.to_str(), &mut grants) {
            (Some("--read"), Some(grants)) => grants.read.push(path()),
            (Some("--write"), Some(grants)) => grants.write.push(path()),
            (Some("--list"), Some(grants)) => grants.list.push(path()),
            (Some("--network"), Some(grants)) => grants.network = true,
            (Some("--bare"), grants) => *grants = None,
            (Some("--"), _) => break,
            _ => return anyhow::anyhow!("unknown word {}", word.display()),
        }
    }
    let Some(program) = arguments.next() else {
        return anyhow::anyhow!("there is none");
    };
    if let Err(error) = die_with_parent().and_then(|()| match &grants {
        Some(grants) => enforced::apply(grants),
        None => Ok(()),
    }) {
        return error;
    }
    let error = Command::new(&program).args(arguments).exec();
    anyhow::anyhow!("{}: {error}", program.display())
}

/// Should the keeper be killed, the command doesn't go on alone.
fn die_with_parent() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    Ok(())
}

/// Is there a sandbox here? If not, why.
pub(crate) fn available() -> Result<(), String> {
    enforced::available()
}

/// A program on `PATH`.
pub(crate) fn found(program: &str, rules: &Rules) -> Option<PathBuf> {
    let path = rules.environment.iter().find(|(name, _)| name == "PATH");
    let path: &OsStr = path.map_or("/usr/bin:/bin".as_ref(), |(_, path)| path);
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

#[cfg(target_os = "linux")]
mod enforced {
    //! Linux's means.

    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use anyhow::{Context as _, ensure};
    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset,
        RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
    };
    use seccompiler::{
        SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    use super::Grants;

    /// Devices without anything behind them.
    const DEVICES: &[&str] = &[
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
    ];
    /// Without these, a file that may not be written could still be emptied: Linux 6.2.
    const LEAST: ABI = ABI::V3;
    /// All that this version of the crate knows; a kernel that knows less does less.
    const MOST: ABI = ABI::V9;
    /// Marks the system calls of x86-64's second ABI, which has the same under other numbers.
    #[cfg(target_arch = "x86_64")]
    const X32: i64 = 0x4000_0000;

    /// Queues, semaphores and shared memory of the user's other programs, which have numbers
    /// instead of paths.
    const QUEUES: &[libc::c_long] = &[
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
        libc::SYS_msgctl,
        libc::SYS_msgget,
        libc::SYS_msgrcv,
        libc::SYS_msgsnd,
        libc::SYS_semctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_shmget,
    ];
    /// What changes a file's attributes, wherever the file is: landlock guards none.
    const ATTRIBUTES: &[libc::c_long] = &[
        libc::SYS_fremovexattr,
        libc::SYS_fsetxattr,
        libc::SYS_lremovexattr,
        libc::SYS_lsetxattr,
        libc::SYS_removexattr,
        libc::SYS_setxattr,
        // `setxattrat` and `removexattrat` of Linux 6.13, everywhere the same.
        463,
        466,
    ];

    fn ruleset() -> Result<Ruleset, landlock::RulesetError> {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(LEAST))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(MOST))?
            .scope(Scope::from_all(MOST))
    }

    pub(super) fn available() -> Result<(), String> {
        let made = ruleset().and_then(|ruleset| ruleset.create());
        made.map(drop).map_err(|_| {
            "this kernel has no landlock of Linux 6.2 or later, or it is turned off".to_owned()
        })
    }

    pub(super) fn apply(grants: &Grants) -> anyhow::Result<()> {
        let mut rules = ruleset()?;
        if !grants.network {
            rules = rules.handle_access(AccessNet::from_all(MOST))?;
        }
        let read = AccessFs::from_read(MOST);
        let devices = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        let everything = AccessFs::from_all(MOST) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
        let list: &[PathBuf] = &grants.list;
        let status = rules
            .create()?
            .add_rules(path_beneath_rules(&grants.read, read))?
            .add_rules(path_beneath_rules(DEVICES, devices))?
            .add_rules(path_beneath_rules(&grants.write, everything))?
            .add_rules(path_beneath_rules(list, AccessFs::ReadDir))?
            .restrict_self()
            .context("landlock")?;
        ensure!(
            status.ruleset != RulesetStatus::NotEnforced && status.no_new_privs,
            "landlock is not enforced"
        );
        // A superuser's command could look past landlock with these; without new privileges there
        // is no way back.
        for set in [
            caps::CapSet::Effective,
            caps::CapSet::Permitted,
            caps::CapSet::Inheritable,
        ] {
            caps::clear(None, set).context("capabilities")?;
        }
        for filter in [filter(grants.network)?, attributes()?] {
            seccompiler::apply_filter(&filter).context("the filter of system calls")?;
        }
        Ok(())
    }

    /// No sockets without the network; with it, those of the network only: a socket in the file
    /// system leads to programs that do anything for their user. A pair of sockets leads nowhere.
    /// And nothing that other programs of the user have besides files: their limits, their
    /// priorities, their queues and shared memory.
    fn filter(network: bool) -> anyhow::Result<seccompiler::BpfProgram> {
        let not = |argument: u8, value: libc::c_int| {
            let value = u64::from(value.unsigned_abs());
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
        };
        let other_families = SeccompRule::new(vec![
            not(0, libc::AF_INET)?,
            not(0, libc::AF_INET6)?,
            not(0, libc::AF_NETLINK)?,
        ])?;
        // Nobody but the caller itself is 0.
        let of_another = |argument| anyhow::Ok(vec![SeccompRule::new(vec![not(argument, 0)?])?]);
        let sockets = if network {
            vec![other_families]
        } else {
            vec![]
        };
        let mut refused = BTreeMap::from([
            (libc::SYS_socket, sockets),
            // Makes sockets, past this filter.
            (libc::SYS_io_uring_setup, vec![]),
            // The user's keys in the kernel.
            (libc::SYS_keyctl, vec![]),
            (libc::SYS_add_key, vec![]),
            (libc::SYS_request_key, vec![]),
            (libc::SYS_prlimit64, of_another(0)?),
            (libc::SYS_setpriority, of_another(1)?),
            (libc::SYS_ioprio_set, of_another(1)?),
        ]);
        refused.extend(QUEUES.iter().map(|number| (*number, vec![])));
        refusing(refused, libc::EPERM)
    }

    /// Attributes of files are answered as by a file system that has none, which programs that copy
    /// files are used to.
    fn attributes() -> anyhow::Result<seccompiler::BpfProgram> {
        let refused = ATTRIBUTES.iter().map(|number| (*number, vec![]));
        refusing(refused.collect(), libc::EOPNOTSUPP)
    }

    fn refusing(
        mut refused: BTreeMap<i64, Vec<SeccompRule>>,
        error: libc::c_int,
    ) -> anyhow::Result<seccompiler::BpfProgram> {
        #[cfg(target_arch = "x86_64")]
        for (number, rules) in refused.clone() {
            refused.insert(number | X32, rules);
        }
        let filter = SeccompFilter::new(
            refused,
            SeccompAction::Allow,
            SeccompAction::Errno(error.unsigned_abs()),
            std::env::consts::ARCH.try_into()?,
        )?;
        Ok(filter.try_into()?)
    }
}

#[cfg(not(target_os = "linux"))]
mod enforced {
    //! Elsewhere there are none.

    use super::Grants;

    pub(super) fn available() -> Result<(), String> {
        Err("this system has none".to_owned())
    }

    pub(super) fn apply(_: &Grants) -> anyhow::Result<()> {
        anyhow::bail!("this system has no sandbox")
    }
}

#[cfg(test)]
mod tests;
