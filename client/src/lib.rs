//! Client library of agentd. It owns the client's side of the contract: where the daemon is, talking to
//! it, and running once without it. It must not know command lines and terminals, nor the daemon's
//! insides, nor open its store.
//!
#![doc = include_str!("../README.md")]

pub mod again;
pub mod agentd;
pub mod asked;
pub mod call;
pub mod client;
pub mod connection;
pub mod copies;
mod daemon_lock;
pub mod endpoint;
pub mod events;
pub mod fallback;
pub mod health;
pub mod jobs;
pub mod key;
pub mod metrics;
pub mod models;
pub mod oneshot;
pub mod pages;
pub mod places;
pub mod relay;
pub mod remote;
pub mod schedules;
#[cfg(test)]
mod scripted;
pub mod send_only;
pub mod sessions;
pub mod signals;
pub mod ssh;
pub mod stdio;
pub mod token;
pub mod turn;
pub mod usage;
pub mod webhooks;
pub mod wire;

pub use agentd::{Agentd, Collection, Endpoint, JobEnd, Session, run_session};
pub use agentd_protocol as protocol;
pub use asked::{Reply, RequestError};
pub use client::{Attended, Client, ClientError, Options, Server};
pub use fallback::Fallback;
pub use oneshot::Asks;
pub use ssh::Target;
pub use turn::{Turn, TurnError, TurnResult, TurnStream};

/// The Rust of the book, compiled as a reader of it would.
#[cfg(doctest)]
#[doc = include_str!("../../docs/src/programs.md")]
struct Book;
