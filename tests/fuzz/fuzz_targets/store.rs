//! The store's file, its log, or a backup that is restored.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_daemon::store::fuzzing::file(bytes));
