//! The shell of agentd: bytes, files, processes and clocks around the pure core.
//!
//! Layers, checked by `tests/it/tidy.rs`: `server` may use `worker`, `store`, `platform`;
//! `worker` may use `adapter` and `platform`; `adapter`, `store` and `platform` use none of their
//! siblings. `config` is plain data that all may read, and any place may be a `failpoint`.

#[macro_use]
mod failpoint;

pub mod adapter;
pub mod cli;
pub mod config;
pub mod cron;
pub mod platform;
#[cfg(test)]
#[path = "../../tests/fuzz/replay.rs"]
mod replay;
pub mod server;
pub mod store;
pub mod webhook;
pub mod worker;
