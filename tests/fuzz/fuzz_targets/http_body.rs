//! The body, the query or the key of an HTTP request.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_serve::fuzzing::body(bytes));
