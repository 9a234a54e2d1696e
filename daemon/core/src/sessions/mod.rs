//! The sessions: conversations that have jobs or a process.
//!
//! Owns the map, their names, and the requests that wait until one is known. Must not know how turns
//! run.

pub(crate) mod directory;
pub(crate) mod loading;
pub(crate) mod session;
