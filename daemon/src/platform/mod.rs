//! The host: where files live, who holds which lock, which processes there are, where logs go.
//!
//! Owns every fact about the operating system that isn't a socket or a worker.
//! Must not know jobs, sessions or the protocol.

pub mod apart;
pub mod cgroup;
pub mod changes;
pub mod content;
pub mod detached;
pub mod directories;
pub mod files;
pub mod gap;
pub mod inherited;
pub mod instance;
#[cfg(target_os = "macos")]
pub mod launchd;
pub mod limit_mark;
pub mod lock;
pub mod log;
pub mod machine;
pub mod manager;
pub mod memory;
pub mod paths;
pub mod process;
pub mod scheduling;
pub mod signals;
