//! What every program of agentd does alike, below the protocol: files that are replaced whole or not
//! at all, and that nobody else may have written; times as people write them, and hints; no core, no secret; pages
//! that an idle program can do without.
//!
//! Owns what is the same everywhere. Must not know lines, sockets or tasks, nor any clock but those
//! that both ends of a conversation have to read alike (`clock`).

pub mod alone;
pub mod clock;
pub mod configuration;
pub mod duration;
pub mod env_file;
pub mod hinted;
pub mod program;
pub mod remote;
pub mod replace;
pub mod secrecy;
pub mod settings;
pub mod shared;
pub mod trusted;

/// What the token of the HTTP server begins with: no key of a provider does.
pub const TOKEN_PREFIX: &str = "agentd_";
