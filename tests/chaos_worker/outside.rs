//! What the chaos worker does to the world outside: its output, its log, its ledger, its signals.
//!
//! Owns nothing. Must not know scripts.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::{Command, Stdio};

use nix::unistd::Pid;
use serde_json::Value;

pub(crate) fn put(line: &Value) {
    put_bytes(format!("{line}\n").as_bytes());
}

pub(crate) fn put_bytes(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    if output
        .write_all(bytes)
        .and_then(|()| output.flush())
        .is_err()
    {
        std::process::exit(0);
    }
}

pub(crate) fn log(line: &str) {
    let _nobody_reads = writeln!(std::io::stderr(), "{line}");
}

/// Appends to the file that the variable names, and syncs it.
pub(crate) fn append(variable: &str, line: &str) {
    let Some(path) = std::env::var_os(variable) else {
        return log(&format!("{variable} is not set"));
    };
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| {
            file.write_all(line.as_bytes())?;
            file.sync_all()
        });
    if let Err(error) = written {
        log(&format!("{variable}: {error}"));
    }
}

/// A handler that does nothing, once installed, stays for the life of the process.
pub(crate) fn ignore_term() {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let installed = runtime
        .and_then(|runtime| runtime.block_on(async { signal(SignalKind::terminate()).map(drop) }));
    if let Err(error) = installed {
        log(&format!("no handler: {error}"));
    }
}

/// A signal to the group that it led doesn't reach it any more.
pub(crate) fn leave_group() {
    use std::os::unix::process::CommandExt as _;
    let child = Command::new("sleep").arg("300").process_group(0).spawn();
    let left = child.and_then(|child| {
        let group = Pid::from_raw(child.id().cast_signed());
        Ok(nix::unistd::setpgid(Pid::from_raw(0), group)?)
    });
    if let Err(error) = left {
        log(&format!("in its group as before: {error}"));
    }
}

/// The flag of a process that goes on without its first thread.
pub(crate) const THREAD_ONLY: &str = "--thread-only";

pub(crate) fn leave_a_thread() {
    let this = std::env::current_exe().unwrap_or_default();
    let mut escaped = Command::new("setsid");
    escaped.arg(this).arg(THREAD_ONLY).stdin(Stdio::null());
    match escaped.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(child) => append("CHAOS_PIDS", &format!("{}\n", child.id())),
        Err(error) => log(&format!("no setsid: {error}")),
    }
}

/// Ends the thread that calls it, the process's first, and leaves another one.
#[expect(unsafe_code, reason = "there is no safe way to end only a thread")]
pub(crate) fn end_first_thread() -> ! {
    std::thread::spawn(|| silence());
    // SAFETY: it ends this thread and nothing else, and nothing of its stack is used elsewhere.
    unsafe { nix::libc::syscall(nix::libc::SYS_exit, 0) };
    silence()
}

pub(crate) fn silence() -> ! {
    loop {
        std::thread::park();
    }
}
