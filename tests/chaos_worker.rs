//! chaos-worker: an agent that misbehaves on request, for tests.
//!
//! It speaks the worker protocol (PROTOCOL.md part 8) on standard input and output. A prompt that
//! begins with `chaos:` is a script of directives separated by `;`; any other prompt is said back.
//! After the script comes the final line with everything said.
//!
//! | directive | what it does |
//! |---|---|
//! | `say TEXT` · `emit N` | says TEXT; says `d0 `, `d1 `, … `dN-1 `, each in a line of its own |
//! | `note TEXT` | tells TEXT as a warning |
//! | `tool rw` · `tool ro` | plays a tool call that may change something, or may not |
//! | `call COMMAND` | begins a tool call with that command, and doesn't end it |
//! | `ledger TEXT` | appends `JOB ATTEMPT SESSION TEXT` to the file `$CHAOS_LEDGER` and syncs it |
//! | `alone PATH` | makes the directory, keeps it for 2 ms and removes it; says so if it was there |
//! | `count` | says how many turns this process served in this session, this one included; with `--resumes` how many the session had |
//! | `given FIELD` | says that field of the send as JSON |
//! | `attached` | says of each attachment its type, its name, how much base64 it is, and its end |
//! | `env` | says the names of its environment variables, one per line, then `cwd=…` |
//! | `sleep-ms N` · `wait-file PATH` | waits; an abort ends the turn at once |
//! | `late MS` | after an abort, the final line comes so much later |
//! | `exit C` · `signal S` | ends the process: exit code, or signal by number or name |
//! | `stop` | stops the process as SIGSTOP does: it is there, and does nothing |
//! | `hang` · `hang-all` | never answers and ignores aborts; the latter stops reading input as well |
//! | `partial` · `partial-exit` | half a line, then silence, or exit code 0 |
//! | `flood MB` · `long-line MB` | so much text in many lines, or in one (not in the final text) |
//! | `junk N` · `utf8bad` | N lines that aren't JSON; a line that isn't UTF-8 |
//! | `stderr-flood KB` | so much on standard error |
//! | `fork-hold` | leaves a child that holds standard output open |
//! | `setsid` | leaves a child in a session of its own, its pid appended to `$CHAOS_PIDS` |
//! | `leave-group` | leaves its process group for that of a child of its |
//! | `thread-only` | leaves a child in a session of its own whose first thread has ended, its pid appended to `$CHAOS_PIDS` |
//! | `ignore-term` | from now on SIGTERM does nothing |
//! | `ask KIND` · `ask-on KIND` | asks its user (options `left`, `right`), waits for the answer and says it; the latter goes on without waiting. `approval SCOPE` says what it is about, and offers a yes of that scope, too |
//! | `steered` | waits for a word to this turn, takes it and says it |
//! | `stale-id` | a final line of a send that nobody made |
//! | `two-finals` · `wrong-session` | two final lines; lines that name another session |
//!
//! Flags: `--no-handshake` (never answers `status`), `--deaf-after-idle` (answers only the first
//! one), `--exit-at-start C`, `--slow-start MS`, `--one-session`, `--concurrent N`, `--resumes DIR`
//! (sessions are kept there and reopened by an id of its own), `--takes` (toolsets and
//! chains), `--no-attachments`, `--models N` (it lists so many), `--deaf-to-models` (it says that it
//! lists them, and doesn't answer).
#![expect(
    clippy::disallowed_methods,
    clippy::exit,
    reason = "misbehaving is its purpose: it sleeps, and exits in the middle of things"
)]

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use serde_json::{Value, json};

#[path = "chaos_worker/flags.rs"]
mod flags;
#[path = "chaos_worker/memory.rs"]
mod memory;
#[path = "chaos_worker/outside.rs"]
mod outside;

use flags::Flags;
use memory::Memory;
use outside::{append, ignore_term, leave_a_thread, leave_group, log, put, put_bytes, silence};

/// How often a gate is looked at: its file is made by a test, which can't ring a bell here.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Text of one line of a flood.
const FLOOD_LINE: usize = 32 * 1024;
const MB: usize = 1024 * 1024;

fn main() {
    let flags = Flags::parse(std::env::args().skip(1));
    if let Some(code) = flags.exit_at_start {
        std::process::exit(code);
    }
    std::thread::sleep(flags.slow_start);
    let world = Arc::new(World {
        memory: flags.resumes.clone().map(Memory),
        ..World::default()
    });
    let mut deaf = flags.no_handshake;
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    loop {
        line.clear();
        let read = input.read_line(&mut line).unwrap_or(0);
        if world.hung.load(Ordering::SeqCst) {
            silence();
        }
        if read == 0 {
            std::process::exit(0);
        }
        let Ok(request) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        match request["type"].as_str() {
            Some("status") if !deaf => {
                deaf = flags.deaf_after_idle;
                put(&flags.status(&request["id"]));
            }
            Some("send") => start(&world, request),
            Some("commands") => put(&json!({"type": "commands", "id": request["id"], "ok": true,
                "commands": [{"name": "say", "description": "Says it", "hint": "words"}]})),
            Some("models") => flags.models(&request).iter().for_each(put),
            Some("answer" | "steer" | "compact") => told(&world, &request),
            Some("abort") => {
                if let Some(turn) = held(&world.turns).get(&request["id"].to_string()) {
                    turn.abort();
                }
            }
            _ => {}
        }
    }
}

/// What the turns of this process share.
#[derive(Default)]
struct World {
    turns: Mutex<BTreeMap<String, Arc<Abort>>>,
    served: Mutex<BTreeMap<String, u64>>,
    /// Answers by question, and words by session, that no turn has taken.
    told: Mutex<BTreeMap<String, Value>>,
    hung: AtomicBool,
    memory: Option<Memory>,
}

/// Was the turn aborted?
#[derive(Default)]
struct Abort {
    asked: Mutex<bool>,
    bell: Condvar,
}

impl Abort {
    fn abort(&self) {
        *held(&self.asked) = true;
        self.bell.notify_all();
    }

    /// Waits; `true` as soon as the turn is aborted.
    fn within(&self, time: Duration) -> bool {
        let asked = held(&self.asked);
        let waited = self.bell.wait_timeout_while(asked, time, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(world: &Arc<World>, send: Value) {
    let world = Arc::clone(world);
    let abort = Arc::new(Abort::default());
    let key = send["id"].to_string();
    held(&world.turns).insert(key.clone(), Arc::clone(&abort));
    std::thread::spawn(move || {
        let session = send["session"].as_str().unwrap_or("").to_owned();
        let served = {
            let mut all = held(&world.served);
            let served = all.entry(session).or_insert(0);
            *served += 1;
            *served
        };
        let mut turn = Turn::new(send, abort, served);
        let lost = !turn.is_remembered(&world);
        let ended = if lost { Ended::Lost } else { turn.play(&world) };
        // Free before the final line is out: the next send may follow at once.
        held(&world.turns).remove(&key);
        turn.end(ended);
    });
}

/// What a turn waits for is put where it looks; a compaction is done at once.
fn told(world: &World, request: &Value) {
    let name = |field: &str| request[field].as_str().unwrap_or("").to_owned();
    match request["type"].as_str() {
        Some("compact") => {
            let summary = format!("short: {}", name("instructions"));
            put(&json!({"type": "compact", "id": request["id"], "ok": true, "summary": summary}));
        }
        Some("answer") => {
            held(&world.told).insert(name("question_id"), request.clone());
        }
        _ => {
            held(&world.told).insert(name("session"), request.clone());
        }
    }
}

/// How a script came to its end.
enum Ended {
    Done,
    Cancelled,
    Failed(String),
    /// There is no such session.
    Lost,
}

struct Turn {
    send: Value,
    abort: Arc<Abort>,
    served: u64,
    session: Option<&'static str>,
    text: String,
    /// Was more said than the final line repeats?
    flooded: bool,
    late: Duration,
    finals: u32,
    calls: u32,
    questions: u32,
}

impl Turn {
    fn new(send: Value, abort: Arc<Abort>, served: u64) -> Self {
        Self {
            send,
            abort,
            served,
            session: None,
            text: String::new(),
            flooded: false,
            late: Duration::ZERO,
            finals: 1,
            calls: 0,
            questions: 0,
        }
    }

    /// Opens the turn's session where sessions are kept, and names it.
    fn is_remembered(&mut self, world: &World) -> bool {
        let Some(memory) = &world.memory else {
            return true;
        };
        let Some((native, turns)) = memory.turn(self.send["native"].as_str()) else {
            return false;
        };
        self.served = turns;
        self.put("session", json!({"native": native}));
        true
    }

    fn play(&mut self, world: &World) -> Ended {
        let prompt = self.send["text"].as_str().unwrap_or("").to_owned();
        let Some(script) = prompt.strip_prefix("chaos:") else {
            self.say(&prompt);
            return Ended::Done;
        };
        for directive in script
            .split(';')
            .map(str::trim)
            .filter(|directive| !directive.is_empty())
        {
            let (name, rest) = directive.split_once(' ').unwrap_or((directive, ""));
            let known = self.ending(name, rest, world)
                || self.leaving(name)
                || self.noise(name, rest)
                || self.conversation(name, rest)
                || self.talk(name, rest);
            if !known {
                return Ended::Failed(format!("chaos-worker has no directive `{directive}`"));
            }
            if self.abort.within(self.pause(name, rest)) {
                return Ended::Cancelled;
            }
            if let Some(wanted) = self.wanted(name) {
                while !self.hears(&wanted, world) {
                    if self.abort.within(LOOK_EVERY) {
                        return Ended::Cancelled;
                    }
                }
            }
            while name == "wait-file" && !Path::new(rest).exists() {
                if self.abort.within(LOOK_EVERY) {
                    return Ended::Cancelled;
                }
            }
        }
        Ended::Done
    }

    fn pause(&self, name: &str, rest: &str) -> Duration {
        let ms = if name == "sleep-ms" { number(rest) } else { 0 };
        Duration::from_millis(ms as u64)
    }

    /// What proper agents do.
    fn talk(&mut self, name: &str, rest: &str) -> bool {
        match name {
            "say" => self.say(rest),
            "emit" => (0..number(rest)).for_each(|n| self.say(&format!("d{n} "))),
            "note" => self.put("note", json!({"level": "warning", "text": rest})),
            "count" => self.say(&self.served.to_string()),
            "given" => self.say(&self.send[rest].to_string()),
            "env" => {
                let mut names: Vec<String> = std::env::vars_os()
                    .map(|(name, _)| name.to_string_lossy().into_owned())
                    .collect();
                names.sort();
                let cwd = std::env::current_dir().unwrap_or_default();
                self.say(&format!("{}\ncwd={}", names.join("\n"), cwd.display()));
            }
            "attached" => self.attached(),
            "tool" => self.tool(rest == "ro"),
            "call" => {
                let input = json!({"command": rest});
                self.put(
                    "tool_start",
                    json!({"tool_call_id": "open", "name": "bash", "input": input}),
                );
            }
            "ledger" => {
                let attempt = &self.send["attempt"];
                let attempt = if attempt.is_null() {
                    "-".to_owned()
                } else {
                    attempt.to_string()
                };
                let word = |name: &str| self.send[name].as_str().unwrap_or("-");
                let (job, session) = (word("job"), word("session"));
                append(
                    "CHAOS_LEDGER",
                    &format!("{job} {attempt} {session} {rest}\n"),
                );
            }
            "alone" => {
                if std::fs::create_dir(rest).is_err() {
                    self.say("not alone");
                }
                std::thread::sleep(Duration::from_millis(2));
                // With two of them in there, one finds it gone.
                let _gone = std::fs::remove_dir(rest);
            }
            "late" => self.late = Duration::from_millis(number(rest) as u64),
            "two-finals" => self.finals = 2,
            "wrong-session" => self.session = Some("not-yours"),
            "sleep-ms" | "wait-file" => {}
            _ => return false,
        }
        true
    }

    /// What needs somebody else.
    fn conversation(&mut self, name: &str, rest: &str) -> bool {
        match name {
            "ask" | "ask-on" => {
                self.questions += 1;
                let question = self.question();
                // A second word is a scope that is offered besides.
                let (kind, scope) = rest.split_once(' ').unwrap_or((rest, ""));
                let mut fields = json!({
                    "question_id": question,
                    "kind": kind,
                    "title": format!("{kind}?"),
                    "options": ["left", "right"],
                });
                if !scope.is_empty() {
                    fields["tool_call_id"] = json!("c1");
                    fields["data"] = json!({"command": "ls"});
                    fields["scopes"] = json!(["once", scope, "a later one"]);
                }
                self.put("question", fields);
            }
            "steered" => {}
            _ => return false,
        }
        true
    }

    fn question(&self) -> String {
        format!(
            "{}-{}",
            self.send["id"].as_str().unwrap_or(""),
            self.questions
        )
    }

    /// Under which name a directive waits for something.
    fn wanted(&self, name: &str) -> Option<String> {
        match name {
            "ask" => Some(self.question()),
            "steered" => Some(self.send["session"].as_str().unwrap_or("").to_owned()),
            _ => None,
        }
    }

    /// Says what was waited for, if it came.
    fn hears(&mut self, wanted: &str, world: &World) -> bool {
        let Some(told) = held(&world.told).remove(wanted) else {
            return false;
        };
        if told["type"] == "steer" {
            put(&json!({"type": "steer", "id": told["id"], "ok": true}));
            self.say(told["text"].as_str().unwrap_or(""));
            return true;
        }
        for name in ["approve", "scope", "choice", "text", "cancel"] {
            if !told[name].is_null() {
                self.say(&format!("{name}={}", told[name]));
            }
        }
        true
    }

    /// What comes back from neither of these.
    fn ending(&self, name: &str, rest: &str, world: &World) -> bool {
        match name {
            "exit" => std::process::exit(i32::try_from(number(rest)).unwrap_or(1)),
            "signal" => {
                let by_number = rest
                    .parse()
                    .ok()
                    .and_then(|n: i32| Signal::try_from(n).ok());
                let signal = by_number
                    .or_else(|| rest.parse().ok())
                    .unwrap_or(Signal::SIGKILL);
                let _gone = raise(signal);
            }
            "stop" => {
                let _continued = raise(Signal::SIGSTOP);
            }
            "hang" => silence(),
            "hang-all" => {
                world.hung.store(true, Ordering::SeqCst);
                silence();
            }
            "partial" => {
                put_bytes(br#"{"type":"message_delta","te"#);
                silence();
            }
            "partial-exit" => {
                put_bytes(br#"{"type":"message_delta","te"#);
                std::process::exit(0);
            }
            _ => return false,
        }
        true
    }

    /// What is left behind.
    fn leaving(&self, name: &str) -> bool {
        match name {
            "fork-hold" => {
                let mut shell = Command::new("sh");
                let _ended = shell
                    .args(["-c", "sleep 300 &"])
                    .stdin(Stdio::null())
                    .status();
            }
            "setsid" => {
                let mut escaped = Command::new("setsid");
                escaped
                    .args(["sleep", "300"])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null());
                match escaped.stderr(Stdio::null()).spawn() {
                    Ok(child) => append("CHAOS_PIDS", &format!("{}\n", child.id())),
                    Err(error) => log(&format!("no setsid: {error}")),
                }
            }
            "ignore-term" => ignore_term(),
            "leave-group" => leave_group(),
            "thread-only" => leave_a_thread(),
            _ => return false,
        }
        true
    }

    /// What nobody asked for.
    fn noise(&mut self, name: &str, rest: &str) -> bool {
        match name {
            "flood" => {
                self.flooded = true;
                let text = "x".repeat(FLOOD_LINE);
                for _ in 0..number(rest) * MB / FLOOD_LINE {
                    self.put("message_delta", json!({"text": text}));
                }
            }
            "long-line" => {
                self.flooded = true;
                self.put(
                    "message_delta",
                    json!({"text": "x".repeat(number(rest) * MB)}),
                );
            }
            "junk" => (0..number(rest)).for_each(|n| put_bytes(format!("junk {n}\n").as_bytes())),
            "utf8bad" => put_bytes(b"{\"type\":\"message_delta\",\"text\":\"\xff\"}\n"),
            "stderr-flood" => (0..number(rest)).for_each(|_| log(&"e".repeat(1023))),
            "stale-id" => put(&json!({"type": "message_end", "id": "t999999999", "text": "stale"})),
            _ => return false,
        }
        true
    }

    fn say(&mut self, text: &str) {
        self.put(
            "message_delta",
            json!({"offset": self.text.len(), "text": text}),
        );
        self.text.push_str(text);
    }

    fn attached(&mut self) {
        for of in self.send["attachments"]
            .as_array()
            .cloned()
            .unwrap_or_default()
        {
            let word = |name: &str| of[name].as_str().unwrap_or("-").to_owned();
            let data = word("data");
            let end = &data[data.len().saturating_sub(8)..];
            self.say(&format!(
                "{} {} {} {end}\n",
                word("mime"),
                word("name"),
                data.len()
            ));
        }
    }

    fn tool(&mut self, read_only: bool) {
        self.calls += 1;
        let call = format!("c{}", self.calls);
        let name = if read_only { "look" } else { "change" };
        self.put(
            "tool_start",
            json!({"tool_call_id": call, "name": name, "input": {}, "read_only": read_only}),
        );
        self.put(
            "tool_end",
            json!({"tool_call_id": call, "ok": true, "output": "done"}),
        );
    }

    fn end(&self, ended: Ended) {
        if matches!(ended, Ended::Cancelled) {
            std::thread::sleep(self.late);
        }
        for _ in 0..self.finals {
            match &ended {
                Ended::Failed(error) => {
                    self.put("error", json!({"code": "invalid-request", "error": error}));
                }
                Ended::Lost => {
                    let error = "there is no such session";
                    self.put("error", json!({"code": "context-lost", "error": error}));
                }
                Ended::Done | Ended::Cancelled => {
                    let cancelled = matches!(ended, Ended::Cancelled);
                    let stop = if cancelled { "cancelled" } else { "end_turn" };
                    let mut fields = json!({"stop": stop});
                    if !self.flooded {
                        fields["text"] = json!(self.text);
                    }
                    self.put("message_end", fields);
                }
            }
        }
    }

    fn put(&self, kind: &str, mut fields: Value) {
        fields["type"] = json!(kind);
        fields["id"] = self.send["id"].clone();
        if let Some(session) = self.session {
            fields["session"] = json!(session);
        }
        put(&fields);
    }
}

fn number(text: &str) -> usize {
    text.trim().parse().unwrap_or(1)
}
