//! The lines of a client of Hermes' gateway.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_faces::fuzzing::gateway(bytes));
