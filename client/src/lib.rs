//! Client library of agentd: where the daemon is, talking to it, and running once without it.
//!
//! [`Client::connect_or_oneshot`] gives a conversation; [`Client::send`] starts a turn and
//! [`Client::next`] gives its lines. The crate owns the client's side of the contract and the
//! `agentctl` command line. It must not know the daemon's insides, nor open its store.

pub mod cli;
pub mod client;
pub mod connection;
pub mod endpoint;
pub mod fallback;
pub mod oneshot;
pub mod places;
pub mod relay;
pub mod wire;

pub use client::{Client, ClientError, Options, Server};
