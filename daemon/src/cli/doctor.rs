//! `agentd doctor`: what `agentctl doctor` can't see from outside.
//!
//! Owns its arguments. Prints findings for a program, one JSON object. Must not know what is
//! looked at.

use std::io::{self, Write as _};
use std::path::PathBuf;

use agentd_protocol::doctor::Report;
use clap::Args;

use super::settings;
use crate::config::{Config, HostEnv};
use crate::platform::paths::Paths;
use crate::server::doctor::{self, Patient};

#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    /// Repair what is safe to repair
    #[arg(long)]
    fix: bool,
    /// Read the whole store, too
    #[arg(long)]
    full: bool,
    /// Tell no more of what the store lost
    #[arg(long)]
    accept_loss: bool,
    /// PATH as the service has it
    #[arg(long, value_name = "PATH")]
    service_path: Option<std::ffi::OsString>,
    /// The names of the service's variables, with commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    service_variables: Option<Vec<String>>,
}

/// Looks, and prints what was found.
pub(super) fn run(
    args: DoctorArgs,
    paths: Paths,
    own_directory: bool,
    load: Box<dyn Fn() -> Result<Config, String>>,
) -> io::Result<()> {
    let split =
        |path: &std::ffi::OsString| -> Vec<PathBuf> { std::env::split_paths(path).collect() };
    let patient = Patient {
        paths,
        own_directory,
        load,
        judge: settings::unread_by_timmy,
        look: HostEnv::here(),
        service_path: args.service_path.as_ref().map(split),
        service_variables: args.service_variables,
        full: args.full,
        accept_loss: args.accept_loss,
        fix: args.fix,
    };
    let report = Report {
        findings: doctor::examine(&patient),
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &report)?;
    writeln!(out)
}
