//! The whole product from outside: real processes, real sockets, one binary.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics has failed"
)]

mod clients;
mod first;
mod protocol;
mod support;
