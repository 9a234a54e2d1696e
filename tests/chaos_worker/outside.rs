//! What the chaos worker does to the world outside: its output, its log, its ledger, its signals.
//!
//! Owns nothing. Must not know scripts.

use std::fs::OpenOptions;
use std::io::Write as _;

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

pub(crate) fn silence() -> ! {
    loop {
        std::thread::park();
    }
}
