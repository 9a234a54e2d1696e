//! What happens across owners: each file is one part of it.
//!
//! Owns nothing. A rule changes owners through their methods, and is found by [`crate::state::State`]'s
//! name of it; owners never know rules.

mod abort;
mod accept;
mod answer;
mod audit;
mod begin;
mod budget;
mod choice;
mod clock;
mod collect;
mod commit_results;
mod connections;
mod death;
mod deaths;
mod derive;
mod dispatch;
mod fanout;
mod finish;
mod form;
mod found;
mod further;
mod inside;
mod logging;
mod memory;
mod model;
mod pause;
mod pins;
mod place;
mod queries;
mod questions;
mod recover;
mod replay;
mod request;
mod restart;
mod room;
mod schedule;
mod send;
mod sessions;
mod slices;
mod spare;
mod status;
mod steer;
mod stop;
mod stop_stages;
mod subscribe;
mod subscription;
mod supervisor;
mod turn;
mod waits;
mod webhook;
