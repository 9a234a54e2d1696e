//! The wire contract between agentd and everything that talks to it.
//!
//! Owns the line decoder, the envelope, every request and every line of
//! [`PROTOCOL.md`](https://docs.rs/agentd-protocol). It must not know files, sockets, tasks or clocks:
//! bytes go in, types come out, and the same types serialise back to lines.

pub mod address;
pub mod attachment;
mod check;
pub mod code;
pub mod commands;
pub mod doctor;
pub mod envelope;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(feature = "schema")]
mod held;
pub mod ids;
pub mod limits;
pub mod line;
pub mod models;
pub mod nearest;
pub mod network;
#[cfg(test)]
#[path = "../../../tests/fuzz/replay.rs"]
mod replay;
pub mod request;
pub mod request_table;
pub mod routed;
pub mod rows;
pub mod schedule;
#[cfg(feature = "schema")]
pub mod schema;
pub mod spoken;
pub mod strict;
pub mod sums;
pub mod toolset;
pub mod usage;
pub mod webhook;

pub use code::Code;
pub use envelope::{Envelope, Rejected};
pub use frame::{Decoder, Frame};
pub use ids::{Id, JobId};
pub use line::{Body, Line};
pub use request::work;
pub use request_table::{Request, RequestKind};

// The layers above serialise these types with the same version.
pub use serde;
pub use serde_json;
