//! Faces: the daemon as a server of other protocols, for clients that speak one of these.
//!
//! Owns what faces share: a pure translator ([`face::Face`]) and its driver over standard input and
//! output ([`driver`]). Must not know the daemon's insides, nor keep anything that a restart would
//! lose: what a client sees as its ids is made from names of jobs and sessions.

pub mod acp;
pub mod bridge;
pub mod driver;
pub mod face;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gateway;
pub mod json_rpc;
pub mod mcp;
pub mod openai;
pub mod pi;
#[cfg(test)]
#[path = "../../../tests/fuzz/replay.rs"]
mod replay;
#[cfg(test)]
mod scripted;
mod title;
