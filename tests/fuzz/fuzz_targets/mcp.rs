//! The lines of an MCP client.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentd_faces::fuzzing::mcp(bytes));
