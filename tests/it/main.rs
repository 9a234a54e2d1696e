//! The whole product from outside: real processes, real sockets, one binary.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]
#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the harness is part of the tests: a failure there is a failed test"
)]

mod acp_server;
mod agents;
mod agents_moved;
mod attachments;
mod bench;
mod bridge;
mod cli;
mod cli_agents;
mod cli_agents_changes;
mod cli_beginnings;
mod cli_collect;
mod cli_going_on;
mod cli_held;
mod cli_hints;
mod cli_jobs;
mod cli_lists;
mod cli_models;
mod cli_output;
mod cli_past;
mod cli_questions;
mod cli_terminal;
mod cli_told;
mod cli_turns;
mod cli_usage;
mod cli_words;
mod clients;
mod coming;
mod completions;
mod config_written;
mod crash;
mod cron;
mod cron_rests;
mod cursors;
mod descriptors;
mod doctor;
mod elsewhere;
mod exec;
mod exec_forms;
mod faults_client;
mod faults_disk;
mod faults_framing;
mod faults_socket;
mod faults_terminal;
mod first;
#[cfg(target_os = "linux")]
#[path = "../fuse.rs"]
mod fuse;
#[cfg(target_os = "linux")]
mod gateway_server;
mod gateway_socket;
mod gateway_tui;
mod hanging;
mod http;
mod install_script;
mod instances;
mod limits;
mod live_config;
mod logs;
mod losses;
mod mcp;
mod memory;
mod metrics;
mod misbehaviour;
mod mock_model;
mod models;
mod native;
mod nc;
mod nested;
mod openai;
mod packaging;
mod pi;
mod pi_server;
mod pi_steering;
mod protocol;
mod questions;
mod readiness;
mod reconnect;
mod routes;
mod rust_client;
mod screen;
mod secrecy;
mod service;
#[cfg(target_os = "linux")]
mod shortage;
mod signals;
mod signals_client;
mod spares;
mod ssh;
mod sshd;
mod start;
mod stdio;
mod stop;
mod supervision;
mod support;
mod tidy;
mod timmy;
mod timmy_tools;
#[cfg(target_os = "linux")]
mod tmp;
mod units;
mod upgrade;
mod voice;
mod webhooks;
mod webhooks_dead;
mod webhooks_names;
