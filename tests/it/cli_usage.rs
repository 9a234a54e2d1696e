//! What turns used, and how warm the processes were that they began in.

use serde_json::Value;

use crate::support::Daemon;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

#[test]
fn turns_are_added_up_by_whatever_is_asked() {
    let daemon = Daemon::start();
    let send = |words: &[&str]| {
        let sent = daemon
            .place
            .agentctl(&[&["send", "--json"], words].concat());
        assert!(!sent.stdout.is_empty(), "{sent:?}");
    };
    let none = daemon.place.agentctl(&["usage"]);
    assert_eq!(none.stdout, "no turn has ended\n");
    send(&["--agent", "timmy", "one"]);
    send(&["--agent", "timmy", "[[error=rate-limit]]"]);
    send(&["--agent", "chaos", "three"]);

    let shown = daemon.place.agentctl(&["usage"]);
    let mut lines = shown.stdout.lines();
    let head = lines.next().unwrap();
    assert!(head.starts_with("3 turns, 1 failed"), "{shown:?}");
    // Two said the prompt back, and nobody knows what the third asked.
    let share = lines.next().unwrap();
    assert_eq!(share, "served by local models: not known of any turn");
    assert!(shown.stdout.contains("echo"), "{shown:?}");
    assert!(shown.stdout.contains("(not told)"), "{shown:?}");

    let by_agent = json(
        &daemon
            .place
            .agentctl(&["usage", "--by", "agent", "--json"])
            .stdout,
    );
    assert_eq!(by_agent["by"], "agent");
    assert_eq!(by_agent["total"]["turns"], 3);
    assert_eq!(by_agent["sums"][0]["name"], "timmy");
    assert_eq!(by_agent["sums"][0]["sum"]["failed"], 1);
    assert_eq!(by_agent["sums"][1]["sum"]["cost_unknown"], 1);

    let csv = daemon
        .place
        .agentctl(&["usage", "--by", "model", "--csv"])
        .stdout;
    assert!(csv.starts_with("model,turns,failed,"), "{csv}");
    assert!(csv.contains("\necho/scripted,2,1,0,0,0,"), "{csv}");
    let days = json(
        &daemon
            .place
            .agentctl(&["usage", "--by", "day", "--json"])
            .stdout,
    );
    let day = days["sums"][0]["name"].as_str().unwrap();
    assert_eq!(day.len(), "2026-11-22".len());
    let both = daemon
        .place
        .agentctl(&["usage", "--by", "day,agent", "--json"]);
    let both = json(&both.stdout);
    assert_eq!(both["by"], "day,agent");
    assert_eq!(both["sums"][1]["name"], format!("{day}, timmy"));
    assert_eq!(both["sums"][1]["sum"]["turns"], 2);
    let later = daemon.place.agentctl(&["usage", "--since", "0s"]);
    assert_eq!(later.stdout, "no turn has ended\n");
}

#[test]
fn usage_counts_warm_processes_as_hits() {
    // Of those that are started before they are needed it isn't known when they are there.
    let daemon = Daemon::with("warm = 0\n");
    let pool = || {
        let rpc = json(&daemon.place.agentctl(&["status", "--json"]).stdout)["rpc"].clone();
        (
            rpc["pool_hits"].as_u64().unwrap(),
            rpc["pool_misses"].as_u64().unwrap(),
        )
    };
    assert_eq!(pool(), (0, 0));
    for text in ["one", "two", "three"] {
        daemon.place.agentctl(&["send", "--agent", "timmy", text]);
    }
    assert_eq!(pool(), (2, 1));
    let shown = daemon.place.agentctl(&["status"]).stdout;
    assert!(shown.contains("pool     2 hits, 1 miss\n"), "{shown}");
    let metrics = daemon.place.agentctl(&["metrics"]).stdout;
    assert!(
        metrics.contains("\nagentd_pool_hits_total 2\n"),
        "{metrics}"
    );
    // The dead process is replaced for the next turn.
    daemon
        .place
        .agentctl(&["send", "--agent", "chaos", "chaos:exit 9"]);
    daemon.place.agentctl(&["send", "--agent", "chaos", "four"]);
    assert_eq!(pool(), (2, 3));
}
