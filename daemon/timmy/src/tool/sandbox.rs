//! What a command may reach: the files and sockets of its own work, and nothing that tells keys.
//!
//! Owns making it so: this program starts itself anew with
//! `__sandboxed`, gives up all else, and becomes the command. Landlock guards files, signals and
//! other processes' memory; a filter of system calls guards sockets, of which landlock knows TCP
//! only. A superuser's command loses its capabilities. Must not know why a command is run.
//!
//! Not guarded: how much memory, time and disk a command takes, or else of what a user has in all;
//! with the network, which abstract names it holds; what another program makes of the
//! files it writes (a hook of a repository, a build script); and mode, owner and times of the user's
//! other files, of which landlock knows nothing, and which no filter tells from those of its work.

#[cfg(target_os = "linux")]
mod filter;
mod grants;

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail, ensure};

use super::anchor::{self, Anchor, Inode};
use super::places::{Rules, search_path};
pub(crate) use grants::Grants;

/// The hidden word by which this program starts itself.
pub(crate) const SANDBOXED: &str = "__sandboxed";
/// After it, and before the process that keeps the command: without that it isn't run.
pub(crate) const KEPT_BY: &str = "--kept-by";
/// What a command's shell would say of a program that can't be started.
const CANNOT_START: u8 = 126;
/// The arguments with which this program becomes `command` in a workspace, with nothing but the
/// grants, or with all that the user may do.
pub(crate) fn arguments(
    grants: Option<&Grants>,
    workspace: &Anchor,
    command: &[OsString],
) -> Vec<OsString> {
    let Inode { device, number } = workspace.inode;
    let mut arguments = vec![
        SANDBOXED.into(),
        "--in".into(),
        format!("{device}:{number}").into(),
        workspace.path.clone().into(),
    ];
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
    // It leads its own session, unless it does so already: it has no terminal, and can join no
    // group of another session, as is its keeper's.
    let _leads_already = nix::unistd::setsid();
    let prepared = prepare(&mut arguments);
    if let Err(error) = prepared {
        return error;
    }
    let Some(program) = arguments.next() else {
        return anyhow::anyhow!("there is none");
    };
    let error = Command::new(&program).args(arguments).exec();
    anyhow::anyhow!("{}: {error}", program.display())
}

/// Gives up what isn't granted, as the words up to `--` say.
fn prepare(arguments: &mut impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let mut grants = Some(Grants::default());
    let (mut workspace, mut keeper) = (None, None);
    while let Some(word) = arguments.next() {
        let mut path = || PathBuf::from(arguments.next().unwrap_or_default());
        match (word.to_str(), &mut grants) {
            (Some("--in"), _) => workspace = Some((which(&path())?, path())),
            (Some(KEPT_BY), _) => keeper = Some(path()),
            (Some("--same"), Some(grants)) => grants.same.push((which(&path())?, path())),
            (Some("--read"), Some(grants)) => grants.read.push(path()),
            (Some("--write"), Some(grants)) => grants.write.push(path()),
            (Some("--list"), Some(grants)) => grants.list.push(path()),
            (Some("--network"), Some(grants)) => grants.network = true,
            (Some("--landlock"), Some(grants)) => grants.landlock = version(&path())?,
            // After it a word of a grant is unknown: who has all isn't given less by mistake.
            (Some("--bare"), grants) => *grants = None,
            (Some("--"), _) => break,
            _ => bail!("unknown word {}", word.display()),
        }
    }
    die_with_parent()?;
    if let Some(keeper) = keeper {
        // Had it ended before that, nobody would say so any more.
        let parent = PathBuf::from(nix::unistd::getppid().to_string());
        ensure!(keeper == parent, "what keeps it has ended");
    }
    let Some((inode, path)) = workspace else {
        bail!("there is no workspace");
    };
    // By its handle: nobody can put another one there between the look and the step.
    nix::unistd::fchdir(the_same(inode, &path)?).context("the workspace")?;
    match &grants {
        Some(grants) => enforced::apply(grants, grants.landlock),
        None => Ok(()),
    }
}

/// A version of landlock, as the grants write it.
fn version(text: &Path) -> anyhow::Result<Landlock> {
    let number = text.to_str().and_then(|text| text.parse().ok());
    let Some(number) = number else {
        bail!("`{}` is no version of landlock", text.display());
    };
    Ok(Landlock(number))
}

/// A directory's numbers, as [`arguments`] writes them.
fn which(text: &Path) -> anyhow::Result<Inode> {
    let numbers = text.to_str().and_then(|text| {
        let (device, number) = text.split_once(':')?;
        Some((device.parse().ok()?, number.parse().ok()?))
    });
    let Some((device, number)) = numbers else {
        bail!("`{}` are no numbers of a directory", text.display());
    };
    Ok(Inode { device, number })
}

/// A handle of the directory at a path, if it is that one.
fn the_same(inode: Inode, path: &Path) -> anyhow::Result<File> {
    let opened = anchor::open(path).with_context(|| path.display().to_string())?;
    let dir = File::from(opened);
    ensure!(
        anchor::inode(&dir.metadata()?) == inode,
        "{} is not the directory any more that it was when this session began",
        path.display()
    );
    Ok(dir)
}

/// Should the keeper be killed, the command doesn't go on alone.
fn die_with_parent() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    Ok(())
}

/// How much of landlock is used: all that the kernel has, but for tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Landlock(pub(crate) u8);

impl Landlock {
    /// The newest version that this program knows.
    pub(crate) const ALL: Self = Self(9);

    /// Is there nothing newer? What is older knows no other means of its time either.
    pub(crate) fn is_newest(self) -> bool {
        self == Self::ALL
    }

    /// What this process uses. A debug build can be told to do what it does on an older kernel.
    pub(crate) fn of_process() -> Self {
        let told = || std::env::var("AGENTD_TEST_LANDLOCK").ok()?.parse().ok();
        let told = if cfg!(debug_assertions) { told() } else { None };
        told.map_or(Self::ALL, Self)
    }
}

impl Default for Landlock {
    fn default() -> Self {
        Self::ALL
    }
}

/// What a sandboxed command's signals reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "there is no sandbox to say it of")
)]
pub(crate) enum Signals {
    /// What it started.
    Own,
    /// Nobody, not even what it started: this kernel can't tell these from others.
    Nobody,
}

/// Why there is no sandbox.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "elsewhere there is none for ever")
)]
pub(crate) enum Unavailable {
    /// This system has none.
    #[error("{0}")]
    Never(String),
    /// There may be one, and it can't be looked for now.
    #[error("whether there is a sandbox can't be seen: {0}")]
    Passing(String),
}

/// Is there a sandbox here, and what do signals reach in it? If not, why.
pub(crate) fn available(most: Landlock) -> Result<Signals, Unavailable> {
    enforced::available(most)
}

/// A program on `PATH`.
pub(crate) fn found(program: &str, rules: &Rules) -> Option<PathBuf> {
    all_found(program, rules).next()
}

/// All of its name on `PATH`, the one that is run first.
pub(crate) fn all_found(program: &str, rules: &Rules) -> impl Iterator<Item = PathBuf> {
    let usual = || ["/usr/bin", "/bin"].map(PathBuf::from).into();
    let dirs = search_path(&rules.environment).unwrap_or_else(usual);
    dirs.into_iter()
        .map(move |dir| dir.join(program))
        .filter(|file| file.is_file())
}

#[cfg(target_os = "linux")]
#[path = "sandbox/linux.rs"]
mod enforced;

#[cfg(not(target_os = "linux"))]
mod enforced {
    //! Elsewhere there are none.

    use super::Grants;

    pub(super) fn available(_: super::Landlock) -> Result<super::Signals, super::Unavailable> {
        Err(super::Unavailable::Never("this system has none".to_owned()))
    }

    pub(super) fn apply(_: &Grants, _: super::Landlock) -> anyhow::Result<()> {
        anyhow::bail!("this system has no sandbox")
    }
}

#[cfg(test)]
mod tests;
