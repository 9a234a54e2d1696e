//! Client library of agentd: where the daemon is, talking to it, and running once without it.
//!
//! [`Client::connect_or_oneshot`] gives a conversation; [`Client::send`] starts a turn and
//! [`Client::next`] gives its lines. [`Client::dispatch`] hands in work that outlives the connection,
//! [`Client::collect`] gives its results. The crate owns the client's side of the contract.
//! It must not know command lines and terminals, nor the daemon's insides, nor open its store.

pub mod again;
pub mod asked;
pub mod client;
pub mod connection;
pub mod copies;
pub mod endpoint;
pub mod events;
pub mod fallback;
pub mod health;
pub mod jobs;
pub mod key;
pub mod metrics;
pub mod oneshot;
pub mod places;
pub mod relay;
pub mod remote;
#[cfg(test)]
mod scripted;
pub mod send_only;
pub mod sessions;
pub mod signals;
pub mod ssh;
pub mod stdio;
pub mod token;
pub mod usage;
pub mod webhooks;
pub mod wire;

pub use asked::{Reply, RequestError};
pub use client::{Attended, Client, ClientError, Options, Server};
