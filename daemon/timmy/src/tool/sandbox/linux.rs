//! Linux's means.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

use super::{Grants, filter, the_same};
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
/// All that this version of the crate knows; a kernel that knows less does less.
const MOST: ABI = ABI::V9;
fn ruleset() -> Result<Ruleset, RulesetError> {
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
    for filter in filter::all(grants.network)? {
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
            access & AccessFs::from_file(MOST)
        };
        Some(Ok(PathBeneath::new(file, fitting)))
    })
}
