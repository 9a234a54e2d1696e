//! `status` as text for people.
//!
//! Pure: an answer in, text out. Must not know streams, time or the connection.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use agentd_protocol::line::{
    DaemonState, MemoryFacts, RpcFacts, StatusAnswer, WorkerRow, WorkerState,
};

use super::{kept, preview, size, span};
use crate::output::{counted, safe};
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::{Cell, Column, table, wrapped};

/// Facts under each other, each in as many rows as it takes.
struct StatusFacts<'a> {
    text: String,
    style: &'a Style,
}

impl StatusFacts<'_> {
    fn add(&mut self, label: &str, fact: &str) {
        let line = format!("{label:<9}{fact}");
        self.text.push_str(&wrapped(&line, "         ", self.style));
        self.text.push('\n');
    }
}

/// `status` for people.
#[must_use]
pub fn status(answer: &StatusAnswer, style: &Style) -> String {
    let text = String::new();
    let mut facts = StatusFacts { text, style };
    let daemon = &answer.daemon;
    let (state, tone) = match answer.state {
        DaemonState::Ready => ("ready", Tone::Good),
        DaemonState::Degraded => ("degraded", Tone::Bad),
        DaemonState::Draining => ("draining", Tone::Waits),
    };
    let rss = daemon
        .rss_bytes
        .map_or_else(String::new, |bytes| format!(", {}", size(bytes)));
    let files = match (daemon.open_files, daemon.file_limit) {
        (Some(open), Some(limit)) => format!(", {open} of {limit} files open"),
        _ => String::new(),
    };
    let (version, pid, up) = (safe(&daemon.version), daemon.pid, span(daemon.uptime_s));
    let running = format!("{state}, version {version}, pid {pid}, up {up}{rss}{files}");
    facts.add("daemon", &running);
    about_turns(&mut facts, &answer.rpc);
    if let Some(spares) = kept::spares(answer) {
        facts.add("spares", &spares);
    }
    if let Some(config) = kept::config(answer) {
        facts.add("config", &config);
    }
    if !answer.rpc.clients.is_empty() {
        facts.add("clients", &clients(&answer.rpc.clients));
    }
    let store = &answer.store;
    let (jobs, events) = (counted(store.jobs, "job"), counted(store.events, "event"));
    let (bytes, log) = (size(store.bytes), size(store.wal_bytes));
    facts.add("store", &format!("{jobs}, {events}, {bytes} + {log} log"));
    for (name, budget) in answer.memory.iter().flat_map(MemoryFacts::budgets) {
        // What is far from its limit is of no interest here.
        if budget.bytes > budget.limit / 4 {
            let (bytes, limit) = (size(budget.bytes), size(budget.limit));
            facts.add("memory", &format!("{name}: {bytes} of {limit}"));
        }
    }
    match answer.questions {
        0 => {}
        open => facts.add("waiting", &counted(open, "open question")),
    }
    let details = wrapped(&safe(&answer.details), "", style);
    let mut shown = format!("{}\n{}", style.paint(tone, &details), facts.text);
    let workers = answer.workers.as_deref().unwrap_or_default();
    if !workers.is_empty() {
        shown.push('\n');
        shown.push_str(&worker_table(workers, style));
    }
    shown
}

fn about_turns(facts: &mut StatusFacts<'_>, rpc: &RpcFacts) {
    let times = match (rpc.p50_ms, rpc.p95_ms) {
        (Some(p50), Some(p95)) => format!(", p50 {p50} ms, p95 {p95} ms"),
        _ => String::new(),
    };
    let (in_flight, sent, failed) = (rpc.in_flight, rpc.sends, rpc.failures);
    // Not `fallbacks`: those of a turn are models.
    let alone = match rpc.fallbacks {
        0 => String::new(),
        runs => format!(", {runs} without a daemon before it started"),
    };
    let restarts = counted(rpc.restarts, "restart");
    let later = scheduled(rpc.scheduled);
    let turns = format!(
        "{in_flight} in flight{later}, {sent} sent, {failed} failed{alone}, {restarts}{times}"
    );
    facts.add("turns", &turns);
    if let Some(crashes) = crashes(rpc) {
        facts.add("crashes", &crashes);
    }
    if rpc.pool_hits + rpc.pool_misses > 0 {
        let hits = counted(rpc.pool_hits, "hit");
        let misses = match rpc.pool_misses {
            1 => "1 miss".to_owned(),
            misses => format!("{misses} misses"),
        };
        facts.add("pool", &format!("{hits}, {misses}"));
    }
}

fn worker_table(workers: &[WorkerRow], style: &Style) -> String {
    let columns = [
        Column::cut("AGENT", 8).that_stays(),
        Column::cut("SESSION", 8).that_stays(),
        Column::new("STATE").that_stays(),
        Column::new("PID"),
        Column::new("UP"),
        Column::new("RESTARTS"),
        Column::new("QUEUED"),
        Column::cut("LAST ERROR", 16),
    ];
    let rows: Vec<Vec<Cell>> = workers.iter().map(worker).collect();
    table(&columns, &rows, style)
}

/// The last process that crashed.
fn crashes(rpc: &RpcFacts) -> Option<String> {
    let last = rpc.last_crashes.first()?;
    let (agent, error, at) = (safe(&last.agent), preview(&last.error), safe(&last.at));
    Some(format!(
        "{}, the last at {at}: `{agent}` {error}",
        rpc.crashes
    ))
}

fn worker(row: &WorkerRow) -> Vec<Cell> {
    let tone = match row.state {
        WorkerState::Busy | WorkerState::Starting | WorkerState::Settling => Tone::Busy,
        WorkerState::Idle | WorkerState::Stopping => Tone::Plain,
        WorkerState::Backoff => Tone::Waits,
        WorkerState::CrashLooped | WorkerState::Failed => Tone::Bad,
    };
    let last = row.last_error.as_ref().or(row.last_exit.as_ref());
    vec![
        row.agent.as_str().into(),
        row.session.as_deref().unwrap_or("-").into(),
        Cell::toned(worker_state(row.state), tone),
        row.pid
            .map_or_else(|| "-".to_owned(), |pid| pid.to_string())
            .into(),
        span(row.uptime_s).into(),
        row.restarts.to_string().into(),
        row.queued.to_string().into(),
        last.map_or_else(|| "-".to_owned(), |text| preview(text))
            .into(),
    ]
}

const fn worker_state(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Starting => "starting",
        WorkerState::Idle => "idle",
        WorkerState::Busy => "busy",
        WorkerState::Settling => "settling",
        WorkerState::Backoff => "backoff",
        WorkerState::Stopping => "stopping",
        WorkerState::CrashLooped => "crash-looped",
        WorkerState::Failed => "failed",
    }
}

/// Those whose time to start has not come wait for nothing else.
fn scheduled(count: u64) -> String {
    match count {
        0 => String::new(),
        count => format!(", {count} for later"),
    }
}

/// `status --rpc` for people: everything about the workers.
#[must_use]
pub fn status_rpc(answer: &StatusAnswer) -> String {
    let rpc = &answer.rpc;
    let live = if rpc.live {
        "a worker lives"
    } else {
        "no worker lives"
    };
    let mut shown = format!(
        "{live}, {} in flight, {} waiting{}, {}\n",
        counted(rpc.in_flight, "turn"),
        rpc.queued,
        scheduled(rpc.scheduled),
        counted(rpc.restarts, "restart")
    );
    let _ = writeln!(
        shown,
        "{} sent, {} failed, p50 {}, p95 {}, {}",
        rpc.sends,
        rpc.failures,
        ms(rpc.p50_ms),
        ms(rpc.p95_ms),
        counted(rpc.fallbacks, "fallback")
    );
    let (hits, misses) = (counted(rpc.pool_hits, "turn"), rpc.pool_misses);
    let _ = writeln!(
        shown,
        "{hits} began in a process that was there, {misses} had to wait for one"
    );
    if !rpc.clients.is_empty() {
        let _ = writeln!(shown, "clients: {}", clients(&rpc.clients));
    }
    let workers = answer.workers.as_deref().unwrap_or_default();
    for row in workers {
        shown.push('\n');
        shown.push_str(&worker_rpc(row));
    }
    shown
}

/// One worker with everything that is known of it.
fn worker_rpc(row: &WorkerRow) -> String {
    let live = if row.live { "live" } else { "not live" };
    let of = match &row.session {
        Some(session) => format!(", session {}", safe(session)),
        None => String::new(),
    };
    let mut shown = format!(
        "worker {} of {}{of}: {live}, {}",
        row.worker,
        safe(&row.agent),
        worker_state(row.state)
    );
    if let Some(pid) = row.pid {
        let _ = write!(shown, ", pid {pid}, up {}", span(row.uptime_s));
    }
    let _ = write!(
        shown,
        "\n  turns       {} in flight, {} waiting, {} ended, {} failed, p50 {}, p95 {}\
         \n  restarts    {}\n",
        row.in_flight,
        row.queued,
        row.turns,
        row.failures,
        ms(row.p50_ms),
        ms(row.p95_ms),
        row.restarts
    );
    for (name, text) in [
        ("last exit ", &row.last_exit),
        ("last error", &row.last_error),
        ("last ok   ", &row.last_ok_at),
    ] {
        if let Some(text) = text {
            let _ = writeln!(shown, "  {name}  {}", preview(text));
        }
    }
    shown
}

fn ms(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"))
}

fn clients(counts: &BTreeMap<String, u64>) -> String {
    let shown: Vec<String> = counts
        .iter()
        .map(|(client, jobs)| format!("{} {jobs}", safe(client)))
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::Line;

    const STATUS: &str = r#"{"type":"status","ok":true,"details":"ready, 1 worker","state":"ready","daemon":{"version":"0.1.0","pid":7,"uptime_s":3720,"epoch":"e","rss_bytes":10485760},"rpc":{"live":true,"in_flight":1,"sends":3,"failures":0,"fallbacks":0,"restarts":2,"p50_ms":4,"p95_ms":9,"clients":{"nc\u001b":1}},"workers":[{"worker":3,"live":true,"turns":7,"agent":"pi","session":"main","state":"busy","pid":9,"generation":1,"restarts":2,"last_exit":null,"last_error":"bad\u001b[2J","uptime_s":5,"in_flight":1,"queued":0,"last_ok_at":null}],"store":{"jobs":3,"events":12,"bytes":4096,"wal_bytes":0},"questions":0}"#;

    #[test]
    fn status_is_a_sentence_facts_and_a_table() {
        let Line::Status(answer) = serde_json::from_str(STATUS).unwrap() else {
            panic!("not a status");
        };
        assert_eq!(
            status(&answer, &Style::PLAIN),
            "\
ready, 1 worker
daemon   ready, version 0.1.0, pid 7, up 1 h 2 min, 10.0 MiB
turns    1 in flight, 3 sent, 0 failed, 2 restarts, p50 4 ms, p95 9 ms
clients  nc\\u{1b} 1
store    3 jobs, 12 events, 4.0 KiB + 0 B log

AGENT  SESSION  STATE  PID  UP   RESTARTS  QUEUED  LAST ERROR
pi     main     busy   9    5 s  2         0       bad\\u{1b}[2J
"
        );
        assert_eq!(
            status_rpc(&answer),
            "\
a worker lives, 1 turn in flight, 0 waiting, 2 restarts
3 sent, 0 failed, p50 4 ms, p95 9 ms, 0 fallbacks
0 turns began in a process that was there, 0 had to wait for one
clients: nc\\u{1b} 1

worker 3 of pi, session main: live, busy, pid 9, up 5 s
  turns       1 in flight, 0 waiting, 7 ended, 0 failed, p50 -, p95 -
  restarts    2
  last error  bad\\u{1b}[2J
"
        );
    }
}
