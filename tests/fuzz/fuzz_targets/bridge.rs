//! The lines of a host of the JSONL bridge.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_faces::fuzzing::bridge(bytes));
