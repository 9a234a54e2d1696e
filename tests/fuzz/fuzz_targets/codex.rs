//! A conversation with Codex.
#![no_main]
use agentd_daemon::adapter::{Kind, fuzzing::lines};
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lines(Kind::Codex, bytes));
