//! The connections, and what waits for an answer to one of them.
//!
//! Owns the data. Must not know bytes or sockets, nor how a job ends.

pub(crate) mod collects;
pub(crate) mod conn;
pub(crate) mod lookup;
pub(crate) mod questions;
pub(crate) mod steers;
pub(crate) mod waiting;
