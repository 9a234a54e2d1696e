//! What goes wrong around an installed service, and that it is there again afterwards.

use std::process::Stdio;

use super::*;
use crate::support::Reaped;

#[test]
fn service_socket_is_left_alone_by_other_daemons() {
    let Some(machine) = machine("trouble::service_socket_is_left_alone_by_other_daemons") else {
        return;
    };
    let machine = machine.installed();
    agentctl(&["stop"]);
    let refused = run("agentd", &[]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("service manager"), "{refused:?}");
    assert_eq!(machine.serving_pid(), u64::from(machine.pid()));
    // The service is the daemon of the machine: it is started and restarted through its manager.
    let restarted = run("agentctl", &["restart"]);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    assert_eq!(machine.serving_pid(), u64::from(machine.pid()));
    let stopped = run("agentctl", &["stop"]);
    assert!(stopped.stderr.contains("service stop"), "{stopped:?}");
    agentctl(&["service", "stop"]);
    let started = run("agentctl", &["start"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    assert_eq!(machine.serving_pid(), u64::from(machine.pid()));
    // A configuration that is changed counts for the one that serves.
    let said = run("agentctl", &["agents", "default", "chaos"]);
    assert!(said.stderr.is_empty(), "{said:?}");
    let sent = run("agentctl", &["send", "chaos:say by chaos"]);
    assert_eq!(sent.stdout.trim(), "by chaos", "{sent:?}");
}

#[test]
fn service_restart_with_a_broken_config_is_refused() {
    let name = "trouble::service_restart_with_a_broken_config_is_refused";
    let Some(machine) = machine(name) else {
        return;
    };
    let machine = machine.installed();
    let pid = machine.pid();
    let file = home().join(".config/agentd/config.toml");
    fs::write(&file, "no_such = 1\n").unwrap();
    for words in [&["restart"][..], &["service", "restart"]] {
        let refused = run("agentctl", words);
        assert_eq!(refused.code, Some(78), "{refused:?}");
        for part in ["config.toml:1", "goes on with the configuration it has"] {
            assert!(refused.stderr.contains(part), "{part}: {refused:?}");
        }
        assert_eq!(machine.serving_pid(), u64::from(pid));
    }
    fs::write(&file, CONFIG).unwrap();
    agentctl(&["restart"]);
    assert_ne!(machine.serving_pid(), u64::from(pid));
}

#[test]
fn service_socket_taken_away_is_named_and_remade() {
    let Some(machine) = machine("trouble::service_socket_taken_away_is_named_and_remade") else {
        return;
    };
    let machine = machine.installed();
    for mends in [
        ["service", "restart"],
        ["service", "start"],
        ["service", "install"],
    ] {
        let pid = machine.pid();
        fs::remove_file(machine.socket()).unwrap();
        let status = run("agentctl", &["status"]);
        assert_eq!(status.code, Some(69), "{status:?}");
        let named = format!("(pid {pid}) runs, and its socket");
        assert!(status.stderr.contains(&named), "{status:?}");
        assert!(status.stderr.contains("service restart"), "{status:?}");
        let looked = run("agentctl", &["doctor"]);
        assert!(looked.stdout.contains(&named), "{looked:?}");
        let shown = agentctl(&["service", "start", "--dry-run"]);
        assert!(shown.contains("stop agentd.socket"), "{shown}");
        agentctl(&mends);
        assert_eq!(machine.serving_pid(), u64::from(machine.pid()));
    }
    systemctl(&["stop", "agentd.service"]);
    agentctl(&["service", "install", "--dry-run"]);
    assert_eq!(machine.pid(), 0, "what is only shown starts nothing");
    // Another one in its place leads nowhere either.
    fs::remove_file(machine.socket()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(machine.socket()).unwrap());
    agentctl(&["service", "restart"]);
    assert_eq!(machine.serving_pid(), u64::from(machine.pid()));
}

#[test]
fn service_serves_who_waits_when_configuration_is_mended() {
    let Some(machine) = machine("trouble::service_serves_who_waits_when_configuration_is_mended")
    else {
        return;
    };
    let machine = machine.installed();
    systemctl(&["stop", "agentd.service"]);
    let config = home().join(".config/agentd/config.toml");
    fs::write(&config, "default_agent = [\n").unwrap();
    let socket = machine.socket();
    let waits = std::thread::spawn(move || ask(&socket, r#"{"type":"ping"}"#));
    // In microseconds; the first one is of before.
    let mut starts = BTreeSet::new();
    wait_for("it was tried more than once", || {
        let at = property("agentd.service", "ExecMainStartTimestampMonotonic");
        starts.insert(at.parse::<u64>().unwrap());
        (starts.len() > 3).then_some(())
    });
    let starts: Vec<u64> = starts.into_iter().skip(1).collect();
    let apart = starts.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(apart.min() > Some(3_000_000), "{starts:?}");
    assert_eq!(property("agentd.socket", "ActiveState"), "active");
    fs::write(&config, CONFIG).unwrap();
    let answer = waits.join().unwrap().unwrap();
    assert!(answer.contains("pong"), "{answer}");
    assert_eq!(property("agentd.service", "ActiveState"), "active");
}

#[test]
fn service_restart_killed_while_waiting_changes_nothing() {
    let Some(machine) = machine("trouble::service_restart_killed_while_waiting_changes_nothing")
    else {
        return;
    };
    let machine = machine.installed();
    let gate = home().join("gate");
    let prompt = format!("chaos:wait-file {};say done", gate.display());
    let running = agentctl(&["dispatch", "--agent", "chaos", &prompt]);
    let pid = machine.pid();
    let state = || machine.ask(r#"{"type":"status"}"#)["state"].clone();
    let mut restart = Command::new("agentctl");
    let restart = restart.args(["service", "restart"]).stdout(Stdio::null());
    let restart = Reaped(restart.spawn().unwrap());
    wait_for("no turn starts any more", || {
        (state() == "draining").then_some(())
    });
    kill(restart.0.id(), Signal::SIGKILL);
    wait_for("turns start again", || (state() == "ready").then_some(()));
    let said = agentctl(&["send", "--agent", "timmy", "later"]);
    assert!(said.contains("later"), "{said}");
    fs::write(&gate, "").unwrap();
    assert!(agentctl(&["collect", running.trim()]).contains("done"));
    assert_eq!(machine.pid(), pid);
}

#[test]
fn service_restarts_at_once_go_one_by_one() {
    let Some(machine) = machine("trouble::service_restarts_at_once_go_one_by_one") else {
        return;
    };
    let machine = machine.installed();
    for _ in 0..4 {
        let restarts: Vec<_> = (0..3)
            .map(|_| std::thread::spawn(|| run("agentctl", &["service", "restart"])))
            .collect();
        for restart in restarts {
            let done = restart.join().unwrap();
            assert_eq!(done.code, Some(0), "{done:?}");
        }
        assert_eq!(machine.serving_pid(), u64::from(machine.pid()));
    }
}

#[test]
fn speech_for_another_daemon_waits_for_it() {
    let Some(machine) = machine("trouble::speech_for_another_daemon_waits_for_it") else {
        return;
    };
    let socket = home().join("s/a.sock");
    let socket = socket.to_str().unwrap();
    let there = |args: &[&str], input: &str| {
        let mut command = Command::new("agentctl");
        command.args(args).env("AGENTD_SOCKET", socket);
        let done = finish(command, input.as_bytes());
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
        done.stdout
    };
    there(&["service", "install"], "");
    let pid = machine.pid();
    kill(pid, Signal::SIGSTOP);
    let said = there(
        &["voice", "forward", "--no-prefix", "--deadline", "1"],
        "later",
    );
    assert_eq!(said, "queued on disk, not delivered yet\n");
    kill(pid, Signal::SIGCONT);
    systemctl(&["stop", "agentd.service"]);
    systemctl(&["start", "agentd-voice-flush.service"]);
    // It was started for it, and nothing ran without it.
    assert_ne!(machine.pid(), 0);
    let history = there(&["history", "main", "--json"], "");
    assert!(history.contains("\"text\":\"later\""), "{history}");
    let waiting = fs::read_dir(home().join(".local/state/agentd/spool/new")).unwrap();
    assert_eq!(waiting.count(), 0);
}

/// What is cut off has to be sent again by somebody who knows of it.
#[test]
fn service_stop_and_restart_name_cut_turns() {
    let Some(machine) = machine("trouble::service_stop_and_restart_name_cut_turns") else {
        return;
    };
    let _machine = machine.installed();
    for (command, more) in [("restart", &["--deadline", "0"] as &[&str]), ("stop", &[])] {
        let long = ["dispatch", "--agent", "chaos", "--session", command];
        let dispatch = |prompt: &str| agentctl(&[&long[..], &[prompt]].concat());
        let running = dispatch("chaos:say begun;sleep-ms 600000");
        dispatch("chaos:say behind");
        let job = running.trim();
        wait_for("it runs", || {
            agentctl(&["jobs", "--state", "running"])
                .contains(job)
                .then_some(())
        });
        let said = run("agentctl", &[&["service", command], more].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        let cut = format!(
            "1 turn was interrupted (`agentctl jobs --state interrupted`): `agentctl retry {job}`"
        );
        assert!(said.stderr.contains(&cut), "{command}: {said:?}");
        if command == "stop" {
            agentctl(&["service", "start"]);
        } else {
            assert!(said.stderr.contains("1 turn is held behind"), "{said:?}");
        }
    }
}
