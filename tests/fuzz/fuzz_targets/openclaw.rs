//! The output of `openclaw agent --json`.
#![no_main]
use agentd_daemon::adapter::{exec::Output, fuzzing::output};
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| output(Output::Openclaw, bytes));
