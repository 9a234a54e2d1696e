//! What is true in agentd, as one value.
//!
//! Owns every decision: jobs, sessions, the process pool, supervision, who hears what.
//! [`State::apply`] is total and pure: no tokio, no files, no clock, no randomness, no logging.
//! Time, ids of the shell and facts about the host come in as [`Event`]s; what is to be done goes
//! out as [`Effect`]s, in order.

pub mod agent;
pub mod effect;
pub mod event;
pub mod ids;
pub mod limits;
pub mod store;
pub mod worker;

pub use effect::Effect;
pub use event::Event;
