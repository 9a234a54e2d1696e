//! System calls by their names.
//!
//! Owns the numbers and how words become arguments. Must not know why a call is made.

use std::ffi::CString;
use std::io;

use nix::libc;

/// Those that the catalogue tries.
const CALLS: &[(&str, libc::c_long)] = &[
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("bpf", libc::SYS_bpf),
    // Of Linux 6.17, everywhere the same.
    ("file_getattr", 468),
    ("file_setattr", 469),
    ("capset", libc::SYS_capset),
    ("chroot", libc::SYS_chroot),
    ("clone", libc::SYS_clone),
    ("clone3", libc::SYS_clone3),
    ("delete_module", libc::SYS_delete_module),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("finit_module", libc::SYS_finit_module),
    ("fsopen", libc::SYS_fsopen),
    ("getpid", libc::SYS_getpid),
    ("init_module", libc::SYS_init_module),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("ioprio_set", libc::SYS_ioprio_set),
    ("kcmp", libc::SYS_kcmp),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("kill", libc::SYS_kill),
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
    ("linkat", libc::SYS_linkat),
    ("mknodat", libc::SYS_mknodat),
    ("mount", libc::SYS_mount),
    ("move_mount", libc::SYS_move_mount),
    ("move_pages", libc::SYS_move_pages),
    ("mq_open", libc::SYS_mq_open),
    ("msgget", libc::SYS_msgget),
    ("open_tree", libc::SYS_open_tree),
    ("openat", libc::SYS_openat),
    ("openat2", libc::SYS_openat2),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("pivot_root", libc::SYS_pivot_root),
    ("prlimit64", libc::SYS_prlimit64),
    ("ptrace", libc::SYS_ptrace),
    ("reboot", libc::SYS_reboot),
    ("removexattr", libc::SYS_removexattr),
    ("renameat2", libc::SYS_renameat2),
    ("request_key", libc::SYS_request_key),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("sched_setattr", libc::SYS_sched_setattr),
    ("sched_setparam", libc::SYS_sched_setparam),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ("semget", libc::SYS_semget),
    ("setdomainname", libc::SYS_setdomainname),
    ("sethostname", libc::SYS_sethostname),
    ("setpgid", libc::SYS_setpgid),
    ("setpriority", libc::SYS_setpriority),
    ("setuid", libc::SYS_setuid),
    ("setxattr", libc::SYS_setxattr),
    ("shmget", libc::SYS_shmget),
    ("socket", libc::SYS_socket),
    ("socketpair", libc::SYS_socketpair),
    ("swapon", libc::SYS_swapon),
    ("syslog", libc::SYS_syslog),
    ("tgkill", libc::SYS_tgkill),
    ("tkill", libc::SYS_tkill),
    ("truncate", libc::SYS_truncate),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
];

/// What a word of an argument is; texts and room are kept as long as this is.
struct Argument {
    value: libc::c_long,
    _text: Option<CString>,
    _room: Vec<i64>,
}

fn invalid(what: &str) -> io::Error {
    io::Error::other(format!("no such word: {what}"))
}

fn number(word: &str) -> io::Result<libc::c_long> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| invalid(word))
}

fn argument(word: &str) -> io::Result<Argument> {
    let mut argument = Argument {
        value: 0,
        _text: None,
        _room: Vec::new(),
    };
    if let Some(text) = word.strip_prefix("s:") {
        let text = CString::new(text)?;
        argument.value = text.as_ptr() as libc::c_long;
        argument._text = Some(text);
    } else if let Some(bytes) = word.strip_prefix("b:") {
        let bytes = usize::try_from(number(bytes)?).map_err(io::Error::other)?;
        let room = vec![0; bytes.div_ceil(8)];
        argument.value = room.as_ptr() as libc::c_long;
        argument._room = room;
    } else if let Some(value) = word.strip_prefix("i:") {
        let room = vec![number(value)?];
        argument.value = room.as_ptr() as libc::c_long;
        argument._room = room;
    } else if word == "self" {
        argument.value = std::process::id().into();
    } else {
        argument.value = number(word)?;
    }
    Ok(argument)
}

/// Makes a call; `mark` is what its number has besides.
#[expect(unsafe_code, reason = "a system call without a library is the attempt")]
pub(crate) fn call(name: &str, words: &[&str], mark: libc::c_long) -> io::Result<libc::c_long> {
    let found = CALLS.iter().find(|(known, _)| *known == name);
    let number = found.ok_or_else(|| invalid(name))?.1 | mark;
    let arguments = words.iter().map(|word| argument(word));
    let arguments = arguments.collect::<io::Result<Vec<_>>>()?;
    let at = |index: usize| arguments.get(index).map_or(0, |argument| argument.value);
    // SAFETY: pointers are to what `arguments` holds; what the kernel does to this process is the
    // attempt.
    let done = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(done)
}

/// Makes a call as a program of 32 bits does.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "a system call without a library is the attempt")]
pub(crate) fn int80(words: &[&str]) -> io::Result<()> {
    let words = words.iter().map(|word| number(word));
    let words = words.collect::<io::Result<Vec<_>>>()?;
    let at = |index: usize| words.get(index).copied().unwrap_or(0);
    let done: i64;
    // SAFETY: the register that the compiler keeps is given back as it was, and only calls without
    // pointers are made.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {first}",
            "int 0x80",
            "xchg rbx, {first}",
            first = inout(reg) at(1) => _,
            inlateout("rax") at(0) => done,
            in("rcx") at(2),
            in("rdx") at(3),
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
    }
    // The answer has 32 bits.
    if let Some(number @ 1..) = (done as i32).checked_neg() {
        return Err(io::Error::from_raw_os_error(number));
    }
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn int80(_: &[&str]) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}
