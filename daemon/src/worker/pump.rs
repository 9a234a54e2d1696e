//! One process from its start to its last word: bytes between its pipes and the adapter, events to
//! the owner, commands from it.
//!
//! Owns the order of what is told: everything printed comes before `Exited`. Must not know
//! protocols (the adapter does) nor signals (`reap` does).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agentd_core::effect::StopStage;
use agentd_core::event::Event;
use agentd_core::worker::Exit;
use nix::sys::signal::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::fetch::{Attach, Fetch, Fetched};
use super::reap::{self, Leader};
use super::spawn::{self, Plan, SpawnFailure, Started};
use super::versions::Unready;
use super::worker_io::WorkerIo;
use super::{ProcessCommand, SpawnRecord};
use crate::adapter::Adapter;
use crate::platform::gap;

/// Standard input that takes nothing for this long is stuck: a pipe holds 64 KiB, so the process
/// doesn't read.
const WRITES_WITHIN: Duration = Duration::from_secs(10);
/// A process that closed its pipes has this long to exit before that counts as trouble.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);
/// After the exit, whoever still holds the pipes has this long to let go.
const DRAINS_WITHIN: Duration = Duration::from_secs(2);
/// Read after that time: as much as a pipe can hold when set to the system's default maximum.
const DRAINS_AT_MOST: usize = 1024 * 1024;
/// Bytes of standard output taken at once.
const PORTION: usize = 64 * 1024;
/// Events that wait for room in the owner's inbox before standard output is no longer read.
const WAITING_EVENTS: usize = 64;
/// Answers that wait for standard input before standard output is no longer read: those to a process
/// that asks without listening must not pile up. What it was told unasked doesn't count: a filter
/// writes while it reads, and would wait for us as we for it.
const WAITING_BYTES: usize = 1024 * 1024;

/// Starts a process and stays with it until everything was told.
pub(super) async fn live(
    plan: Plan,
    adapter: Box<dyn Adapter>,
    mut commands: mpsc::Receiver<ProcessCommand>,
    inbox: mpsc::Sender<Event>,
    record: Arc<dyn Fn(SpawnRecord) + Send + Sync>,
    attach: Attach,
    unready: Option<Unready>,
) {
    let (worker, generation) = (plan.worker, plan.generation);
    let mut early = Vec::new();
    // One that hangs at its start is waited for no longer than it is wanted.
    let begun = tokio::select! {
        begun = begin(plan, record) => begun.map_err(|failure| failure.event(worker, generation)),
        () = killed(&mut commands, &mut early) => Err(Event::Exited {
            worker,
            generation,
            exit: Exit::Signal(Signal::SIGKILL as i32),
            tail: String::new(),
        }),
        () = inbox.closed() => return,
    };
    let (leader, mut pipes) = match begun {
        Ok(begun) => begun,
        Err(event) => {
            // An owner that is gone needs no answer.
            let _gone = inbox.send(event).await;
            return;
        }
    };
    let mut voice = WorkerIo::new(worker, generation, adapter);
    voice.post(Event::Spawned {
        worker,
        generation,
        pid: leader.pid(),
    });
    let mut fetch = Fetch::new(attach);
    for command in early {
        obey(Some(command), &mut voice, &mut fetch, &mut pipes, &leader);
    }
    let leader = pump(&mut voice, &mut pipes, leader, &mut commands, &inbox, fetch).await;
    let exit = leader.clear().await;
    // Behind the end of all who could write there: then there is an end to be read to.
    drain(&mut voice, &mut pipes, &inbox).await;
    if let Some(unready) = unready.filter(|_| !voice.was_ready() && !pipes.dismissed) {
        // What follows from its end depends on the answer, unless somebody wants to be rid of it.
        tokio::select! {
            () = told_to_end(&mut commands) => {}
            () = inbox.closed() => {}
            () = unready.learn_why() => {}
        }
    }
    voice.finish(exit);
    flush(&mut voice, &inbox).await;
}

async fn begin(
    mut plan: Plan,
    record: Arc<dyn Fn(SpawnRecord) + Send + Sync>,
) -> Result<(Leader, Pipes), SpawnFailure> {
    failpoint!("before-spawn");
    let (worker, generation) = (plan.worker, plan.generation);
    let session = plan.session.take();
    let note = move |pid| {
        record(SpawnRecord {
            worker,
            generation,
            pid,
            started: reap::started(pid),
            session: session.clone(),
        });
    };
    let text = plan.launch.stdin.take().map(Arc::new);
    let input = match text {
        Some(_) => InputUse::OneText,
        None => InputUse::Commands,
    };
    let started = spawn::start(&plan, text, Arc::new(note)).await?;
    let Started { mut child, group } = started;
    failpoint!("spawned");
    let Some(pid) = child.id() else {
        return Err(SpawnFailure::permanent("the process was gone at once"));
    };
    let pipes = Pipes::of(&mut child, input);
    Ok((Leader::new(child, pid, plan.mark, group), pipes))
}

/// Is standard input for one text, or for commands?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InputUse {
    Commands,
    OneText,
}

struct Pipes {
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    input: InputUse,
    /// Closes standard input when everything was written.
    closing: bool,
    /// Since when bytes wait and none was taken.
    waits: Option<Instant>,
    trouble: Option<(Instant, &'static str)>,
    told: bool,
    /// It was asked to end, and not because it did nothing: that is only killed.
    dismissed: bool,
    /// Is it not read, as the store is behind? What it says waits, and nothing it doesn't do counts:
    /// who can't write may not read.
    paused: bool,
}

impl Pipes {
    fn of(child: &mut Child, input: InputUse) -> Self {
        Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            input,
            closing: false,
            waits: None,
            trouble: None,
            told: false,
            dismissed: false,
            paused: false,
        }
    }

    /// A program that takes one text may close its pipes when it likes.
    fn broke(&mut self, why: &'static str) {
        if self.input == InputUse::Commands && !self.closing && self.trouble.is_none() {
            self.trouble = Some((Instant::now() + LEAVES_WITHIN, why));
        }
    }

    fn wrote(&mut self, voice: &mut WorkerIo, result: io::Result<usize>) {
        match result {
            Ok(taken) => {
                failpoint!("worker-told");
                voice.taken(taken);
                self.waits = None;
            }
            Err(_) => {
                self.stdin = None;
                voice.mute_input();
                self.broke("it closed its standard input");
            }
        }
    }

    fn heard(&mut self, voice: &mut WorkerIo, bytes: &[u8], result: io::Result<usize>) {
        match result {
            Ok(0) | Err(_) => {
                self.stdout = None;
                self.broke("it closed its standard output");
            }
            Ok(read) => voice.heard(&bytes[..read]),
        }
    }

    fn grumbled(&mut self, voice: &mut WorkerIo, bytes: &[u8], result: io::Result<usize>) {
        match result {
            Ok(0) | Err(_) => self.stderr = None,
            Ok(read) => voice.grumbled(&bytes[..read]),
        }
    }

    /// Could we not look when its time was over? Then it has some more.
    fn had_no_time(&mut self) -> bool {
        let now = Instant::now();
        let overdue = |due: Instant| gap::left_after(now.saturating_duration_since(due));
        if let Some((due, _)) = &mut self.trouble {
            return overdue(*due).inspect(|left| *due = now + *left).is_some();
        }
        let Some(since) = &mut self.waits else {
            return false;
        };
        let left = overdue(*since + WRITES_WITHIN);
        left.inspect(|left| *since = now + *left - WRITES_WITHIN)
            .is_some()
    }

    fn stuck_at(&self) -> Option<(Instant, &'static str)> {
        let writing = self.waits.filter(|_| self.stdin.is_some());
        let stalled = writing.map(|since| {
            let why = "its standard input took no bytes for 10 s";
            (since + WRITES_WITHIN, why)
        });
        self.trouble.or(stalled).filter(|_| !self.told)
    }
}

/// Waits for the command to kill it; what is ordered before is kept.
async fn killed(commands: &mut mpsc::Receiver<ProcessCommand>, early: &mut Vec<ProcessCommand>) {
    while let Some(command) = commands.recv().await
        && command != ProcessCommand::End(StopStage::Kill)
    {
        early.push(command);
    }
}

async fn told_to_end(commands: &mut mpsc::Receiver<ProcessCommand>) {
    while let Some(ProcessCommand::Tell(_) | ProcessCommand::Pause(_)) = commands.recv().await {}
}

/// Carries bytes, events and commands until the process is dead.
async fn pump(
    voice: &mut WorkerIo,
    pipes: &mut Pipes,
    mut leader: Leader,
    commands: &mut mpsc::Receiver<ProcessCommand>,
    inbox: &mpsc::Sender<Event>,
    mut fetch: Fetch,
) -> Leader {
    let mut out = vec![0; PORTION];
    let mut err = [0; 4096];
    let mut hearing = true;
    loop {
        if voice.to_write().is_empty() || pipes.paused {
            pipes.waits = None;
        }
        if voice.to_write().is_empty() {
            if pipes.closing {
                pipes.stdin = None;
            }
        } else if !pipes.paused {
            // Not since the last look: an idle process sleeps in the `select!` below.
            pipes.waits.get_or_insert_with(Instant::now);
        }
        let hears = !pipes.paused;
        let listening =
            hears && voice.waiting() < WAITING_EVENTS && voice.answers() < WAITING_BYTES;
        let stuck = pipes.stuck_at();
        tokio::select! {
            command = commands.recv(), if hearing => {
                hearing = command.is_some();
                obey(command, voice, &mut fetch, pipes, &leader);
            }
            fetched = fetch.done() => tell(fetched, voice, &mut fetch),
            () = leader.dead() => return leader,
            // A place first: a send that another branch drops in its middle would take the event
            // along.
            permit = inbox.reserve(), if hears && voice.waiting() > 0 => match permit {
                Ok(permit) => {
                    if let Some(event) = voice.next() {
                        permit.send(event);
                    }
                }
                Err(_) => {
                    voice.mute();
                    leader.kill();
                }
            },
            result = write(&mut pipes.stdin, voice.to_write()), if !voice.to_write().is_empty() => {
                pipes.wrote(voice, result);
            }
            result = read(&mut pipes.stderr, &mut err) => pipes.grumbled(voice, &err, result),
            result = read(&mut pipes.stdout, &mut out), if listening => {
                pipes.heard(voice, &out, result);
            }
            () = at(stuck.map(|(when, _)| when)) => if !pipes.had_no_time() {
                pipes.told = true;
                voice.stuck(stuck.map_or("", |(_, why)| why));
            }
        }
    }
}

fn obey(
    command: Option<ProcessCommand>,
    voice: &mut WorkerIo,
    fetch: &mut Fetch,
    pipes: &mut Pipes,
    leader: &Leader,
) {
    match command {
        Some(ProcessCommand::Tell(command)) => {
            if let Some(command) = fetch.take(command) {
                voice.tell(&command);
            }
        }
        Some(ProcessCommand::End(StopStage::Ask)) => {
            pipes.dismissed = true;
            pipes.closing = true;
        }
        Some(ProcessCommand::End(StopStage::Term)) => {
            pipes.dismissed = true;
            leader.terminate();
        }
        Some(ProcessCommand::Pause(paused)) => pipes.paused = paused,
        // An owner that dropped its end can't end the process in any other way.
        Some(ProcessCommand::End(StopStage::Kill)) | None => leader.kill(),
    }
}

/// What was fetched is told, and what had to wait for it.
fn tell(fetched: Fetched, voice: &mut WorkerIo, fetch: &mut Fetch) {
    match fetched.prompt {
        Ok(prompt) => voice.tell(&prompt),
        Err(ended) => voice.say(ended),
    }
    for command in fetched.behind {
        if let Some(command) = fetch.take(command) {
            voice.tell(&command);
        }
    }
}

async fn read<R: AsyncRead + Unpin>(pipe: &mut Option<R>, buffer: &mut [u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.read(buffer).await,
        None => std::future::pending().await,
    }
}

async fn write(pipe: &mut Option<ChildStdin>, bytes: &[u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.write(bytes).await,
        None => std::future::pending().await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Reads what the dead left in the pipes: to their end, which comes at once unless somebody out
/// of reach still holds them.
async fn drain(voice: &mut WorkerIo, pipes: &mut Pipes, inbox: &mpsc::Sender<Event>) {
    let deadline = Instant::now() + DRAINS_WITHIN;
    let mut out = vec![0; PORTION];
    let mut err = [0; 4096];
    let mut late = 0;
    while (pipes.stdout.is_some() || pipes.stderr.is_some()) && late < DRAINS_AT_MOST {
        let step = async {
            tokio::select! {
                result = read(&mut pipes.stdout, &mut out) => Ok(result),
                result = read(&mut pipes.stderr, &mut err) => Err(result),
            }
        };
        let Ok(result) = timeout_at(deadline, step).await else {
            return;
        };
        if Instant::now() > deadline {
            let (Ok(read) | Err(read)) = &result;
            late += read.as_ref().map_or(0, |read| *read);
        }
        match result {
            Ok(result) => pipes.heard(voice, &out, result),
            Err(result) => pipes.grumbled(voice, &err, result),
        }
        flush(voice, inbox).await;
    }
}

async fn flush(voice: &mut WorkerIo, inbox: &mpsc::Sender<Event>) {
    while let Some(event) = voice.next() {
        if inbox.send(event).await.is_err() {
            voice.mute();
        }
    }
}
