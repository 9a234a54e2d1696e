//! A transcript, or a file in the spool.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_voice::fuzzing::spool(bytes));
