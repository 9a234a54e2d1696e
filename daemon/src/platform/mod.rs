//! The host: where files live, who holds which lock, which processes there are, where logs go.
//!
//! Owns every fact about the operating system that isn't a socket or a child of ours.
//! Must not know jobs, sessions or the protocol.

pub mod inherited;
pub mod instance;
pub mod lock;
pub mod log;
pub mod paths;
pub mod process;
pub mod remote;
