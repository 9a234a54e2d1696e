//! `webhooks.json`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_daemon::config::fuzzing::webhooks(bytes));
