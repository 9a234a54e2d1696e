//! OpenAI's own clients, for Python and for node: what a program of theirs sees, and how many turns
//! its requests cost.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::http::{Http, jobs};
use crate::support::{DEADLINE, Daemon, finish_within, skipped};

/// Where `packaging/ci/install-openai.sh` puts them.
fn installed() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/openai");
    if dir.join("versions").is_file() {
        return Some(dir);
    }
    skipped("OpenAI's clients (packaging/ci/install-openai.sh)");
    None
}

/// Who runs a program of a client.
const CLIENTS: [(&str, &str); 2] = [("python/bin/python", "sdks.py"), ("bin/node", "sdks.mjs")];

/// What a part of a client's program tells, against a daemon of its own; and how many turns it cost.
fn told(dir: &Path, client: (&str, &str), part: &str) -> (Vec<Value>, usize) {
    told_by(&Daemon::start(), dir, client, part)
}

fn told_by(
    daemon: &Daemon,
    dir: &Path,
    (runs, program): (&str, &str),
    part: &str,
) -> (Vec<Value>, usize) {
    let http = Http::start(&daemon.place);
    let mut command = daemon.place.command(dir.join(runs));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/openai");
    command
        .arg(sources.join(program))
        .arg(part)
        .env("OPENAI_BASE_URL", format!("http://{}/v1", http.at))
        .env("OPENAI_API_KEY", &http.token)
        .env("OPENAI_MODULE", dir.join("node_modules/openai/index.mjs"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let done = finish_within(4 * DEADLINE, command, b"");
    assert_eq!(done.code, Some(0), "{program} {part}: {done:?}");
    let lines = done
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (lines.collect(), jobs(daemon))
}

#[test]
fn openai_clients_chat() {
    let Some(dir) = installed() else {
        return;
    };
    for client in CLIENTS {
        let (told, turns) = told(&dir, client, "chats");
        let expected = [
            json!(["models", "timmy"]),
            json!(["model", "timmy"]),
            json!(["no model", ["NotFoundError", 404, "model_not_found"]]),
            json!(["chat", ["hello", "stop"]]),
            json!(["stream", ["in pieces", 0]]),
            json!(["helper", "helped"]),
        ];
        assert_eq!((told.as_slice(), turns), (&expected[..], 3), "{client:?}");
    }
}

#[test]
fn openai_clients_respond() {
    let Some(dir) = installed() else {
        return;
    };
    for client in CLIENTS {
        let (told, turns) = told(&dir, client, "responses");
        let expected = [
            json!(["response", "one"]),
            json!(["goes on", ["two", true]]),
            json!(["retrieve", "two"]),
            json!(["input", "two"]),
            json!([
                "events",
                [
                    "response.created",
                    "response.completed",
                    "helped",
                    true,
                    false
                ]
            ]),
            json!(["cancel", "cancelled"]),
            json!(["deleted", ["NotFoundError", 404, "response_not_found"]]),
            json!(["conversation", ["kept", true]]),
            json!([
                "unknown",
                ["NotFoundError", 404, "previous_response_not_found"]
            ]),
        ];
        assert_eq!((told.as_slice(), turns), (&expected[..], 5), "{client:?}");
    }
}

#[test]
fn openai_clients_pay_a_failure_once() {
    let Some(dir) = installed() else {
        return;
    };
    for client in CLIENTS {
        let (told, turns) = told(&dir, client, "failing");
        for (line, name) in told.iter().zip(["chat", "stream", "response"]) {
            assert_eq!(
                (&line[0], &line[1][2]),
                (&json!(name), &json!("rate-limit")),
                "{client:?}"
            );
        }
        assert_eq!(told[0][1][1], 424, "{client:?}");
        assert_eq!(
            told[3],
            json!(["events", ["response.failed", "rate_limit_exceeded"]])
        );
        assert_eq!(turns, 4, "{client:?}: {told:?}");
    }
}

#[test]
fn openai_clients_that_give_up_find_their_turn() {
    let Some(dir) = installed() else {
        return;
    };
    for client in CLIENTS {
        let (told, turns) = told(&dir, client, "slow");
        assert_eq!(
            (told, turns),
            (vec![json!(["chat", "slow"])], 1),
            "{client:?}"
        );
    }
}

/// Each answer, chunk, event and error fits the types that OpenAI makes of its own description, and has
/// nothing else: its client would forgive both.
#[test]
fn openai_answers_are_of_openais_own_types() {
    let Some(dir) = installed() else {
        return;
    };
    let thinker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/openai/thinker.py");
    let python = dir.join(CLIENTS[0].0);
    let more = format!("[agents.thinker]\nkind = \"jsonl\"\ncommand = [{python:?}, {thinker:?}]\n");
    let daemon = Daemon::with(&more);
    let (told, _) = told_by(&daemon, &dir, CLIENTS[0], "types");
    assert_eq!(told[0][1], json!(["chat.completion.chunk", "error"]));
    assert_eq!(told[1], json!(["of ours", true]));
    let events = &told[2][1];
    for seen in [
        "response.completed",
        "response.failed",
        "response.mcp_call.failed",
        "response.output_text.done",
        "response.reasoning_summary_text.delta",
    ] {
        let is_seen = |one: &Value| one == seen;
        assert!(
            events.as_array().unwrap().iter().any(is_seen),
            "{seen}: {events}"
        );
    }
}
