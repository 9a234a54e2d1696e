//! The core driven from outside, as the shell drives it.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]

mod properties;
mod scenarios;
mod world;
