//! A conversation with an agent of the Agent Client Protocol, Hermes and Gemini among them.
#![no_main]
use agentd_daemon::adapter::{Kind, fuzzing::lines};
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lines(Kind::Acp, bytes));
