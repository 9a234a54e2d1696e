//! What programs of agentd write for people: to the terminal, and safe there.
//!
//! Owns the two streams and what is safe on a terminal. Must not know what is shown.

mod closed_stdout;
pub mod output;
pub mod question;
pub mod style;
pub mod table;
