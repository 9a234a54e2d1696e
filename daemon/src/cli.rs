//! The command line of `agentd`.
//!
//! Owns arguments, exit codes and messages of the program. Must not know how anything works.

mod agents;
mod doctor;
mod restore;
mod settings;
mod webhook;

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use agentd_base::hinted;
use agentd_base::settings::MEND_IT;
use agentd_protocol::Code;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use tokio::runtime::Runtime;

use crate::config::{self, Config, EditError, HostEnv};
use crate::platform::detached;
use crate::platform::files::Files;
use crate::platform::lock::{self, LockError};
use crate::platform::log;
use crate::platform::manager;
use crate::platform::paths::{self, Paths};
use crate::platform::signals;
use crate::platform::{inherited, memory};
use crate::server::daemon::{self, DaemonError, LOCK, Options, THREADS_KEPT, Unwritable};
use crate::server::live::Loader;
use crate::server::oneshot::{self, Asked, AtEnd};

/// The exit codes of `agentd`: 74 and 78 are `EX_IOERR` and `EX_CONFIG` of sysexits.
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const HELD: u8 = 3;
/// `agentctl` counts on it: nothing was done, and the same may succeed later.
const UNWRITABLE: u8 = 74;
const CONFIGURATION: u8 = 78;

#[derive(Parser, Debug)]
#[command(
    name = "agentd",
    version,
    about = "The per-user daemon that every program on a machine uses to talk to AI agents",
    after_help = "Examples:\n  agentd                    serve the socket in the foreground\n  agentd --no-alias         the same without /tmp/timmy.sock\n  echo '{\"prompt\":\"hi\"}' | agentd --stdio\n  agentd config show\n\nExit codes: 0 done, 1 failed, 2 usage, 3 another daemon holds the state or the socket, 74 the state can't be written (disk full, read-only, locked), 78 configuration."
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Serve standard input and output once, instead of the socket
    #[arg(long)]
    stdio: bool,
    /// With --stdio: at end of input cancel and leave, as a worker of another agentd
    #[arg(long, requires = "stdio")]
    worker: bool,
    /// With --stdio: why there was no daemon, for the result
    #[arg(long, requires = "stdio", value_name = "REASON")]
    fallback_reason: Option<String>,
    /// With --stdio: read what is stored, and nothing else, also where it can't be written
    #[arg(long, hide = true, requires = "stdio", conflicts_with = "worker")]
    past: bool,
    /// Leave the terminal and whoever started it, as `agentctl start` wants it
    #[arg(long, hide = true, conflicts_with = "stdio")]
    detach: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Args, Debug)]
struct PlaceArgs {
    /// Listen here instead of in the runtime directory
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Where the link to the socket is made
    #[arg(long, value_name = "PATH", conflicts_with = "no_alias")]
    alias: Option<PathBuf>,
    /// Make no link to the socket
    #[arg(long)]
    no_alias: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The configuration: show, set, replace
    Config {
        #[command(subcommand)]
        command: settings::ConfigCommand,
    },
    /// Change the agents of the configuration, as `agentctl agents` does
    Agents {
        #[command(subcommand)]
        command: agents::AgentsCommand,
    },
    /// Change to whom webhooks go, as `agentctl webhook` does
    Webhook {
        #[command(subcommand)]
        command: webhook::WebhookCommand,
    },
    /// Look for what is wrong, for `agentctl doctor`
    Doctor(doctor::DoctorArgs),
    /// Put a backup in the place of the store, as `agentctl restore` does
    Restore(restore::RestoreArgs),
    /// Print a script that completes commands in your shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Runs the program with the process's own arguments.
#[must_use]
pub fn main() -> ExitCode {
    memory::keep_little();
    if detached::is_asked_for() {
        detached::leave();
    }
    inherited::keep();
    signals::take_charge();
    agentd_base::secrecy::leave_no_core();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are errors to clap, with code 0.
            let _closed = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // What a program reads it finds in one line.
    let to_people = matches!(
        arguments.command,
        Some(
            Command::Config { .. }
                | Command::Agents { .. }
                | Command::Webhook { .. }
                | Command::Restore(_)
        )
    );
    let serves_client = arguments.stdio && arguments.fallback_reason.is_some();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Every error names its source itself.
            let mut error = failure.error.to_string();
            if serves_client {
                tell_client(&error);
            }
            if to_people {
                error = hinted::in_lines(&error);
            }
            let _closed = writeln!(std::io::stderr(), "error: {error}");
            // What a start at once would meet again.
            if matches!(failure.code, HELD | UNWRITABLE | CONFIGURATION) {
                manager::pause_before_the_next();
            }
            ExitCode::from(failure.code)
        }
    }
}

/// In place of an answer to its `hello`: it may pass that on to somebody who sees no standard error.
fn tell_client(error: &str) {
    let line =
        serde_json::json!({"type": "error", "id": 0, "code": Code::Internal, "error": error});
    let _gone = writeln!(std::io::stdout(), "{line}");
}

impl Arguments {
    const fn at_end(&self) -> AtEnd {
        match self.worker {
            true => AtEnd::Cancel,
            false => AtEnd::Finish,
        }
    }

    const fn asked(&self) -> Asked {
        match self.past {
            true => Asked::Stored,
            false => Asked::Anything,
        }
    }

    /// How much is logged when nobody says it. A single run speaks up only when something is wrong,
    /// and one that a client started leaves it to the client to say how its turn ended.
    fn usual_level(&self) -> &'static str {
        match (self.stdio, &self.fallback_reason) {
            // A disk that says no is told by the answer to what was asked.
            (true, Some(_)) => "error,agentd_daemon::store::writer=off",
            (true, None) => "warn",
            (false, _) => "info",
        }
    }
}

impl PlaceArgs {
    /// What the command line says of the link, if it says anything.
    fn alias_given(self) -> Result<Option<Option<PathBuf>>, CliFailure> {
        match self.alias {
            _ if self.no_alias => Ok(Some(None)),
            Some(alias) => Ok(Some(Some(
                std::path::absolute(alias).map_err(with(CONFIGURATION))?,
            ))),
            None => Ok(None),
        }
    }
}

struct CliFailure {
    code: u8,
    error: anyhow::Error,
}

impl From<DaemonError> for CliFailure {
    fn from(error: DaemonError) -> Self {
        if let Some(why) = error.unwritable() {
            return Self {
                code: UNWRITABLE,
                error: match why {
                    // It says itself what to do.
                    Unwritable::Locked => error.into(),
                    Unwritable::Full => hinted(&error, "free some room there"),
                    Unwritable::ReadOnly => hinted(&error, "make it writable"),
                },
            };
        }
        if let DaemonError::Lock(LockError::Held { .. }) = &error {
            let hint = "`agentctl status` says how it is, `agentctl stop` ends it";
            return Self {
                code: HELD,
                error: anyhow::anyhow!("{error}; hint: {hint}"),
            };
        }
        let code = match &error {
            DaemonError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => HELD,
            DaemonError::Path(_) => CONFIGURATION,
            DaemonError::Listen { source, .. } if source.kind() == ErrorKind::InvalidInput => {
                CONFIGURATION
            }
            _ => FAILED,
        };
        with(code)(error)
    }
}

fn hinted(error: &DaemonError, do_this: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{error}; hint: {do_this}, or set `AGENTD_STATE_DIR` to a directory that can be written"
    )
}

/// An error with its exit code.
fn with<E: Into<anyhow::Error>>(code: u8) -> impl Fn(E) -> CliFailure {
    move |error| CliFailure {
        code,
        error: error.into(),
    }
}

fn edit_failure(error: EditError) -> CliFailure {
    let code = match &error {
        EditError::Broken(why) => return broken(why),
        EditError::Refused { .. } => USAGE,
        EditError::Io { .. } => UNWRITABLE,
    };
    with(code)(error)
}

fn run(arguments: Arguments) -> Result<(), CliFailure> {
    let usual = arguments.usual_level();
    let (at_end, mut asked) = (arguments.at_end(), arguments.asked());
    if let Some(Command::Completions { shell }) = arguments.command {
        return completions(shell).map_err(with(FAILED));
    }
    let mut paths = paths::here().map_err(with(CONFIGURATION))?;
    let given = std::env::var_os("AGENTD_SOCKET").is_some_and(|socket| !socket.is_empty());
    let own_directory = !given && arguments.place.socket.is_none();
    if let Some(socket) = &arguments.place.socket {
        paths.socket = std::path::absolute(socket).map_err(with(CONFIGURATION))?;
    }
    match arguments.command {
        Some(Command::Agents { command }) => {
            return agents::run(command, &paths).map_err(edit_failure);
        }
        Some(Command::Webhook { command }) => {
            return webhook::run(command, &paths).map_err(edit_failure);
        }
        Some(Command::Restore(args)) => return restore::run(&args, &paths),
        // Before the configuration is read: that it can't be is one of the findings.
        Some(Command::Doctor(args)) => return examine(args, paths, own_directory),
        Some(Command::Config { command }) => return settings::run(command, &paths),
        Some(Command::Completions { .. }) | None => {}
    }
    let runtime = runtime()?;
    let mut config = {
        // Nobody waits for ever for a directory of PATH.
        let _runtime = runtime.enter();
        let read = match arguments.stdio {
            true => load(&paths, HostEnv::with(Files::apart())),
            false => judged(&paths),
        };
        if read.is_err() && !arguments.stdio {
            // It was to be the next daemon after a restart.
            lock::none_follows(&paths.state.join(LOCK));
        }
        match read {
            // What was said long ago needs no agents.
            Err(why) if asked == Asked::Stored => {
                tell_unread(&why);
                asked = Asked::Copied;
                without_config(&paths)
            }
            read => read.map_err(broken)?,
        }
    };
    // A list of agents shows them, too; a single run has other things to say.
    if !arguments.stdio {
        tell_warnings(&config);
    }
    let alias = arguments.place.alias_given()?;
    if let Some(alias) = &alias {
        config.alias.clone_from(alias);
    }
    // A logger that is there does as well.
    let _there = log::start(usual, &paths.state);
    let done = if arguments.stdio {
        runtime.block_on(oneshot::run(
            paths,
            config,
            arguments.fallback_reason,
            at_end,
            asked,
        ))
    } else {
        let loader = loader(paths.clone(), alias);
        runtime.block_on(daemon::run(Options {
            loader,
            paths,
            own_directory,
            config,
        }))
    };
    // Standard input is read by a thread that may wait for ever.
    runtime.shutdown_background();
    log::finish();
    Ok(done?)
}

fn examine(args: doctor::DoctorArgs, paths: Paths, own_directory: bool) -> Result<(), CliFailure> {
    let of = paths.clone();
    let load = move || load(&of, HostEnv::here()).map_err(|error| error.to_string());
    let told = doctor::run(args, paths, own_directory, Box::new(load));
    told.map_err(with(FAILED))
}

fn runtime() -> Result<Runtime, CliFailure> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let built = builder.enable_all().thread_keep_alive(THREADS_KEPT).build();
    built.map_err(with(FAILED))
}

/// What would be in force, of which warnings are told.
fn in_force(paths: &Paths) -> Result<Config, CliFailure> {
    let config = judged_config(paths)?;
    tell_warnings(&config);
    Ok(config)
}

fn judged_config(paths: &Paths) -> Result<Config, CliFailure> {
    let runtime = runtime()?;
    let _runtime = runtime.enter();
    judged(paths).map_err(broken)
}

/// As a daemon has it: it knows, too, what only the built-in agent can't read.
fn judged(paths: &Paths) -> anyhow::Result<Config> {
    let mut config = load(paths, HostEnv::with(Files::apart()))?;
    config.unread = settings::unread_by_timmy(&config);
    Ok(config)
}

/// How a daemon reads its configuration again: as at its start.
fn loader(paths: Paths, alias: Option<Option<PathBuf>>) -> Loader {
    Loader(Arc::new(move || {
        let mut config = judged(&paths).map_err(|error| error.to_string())?;
        if let Some(alias) = &alias {
            config.alias.clone_from(alias);
        }
        Ok(config)
    }))
}

fn load(paths: &Paths, look: HostEnv) -> anyhow::Result<Config> {
    let named = std::env::var_os("AGENTD_CONFIG").is_some_and(|file| !file.is_empty());
    if named && !paths.config.exists() {
        let file = paths.config.display();
        anyhow::bail!(
            "`AGENTD_CONFIG` names `{file}`, which is not there; hint: make it (an empty file will \
             do, `agentctl agents add` makes one, too), or unset `AGENTD_CONFIG`"
        );
    }
    let config = Config::load(&paths.config, &paths.env_file, &look)?;
    config::check_default(&config, &paths.config, &look)?;
    Ok(config)
}

/// What is stored is read without the configuration.
fn without_config(paths: &Paths) -> Config {
    Config {
        file: paths.config.clone(),
        ..Config::default()
    }
}

/// Why the configuration can't be used, and what to do about it.
fn mended(why: impl std::fmt::Display) -> String {
    let why = why.to_string();
    match hinted::split(&why) {
        (_, Some(_)) => why,
        (_, None) => format!("{why}; hint: {MEND_IT}"),
    }
}

fn broken(why: impl std::fmt::Display) -> CliFailure {
    with(CONFIGURATION)(anyhow::anyhow!(mended(why)))
}

fn tell(note: &str) {
    // Nobody has to read it.
    let _closed = writeln!(std::io::stderr(), "note: {note}");
}

fn tell_unread(why: &anyhow::Error) {
    tell(&format!(
        "what is stored is read without the configuration: {}",
        mended(why)
    ));
}

fn tell_warnings(config: &Config) {
    let warnings = config.agents.values().flat_map(|agent| &agent.warnings);
    for warning in warnings.chain(&config.unread) {
        // Nobody has to read it.
        let _closed = writeln!(std::io::stderr(), "warning: {warning}");
    }
}

fn completions(shell: Shell) -> std::io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "agentd", &mut script);
    std::io::stdout().write_all(&script)
}
