//! `agentctl serve acp` from an editor's side, with a real daemon and real agents behind it.

mod bad_input;
pub mod clients;
pub mod editor;
mod losses;
mod sessions;
mod turns;
