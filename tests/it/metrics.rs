//! How the daemon is, from outside: `status` in every state, within a second, and the text for
//! Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{AGENTCTL, DEADLINE, Daemon, Finished, Place, Reaped, kill, lines};

/// What the text says: each metric's kind, and each series' value.
struct Metrics {
    kinds: BTreeMap<String, String>,
    values: BTreeMap<String, f64>,
}

/// Reads the text format of Prometheus, and refuses what Prometheus would.
fn parse(text: &str) -> Metrics {
    let mut kinds = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut values = BTreeMap::new();
    let mut last = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()) && !help.is_empty(), "{line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "summary"].contains(&kind), "{line}");
            assert!(helped.contains(name), "{line}");
            assert!(
                kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{line}"
            );
            last = name.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let name = series.split('{').next().unwrap();
        let mut chars = name.chars();
        assert!(
            chars.next().is_some_and(|c| c.is_ascii_alphabetic()),
            "{line}"
        );
        assert!(
            chars.all(|c| c.is_ascii_alphanumeric() || c == '_'),
            "{line}"
        );
        let of = |end: &str| kinds[&last] == "summary" && name == format!("{last}{end}");
        assert!(
            name == last || of("_sum") || of("_count"),
            "{line} is below `{last}`"
        );
        if kinds[&last] == "counter" {
            assert!(name.ends_with("_total"), "{line}");
        }
        if let Some(labels) = series
            .strip_prefix(name)
            .filter(|labels| !labels.is_empty())
        {
            check_labels(labels);
        }
        assert!(
            values.insert(series.to_owned(), value).is_none(),
            "{line} is there twice"
        );
    }
    Metrics { kinds, values }
}

fn check_labels(labels: &str) {
    let mut rest = labels.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
    loop {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{labels}"));
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{labels}"
        );
        let mut end = None;
        let mut escaped = false;
        for (at, c) in value.char_indices() {
            match c {
                _ if escaped => {
                    assert!(matches!(c, '\\' | '"' | 'n'), "{labels}");
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let after = &value[end.unwrap_or_else(|| panic!("{labels}")) + 1..];
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => return assert_eq!(after, ""),
        }
    }
}

/// A daemon with turns that went well and turns that didn't.
fn busy() -> Daemon {
    let daemon = Daemon::start();
    for text in ["chaos:say a", "chaos:say b", "chaos:exit 9"] {
        daemon.agentctl(&["send", "--agent", "chaos", "--session", "main", text]);
    }
    daemon.agentctl(&["send", "hello"]);
    daemon.ask(r#"{"prompt":"without a name"}"#);
    // It is started again for its session.
    daemon.until("the worker is back", |status| {
        let workers = status["workers"].as_array()?;
        let of_chaos = workers.iter().find(|row| row["agent"] == "chaos")?;
        (of_chaos["restarts"] == 1 && of_chaos["live"] == true).then_some(())
    });
    daemon
}

#[test]
fn status_tells_each_workers_life_and_turns() {
    let daemon = busy();
    let shown = daemon.agentctl(&["status", "--rpc", "--json"]);
    let status: Value = serde_json::from_str(&shown.stdout).unwrap();
    let rpc = &status["rpc"];
    assert_eq!(rpc["clients"]["agentctl"], 4, "{rpc}");
    assert_eq!(rpc["clients"]["other"], 1, "{rpc}");
    assert_eq!(
        (&rpc["failures"], &rpc["turns"]),
        (&1.into(), &5.into()),
        "{rpc}"
    );
    let workers = status["workers"].as_array().unwrap();
    let of_chaos = workers.iter().find(|row| row["agent"] == "chaos").unwrap();
    assert_eq!(of_chaos["live"], true);
    assert_eq!(
        (&of_chaos["turns"], &of_chaos["failures"]),
        (&3.into(), &1.into()),
        "{of_chaos}"
    );
    assert_eq!(of_chaos["restarts"], 1);
    assert_eq!(of_chaos["last_exit"], "exited with code 9");
    assert!(
        of_chaos["p50_ms"].is_u64() && of_chaos["p95_ms"].is_u64(),
        "{of_chaos}"
    );
    let numbers: BTreeSet<u64> = workers
        .iter()
        .map(|row| row["worker"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers.len(), workers.len());

    let text = daemon.agentctl(&["status", "--rpc"]);
    for said in [
        "a worker lives",
        "clients: agentctl 4, other 1",
        "of chaos, session main: live, idle, pid ",
        "3 ended, 1 failed",
        "last exit   exited with code 9",
    ] {
        assert!(text.stdout.contains(said), "{said}: {}", text.stdout);
    }
}

#[test]
fn metrics_are_readable_and_agree_with_status() {
    let daemon = busy();
    let shown = daemon.agentctl(&["metrics"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let metrics = parse(&shown.stdout);
    let value = |series: &str| {
        let found = metrics.values.get(series).copied();
        found.unwrap_or_else(|| panic!("no {series}: {}", shown.stdout))
    };
    assert_eq!(value("agentd_up"), 1.0);
    assert_eq!(value("agentd_state{state=\"ready\"}"), 1.0);
    assert_eq!(value("agentd_state{state=\"draining\"}"), 0.0);
    assert_eq!(value("agentd_sends_total"), 5.0);
    assert_eq!(value("agentd_failures_total"), 1.0);
    assert_eq!(value("agentd_restarts_total"), 1.0);
    assert_eq!(value("agentd_crashes_total"), 1.0);
    assert_eq!(value("agentd_fallbacks_total"), 0.0);
    assert_eq!(value("agentd_turn_duration_seconds_count"), 5.0);
    assert_eq!(value("agentd_client_jobs_total{client=\"agentctl\"}"), 4.0);
    assert!(value("agentd_turn_duration_seconds{quantile=\"0.95\"}") >= 0.0);
    assert!(value("agentd_resident_memory_bytes") > 1e6);
    assert!(value("agentd_store_bytes") > 0.0);
    assert_eq!(metrics.kinds["agentd_turn_duration_seconds"], "summary");
    let of_chaos: Vec<&String> = metrics
        .values
        .keys()
        .filter(|series| series.starts_with("agentd_worker_") && series.contains("agent=\"chaos\""))
        .collect();
    assert_eq!(of_chaos.len(), 8, "{of_chaos:?}");
    assert!(
        !shown.stdout.contains("main"),
        "the name of a session is in it"
    );
}

#[test]
fn metrics_keep_a_hostile_client_name_one_label() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client.request(r#"{"type":"hello","client":"a\"} 1\nagentd_up 7\\"}"#);
    client.send(r#"{"type":"send","text":"hi"}"#);
    client.last();
    let shown = daemon.agentctl(&["metrics"]);
    let metrics = parse(&shown.stdout);
    assert_eq!(metrics.values["agentd_up"], 1.0);
    let hostile = r#"agentd_client_jobs_total{client="a\"} 1\nagentd_up 7\\"}"#;
    assert_eq!(metrics.values[hostile], 1.0, "{}", shown.stdout);
}

fn all_of(place: &Place, name: &str, code: i32) {
    let within = |finished: Finished| {
        assert_eq!(finished.code, Some(code), "{finished:?}");
        assert!(
            finished.took < Duration::from_secs(1),
            "it took {:?}",
            finished.took
        );
        finished
    };
    for args in [&["status"][..], &["status", "--rpc"]] {
        let told = within(place.agentctl(args));
        assert!(
            told.stderr.starts_with("error: ") && told.stderr.contains("hint: "),
            "{told:?}"
        );
    }
    let told = within(place.agentctl(&["status", "--json"]));
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!((&told["ok"], &told["state"]), (&false.into(), &name.into()));
    let metrics = within(place.agentctl(&["metrics"]));
    assert_eq!(
        parse(&metrics.stdout).values,
        BTreeMap::from([("agentd_up".to_owned(), 0.0)])
    );
}

#[test]
fn health_tells_dead_hanging_and_stopped_daemons_apart() {
    let daemon = Daemon::start();
    kill(daemon.pid(), Signal::SIGSTOP);
    all_of(&daemon.place, "stopped", 71);
    kill(daemon.pid(), Signal::SIGCONT);
    daemon.until("it goes on", |status| {
        (status["state"] == "ready").then_some(())
    });
    let place = daemon.kill();
    all_of(&place, "down", 69);
    // Takes connections, and never says a word.
    std::fs::remove_file(place.socket()).unwrap();
    let _mute = UnixListener::bind(place.socket()).unwrap();
    all_of(&place, "hung", 70);
}

#[test]
fn watch_shows_status_again_of_lost_daemons_too() {
    let daemon = Daemon::start();
    let mut command = daemon.place.command(AGENTCTL);
    command.args(["status", "--watch", "--json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut watching = Reaped(command.spawn().unwrap());
    let lines = lines(watching.0.stdout.take().unwrap());
    let next = || -> Value {
        let line = lines.recv_timeout(DEADLINE).expect("a status");
        serde_json::from_str(&line).unwrap()
    };
    assert_eq!(next()["state"], "ready");
    assert_eq!(next()["state"], "ready");
    let _place = daemon.kill();
    // One that was asked for before may still come.
    let gone = (0..3)
        .map(|_| next())
        .find(|status| status["state"] == "down");
    assert!(gone.is_some());
}

#[test]
fn metrics_count_runs_without_a_daemon() {
    let place = Place::new(&Daemon::config(""));
    for (key, is_new) in [("one", true), ("two", true), ("two", false)] {
        let sent = place.agentctl(&["send", "alone", "--idempotency-key", key]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        // What says that nothing runs isn't preceded by the opposite.
        let said = sent.stderr.contains("nothing is run anew");
        assert_eq!(said, !is_new, "{sent:?}");
        assert!(!sent.stderr.contains("running once"), "{sent:?}");
    }
    let daemon = place.start();
    assert_eq!(daemon.status()["rpc"]["fallbacks"], 2);
    daemon.agentctl(&["send", "together"]);
    assert_eq!(daemon.status()["rpc"]["fallbacks"], 2);
}
