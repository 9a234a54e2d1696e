//! The whole product from outside: real processes, real sockets, one binary.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]

mod clients;
mod faults_client;
mod faults_framing;
mod faults_socket;
mod first;
mod protocol;
mod support;
mod tidy;
