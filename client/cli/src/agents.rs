//! `agents`: what is there, changes of the configuration, and a try.
//!
//! Owns the try and its words. The configuration is the daemon's to change: its own program does.
//! Must not know what `config.toml` looks like.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use agentd_protocol::line::{StatusAnswer, Stop, TurnFacts};
use agentd_protocol::request::{OnQuestion, Send};
use agentd_protocol::rows::{JobPhase, JobRow};
use agentd_protocol::spoken::span;
use agentd_protocol::{JobId, Line, RequestKind};
use serde_json::json;

use super::args::{
    AddAgentArgs, AgentNameArgs, AgentsArgs, AgentsCommand, DefaultAgentArgs, TestAgentArgs,
};
use super::config_check::Unusable;
use super::exit::{self, Exit};
use super::outcome::{self, Again};
use super::turn::{self, View};
use super::{
    activity, ask, command_list, complete, compose, config_check, connecting, control, output,
    process, render, value,
};
use agentd_client::client::Client;
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::{Fallback, Lock};
use agentd_client::health;
use agentd_client::places::Environment;
use agentd_client::ssh::Target;
use agentd_client::wire::{Nothing, Received};
use agentd_client::{key, oneshot};
use agentd_terminal::style::Style;

/// Answered by any model in a word, without a tool.
const QUESTION: &str =
    "This is a test of the connection. Use no tools. Answer with one word: ready";
/// Whoever looks at a terminal for longer wants to know why.
const QUIET_FOR: Duration = Duration::from_secs(1);

pub(super) async fn agents(args: AgentsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    match args.command {
        None => list(&args, socket).await,
        Some(AgentsCommand::Add(args)) => {
            let here = std::env::current_dir().ok();
            change(&add_words(args, here.as_deref()), socket).await
        }
        Some(AgentsCommand::Remove(args)) => change(&remove_words(args), socket).await,
        Some(AgentsCommand::Default(args)) => {
            let changes = args.name.is_some() || args.clear;
            let words = default_words(args);
            match changes {
                true => change(&words, socket).await,
                false => Ok(as_daemon(&words, socket)),
            }
        }
        Some(AgentsCommand::Commands(args)) => command_list::list(args, socket).await,
        Some(AgentsCommand::Restart(args)) => control::restart(args, socket).await,
        Some(AgentsCommand::Test(args)) => test(args, socket).await,
    }
}

async fn list(args: &AgentsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let asking = ask::ask(socket, RequestKind::Agents, &Nothing {}, Fallback::Allowed);
    let tell = || {
        if output::err_is_terminal() {
            output::note("agents are asked for their version; a slow one takes some seconds");
        }
    };
    let (received, unusable) = match ask::told_when_late(QUIET_FOR, tell, asking).await {
        Ok((mut client, received)) => {
            let unusable = config_check::of_daemon(&mut client).await;
            client.close().await;
            (received, unusable)
        }
        Err(exit) => return Ok(exit),
    };
    match &received.line {
        Some(Line::Agents { .. }) if args.json => output::out_json(&received.text)?,
        Some(Line::Agents { agents, .. }) => {
            let which = match args.all {
                true => render::Shown::All,
                false => render::Shown::Installed,
            };
            let by = default_by(socket);
            output::out(&render::agents(agents, which, by, &Style::of_stdout()))?;
        }
        _ => return Ok(ask::unexpected(&received)),
    }
    // A key that one has just given may be in it.
    if let Some(unusable) = unusable {
        output::note(&unusable.not_in_force());
    }
    Ok(Exit::Done)
}

/// Does the configuration of this machine name who answers?
fn default_by(socket: Option<&Path>) -> render::DefaultBy {
    if socket.and_then(Target::of_socket).is_some() {
        return render::DefaultBy::Choice;
    }
    match complete::table() {
        Some(read) if !read.contains_key("default_agent") => render::DefaultBy::Look,
        // What can't be read may name one.
        Some(_) | None => render::DefaultBy::Choice,
    }
}

fn remove_words(args: AgentNameArgs) -> Vec<String> {
    let mut words = vec!["remove".to_owned()];
    words.extend(args.json.then(|| "--json".to_owned()));
    words.extend(["--".to_owned(), args.name]);
    words
}

fn default_words(args: DefaultAgentArgs) -> Vec<String> {
    let mut words = vec!["default".to_owned()];
    words.extend(args.json.then(|| "--json".to_owned()));
    words.extend(args.force.then(|| "--force".to_owned()));
    words.extend(args.clear.then(|| "--clear".to_owned()));
    words.extend(
        args.name
            .into_iter()
            .flat_map(|name| ["--".to_owned(), name]),
    );
    words
}

fn add_words(args: AddAgentArgs, here: Option<&Path>) -> Vec<String> {
    let mut words = vec!["add".to_owned()];
    let options = [
        ("kind", args.kind),
        ("provider", args.provider),
        ("model", args.model),
    ];
    let mut option = |name: &str, value: &str| words.push(format!("--{name}={value}"));
    for (name, value) in &options {
        if let Some(value) = value {
            option(name, value);
        }
    }
    for value in &args.env {
        option("env", value);
    }
    for value in &args.pass_env {
        option("pass-env", value);
    }
    words.extend(args.json.then(|| "--json".to_owned()));
    words.push(format!("--name={}", args.name));
    words.push("--".to_owned());
    let mut command = args.command.into_iter();
    words.extend(command.next().map(|program| from_here(&program, here)));
    words.extend(command);
    words
}

/// A program as somebody names it here: the daemon runs elsewhere. A bare name is looked for on
/// the daemon's `PATH`.
fn from_here(program: &str, here: Option<&Path>) -> String {
    if !program.contains('/') {
        return program.to_owned();
    }
    let path = Path::new(program);
    // `./x` names nothing else than `x` here.
    let path = compose::absolute(path.strip_prefix("./").unwrap_or(path), here);
    path.to_string_lossy().into_owned()
}

/// Lets the daemon's own program change the configuration.
async fn change(words: &[String], socket: Option<&Path>) -> io::Result<Exit> {
    let exit = as_daemon(words, socket);
    if exit == Exit::Done {
        tell_running(socket).await;
    }
    Ok(exit)
}

/// What the program says of agents, with the environment of the daemon that runs: what is on its
/// `PATH`, and which keys it has, is what counts.
fn as_daemon(words: &[String], socket: Option<&Path>) -> Exit {
    let mut command = Command::new(oneshot::program());
    let endpoint = LocalEndpoint::find(socket, &Environment::of_process());
    if let Some(environment) = endpoint.holder().and_then(process::environment_of) {
        let of_caller = std::env::vars_os().filter(|(name, _)| is_of_caller(name));
        command.env_clear();
        command.envs(process::variables(&environment));
        command.envs(of_caller);
    }
    said_by(command.arg("agents").args(words))
}

/// Where files are, and how this terminal is written to, is the caller's to say.
fn is_of_caller(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let begins = ["AGENTD_", "XDG_", "LC_"];
    let is = ["HOME", "TERM", "LANG", "LANGUAGE", "NO_COLOR", "COLUMNS"];
    begins.iter().any(|begin| name.starts_with(begin)) || is.contains(&&*name)
}

/// Says what a daemon that runs makes of a change of the configuration, where it says so. None is
/// started by the question.
pub(super) async fn tell_running(socket: Option<&Path>) {
    let endpoint = LocalEndpoint::find(socket, &Environment::of_process());
    if endpoint.lock() == Lock::Free {
        return;
    }
    if let Ok(healthy) = health::look(&endpoint, "agentctl").await
        && let Some(note) = not_in_force(&healthy.line)
    {
        output::note(&note);
    }
}

/// What of the newest configuration doesn't count in a daemon whose status this is.
fn not_in_force(status: &str) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let Some(config) = status["daemon"].get("config") else {
        // One that reads it when it starts.
        return Some(
            "the daemon that runs knows the old configuration until it starts again: \
             `agentctl restart`"
                .to_owned(),
        );
    };
    if let Some(why) = config["refused"].as_str() {
        return Some(format!("the daemon that runs keeps the one before: {why}"));
    }
    let keys = config["needs_restart"].as_array()?.iter();
    let keys: Vec<&str> = keys.filter_map(serde_json::Value::as_str).collect();
    (!keys.is_empty()).then(|| {
        let keys = keys.join("`, `");
        format!("`{keys}` counts when the daemon starts again: `agentctl restart`")
    })
}

/// The exit code of `agentd COMMAND WORDS`, which says everything itself.
pub(super) fn of_program<Word: AsRef<OsStr>>(command: &str, words: &[Word]) -> Exit {
    said_by(Command::new(oneshot::program()).arg(command).args(words))
}

fn said_by(command: &mut Command) -> Exit {
    match command.status() {
        Ok(status) => exit_of(status.code()),
        Err(error) => tell_missing(Path::new(command.get_program()), &error),
    }
}

/// Ours for the exit code of the daemon's own program.
pub(super) const fn exit_of(code: Option<i32>) -> Exit {
    match code {
        Some(0) => Exit::Done,
        Some(2) => Exit::Usage,
        Some(74) => Exit::Refused,
        Some(78) => Exit::Configuration,
        _ => Exit::Failed,
    }
}

/// Says that the daemon's program can't be started.
pub(super) fn tell_missing(program: &Path, error: &io::Error) -> Exit {
    output::error(
        &format!("cannot start `{}`: {error}", program.display()),
        Some("put `agentd` next to `agentctl`, or on `PATH`"),
    );
    Exit::Configuration
}

/// Shows nothing while it runs, but why it may never end: what counts is how it ended, and what was
/// told before a bad end.
struct Silent<'a> {
    agent: &'a str,
    told: Option<String>,
    waited: Duration,
}

impl View for Silent<'_> {
    fn line(&mut self, received: &Received) -> io::Result<()> {
        if let Some(told) = received.line.as_ref().and_then(render::side_note) {
            // Such a program may never answer.
            if matches!(&received.line, Some(Line::Note { code, .. }) if code == "not-jsonl") {
                output::note(&told);
            }
            self.told = Some(told);
        }
        Ok(())
    }

    fn tick(&mut self, waited: Duration) {
        self.waited = waited;
    }

    fn wants_reason(&self) -> bool {
        self.told.is_none() && self.waited.as_secs() >= activity::SILENT_S
    }

    fn reason(&mut self, job: JobId, rows: &[JobRow], status: &StatusAnswer) {
        let is_waiting = |row: &JobRow| row.job == job && row.state == JobPhase::Queued;
        if !rows.iter().any(is_waiting) {
            return;
        }
        let waits = activity::waits_for(job, self.agent, rows, status, value::now_ms());
        output::note(&waits);
        self.told = Some(waits);
    }
}

async fn test(args: TestAgentArgs, socket: Option<&Path>) -> io::Result<Exit> {
    // Of this machine, so not for another one.
    let here = socket.and_then(Target::of_socket).is_none();
    let cwd = here.then(std::env::temp_dir);
    let send = Send {
        text: args.prompt.unwrap_or_else(|| QUESTION.to_owned()),
        agent: Some(args.name.clone()),
        cwd: cwd.and_then(|cwd| cwd.to_str().map(str::to_owned)),
        timeout: Some(args.timeout),
        on_question: Some(OnQuestion::Deny),
        ..Send::default()
    };
    let send = key::completed(&send)?.into_owned();
    let begun = Instant::now();
    let mut view = Silent {
        agent: &args.name,
        told: None,
        waited: Duration::ZERO,
    };
    let outcome = match connecting::connect(socket, Fallback::Allowed).await {
        Ok(client) => turn::run(client, &send, &mut view, None).await?,
        Err(error) => turn::TurnOutcome::Failed(error, None),
    };
    let took = begun.elapsed();
    let received = match &outcome {
        turn::TurnOutcome::Final(received, _) => received.line.as_ref(),
        turn::TurnOutcome::Left(_)
        | turn::TurnOutcome::Waited(_)
        | turn::TurnOutcome::Failed(..)
        | turn::TurnOutcome::Unwritten(..) => None,
    };
    if args.json {
        let tried = tried(&args.name, received, took);
        output::out_json(&tried.to_string())?;
    } else if let Some(Line::MessageEnd(end)) = received {
        let text = render::preview(&end.turn.text);
        let said = if text.is_empty() { "(no text)" } else { &text };
        let (name, took) = (&args.name, span(took));
        output::out_line(&match end.stop {
            Stop::Cancelled => format!("`{name}` was interrupted after {took}: {said}"),
            _ => format!("`{name}` answered in {took}: {said}{}", used(&end.turn)),
        })?;
    }
    let turn = match received {
        Some(Line::MessageEnd(end)) => Some(&end.turn),
        Some(Line::Error(error)) => error.turn.as_ref(),
        _ => None,
    };
    let session = turn.and_then(|turn| turn.session.as_deref());
    let unusable = leave(session, socket).await;
    let exit = outcome::conclude(&outcome, Again::Send(&send));
    if let Some(told) = view.told.filter(|_| exit != Exit::Done) {
        let (name, told) = (&args.name, render::preview(&told));
        output::note(&format!("the last that was heard of `{name}`: {told}"));
    }
    if let Some(unusable) = unusable {
        output::note(&unusable.not_in_force());
    }
    Ok(exit)
}

/// Ends the session of a try: one that stays is in nobody's way. And says why it may not have been the
/// agent that is configured now.
async fn leave(session: Option<&str>, socket: Option<&Path>) -> Option<Unusable> {
    let options = ask::options(socket, Fallback::Allowed);
    let mut client = Client::connect_or_oneshot(options).await.ok()?;
    if let Some(session) = session {
        let _stays = client.session_close(session).await;
    }
    let unusable = config_check::of_daemon(&mut client).await;
    client.close().await;
    unusable
}

/// The model and its tokens, as far as they are known.
fn used(turn: &TurnFacts) -> String {
    let mut known = Vec::new();
    known.extend(
        turn.model
            .as_deref()
            .map(|model| output::safe(model).into_owned()),
    );
    known.extend(turn.usage.as_ref().map(|usage| {
        let (input, output) = (usage.input_tokens, usage.output_tokens);
        format!("{input} tokens in, {output} out")
    }));
    match known.is_empty() {
        true => String::new(),
        false => format!("\n  {}", known.join(", ")),
    }
}

fn tried(name: &str, line: Option<&Line>, took: Duration) -> serde_json::Value {
    let (turn, error) = match line {
        Some(Line::MessageEnd(end)) => (Some(&end.turn), None),
        Some(Line::Error(error)) => (error.turn.as_ref(), Some(error)),
        _ => (None, None),
    };
    let ok = matches!(line, Some(end @ Line::MessageEnd(_)) if exit::of_line(end) == Exit::Done);
    json!({
        "agent": name,
        "ok": ok,
        "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "text": turn.map(|turn| turn.text.as_str()),
        "provider": turn.and_then(|turn| turn.provider.as_deref()),
        "model": turn.and_then(|turn| turn.model.as_deref()),
        "usage": turn.and_then(|turn| turn.usage.as_ref()),
        "code": error.map(|error| error.code),
        "error": error.map(|error| error.error.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_not_in_force_is_told() {
        let told = |config: &str| not_in_force(&format!(r#"{{"daemon":{{"pid":1{config}}}}}"#));
        assert!(told("").unwrap().contains("`agentctl restart`"));
        assert_eq!(told(r#","config":{"since":"x"}"#), None);
        let keys = told(r#","config":{"needs_restart":["alias"]}"#);
        assert!(keys.unwrap().starts_with("`alias` counts when"));
        let broken = told(r#","config":{"refused":"config.toml:3: no"}"#);
        assert!(broken.unwrap().ends_with("config.toml:3: no"));
    }
}
