//! The output of any command.
#![no_main]
use agentd_daemon::adapter::{exec::Output, fuzzing::output};
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| output(Output::Text, bytes));
