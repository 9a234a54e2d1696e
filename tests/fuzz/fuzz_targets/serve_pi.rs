//! The lines of a client of pi's RPC.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_faces::fuzzing::serve_pi(bytes));
