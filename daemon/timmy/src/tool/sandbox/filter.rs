//! The system calls that a command is refused: what leads to the user's other programs, and is no
//! file.
//!
//! Owns the lists. What landlock guards isn't in them: signals where the kernel is new enough, other processes' memory
//! (`ptrace`, `process_vm_*`, `process_madvise`, `pidfd_getfd`, `kcmp`, `move_pages` ask for the
//! same right). Must not know files.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::Signals;

/// Marks the system calls of x86-64's second ABI, which has the same under other numbers.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
/// Of a socket's type, what isn't `SOCK_CLOEXEC` or `SOCK_NONBLOCK`.
const SOCKET_TYPE: u8 = 0xf;
/// Those whose pairs send nothing elsewhere than to each other. A datagram can be given an address.
const PAIRED: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
/// `PRIO_USER`, whose type differs from libc to libc.
const PRIORITY_USER: i32 = 2;
/// `IOPRIO_WHO_USER`.
const IOPRIO_USER: i32 = 3;

/// `F_SETOWN_EX`.
const SET_OWNER: i32 = 15;
/// `FIOSETOWN` and `SIOCSPGRP`.
const SOCKET_OWNER: [i32; 2] = [0x8901, 0x8902];

/// Refused whatever the arguments.
const NEVER: &[libc::c_long] = &[
    // Makes sockets, past this filter.
    libc::SYS_io_uring_setup,
    // The user's keys in the kernel.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Look at the kernel and all that runs on it, where it isn't told to refuse that.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_syslog,
    // Queues, semaphores and shared memory of the user's other programs, which have numbers
    // instead of paths.
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
/// What makes namespaces and mounts, whatever the arguments. In a namespace of its own a command could
/// mount a file system that works on others' files past landlock, as overlayfs does in its work
/// directory, and use up those of its user.
const MOUNTS: &[libc::c_long] = &[
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    // `open_tree_attr` of Linux 6.15, everywhere the same.
    467,
];
/// Each makes a namespace: `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`, `NEWPID` and
/// `NEWNET`.
const NAMESPACES: [u32; 7] = [
    0x0002_0000,
    0x0200_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];
/// `CLONE_NEWTIME`, a part of the signal's number in the flags of `clone`.
const TIME_NAMESPACE: u32 = 0x80;
/// Refused unless the process that the first argument names is 0: nobody but the caller is.
const OF_ONESELF: &[libc::c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];
/// What reads or changes a file's attributes, wherever the file is: landlock guards none. A browser
/// writes there from where a file came, tokens in the address and all.
const ATTRIBUTES: &[libc::c_long] = &[
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
    // `setxattrat`, `getxattrat`, `listxattrat` and `removexattrat` of Linux 6.13, everywhere the same.
    463,
    464,
    465,
    466,
    // `file_getattr` and `file_setattr` of Linux 6.17, everywhere the same: flags, as of `chattr`.
    468,
    469,
];

/// What a call has to be like to be refused: any of these; all, when there is none.
type Rules = Vec<SeccompRule>;

/// The filters of a command.
pub(super) fn all(network: bool, signals: Signals) -> anyhow::Result<Vec<BpfProgram>> {
    let mut refused: BTreeMap<i64, Rules> = NEVER.iter().map(|call| (*call, vec![])).collect();
    for call in OF_ONESELF {
        refused.insert(*call, vec![rule([not(0, 0)?])?]);
    }
    // With 0 for its second argument the caller's user means all that the user runs.
    for (call, user) in [
        (libc::SYS_setpriority, PRIORITY_USER),
        (libc::SYS_ioprio_set, IOPRIO_USER),
    ] {
        refused.insert(call, vec![rule([not(1, 0)?])?, rule([is(0, user)?])?]);
    }
    if signals == Signals::Nobody {
        refused.extend(signalling()?);
    }
    refused.extend(MOUNTS.iter().map(|call| (*call, vec![])));
    let unshared: Vec<u32> = NAMESPACES.into_iter().chain([TIME_NAMESPACE]).collect();
    refused.insert(libc::SYS_unshare, any_flag(&unshared)?);
    refused.insert(libc::SYS_clone, any_flag(&NAMESPACES)?);
    refused.insert(libc::SYS_socket, sockets(network)?);
    refused.insert(libc::SYS_socketpair, pairs()?);
    if !network {
        // There are pairs only, and an end of one could take a name from other programs. With the
        // network no filter tells such a name from an address.
        refused.insert(libc::SYS_bind, vec![]);
    }
    // Attributes of files are answered as by a file system that has none, which programs that copy
    // files are used to.
    let attributes = ATTRIBUTES.iter().map(|call| (*call, vec![])).collect();
    // Its flags are in memory, which no filter reads: programs are told to use `clone`.
    let unseen = BTreeMap::from([(libc::SYS_clone3, vec![])]);
    Ok(vec![
        // A filter has one error for all that it refuses, so there is one for each error.
        refusing(refused, libc::EPERM)?,
        refusing(attributes, libc::EOPNOTSUPP)?,
        refusing(unseen, libc::ENOSYS)?,
    ])
}

/// What signals another process, which can't be told from one that the command started: all that
/// is left is the caller's own group, and what Go's runtime interrupts its threads with, which
/// whoever doesn't expect it ignores.
fn signalling() -> anyhow::Result<BTreeMap<i64, Rules>> {
    let any = |argument, values: [i32; 2]| -> anyhow::Result<Rules> {
        let each = values.map(|value| is(argument, value).and_then(|is| rule([is])));
        each.into_iter().collect()
    };
    Ok(BTreeMap::from([
        (libc::SYS_kill, vec![rule([not(0, 0)?])?]),
        (libc::SYS_tkill, vec![]),
        (libc::SYS_tgkill, vec![rule([not(2, libc::SIGURG)?])?]),
        (libc::SYS_rt_sigqueueinfo, vec![]),
        (libc::SYS_rt_tgsigqueueinfo, vec![]),
        (libc::SYS_pidfd_send_signal, vec![]),
        // Whose files are ready is told by a signal.
        (libc::SYS_fcntl, any(1, [libc::F_SETOWN, SET_OWNER])?),
        (libc::SYS_ioctl, any(1, SOCKET_OWNER)?),
    ]))
}

/// No sockets without the network; with it, those of the network only: a socket in the file system
/// leads to programs that do anything for their user.
fn sockets(network: bool) -> anyhow::Result<Rules> {
    if !network {
        return Ok(vec![]);
    }
    // By netlink a C library asks which addresses the machine has before it looks up a name.
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let others: Vec<_> = families
        .into_iter()
        .map(|family| not(0, family))
        .collect::<Result<_, _>>()?;
    Ok(vec![SeccompRule::new(others)?])
}

/// Pairs of sockets that are connected for good.
fn pairs() -> anyhow::Result<Rules> {
    let mut refused = vec![rule([not(0, libc::AF_UNIX)?])?];
    for kind in 0..=i32::from(SOCKET_TYPE) {
        if !PAIRED.contains(&kind) {
            let masked = SeccompCmpOp::MaskedEq(SOCKET_TYPE.into());
            refused.push(rule([condition(1, masked, kind)?])?);
        }
    }
    Ok(refused)
}

/// Any of these bits in the first argument.
fn any_flag(flags: &[u32]) -> anyhow::Result<Rules> {
    let has = |flag: &u32| {
        let masked = SeccompCmpOp::MaskedEq(u64::from(*flag));
        condition(0, masked, flag.cast_signed()).and_then(|has| rule([has]))
    };
    flags.iter().map(has).collect()
}

fn condition(argument: u8, operator: SeccompCmpOp, value: i32) -> anyhow::Result<SeccompCondition> {
    let value = u64::from(value.cast_unsigned());
    // To the kernel all of these are 32 bits wide, and it doesn't look at the upper half: were that
    // compared, one bit there would get past.
    let length = SeccompCmpArgLen::Dword;
    Ok(SeccompCondition::new(argument, length, operator, value)?)
}

fn not(argument: u8, value: i32) -> anyhow::Result<SeccompCondition> {
    condition(argument, SeccompCmpOp::Ne, value)
}

fn is(argument: u8, value: i32) -> anyhow::Result<SeccompCondition> {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> anyhow::Result<SeccompRule> {
    Ok(SeccompRule::new(conditions.into())?)
}

fn refusing(mut refused: BTreeMap<i64, Rules>, error: libc::c_int) -> anyhow::Result<BpfProgram> {
    #[cfg(target_arch = "x86_64")]
    for (number, rules) in refused.clone() {
        refused.insert(number | X32, rules);
    }
    let filter = SeccompFilter::new(
        refused,
        SeccompAction::Allow,
        SeccompAction::Errno(error.cast_unsigned()),
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(filter.try_into()?)
}
