//! Kind `exec`: any command is an agent.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{AGENTCTL, Daemon, Place, is_alive, wait_for};

/// A daemon whose agent `run` is this command.
fn running(command: &[&str]) -> Daemon {
    Place::new(&format!(
        "[agents.run]\nkind = \"exec\"\ncommand = {command:?}\n"
    ))
    .start()
}

fn script(text: &str) -> Daemon {
    running(&["/bin/sh", "-c", text])
}

fn ask(daemon: &Daemon, prompt: &str) -> Value {
    daemon
        .ask(&json!({"agent": "run", "prompt": prompt}).to_string())
        .pop()
        .expect("a final line")
}

#[test]
fn exec_gives_standard_input_and_takes_the_output() {
    let daemon = running(&["/bin/cat"]);
    for prompt in [
        "hello",
        "two\nlines\n\n",
        "ünïcödé \u{1f980}",
        &"x".repeat(300_000),
    ] {
        let last = ask(&daemon, prompt);
        let expected = prompt.strip_suffix('\n').unwrap_or(prompt);
        assert_eq!(
            (&last["type"], &last["stop"]),
            (&json!("message_end"), &json!("end_turn")),
            "{:#}",
            last["error"]
        );
        assert!(
            last["text"] == expected,
            "{} bytes came back",
            last["text"].as_str().unwrap().len()
        );
        assert_eq!(last["context"], "new");
    }
}

/// The daemon dies when the program is there, and before it has said another word to it.
#[test]
fn exec_is_never_run_on_a_cut_prompt() {
    for length in [10, 300_000] {
        let place = Place::new(
            "[agents.run]\nkind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", \"wc -c > ~/read\"]\n",
        );
        let daemon = place.start_with(&[("AGENTD_FAILPOINT", "spawned:1")]);
        let mut client = daemon.connect();
        client.send(&json!({"agent": "run", "prompt": "x".repeat(length)}).to_string());
        let (place, left) = daemon.left();
        assert!(!left.success(), "{left:?}");
        let read = wait_for("the program has read", || {
            let text = std::fs::read_to_string(place.path("home/read")).ok()?;
            text.trim().parse::<usize>().ok()
        });
        assert_eq!(read, length);
    }
}

#[test]
fn exec_prompt_is_one_argument_and_no_shell() {
    let daemon = running(&["/bin/echo", "-n", "{prompt}", "end"]);
    let witness = daemon.path("home/pwned");
    for prompt in [
        "plain",
        "two words",
        "$(touch pwned); \"",
        "`touch pwned`",
        "'; touch pwned #",
        "{session} {prompt}",
        "-e \\x41",
        "| touch pwned",
    ] {
        assert_eq!(ask(&daemon, prompt)["text"], format!("{prompt} end"));
    }
    assert!(!Path::new(&witness).exists());
}

#[test]
fn exec_failure_has_its_code_and_both_streams() {
    let daemon = script("echo so far; echo broken pipe dream >&2; exit 3");
    let last = ask(&daemon, "x");
    assert_eq!(
        (&last["type"], &last["code"], &last["text"]),
        (&json!("error"), &json!("agent-failed"), &json!("so far")),
        "{last:#}"
    );
    let error = last["error"].as_str().unwrap();
    assert!(
        error.contains("code 3") && error.contains("broken pipe dream"),
        "{error}"
    );
    assert!(!error.contains("so far"), "{error}");
}

#[test]
fn exec_session_says_once_that_it_forgets() {
    let daemon = running(&["cat"]);
    let notes = |_turn: &str| {
        let lines = daemon.ask(r#"{"type":"send","text":"hi","agent":"run","session":"main"}"#);
        lines
            .iter()
            .filter(|line| line["code"] == "no-memory")
            .count()
    };
    assert_eq!(["first", "second", "third"].map(notes), [0, 1, 0]);
}

#[test]
fn a_signal_is_a_failure_too() {
    let last = ask(&script("echo begun; kill -9 $$"), "x");
    assert_eq!(
        (&last["code"], &last["text"]),
        (&json!("agent-failed"), &json!("begun")),
        "{last:#}"
    );
    assert!(
        last["error"].as_str().unwrap().contains("signal 9"),
        "{last:#}"
    );
}

#[test]
fn exec_command_that_ignores_its_input_may_succeed() {
    let last = ask(&script("echo done"), &"y".repeat(1_000_000));
    assert_eq!(
        (&last["type"], &last["text"]),
        (&json!("message_end"), &json!("done")),
        "{last:#}"
    );
}

#[test]
fn exec_output_too_long_keeps_head_and_tail() {
    let daemon = script("echo FIRST; head -c 8000000 /dev/zero | tr '\\0' z; echo; echo LAST");
    let last = ask(&daemon, "x");
    assert_eq!(
        (&last["stop"], &last["truncated"]),
        (&json!("max_tokens"), &json!(true)),
        "{:#}",
        last["error"]
    );
    let text = last["text"].as_str().unwrap();
    assert!(
        text.starts_with("FIRST\nzzz") && text.ends_with("zzz\nLAST"),
        "{:?} … {:?}",
        &text[..20],
        &text[text.len() - 20..]
    );
    assert!(
        text.contains("bytes left out") && text.len() <= 512 * 1024,
        "{}",
        text.len()
    );
}

#[test]
fn exec_abort_kills_all_that_was_started() {
    let daemon = script("sleep 300 & echo $! $$; wait");
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","agent":"run","text":"x"}"#);
    let delta = client.until("message_delta").pop().unwrap();
    let pids: Vec<u32> = delta["text"]
        .as_str()
        .unwrap()
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    assert_eq!(daemon.ask(r#"{"type":"abort"}"#)[0]["ok"], true);
    let last = client.until("message_end").pop().unwrap();
    assert_eq!(last["stop"], "cancelled", "{last:#}");
    assert_eq!(last["text"], delta["text"].as_str().unwrap().trim_end());
    wait_for("both are gone", || {
        pids.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
}

#[test]
fn exec_timeout_keeps_the_text_so_far() {
    let daemon = script("echo begun; exec sleep 300");
    let last = daemon
        .ask(r#"{"agent":"run","prompt":"x","timeout":0.3}"#)
        .pop()
        .unwrap();
    assert_eq!(
        (&last["code"], &last["text"]),
        (&json!("timeout"), &json!("begun")),
        "{last:#}"
    );
    daemon.until("its process is gone", |status| {
        status["workers"].as_array()?.is_empty().then_some(())
    });
}

#[test]
fn exec_runs_sessions_at_once_each_in_order() {
    let daemon = script(
        "read name; echo $name >> $HOME/order; while ! [ -e $HOME/go-$name ]; do sleep 0.02; done; echo $name",
    );
    let order = || std::fs::read_to_string(daemon.path("home/order")).unwrap_or_default();
    let mut client = daemon.connect();
    for (name, session) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        client.send(&json!({"type": "send", "id": name, "agent": "run", "session": session, "text": format!("{name}\n")}).to_string());
    }
    wait_for("both sessions run", || {
        (order().lines().count() == 2).then_some(())
    });
    let mut begun: Vec<String> = order().lines().map(str::to_owned).collect();
    begun.sort();
    assert_eq!(begun, ["a1", "b1"]);
    for name in ["a1", "a2", "b1"] {
        std::fs::write(daemon.path(&format!("home/go-{name}")), "").unwrap();
    }
    let lines = client.rest();
    for name in ["a1", "a2", "b1"] {
        let last = lines.iter().rfind(|line| line["id"] == name).unwrap();
        assert_eq!(last["text"], name, "{last:#}");
    }
}

#[test]
fn a_prompt_that_is_no_argument_fails_alone() {
    let daemon = running(&["/bin/echo", "{prompt}"]);
    for prompt in ["z".repeat(200_000), "nul \u{0} in it".to_owned()] {
        let line = json!({"agent": "run", "session": "main", "prompt": prompt});
        let last = daemon.ask(&line.to_string()).pop().unwrap();
        assert_eq!(last["code"], "invalid-request", "{last:#}");
        let hint = last["hint"].as_str().unwrap();
        assert!(hint.contains("standard input"), "{hint}");
        assert_eq!(ask(&daemon, "hello")["text"], "hello");
    }
}

#[test]
fn exec_directory_gone_fails_its_own_turns_only() {
    let daemon = script("echo ran >> $HOME/ran; cat");
    let gone = daemon.path("gone");
    std::fs::create_dir(&gone).unwrap();
    let send = |prompt: &str| {
        let line = json!({"agent": "run", "session": "g", "cwd": gone, "prompt": prompt});
        daemon.ask(&line.to_string()).pop().unwrap()
    };
    let again = |prompt: &str| {
        let line = json!({"agent": "run", "session": "g", "prompt": prompt});
        daemon.ask(&line.to_string()).pop().unwrap()
    };
    assert_eq!(send("one")["text"], "one");
    std::fs::remove_dir(&gone).unwrap();
    for _ in 0..4 {
        let last = again("two");
        assert_eq!(last["code"], "invalid-request", "{last:#}");
    }
    assert_eq!(ask(&daemon, "elsewhere")["text"], "elsewhere");
    std::fs::create_dir(&gone).unwrap();
    assert_eq!(again("three")["text"], "three");
    let ran = std::fs::read_to_string(daemon.path("home/ran")).unwrap();
    assert_eq!(ran.lines().count(), 3, "{ran}");
}

#[test]
fn exec_session_closed_and_made_again_is_new() {
    let kept = tempfile::tempdir().unwrap();
    let keep = format!("cat >> {0}/$0; cat {0}/$0", kept.path().display());
    let daemon = running(&["/bin/sh", "-c", &keep, "{session}"]);
    let send = |prompt: &str| {
        let line = json!({"agent": "run", "session": "main", "prompt": prompt});
        let last = daemon.ask(&line.to_string()).pop().unwrap();
        (last["text"].clone(), last["context"].clone())
    };
    assert_eq!(send("one "), (json!("one "), json!("new")));
    assert_eq!(send("two "), (json!("one two "), json!("continued")));
    let closed = daemon.ask(r#"{"type":"session.close","session":"main"}"#);
    assert_eq!(closed[0]["ok"], true, "{closed:#?}");
    assert_eq!(send("three "), (json!("three "), json!("new")));
}

/// What an agent says that runs a script with `lists`, which lists webhooks.
fn lists_webhooks(text: &str) -> String {
    let daemon = script(&format!(
        "read socket; lists=\"'{AGENTCTL}' --socket '$socket' webhook list --json 2>&1\"; {text}"
    ));
    let added = daemon.agentctl(&["webhook", "add", "https://ci.example/sk-CANARY/"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let listed = daemon.agentctl(&["webhook", "list", "--json"]);
    assert!(listed.stdout.contains("sk-CANARY"), "{listed:?}");
    ask(&daemon, daemon.place.socket().to_str().unwrap()).to_string()
}

#[test]
fn exec_agents_may_not_read_webhooks() {
    let said = lists_webhooks("eval \"exec $lists\"");
    assert!(said.contains("an agent can't do this"), "{said}");
    assert!(!said.contains("sk-CANARY"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn exec_agents_leave_no_worker_by_forking() {
    // With its parent the way back to the agent is gone, and its environment says nothing. It isn't
    // started before somebody reads, which is when its parent has ended.
    let said = lists_webhooks(
        "dir=$(mktemp -d); mkfifo $dir/said
         (setsid env -i sh -c \"$lists\" > $dir/said &)
         cat $dir/said; rm -r $dir",
    );
    assert!(said.contains("an agent can't do this"), "{said}");
    assert!(!said.contains("sk-CANARY"), "{said}");
}
