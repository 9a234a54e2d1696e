//! The processes: slots, their health, spares, and what is known of starts to come.
//!
//! Owns the data. Which session gets which process is decided in the rules.

pub(crate) mod blame;
pub(crate) mod fit;
pub(crate) mod slot;
pub(crate) mod spares;
pub(crate) mod way;
