//! `agentctl`, the command line.
//!
//! Owns the way from arguments to an exit code. Must not know the protocol beyond what its commands
//! say through the library.

mod abort;
mod activity;
mod agents;
#[expect(
    missing_docs,
    reason = "what a type says of itself would be its command's help"
)]
pub mod args;
mod ask;
mod attach;
mod bench;
mod built_in;
mod busy;
mod choose;
mod closed;
mod command_line;
mod command_list;
mod complete;
mod compose;
mod config;
mod config_check;
mod connecting;
mod control;
mod copies;
mod cron;
mod cut_off;
mod daemon;
mod demo;
mod details;
mod dispatch;
mod doctor;
mod drain;
pub mod exit;
mod first_use;
mod footer;
mod forward;
mod history;
mod host;
mod jobs;
mod last;
mod logs;
mod man;
mod model_list;
mod nc;
mod notification;
mod outcome;
mod overview;
mod process;
mod progress;
mod prompt;
mod questions;
pub mod render;
mod route;
pub mod rows;
mod send;
mod serve;
mod service;
mod sessions;
mod spinner;
mod ssh;
mod start_hint;
mod status;
mod stop_signal;
pub mod stream;
mod terminal;
mod token;
mod turn;
mod turn_text;
mod typed;
mod usage;
mod value;
mod voice;
mod waiting;
mod watch;
mod webhook;
mod whole;
mod wording;

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;

use agentd_base::{duration, secrecy};
use agentd_terminal::{output, style};
use clap::error::{ContextKind, ContextValue, ErrorKind};

use self::args::{Cli, Command, RestoreArgs, ServeArgs, ServeCommand, StdioArgs};
use self::exit::Exit;
use agentd_client::fallback::Fallback;
use agentd_client::places::{self, Environment};
use agentd_client::send_only::SendOnly;
use agentd_client::{oneshot, relay, signals, stdio};

/// Runs one command line, from the program's name on.
pub fn run(words: impl IntoIterator<Item = OsString>) -> Exit {
    // Prompts, answers and tokens are in memory.
    // First of all: a crash of what comes next must leave no core, either.
    secrecy::hide_memory();
    signals::outlive_large_files();
    let mut words: Vec<OsString> = words.into_iter().collect();
    if let Some(exit) = complete::answered(&words) {
        return exit;
    }
    if let Some(asked) = overview::asked_for(&words) {
        return printed(overview::tell(asked));
    }
    if let Some(passed_on) = overview::passed_on(&words) {
        words = passed_on;
    }
    if let Some(ours) = serve::pi::words(&words).or_else(|| serve::gateway::words(&words)) {
        words = ours;
    }
    join_time(&mut words);
    let cli = match command_line::parse(&words) {
        Ok(cli) => cli,
        Err(error) => return told(&with_tip(error, &words)),
    };
    printed(run_command(cli))
}

/// `--notify 3s` is `--notify=3s`: whoever gives a time there means no text.
fn join_time(words: &mut Vec<OsString>) {
    let end = words.iter().position(|word| word == "--");
    let ours = &words[..end.unwrap_or(words.len())];
    let pair = |pair: &[OsString]| {
        let time = pair[1]
            .to_str()
            .filter(|time| duration::parse(time).is_some());
        time.filter(|_| pair[0] == "--notify").map(str::to_owned)
    };
    let found = ours.windows(2).enumerate();
    if let Some((at, time)) = found.filter_map(|(at, two)| Some((at, pair(two)?))).next() {
        words.splice(at..at + 2, [format!("--notify={time}").into()]);
    }
}

/// What was most likely meant by words too many: a text that the shell has taken apart, or something that
/// is said in another way.
fn with_tip(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let is_word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => !word.starts_with('-'),
        _ => false,
    };
    let said = words.iter().skip(1).filter_map(|word| word.to_str());
    let said: Vec<&str> = said.take(2).collect();
    let tip = match (error.kind(), &said[..]) {
        (ErrorKind::UnknownArgument, ["send" | "run" | "steer", ..]) if is_word => {
            "put a text of several words in quotes: `agentctl send \"fix the test\"`"
        }
        (ErrorKind::UnknownArgument, ["agents", "add"]) if is_word => {
            "put a program behind `--`: `agentctl agents add NAME --kind exec -- PROGRAM`"
        }
        (ErrorKind::InvalidSubcommand, ["sessions", "export"]) => {
            "`agentctl export NAME` prints one session with its jobs"
        }
        _ => return error,
    };
    let tips = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tips);
    error
}

/// `--help` and `--version` are answers, not errors.
fn told(error: &clap::Error) -> Exit {
    let text = error.render().to_string();
    if error.use_stderr() {
        // It repeats the words of the command line, which a script may have from elsewhere.
        output::err(&output::safe(&text));
        return Exit::Usage;
    }
    printed(output::out(&text).map(|()| Exit::Done))
}

/// The exit code of a command, or of not having been able to say what it did.
fn printed(done: io::Result<Exit>) -> Exit {
    match done {
        Ok(exit) => exit,
        // The reader left, as `head` does: it has what it wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => error.downcast().unwrap_or_else(|error| {
            output::error(&error.to_string(), None);
            Exit::Failed
        }),
    }
}

fn run_command(cli: Cli) -> io::Result<Exit> {
    style::choose(cli.everywhere.color.into());
    let socket = host::socket(&cli)?;
    let socket = socket.as_deref();
    // With `sudo` and the home of somebody else they would belong to root, and be no good to them.
    if makes_files(&cli.command)
        && let Some((dir, owner)) = places::foreign_state(&Environment::of_process())
    {
        let (us, dir) = (nix::unistd::Uid::effective(), dir.display());
        let error = format!("`{dir}` belongs to uid {owner}, and this runs as uid {us}");
        let hint = "nothing was made there; with sudo, say `sudo -H`, or set `AGENTD_STATE_DIR`";
        output::error(&error, Some(hint));
        return Ok(Exit::Configuration);
    }
    match cli.command {
        Command::Send(args) => block_on(send::send(args, socket)),
        Command::Agent(args) => block_on(send::agent(args, socket)),
        Command::Attach(args) => block_on(attach::attach(args, socket)),
        Command::Retry(args) => block_on(attach::retry(args, socket)),
        Command::Status(args) => block_on(status::status(args, socket)),
        Command::Doctor(args) => block_on(doctor::doctor(args, socket)),
        Command::Logs(args) => block_on(logs::logs(args)),
        Command::LogLevel(args) => block_on(status::log_level(args, socket)),
        Command::Metrics => block_on(status::metrics(socket)),
        Command::Agents(args) => block_on(agents::agents(args, socket)),
        Command::Route(args) => block_on(route::route(args, socket)),
        Command::Bench(args) => block_on(bench::bench(args, socket)),
        Command::Provider(args) => Ok(built_in::run("provider", &args)),
        Command::Models(args) if model_list::is_of_all(&args) => {
            block_on(model_list::all(&args, socket))
        }
        Command::Models(args) if args.lists_of_agent() => block_on(model_list::list(&args, socket)),
        Command::Models(args) => Ok(built_in::run("models", &args)),
        Command::Abort(args) => block_on(abort::abort(args, socket)),
        Command::Dispatch(args) => block_on(dispatch::dispatch(args, socket)),
        Command::Collect(args) => block_on(dispatch::collect(args, socket)),
        Command::Jobs(args) => block_on(jobs::jobs(args, socket)),
        Command::Ps(args) => block_on(jobs::ps(args, socket)),
        Command::Version(args) => block_on(status::version(args, socket)),
        Command::Usage(args) => block_on(usage::usage(args, socket)),
        Command::Cron(args) => block_on(cron::cron(args, socket)),
        Command::Webhook(args) => block_on(webhook::webhook(args, socket)),
        Command::Steer(args) => block_on(jobs::steer(args, socket)),
        Command::Sessions(args) => block_on(sessions::sessions(args, socket)),
        Command::History(args) => block_on(history::history(args, socket)),
        Command::Questions(args) => block_on(questions::questions(args, socket)),
        Command::Answer(args) => block_on(questions::answer(args, socket)),
        Command::Model(args) => block_on(sessions::model(args, socket)),
        Command::Compact(args) => block_on(sessions::compact(args, socket)),
        Command::Backup(args) => block_on(copies::backup(args, socket)),
        Command::Restore(args) => restore(&args),
        Command::Export(args) => block_on(copies::export(args, socket)),
        Command::Watch(args) => block_on(watch::watch(args, socket)),
        Command::Start => block_on(daemon::start(socket)),
        Command::Restart(args) => block_on(daemon::restart(args, socket)),
        Command::Stop(args) => block_on(daemon::stop(args, socket)),
        Command::Service(args) => block_on(service::service(args, socket)),
        Command::Drain(args) => block_on(control::drain(args, socket)),
        Command::Undrain => block_on(control::undrain(socket)),
        Command::Stdio(args) => block_on(stdio(args, socket)),
        Command::Nc(args) => block_on(nc::nc(args, socket)),
        Command::Forward(args) => block_on(forward::forward(args, socket)),
        Command::Serve(args) => match args.command {
            ServeCommand::Http(args) => Ok(serve::http(args, socket)),
            ServeCommand::Mcp(args) => block_on(serve::mcp(args, socket)),
            ServeCommand::Acp(args) => block_on(serve::acp(args, socket)),
            ServeCommand::Bridge(args) => block_on(serve::bridge(args, socket)),
            ServeCommand::Gateway(args) => block_on(serve::gateway::gateway(args, socket)),
            ServeCommand::Pi(args) => block_on(serve::pi::pi(*args, socket)),
        },
        Command::Token(args) => token::token(args),
        Command::SshKey(args) => block_on(ssh::ssh_key(args)),
        Command::Voice(args) => block_on(voice::voice(args, socket)),
        Command::Demo => block_on(demo::run(socket)),
        Command::Config(args) => block_on(config::config(args, socket)),
        Command::Completions(args) => complete::script(args.shell),
        Command::Man(args) => man::man(&args),
    }
}

/// Does it make files of its own below the home? What the daemon's program makes it looks at itself.
const fn makes_files(command: &Command) -> bool {
    matches!(
        command,
        Command::Token(_)
            | Command::Serve(ServeArgs {
                command: ServeCommand::Http(_)
            })
            | Command::Voice(_)
            | Command::Service(_)
            | Command::Start
            | Command::Restart(_)
    )
}

fn block_on(command: impl Future<Output = io::Result<Exit>>) -> io::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let exit = runtime.block_on(command);
    // A read of standard input may still be waiting on its thread, for ever.
    runtime.shutdown_background();
    exit
}

async fn stdio(args: StdioArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fallback = if args.no_fallback {
        Fallback::Forbidden
    } else {
        Fallback::Allowed
    };
    let client = match connecting::connect(socket, fallback).await {
        Ok(client) => client,
        Err(error) => {
            outcome::tell_client_error(&error);
            return Ok(exit::of_client_error(&error));
        }
    };
    let rules = args.rules.send_only();
    // Rules alone are meant as rules.
    let allowed = if args.send_only || rules != SendOnly::default() {
        relay::Allowed::Sends(rules)
    } else {
        relay::Allowed::All
    };
    let relayed = relay::run(client, stdio::input(), stdio::output(), allowed);
    Ok(match relayed.await {
        relay::RelayEnd::Answered | relay::RelayEnd::ReaderGone => Exit::Done,
        relay::RelayEnd::Unknown => Exit::Unknown,
        relay::RelayEnd::Closed => {
            output::error("the daemon closed the connection", None);
            Exit::Unreachable
        }
    })
}

/// The store is the daemon's: its own program puts a backup there.
fn restore(args: &RestoreArgs) -> io::Result<Exit> {
    let json = args.json.then_some(OsStr::new("--json"));
    let words = [OsStr::new("restore"), args.file.as_os_str()];
    become_agentd(words.into_iter().chain(json))
}

fn become_agentd(words: impl IntoIterator<Item: AsRef<OsStr>>) -> io::Result<Exit> {
    // It would find `/dev/null` there, and say nothing.
    output::is_open()?;
    let program = oneshot::program();
    let mut command = std::process::Command::new(&program);
    command.args(words);
    // In our place: its exit code, its terminal and its signals are then its own.
    let error = command.exec();
    output::error(
        &format!("cannot start `{}`: {error}", program.display()),
        Some("put `agentd` next to `agentctl`, or on `PATH`"),
    );
    Ok(Exit::Configuration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notify_takes_the_time_behind_it() {
        let joined = |line: &str| {
            let mut words = line.split(' ').map(OsString::from).collect();
            join_time(&mut words);
            words.join(OsStr::new(" ")).into_string().unwrap()
        };
        for (typed, meant) in [
            ("agentctl send --notify 3 hi", "agentctl send --notify=3 hi"),
            (
                "agentctl send hi --notify 1m",
                "agentctl send hi --notify=1m",
            ),
            ("agentctl send --notify hi", "agentctl send --notify hi"),
            ("agentctl send -- --notify 3", "agentctl send -- --notify 3"),
        ] {
            assert_eq!(joined(typed), meant);
        }
    }
}
