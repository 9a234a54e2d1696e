//! The jobs: sends from their acceptance to their final lines.
//!
//! Owns the map, their numbers, and what is counted over them. Must not know processes, connections
//! or the store's answers.

pub(crate) mod delta;
pub(crate) mod job;
pub(crate) mod said;
pub(crate) mod slices;
