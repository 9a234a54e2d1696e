//! A line from the daemon.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_protocol::fuzzing::line(bytes));
