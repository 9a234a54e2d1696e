//! The rules that choose an agent by a turn's own facts.
//!
//! Owns what a rule may ask for, when it holds, and the sentences about it. Pure: facts go in, what
//! each rule says of them comes out. Must not know agents, sessions, files or clocks.

mod classify;
mod condition;
mod facts;
mod rule;
#[cfg(test)]
mod tests;

pub use classify::{Class, Difficulty, classify};
pub use condition::{Attached, Between, Bound, Condition, Glob, Pattern};
pub use facts::{Asked, Facts};
pub use rule::{Rule, weigh};
