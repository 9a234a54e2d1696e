//! The core driven from outside, as the shell drives it.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics has failed"
)]

mod agents;
mod attachments;
mod batches;
mod beginnings;
mod brief;
mod callbacks;
mod choice;
mod clocks;
mod config;
mod cron;
mod cursors;
mod directories;
mod dispatch;
mod fairness;
mod flood;
mod forked;
mod forms;
mod found;
mod held;
mod leaks;
mod listed;
mod lives;
mod masses;
mod memory;
mod missing;
mod modes;
mod native;
mod pins;
mod portions;
mod processes;
mod properties;
mod questions;
mod races;
mod recovery;
mod rename;
mod replay;
mod routes;
mod scenarios;
mod scopes;
mod servers;
mod session_news;
mod shares;
mod spare;
mod spawns;
mod steering;
mod store;
mod times;
mod told;
mod unnamed;
mod watch;
mod world;
