//! A conversation with Claude Code.
#![no_main]
use agentd_daemon::adapter::{Kind, fuzzing::lines};
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lines(Kind::Claude, bytes));
