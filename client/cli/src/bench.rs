//! `bench`: an agent's own one-shot command beside turns by agentd, on this machine.
//!
//! Owns what is timed, in which order, and how the times are shown. Which command an agent has, the
//! daemon knows.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use agentd_protocol::request::{Abort, OnQuestion, Send};
use agentd_protocol::rows::AgentRow;
use agentd_protocol::{Code, Line, RequestKind};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::args::BenchArgs;
use super::exit::{self, Exit};
use super::{ask, outcome, output, render, turn};
use agentd_client::asked::RequestError;
use agentd_client::key;
use agentd_client::signals::Stops;
use agentd_client::wire::Nothing;
use agentd_terminal::style::Style;
use agentd_terminal::table::{Cell, Column, table};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// Answered by any model in a word, without a tool.
const PROMPT: &str = "Use no tools. Answer with one word: ready";
/// The provider that has no model.
const ECHO: &str = "echo";
/// How the names of its sessions begin.
const NAMED: &str = "bench-";
/// Digits of a process in them.
const PID: usize = 8;
/// An interrupted turn has ended within this, or is left to itself.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// So much of what a command printed when it failed is told.
const SAID: usize = 300;

/// Times that are apart by less than this factor are the same.
const ALIKE: f64 = 1.1;

/// Milliseconds of each kind of turn.
#[derive(Default)]
struct Times {
    own: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

pub(super) async fn bench(args: BenchArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut agent = agent(&args.agent, socket).await??;
    let had_one = agent.one_shot.is_some();
    agent.one_shot = pinned(&agent, args.provider.as_deref(), args.model.as_deref());
    if had_one && agent.one_shot.is_none() {
        output::note(&format!(
            "the own command of `{}` isn't timed: how it is told a provider or a model isn't known",
            args.agent
        ));
    }
    let asks_no_model = agent.one_shot.as_deref().is_some_and(is_echo);
    if asks_no_model {
        output::note(
            "`echo` asks no model: what is left is what agentd and a program's start take",
        );
    }
    let kinds = 2 + u32::from(agent.one_shot.is_some());
    // And one that brings the agent into use.
    let turns = args.turns * kinds + 1;
    if !args.yes && !asks_no_model && !may_cost(&args.agent, turns)? {
        return Ok(Exit::Usage);
    }
    let bench = Bench {
        agent,
        prompt: args.prompt.clone().unwrap_or_else(|| PROMPT.to_owned()),
        provider: args.provider.clone(),
        model: args.model.clone(),
        mark: mark(std::process::id(), &key::random()?),
        begun: AtomicU32::new(0),
        socket,
    };
    bench.close_left().await;
    let mut stops = Stops::listen()?;
    let ran = tokio::select! {
        // A turn leaves by the same signals, and here there is more to do.
        biased;
        () = stops.next() => None,
        ran = bench.run(args.turns) => Some(ran?),
    };
    let times = match ran {
        Some(Ok(times)) => times,
        Some(Err(exit)) => return Ok(exit),
        None => {
            bench.give_up().await;
            return Ok(Exit::Interrupted);
        }
    };
    if args.json {
        let told = json!({"agent": args.agent, "one_shot": bench.agent.one_shot, "unit": "ms",
            "own": times.own, "first": times.first, "second": times.second});
        output::out_json(&told.to_string())?;
    } else {
        output::out(&shown(&times, &Style::of_stdout()))?;
    }
    Ok(Exit::Done)
}

/// Is a session one of a bench, by its name? Nobody goes on with it.
pub(super) fn is_of_bench(session: &str) -> bool {
    let mark = session.strip_prefix(NAMED);
    let mark = mark.and_then(|rest| rest.rsplit_once('-'));
    mark.is_some_and(|(mark, number)| {
        let is_mark = mark.len() == 32 && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_mark && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Makes names nobody else's, and says whose process they are of.
fn mark(pid: u32, random: &str) -> String {
    let rest = random.get(PID..).unwrap_or_default();
    format!("{pid:0PID$x}{rest}")
}

/// Is it of a bench whose process is gone?
fn is_left(session: &str) -> bool {
    let mark = session.strip_prefix(NAMED).filter(|_| is_of_bench(session));
    let pid = mark.and_then(|mark| u32::from_str_radix(mark.get(..PID)?, 16).ok());
    let pid = pid.and_then(|pid| i32::try_from(pid).ok());
    pid.is_some_and(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH))
}

/// The agent, if it can be used.
async fn agent(name: &str, socket: Option<&Path>) -> io::Result<Result<AgentRow, Exit>> {
    // Without a daemon nothing is warm.
    let mut client = match ask::daemon(socket).await {
        Ok(client) => client,
        Err(exit) => return Ok(Err(exit)),
    };
    let received = match client.answer(RequestKind::Agents, &Nothing {}).await {
        Ok(received) => received,
        Err(error) => return Ok(Err(ask::tell(&error))),
    };
    client.close().await;
    let Some(Line::Agents { agents, .. }) = &received.line else {
        return Ok(Err(ask::unexpected(&received)));
    };
    let Some(agent) = agents.iter().find(|agent| agent.name == name).cloned() else {
        let error = format!("there is no agent `{name}`");
        output::error(&error, Some("`agentctl agents` lists what is there"));
        return Ok(Err(Exit::Usage));
    };
    if let Some(why) = agent.why_not.as_ref().filter(|_| !agent.usable) {
        output::error(&format!("the agent `{name}` can't be used: {why}"), None);
        return Ok(Err(Exit::Refused));
    }
    Ok(Ok(agent))
}

/// The agent's own command, told which model to ask; none where it isn't known how that is said.
fn pinned(agent: &AgentRow, provider: Option<&str>, model: Option<&str>) -> Option<Vec<String>> {
    let mut words = agent.one_shot.clone()?;
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    let is_timmy = agent.kind == "jsonl" && program == "timmy";
    let says = match (provider, model) {
        (None, None) => return Some(words),
        // Somebody's own command: its options are its own, too.
        _ if agent.kind == "exec" => return None,
        (Some(_), _) if !is_timmy => return None,
        (provider, model) => [("--provider=", provider), ("--model=", model)],
    };
    for (option, value) in says {
        let Some(value) = value else { continue };
        // What it was told by its configuration counts no more.
        if let Some(at) = words
            .iter()
            .position(|word| word == option.trim_end_matches('='))
        {
            words.drain(at..(at + 2).min(words.len()));
        }
        words.retain(|word| !word.starts_with(option));
        let prompt = words
            .iter()
            .position(|word| word == "-" || word.contains("{prompt}"));
        let at = match prompt {
            // `-z {prompt}`, `-- {prompt}`: before both.
            Some(at) if at > 1 && words[at - 1].starts_with('-') => at - 1,
            Some(at) => at,
            None => words.len(),
        };
        words.insert(at, format!("{option}{value}"));
    }
    Some(words)
}

/// Does a command of the built-in agent ask the provider that has no model?
fn is_echo(words: &[String]) -> bool {
    let pairs = words.iter().zip(words.iter().skip(1));
    let apart = pairs.filter(|(option, _)| *option == "--provider");
    let mut named = apart.map(|(_, value)| value.as_str()).chain(
        words
            .iter()
            .filter_map(|word| word.strip_prefix("--provider=")),
    );
    named.any(|provider| provider == ECHO)
}

/// Asks on a terminal; elsewhere `--yes` has to say it.
fn may_cost(agent: &str, turns: u32) -> io::Result<bool> {
    let costs = format!("this runs {turns} real turns of `{agent}`, which cost what they cost");
    if !io::stdin().is_terminal() || !output::err_is_terminal() {
        output::error(&costs, Some("say `--yes` if they may"));
        return Ok(false);
    }
    output::err(&format!("{costs}; go on? [y/N] "));
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

struct Bench<'a> {
    agent: AgentRow,
    prompt: String,
    provider: Option<String>,
    model: Option<String>,
    /// Makes the names of its sessions its own.
    mark: String,
    /// Which of its sessions may be there.
    begun: AtomicU32,
    socket: Option<&'a Path>,
}

impl Bench<'_> {
    /// All kinds by turns, so that what the machine does meanwhile is in all of them.
    async fn run(&self, turns: u32) -> io::Result<Result<Times, Exit>> {
        let mut times = Times::default();
        // Brings the agent into use; how long that takes is another question.
        let begun = self.turn(0).await;
        self.close(0).await;
        if let Err(exit) = begun? {
            return Ok(Err(exit));
        }
        for number in 1..=turns {
            if output::err_is_terminal() {
                output::err(&format!("\r{number} of {turns} …"));
            }
            let round = self.round(number, &mut times).await;
            self.close(number).await;
            if let Err(exit) = round? {
                return Ok(Err(exit));
            }
        }
        if output::err_is_terminal() {
            output::err("\r\x1b[K");
        }
        Ok(Ok(times))
    }

    async fn round(&self, number: u32, times: &mut Times) -> io::Result<Result<(), Exit>> {
        if let Some(words) = &self.agent.one_shot {
            match self.one_shot(words, number).await? {
                Ok(took) => times.own.push(took),
                Err(exit) => return Ok(Err(exit)),
            }
        }
        for kind in [&mut times.first, &mut times.second] {
            match self.turn(number).await? {
                Ok(took) => kind.push(took),
                Err(exit) => return Ok(Err(exit)),
            }
        }
        Ok(Ok(()))
    }

    /// A turn as `agentctl send --session` runs one: connected, sent, and waited for.
    async fn turn(&self, number: u32) -> io::Result<Result<f64, Exit>> {
        self.begun.store(number, Ordering::Relaxed);
        let send = Send {
            text: self.prompt.clone(),
            agent: Some(self.agent.name.clone()),
            session: Some(self.session(number)),
            provider: self.provider.clone(),
            model: self.model.clone(),
            cwd: std::env::current_dir()?.to_str().map(str::to_owned),
            on_question: Some(OnQuestion::Deny),
            ..Send::default()
        };
        let send = key::completed(&send)?.into_owned();
        let begun = Instant::now();
        let client = match ask::daemon(self.socket).await {
            Ok(client) => client,
            Err(exit) => return Ok(Err(exit)),
        };
        let ended_as = turn::run(client, &send, &mut Unseen, None).await?;
        let took = ms(begun.elapsed());
        let ended = match &ended_as {
            turn::TurnOutcome::Final(received, _) => received.line.as_ref(),
            turn::TurnOutcome::Left(_)
            | turn::TurnOutcome::Waited(_)
            | turn::TurnOutcome::Failed(..)
            | turn::TurnOutcome::Unwritten(..) => None,
        };
        if ended.is_some_and(|line| exit::of_line(line) == Exit::Done) {
            return Ok(Ok(took));
        }
        Ok(Err(outcome::conclude(
            &ended_as,
            outcome::Again::Send(&send),
        )))
    }

    /// Closes the sessions of those that were killed. One in which a turn runs yet is left to the next.
    async fn close_left(&self) {
        let Ok(mut client) = ask::daemon(self.socket).await else {
            return;
        };
        let sessions = client.session_list().await.unwrap_or_default();
        for row in sessions.iter().filter(|row| is_left(&row.session)) {
            let _stays = client.session_close(&row.session).await;
        }
        client.close().await;
    }

    fn session(&self, number: u32) -> String {
        format!("{NAMED}{}-{number}", self.mark)
    }

    /// Nobody wants the turn that runs, nor its session.
    async fn give_up(&self) {
        if output::err_is_terminal() {
            output::err("\r\x1b[K");
        }
        let session = self.session(self.begun.load(Ordering::Relaxed));
        let abort = Abort {
            session: Some(session.clone()),
            queued: true,
            ..Abort::default()
        };
        let Ok(mut client) = ask::connect(self.socket).await else {
            return;
        };
        // One that doesn't end in time goes on, and is in nobody's way.
        let longest = Instant::now() + ENDS_WITHIN;
        while Instant::now() < longest {
            let _ended = client.answer(RequestKind::Abort, &abort).await;
            match client.session_close(&session).await {
                Err(RequestError::Refused(line)) if line.code == Code::SessionBusy => {}
                Ok(_) | Err(_) => break,
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
        client.close().await;
    }

    /// Nobody needs its session any more. One that stays is in nobody's way.
    async fn close(&self, number: u32) {
        if let Ok(mut client) = ask::daemon(self.socket).await {
            let _stays = client.session_close(&self.session(number)).await;
            client.close().await;
        }
    }

    /// The agent's own command, as a shell would run it.
    async fn one_shot(&self, words: &[String], number: u32) -> io::Result<Result<f64, Exit>> {
        let cwd = std::env::current_dir()?;
        let takes_prompt = words.iter().any(|word| word.contains("{prompt}"));
        let filled: Vec<String> = words
            .iter()
            .map(|word| {
                let word = word.replace("{session}", &format!("{}-own", self.session(number)));
                let word = word.replace("{cwd}", &cwd.to_string_lossy());
                word.replace("{prompt}", &self.prompt)
            })
            .collect();
        let Some((program, arguments)) = filled.split_first() else {
            return Ok(Err(Exit::Failed));
        };
        let begun = Instant::now();
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(if takes_prompt {
                Stdio::null()
            } else {
                Stdio::piped()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // One that doesn't read it says why by its exit.
            let _unread = input.write_all(self.prompt.as_bytes()).await;
        }
        let done = child.wait_with_output().await?;
        let took = ms(begun.elapsed());
        if done.status.success() {
            return Ok(Ok(took));
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let said = &said[..said.floor_char_boundary(SAID)];
        let error = format!(
            "the agent's own command failed with {}: {}",
            done.status,
            render::preview(said)
        );
        let shown = shlex::try_join(filled.iter().map(String::as_str)).unwrap_or_default();
        output::error(&error, Some(&format!("it was `{shown}`")));
        Ok(Err(Exit::Failed))
    }
}

/// Shows nothing: what counts is how long it takes.
struct Unseen;

impl turn::View for Unseen {
    fn line(&mut self, _received: &agentd_client::wire::Received) -> io::Result<()> {
        Ok(())
    }
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0
}

fn shown(times: &Times, style: &Style) -> String {
    let dash = style.dash();
    let own = median(&times.own);
    let kinds = [
        ("its own one-shot command", &times.own, None),
        ("agentd, first turn of a session", &times.first, own),
        ("agentd, second turn", &times.second, own),
    ];
    let rows: Vec<Vec<Cell>> = kinds
        .iter()
        .filter_map(|(what, times, own)| Some(row(what, times, median(times)?, *own, dash)))
        .collect();
    let range = format!("MIN {dash} MAX");
    let mut columns = vec![
        Column::cut("", 12).that_stays(),
        Column::new("MEDIAN").that_stays(),
        Column::new(&range),
    ];
    columns.extend(own.map(|_| Column::new("BESIDE ITS OWN")));
    let mut shown = table(&columns, &rows, style);
    // Where the command itself takes no time there is none to save.
    if let (Some(own), Some(second)) = (own, median(&times.second))
        && second > own * ALIKE
    {
        let _infallible = writeln!(
            shown,
            "This agent starts in {}: the one-shot is as fast, or faster.",
            seconds(own)
        );
    }
    shown
}

fn seconds(ms: f64) -> String {
    match ms < 100.0 {
        // Two digits would be none.
        true => format!("{ms:.1} ms"),
        false => format!("{:.2} s", ms / 1000.0),
    }
}

fn row(what: &str, times: &[f64], middle: f64, own: Option<f64>, dash: &str) -> Vec<Cell> {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    let mut cells: Vec<Cell> = vec![
        what.into(),
        seconds(middle).into(),
        format!("{} {dash} {}", seconds(least), seconds(most)).into(),
    ];
    cells.push(
        own.map_or_else(String::new, |own| beside(middle, own))
            .into(),
    );
    cells
}

/// One time beside that of the own command, in words.
fn beside(ms: f64, own: f64) -> String {
    let faster = own / ms;
    if faster >= 9.95 {
        format!("{faster:.0} times as fast")
    } else if faster > ALIKE {
        format!("{faster:.1} times as fast")
    } else if ms <= own * ALIKE {
        "as fast".to_owned()
    } else {
        // A factor of next to nothing frightens, and says nothing.
        format!("{} more", seconds(ms - own))
    }
}

fn median(times: &[f64]) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests;
