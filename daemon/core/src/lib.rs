//! What is true in agentd, as one value.
//!
//! Owns every decision: jobs, sessions, the process pool, supervision, who hears what.
//! [`State::apply`] is total and pure: no tokio, no files, no clock, no randomness, no logging.
//! Time, ids of the shell and facts about the host come in as [`Event`]s; what is to be done goes
//! out as [`Effect`]s, in order.

mod abort;
mod accept;
pub mod agent;
mod answer;
pub mod attached;
mod audit;
mod backoff;
mod begin;
mod blame;
mod budget;
mod choice;
mod clock;
mod collect;
mod commit_results;
mod conn;
mod cut;
mod death;
mod delta;
mod derived;
mod directory;
mod dispatch;
pub mod effect;
pub mod event;
mod fanout;
mod finish;
mod form;
mod found;
mod further;
pub mod ids;
mod inside;
mod job;
mod json;
mod lanes;
pub mod limits;
pub mod log;
mod model;
mod pause;
pub mod pins;
mod pool;
mod queries;
mod questions;
mod rare;
mod recover;
mod replay;
mod request;
mod restart;
mod room;
mod schedule;
mod send;
mod session;
mod sessions;
mod slices;
mod slot;
mod spare;
mod state;
mod status;
mod steer;
mod stop;
mod stop_stages;
pub mod store;
mod subscribe;
mod subscription;
mod supervisor;
mod terms;
mod timers;
pub mod toolsets;
mod tracked;
mod turn;
mod waits;
mod webhook;
pub mod worker;

pub use effect::Effect;
pub use event::Event;
pub use queries::head;
pub use state::{Served, Settings, Socket, State};
pub use status::rfc3339;
pub use terms::{Terms, Unreadable};
