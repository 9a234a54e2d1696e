//! The core driven from outside, as the shell drives it.
#![allow(missing_docs, reason = "tests")]

mod properties;
mod scenarios;
mod world;
