//! Linux's means.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::{Grants, the_same};
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
    for filter in [filter(grants.network)?, attributes()?] {
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
