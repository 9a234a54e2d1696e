//! A status in the text format of Prometheus (version 0.0.4).
//!
//! Pure: a status in, text out. Owns the names of the metrics, which never change their meaning.
//! Names of sessions and prompts are in none.

use std::fmt::{Display, Write as _};

use agentd_protocol::line::{Budget, DaemonState, MemoryFacts, StatusAnswer, WorkerRow};

/// A text under construction.
#[derive(Default)]
struct MetricsText(String);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl MetricsText {
    /// Begins a metric.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One value of the metric that was begun, or of `{name}_sum` and `{name}_count`.
    fn value(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.0.push_str(name);
        for (number, (label, text)) in labels.iter().enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            let _infallible = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _infallible = writeln!(self.0, " {value}");
    }

    /// A metric with one value.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.value(name, &[], value);
    }
}

fn escaped(text: &str) -> String {
    // The backslash first: those that come with the others are no part of the text.
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Milliseconds as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A float would lose the last digits of a sum that has grown large.
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

const UP: &str = "Whether the daemon answers.";

/// When the daemon gives no status.
#[must_use]
pub fn down() -> String {
    let mut text = MetricsText::default();
    text.single("agentd_up", "gauge", UP, 0);
    text.0
}

/// A status.
#[must_use]
pub fn text(answer: &StatusAnswer) -> String {
    let mut text = MetricsText::default();
    text.single("agentd_up", "gauge", UP, 1);
    daemon(&mut text, answer);
    turns(&mut text, answer);
    store(&mut text, answer);
    workers(&mut text, answer.workers.as_deref().unwrap_or_default());
    text.0
}

fn daemon(text: &mut MetricsText, answer: &StatusAnswer) {
    let daemon = &answer.daemon;
    text.metric("agentd_info", "gauge", "The daemon's version.");
    text.value("agentd_info", &[("version", &daemon.version)], 1);
    text.metric("agentd_state", "gauge", "1 for the state it is in.");
    for (name, state) in [
        ("ready", DaemonState::Ready),
        ("degraded", DaemonState::Degraded),
        ("draining", DaemonState::Draining),
    ] {
        let value = u8::from(answer.state == state);
        text.value("agentd_state", &[("state", name)], value);
    }
    let help = "Seconds since the daemon's start.";
    text.single("agentd_uptime_seconds", "gauge", help, daemon.uptime_s);
    if let Some(bytes) = daemon.rss_bytes {
        let name = "agentd_resident_memory_bytes";
        text.single(name, "gauge", "Memory of the daemon itself.", bytes);
    }
    if let (Some(open), Some(limit)) = (daemon.open_files, daemon.file_limit) {
        let help = "Files that the daemon has open: each connection is one.";
        text.single("agentd_open_files", "gauge", help, open);
        let help = "Files that the daemon may have open.";
        text.single("agentd_open_files_limit", "gauge", help, limit);
    }
}

fn turns(text: &mut MetricsText, answer: &StatusAnswer) {
    let rpc = &answer.rpc;
    for (name, kind, help, value) in [
        (
            "agentd_sends_total",
            "counter",
            "Turns that were asked for.",
            rpc.sends,
        ),
        (
            "agentd_failures_total",
            "counter",
            "Turns that failed.",
            rpc.failures,
        ),
        (
            "agentd_fallbacks_total",
            "counter",
            "Runs without the daemon, up to its start.",
            rpc.fallbacks,
        ),
        (
            "agentd_restarts_total",
            "counter",
            "Workers that were started again.",
            rpc.restarts,
        ),
        (
            "agentd_crashes_total",
            "counter",
            "Processes of agents that died unasked, never came up or hung.",
            rpc.crashes,
        ),
        (
            "agentd_pool_hits_total",
            "counter",
            "Turns that began in a process that was there already.",
            rpc.pool_hits,
        ),
        (
            "agentd_pool_misses_total",
            "counter",
            "Turns for which a process had to be started.",
            rpc.pool_misses,
        ),
        (
            "agentd_turns_in_flight",
            "gauge",
            "Turns that run.",
            rpc.in_flight,
        ),
        (
            "agentd_turns_queued",
            "gauge",
            "Turns that wait.",
            rpc.queued,
        ),
        (
            "agentd_questions_open",
            "gauge",
            "Questions of agents that nobody answered yet.",
            answer.questions,
        ),
    ] {
        text.single(name, kind, help, value);
    }
    let name = "agentd_turn_duration_seconds";
    let help = "How long turns ran; quantiles are of the last 256.";
    text.metric(name, "summary", help);
    quantiles(text, name, &[], rpc.p50_ms, rpc.p95_ms);
    text.value(&format!("{name}_sum"), &[], Seconds(rpc.turns_ms));
    text.value(&format!("{name}_count"), &[], rpc.turns);
    let name = "agentd_client_jobs_total";
    text.metric(
        name,
        "counter",
        "New jobs by what their client calls itself.",
    );
    for (client, jobs) in &rpc.clients {
        text.value(name, &[("client", client)], jobs);
    }
}

fn quantiles(
    text: &mut MetricsText,
    name: &str,
    labels: Labels<'_>,
    p50: Option<u64>,
    p95: Option<u64>,
) {
    for (quantile, ms) in [("0.5", p50), ("0.95", p95)] {
        if let Some(ms) = ms {
            let labels = [labels, &[("quantile", quantile)]].concat();
            text.value(name, &labels, Seconds(ms));
        }
    }
}

fn store(text: &mut MetricsText, answer: &StatusAnswer) {
    let store = &answer.store;
    for (name, help, value) in [
        ("agentd_store_jobs", "Jobs in the store.", store.jobs),
        (
            "agentd_store_last_seq",
            "Number of the last event.",
            store.events,
        ),
        ("agentd_store_bytes", "Size of the database.", store.bytes),
        (
            "agentd_store_wal_bytes",
            "Size of its write-ahead log.",
            store.wal_bytes,
        ),
    ] {
        text.single(name, "gauge", help, value);
    }
    let budgets = answer.memory.iter().flat_map(MemoryFacts::budgets);
    let budgets: Vec<_> = budgets.collect();
    type Of = fn(&Budget) -> u64;
    let metrics: [(&str, &str, Of); 2] = [
        (
            "agentd_memory_held_bytes",
            "Memory that is held for others.",
            |budget| budget.bytes,
        ),
        (
            "agentd_memory_limit_bytes",
            "As much of it as may be held.",
            |budget| budget.limit,
        ),
    ];
    for (metric, help, of) in metrics.into_iter().filter(|_| !budgets.is_empty()) {
        text.metric(metric, "gauge", help);
        for (name, budget) in &budgets {
            text.value(metric, &[("of", name)], of(budget));
        }
    }
}

fn workers(text: &mut MetricsText, rows: &[WorkerRow]) {
    type Value = fn(&WorkerRow) -> u64;
    let metrics: [(&str, &str, &str, Value); 6] = [
        (
            "agentd_worker_up",
            "gauge",
            "Whether the process lives.",
            |row| u64::from(row.live),
        ),
        (
            "agentd_worker_restarts_total",
            "counter",
            "How often it was started again.",
            |row| row.restarts,
        ),
        (
            "agentd_worker_turns_in_flight",
            "gauge",
            "Turns that it runs.",
            |row| row.in_flight,
        ),
        (
            "agentd_worker_turns_queued",
            "gauge",
            "Turns that wait for it.",
            |row| row.queued,
        ),
        (
            "agentd_worker_turns_total",
            "counter",
            "Turns that ended in it.",
            |row| row.turns,
        ),
        (
            "agentd_worker_failures_total",
            "counter",
            "Turns that failed in it.",
            |row| row.failures,
        ),
    ];
    let numbered: Vec<(String, &WorkerRow)> = rows
        .iter()
        .map(|row| (row.worker.to_string(), row))
        .collect();
    for (name, kind, help, value) in metrics {
        text.metric(name, kind, help);
        for (worker, row) in &numbered {
            let labels = [("worker", worker.as_str()), ("agent", &row.agent)];
            text.value(name, &labels, value(row));
        }
    }
    let name = "agentd_worker_turn_duration_seconds";
    text.metric(
        name,
        "summary",
        "How long its turns ran; quantiles are of the last 64.",
    );
    for (worker, row) in &numbered {
        let labels = [("worker", worker.as_str()), ("agent", &row.agent)];
        quantiles(text, name, &labels, row.p50_ms, row.p95_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_seconds_have_their_milliseconds() {
        let mut text = MetricsText::default();
        text.value("m", &[("a", "x\"y\\z\n"), ("b", "")], Seconds(1_002));
        assert_eq!(text.0, "m{a=\"x\\\"y\\\\z\\n\",b=\"\"} 1.002\n");
    }
}
