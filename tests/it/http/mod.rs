//! HTTP from outside: a real server before a real daemon, asked by `curl` and by raw bytes.
//!
//! What is asked well is in `asked`, what is asked badly in `hostile`, what asks nothing in `flood`,
//! what happens when something goes away in `faults`. The server is `server`'s.

mod asked;
mod faults;
mod flood;
mod hostile;
mod server;

use std::path::PathBuf;
use std::time::Duration;

pub use server::{Answer, Http, rest};

use crate::support::{Daemon, needs};

/// A daemon with a server before it; nothing without `curl`.
pub fn served() -> Option<(Daemon, Http)> {
    let _curl: PathBuf = needs("curl")?;
    let daemon = Daemon::start();
    let http = Http::start(&daemon.place);
    Some((daemon, http))
}

/// How many jobs there are.
pub fn jobs(daemon: &Daemon) -> usize {
    let answer = &daemon.ask(r#"{"type":"jobs","limit":500}"#)[0];
    let rows = answer["jobs"].as_array();
    rows.unwrap_or_else(|| panic!("{answer}")).len()
}

pub const SOON: Duration = Duration::from_secs(5);
