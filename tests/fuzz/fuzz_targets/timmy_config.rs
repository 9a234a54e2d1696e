//! timmy's tables of `config.toml`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| timmy::fuzz_config(bytes));
