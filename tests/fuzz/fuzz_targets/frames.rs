//! The line decoder, in whatever pieces the bytes come.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_protocol::fuzzing::frames(bytes));
