//! Linux's means of confining a command: landlock, the loss of capabilities, and the filter.
//!
//! Owns in which order they are applied, and what an older kernel lacks. Must not know what is
//! granted to whom.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _,
    CreateRulesetError, PathBeneath, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus, Scope,
};

use super::{Grants, Landlock, Signals, Unavailable, filter, the_same};
use crate::tool::anchor;

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
/// From this on signals and abstract sockets end at the sandbox: Linux 6.12.
const SCOPES: ABI = ABI::V6;
/// The newest version that is used; a kernel that knows less does less.
const fn newest(most: Landlock) -> ABI {
    match most.0 {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        7 => ABI::V7,
        8 => ABI::V8,
        _ => ABI::V9,
    }
}

fn ruleset(most: ABI) -> Result<Ruleset, RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        // By best effort an older kernel would leave rights out in silence, and this would look
        // like a sandbox.
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(most))?;
    if most < SCOPES {
        return Ok(rules);
    }
    rules.scope(Scope::from_all(most))
}

/// What landlock itself lets signals reach.
fn signals(most: ABI) -> Signals {
    let scoped = || {
        let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        rules.scope(Scope::from_all(SCOPES))?.create()
    };
    if most >= SCOPES && scoped().is_ok() {
        Signals::Own
    } else {
        Signals::Nobody
    }
}

/// Is there a landlock all the same, as far as this says? As when no file can be opened.
fn is_passing(error: &RulesetError) -> bool {
    let RulesetError::CreateRuleset(CreateRulesetError::CreateRulesetCall { source, .. }) = error
    else {
        return false;
    };
    let errno = source.raw_os_error();
    !matches!(errno, Some(libc::ENOSYS | libc::EOPNOTSUPP))
}

pub(super) fn available(most: Landlock) -> Result<Signals, Unavailable> {
    let most = newest(most);
    let why = "this kernel has no landlock of Linux 6.2 or later, or it is turned off";
    let made = ruleset(most).and_then(|ruleset| ruleset.create());
    match made {
        Err(error) if is_passing(&error) => Err(Unavailable::Passing(error.to_string())),
        Ok(_) if most >= LEAST => Ok(signals(most)),
        _ => Err(Unavailable::Never(why.to_owned())),
    }
}

pub(super) fn apply(grants: &Grants, most: Landlock) -> anyhow::Result<()> {
    let most = newest(most);
    ensure!(most >= LEAST, "version {most:?} of landlock is too old");
    let mut rules = ruleset(most)?;
    // Before, the filter of system calls alone keeps sockets away.
    if !grants.network && most >= ABI::V4 {
        rules = rules.handle_access(AccessNet::from_all(most))?;
    }
    let read = AccessFs::from_read(most);
    let devices = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let devices = devices & AccessFs::from_all(most);
    // A device that root makes in the workspace leads past every grant (mknod(2)).
    let everything = AccessFs::from_all(most) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
    // Open until the end, so that what is granted below is what was compared.
    let same = (grants.same.iter()).map(|(inode, path)| the_same(*inode, path));
    let _same: Vec<File> = same.collect::<Result<_, _>>()?;
    let device_files: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
    let status = rules
        .create()?
        .add_rules(beneath(&grants.read, read))?
        .add_rules(beneath(&device_files, devices))?
        .add_rules(beneath(&grants.write, everything))?
        .add_rules(beneath(&grants.list, AccessFs::ReadDir.into()))?
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
    for filter in filter::all(grants.network, signals(most))? {
        seccompiler::apply_filter(&filter).context("the filter of system calls")?;
    }
    Ok(())
}

/// Rules for what is at these paths, and for nothing that a link in them leads to; what isn't there
/// is left out.
fn beneath(
    paths: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> impl Iterator<Item = Result<PathBeneath<File>, RulesetError>> {
    paths.iter().filter_map(move |path| {
        let file = File::from(anchor::open(path).ok()?);
        let is_dir = file.metadata().ok()?.is_dir();
        let fitting = if is_dir {
            access
        } else {
            // With a right for directories in it, a rule for a file is refused
            // (landlock_add_rule(2), `EINVAL`).
            access & AccessFs::from_file(ABI::V9)
        };
        Some(Ok(PathBeneath::new(file, fitting)))
    })
}
