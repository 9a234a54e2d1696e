//! The daemon's tables of `config.toml`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_daemon::config::fuzzing::toml(bytes));
