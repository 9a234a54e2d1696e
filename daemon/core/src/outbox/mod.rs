//! What leaves the core: effects in their order, deadlines, and what waits for the store's answers.
//!
//! Owns tokens and numbers. Must not know what an answer means.

pub(crate) mod awaiting;
pub(crate) mod timers;
