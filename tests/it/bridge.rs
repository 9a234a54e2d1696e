//! `agentctl serve bridge` from a host's side, with a real daemon and real agents behind it.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::acp_server::editor::Editor;
use crate::faults_terminal::OnTerminal;
use crate::support::{AGENTCTL, Daemon, Finished, Place, finish, kill, program, wait_for};

/// The flags that the host of this protocol gives.
const FLAGS: [&str; 6] = [
    "bridge",
    "--once",
    "--native-stream",
    "--assistant-delta",
    "--native-assistant-delta",
    "--max-iterations=7",
];

/// A program called `hermes`, which is the bridge, as the book has it.
fn hermes(place: &Place) -> std::path::PathBuf {
    let file = place.path("hermes");
    if !file.exists() {
        let script = format!("shift\nexec {AGENTCTL} serve bridge \"$@\"");
        program(place.dir.path(), "hermes", &script);
    }
    file
}

/// What a host does for one turn: it starts the program, writes one line, and closes its input.
fn turn(place: &Place, run: &Value) -> (Finished, Vec<Value>) {
    let mut command = place.command(hermes(place));
    command.args(FLAGS).args(["--agent", "chaos"]);
    let done = finish(command, format!("{run}\n").as_bytes());
    let lines = done
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines = lines.collect();
    (done, lines)
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

#[test]
fn bridge_host_that_closes_its_input_is_answered() {
    let daemon = Daemon::start();
    let first = json!({"type": "run", "request_id": "1", "message": "chaos:count", "resume": false,
        "cwd": daemon.path("home"), "assistant_delta": true, "native_assistant_delta": true,
        "native_stream": true, "max_iterations": 7});
    let (done, lines) = turn(&daemon.place, &first);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("not heeded"), "{}", done.stderr);
    assert_eq!(of(&lines, "final")[0]["text"], "1");
    assert_eq!(of(&lines, "final")[0]["request_id"], "1");
    let session = of(&lines, "session")[0]["session_id"].clone();
    // The next turn is another process's.
    let next =
        json!({"type": "run", "message": "chaos:count", "session_id": session, "resume": true});
    let (done, lines) = turn(&daemon.place, &next);
    assert_eq!(done.code, Some(0));
    assert_eq!(of(&lines, "conversation_start")[0]["resumed"], true);
    assert_eq!(of(&lines, "final")[0]["text"], "2");
    // Begun anew, it has no past.
    let anew = json!({"message": "chaos:count", "session_id": session, "resume": false});
    let (_, lines) = turn(&daemon.place, &anew);
    assert_eq!(of(&lines, "conversation_start")[0]["resumed"], false);
    let rows = daemon.ask(&json!({"type": "session.list", "session": session}).to_string());
    assert_eq!(rows[0]["sessions"][0]["turns"], 1, "{rows:#?}");
}

/// The order that hosts rely on, whatever the agent: pieces, their end, the whole, the last line.
#[test]
fn bridge_order_holds_for_every_agent() {
    let exec = "[agents.sh]\nkind = \"exec\"\ncommand = [\"cat\"]\n";
    let daemon = Daemon::with(exec);
    for (agent, message, native) in [
        ("timmy", "größer als ß", true),
        ("timmy", "größer als ß", false),
        ("chaos", "chaos:emit 3", true),
        ("chaos", "chaos:emit 3", false),
        ("sh", "größer als ß", true),
    ] {
        let mut host = Editor::of(&daemon.place, &["bridge", "--agent", agent, "--once"]);
        host.say(
            &json!({"message": message, "assistant_delta": true, "native_stream": native,
            "assistant_delta_chunk_size": 2}),
        );
        let (code, _, lines) = host.leave();
        assert_eq!(code, Some(0));
        let kinds: Vec<&str> = lines
            .iter()
            .map(|line| line["type"].as_str().unwrap())
            .collect();
        let at = |kind: &str| kinds.iter().position(|one| *one == kind).unwrap();
        let last_delta = kinds
            .iter()
            .rposition(|one| *one == "assistant_delta")
            .unwrap();
        let order = [
            at("session"),
            at("conversation_start"),
            last_delta,
            at("assistant_message_end"),
            at("assistant_message"),
            at("conversation_end"),
            at("final"),
        ];
        assert!(order.is_sorted(), "{agent}: {kinds:?}");
        let deltas = of(&lines, "assistant_delta");
        let text: String = deltas
            .iter()
            .filter_map(|line| line["delta"].as_str())
            .collect();
        let said = [
            &of(&lines, "assistant_message")[0]["content"],
            &of(&lines, "final")[0]["text"],
        ];
        assert_eq!(said, [&json!(text), &json!(text)], "{agent}");
        // Never both: all of them are the agent's own, or none is.
        let ends = of(&lines, "assistant_message_end");
        assert!(
            deltas
                .iter()
                .all(|line| line["native"] == ends[0]["native"]),
            "{agent}"
        );
        assert!(native || ends[0]["native"] == false, "{agent}");
        let count = ends[0]["delta_chunks"].as_u64().unwrap();
        assert_eq!(count, deltas.len() as u64, "{agent}");
    }
}

#[test]
fn bridge_serves_many_sessions_each_once() {
    let daemon = Daemon::start();
    let mut host = Editor::of(
        &daemon.place,
        &["bridge", "--agent", "chaos", "--native-stream"],
    );
    let gate = daemon.path("gate");
    let waits = format!("chaos:say half;wait-file {}", gate.display());
    host.say(&json!({"message": waits, "session_id": "a", "request_id": "a1"}));
    host.until("its text", |line| line["type"] == "assistant_delta");
    host.say(&json!({"message": "again", "session_id": "a", "request_id": "a2"}));
    let busy = host.until("a refusal", |line| line["type"] == "error");
    let expected = json!({"type": "error", "stage": "request_validation",
        "message": "A run is already active for this session_id.", "retryable": true,
        "request_id": "a2", "session_id": "a"});
    assert_eq!(busy, expected);
    host.say(&json!({"message": "chaos:say other", "session_id": "b", "request_id": "b1"}));
    let done = host.until("the other run", |line| line["type"] == "final");
    assert_eq!(
        (&done["text"], &done["session_id"]),
        (&json!("other"), &json!("b"))
    );
    // Another process is told the same, and can end the run.
    let (_, lines) = turn(&daemon.place, &json!({"message": "x", "session_id": "a"}));
    assert_eq!(of(&lines, "error")[0]["message"], expected["message"]);
    let (_, lines) = turn(
        &daemon.place,
        &json!({"type": "interrupt", "session_id": "a"}),
    );
    assert_eq!(lines[0]["accepted"], true, "{lines:?}");
    let done = host.until("its end", |line| line["type"] == "final");
    assert_eq!(
        (&done["interrupted"], &done["text"]),
        (&json!(true), &json!("half"))
    );
    host.say(&json!({"type": "interrupt", "session_id": "a"}));
    let none = host.until("a refusal", |line| line["type"] == "error");
    assert_eq!(
        none["message"],
        "No active run for the provided session_id."
    );
}

/// The document's own lines, in one write.
#[test]
fn bridge_smoke_lines_end_with_an_ack() {
    let daemon = Daemon::start();
    let mut host = Editor::of(&daemon.place, &["bridge", "--agent", "chaos"]);
    host.write(
        br#"{"type":"run","request_id":"req-1","session_id":"sess-1","message":"chaos:say on;sleep-ms 600000","assistant_delta":true,"native_stream":true,"native_assistant_delta":true}
{"type":"interrupt","request_id":"req-2","session_id":"sess-1","message":"stop now"}
{"type":"shutdown","request_id":"req-3"}
"#,
    );
    let status = wait_for("it leaves, with its input open", || {
        host.child.0.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(0));
    let (_, _, lines) = host.leave();
    let ack = json!({"type": "interrupt_ack", "accepted": true, "request_id": "req-2", "session_id": "sess-1"});
    assert_eq!(*of(&lines, "interrupt_ack")[0], ack);
    assert_eq!(
        *of(&lines, "shutdown_ack")[0],
        json!({"type": "shutdown_ack", "request_id": "req-3"})
    );
    assert_eq!(of(&lines, "final").len(), 1);
    assert_eq!(of(&lines, "final")[0]["interrupted"], true);
}

/// The document's lines as they stand in it: at once, by a host that says only the first, and by a
/// person who types them.
#[test]
fn bridge_smoke_lines_are_played_as_written() {
    const LINES: [&str; 3] = [
        r#"{"type":"run","request_id":"req-1","session_id":"sess-1","message":"Summarize README.md","assistant_delta":true,"native_stream":true,"native_assistant_delta":true}"#,
        r#"{"type":"interrupt","request_id":"req-2","session_id":"sess-1","message":"stop now"}"#,
        r#"{"type":"shutdown","request_id":"req-3"}"#,
    ];
    let daemon = Daemon::start();
    let bridge = || {
        let mut command = daemon.place.command(AGENTCTL);
        command.args(["serve", "bridge", "--agent", "timmy"]);
        command
    };
    let done = finish(bridge(), format!("{}\n", LINES.join("\n")).as_bytes());
    assert_eq!((done.code, &*done.stderr), (Some(0), ""));
    for word in ["interrupt_ack", "shutdown_ack", "\"type\":\"final\""] {
        assert_eq!(
            done.stdout.matches(word).count(),
            1,
            "{word}: {}",
            done.stdout
        );
    }
    // The host closes its input right after its one run.
    let done = finish(bridge(), format!("{}\n", LINES[0]).as_bytes());
    assert_eq!((done.code, &*done.stderr), (Some(0), ""));
    let last = done.stdout.lines().last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(
        (&last["type"], &last["completed"], &last["text"]),
        (&json!("final"), &json!(true), &json!("Summarize README.md"))
    );
    for says in [&LINES[..], &LINES[..1]] {
        let mut host = OnTerminal::start(bridge());
        host.type_in(&format!("{}\n", says[0]));
        host.until(r#""type":"final""#);
        for line in &says[1..] {
            host.type_in(&format!("{line}\n"));
        }
        match says.len() {
            1 => host.type_in("\u{4}"),
            _ => host.until("shutdown_ack"),
        }
        let (code, shown) = host.ended();
        assert_eq!(code, Some(0), "{shown}");
        assert!(
            says.len() == 1 || shown.contains("No active run"),
            "{shown}"
        );
    }
}

#[test]
fn bridge_daemon_killed_under_a_run_is_told() {
    let ledger = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let path = ledger.path().to_str().unwrap();
    let daemon = Place::new(&Daemon::config("")).start_with(&[("CHAOS_LEDGER", path)]);
    let mut host = Editor::of(
        &daemon.place,
        &["bridge", "--agent", "chaos", "--native-stream"],
    );
    host.say(&json!({"message": "chaos:ledger once;say half;sleep-ms 600000", "session_id": "s"}));
    host.until("its text", |line| line["type"] == "assistant_delta");
    let place = daemon.kill();
    let daemon = place.start_with(&[("CHAOS_LEDGER", path)]);
    let told = host.until("its end", |line| line["type"] == "final");
    assert_eq!(
        (&told["completed"], &told["text"]),
        (&json!(false), &json!("half"))
    );
    assert_eq!(of(&host.heard, "error")[0]["stage"], "bridge_run");
    assert_eq!(of(&host.heard, "session").len(), 1);
    host.say(&json!({"message": "chaos:ledger again;say on", "session_id": "s"}));
    let told = host.until("the next one's end", |line| line["type"] == "final");
    assert_eq!(told["text"], "on");
    let runs = std::fs::read_to_string(ledger.path()).unwrap();
    let runs: Vec<&str> = runs
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    assert_eq!(runs, ["once", "again"]);
    drop(daemon);
}

#[test]
fn bridge_needs_no_daemon_unless_told() {
    let place = Place::new(&Daemon::config(""));
    let mut host = Editor::of(&place, &["bridge", "--no-fallback", "--once"]);
    host.say(&json!({"message": "hello", "request_id": "r"}));
    let (code, _, lines) = host.leave();
    let [error] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert_eq!((code, &error["stage"]), (Some(0), &json!("bridge_run")));
    assert_eq!(error["request_id"], "r");
    let (done, lines) = turn(&place, &json!({"message": "chaos:say alone"}));
    assert_eq!(
        (done.code, &of(&lines, "final")[0]["text"]),
        (Some(0), &json!("alone"))
    );
}

/// A host ends a turn by ending the process, whose input it closed long before.
#[test]
fn bridge_signal_ends_its_run() {
    let daemon = Daemon::start();
    let mut host = Editor::of(
        &daemon.place,
        &["bridge", "--agent", "chaos", "--native-stream"],
    );
    host.say(&json!({"message": "chaos:say half;sleep-ms 600000", "session_id": "s"}));
    host.close();
    host.until("its text", |line| line["type"] == "assistant_delta");
    kill(host.child.0.id(), Signal::SIGTERM);
    let told = host.until("its end", |line| line["type"] == "final");
    assert_eq!(told["interrupted"], true);
    assert_eq!(host.leave().0, Some(143));
}

/// A host that lies: each line has its answer, and the next one is served.
#[test]
fn bridge_wrong_types_in_every_field_are_answered() {
    let daemon = Daemon::start();
    let mut host = Editor::of(&daemon.place, &["bridge", "--agent", "timmy"]);
    let fields = [
        "type",
        "request_id",
        "session_id",
        "message",
        "resume",
        "conversation_history",
        "system_message",
        "task_id",
        "model",
        "base_url",
        "api_key",
        "toolsets",
        "disabled_toolsets",
        "max_iterations",
        "cwd",
        "assistant_delta",
        "assistant_delta_chunk_size",
        "native_assistant_delta",
        "native_stream",
        "stream_first_chunk_timeout_ms",
        "stream_idle_timeout_ms",
    ];
    let wrong = [
        json!(true),
        json!(-1),
        json!(1.5),
        json!("x".repeat(300)),
        json!([[]]),
        json!({"a": {}}),
    ];
    for field in fields {
        for value in &wrong {
            let mut line = json!({"message": "x", "toolsets": [], "request_id": "r"});
            line[field] = value.clone();
            host.say(&line);
            host.until(&format!("an answer to {line}"), |said| {
                matches!(said["type"].as_str(), Some("error" | "final"))
            });
        }
    }
    for bytes in [
        &b"\n \n"[..],
        b"\xff\n",
        b"[\n",
        b"null\n",
        b"{\"a\":1,\"a\":2}\n",
    ] {
        host.write(bytes);
    }
    host.say(&json!({"type": "ping", "request_id": "p"}));
    let pong = host.until("a pong", |line| line["type"] == "pong");
    assert_eq!(pong, json!({"type": "pong", "request_id": "p"}));
    let (code, _, _) = host.leave();
    assert_eq!(code, Some(0));
}

#[test]
fn bridge_takes_no_secret() {
    let daemon = Daemon::start();
    let refused = daemon.agentctl(&["serve", "bridge", "--api-key", "sk-secret"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(!refused.stderr.contains("sk-secret"), "{}", refused.stderr);
    let (_, lines) = turn(
        &daemon.place,
        &json!({"message": "x", "api_key": "sk-secret"}),
    );
    let told = lines[0]["message"].as_str().unwrap();
    assert!(
        told.contains("agentctl provider add") && !told.contains("secret"),
        "{told}"
    );
}
