//! What is true in agentd, as one value.
//!
//! Owns every decision: jobs, sessions, the process pool, supervision, who hears what.
//! [`State::apply`] is total and pure: no tokio, no files, no clock, no randomness, no logging.
//! Time, ids of the shell and facts about the host come in as [`Event`]s; what is to be done goes
//! out as [`Effect`]s, in order.

#[macro_use]
mod found;

pub mod agent;
pub mod answerers;
mod apply;
pub mod attached;
mod counters;
pub mod effect;
pub mod event;
mod health;
pub mod ids;
mod indexes;
mod jobs;
mod json;
pub mod limits;
pub mod log;
pub mod machine;
pub mod mcp;
mod mode;
mod names;
mod outbox;
mod peers;
pub mod pins;
mod pool;
mod rare;
mod rules;
mod said;
mod sessions;
mod settings;
mod state;
pub mod store;
mod terms;
mod text;
pub mod toolsets;
mod tracked;
pub mod worker;

pub use effect::Effect;
pub use event::Event;
pub use settings::{Served, Settings, Socket};
pub use state::State;
pub use terms::{Terms, Unreadable};
pub use text::{head, rfc3339};
