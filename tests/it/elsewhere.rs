//! What whoever spoke in a session hears when it ends elsewhere, or its agent forgets it.

use serde_json::{Value, json};

use crate::acp_server::editor::Editor;
use crate::http::Http;
use crate::mcp::Client;
use crate::supervision::jsonl;
use crate::support::{Daemon, Place, chaos_worker, needs, wait_for};

const ELSEWHERE: &str = "was closed or renamed elsewhere";
const LOST: &str = "goes on without its earlier turns";

/// A daemon with two agents that aren't the default: one forgets with its process, one doesn't.
fn daemon() -> Daemon {
    let place = Place::new("");
    let (worker, kept) = (chaos_worker(), place.path("kept"));
    std::fs::create_dir(&kept).unwrap();
    let forgets = [worker.to_str().unwrap(), "--one-session"];
    let keeps = [&forgets[..], &["--resumes", kept.to_str().unwrap()]].concat();
    let agents = jsonl("forgets", &forgets) + &jsonl("keeps", &keeps);
    place.configure(&(Daemon::config("") + &agents));
    place.start()
}

/// Who answered last, and in which session.
fn last(daemon: &Daemon) -> (String, String) {
    let row = daemon.ask(r#"{"type":"jobs","limit":1}"#)[0]["jobs"][0].clone();
    let word = |name: &str| row[name].as_str().unwrap().to_owned();
    (word("agent"), word("session"))
}

fn heard(client: &mut Editor) -> String {
    let heard = std::mem::take(&mut client.heard);
    heard.iter().map(Value::to_string).collect()
}

fn by_pi(client: &mut Editor) -> String {
    client.say(&json!({"type": "prompt", "message": "chaos:say on"}));
    client.until("its end", |line| line["type"] == "agent_settled");
    heard(client)
}

fn by_host(host: &mut Editor) -> String {
    host.say(&json!({"type": "run", "session_id": "hosts", "message": "chaos:say on"}));
    host.until("its end", |line| line["type"] == "final");
    heard(host)
}

fn by_editor(editor: &mut Editor, session: &str) -> String {
    let id = editor.prompt(session, "chaos:say on");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    editor.text(session, "agent_message_chunk") + &heard(editor)
}

fn by_mcp(client: &mut Client) -> String {
    client
        .call(
            "ask",
            &json!({"prompt": "chaos:say on", "session": "asked"}),
        )
        .to_string()
}

#[test]
fn face_keeps_its_agent_when_sessions_end_elsewhere() {
    let daemon = daemon();
    let ours = ["--agent", "keeps"];
    let send = ["send", "-s", "hosts", "-a", "keeps", "chaos:say one"];
    assert_eq!(daemon.agentctl(&send).code, Some(0));
    let mut pi = Editor::of(&daemon.place, &["pi", "--agent", "keeps"]);
    let mut host = Editor::of(&daemon.place, &["bridge"]);
    let mut editor = Editor::start(&daemon.place, &ours);
    let opened = editor.open(&daemon.place);
    let mut mcp = Client::new(&daemon.place);
    let first = json!({"prompt": "chaos:say on", "session": "asked", "agent": "keeps"});
    let told = mcp.call("ask", &first);
    let faces: [(&str, &mut dyn FnMut() -> String); 4] = [
        ("pi", &mut || by_pi(&mut pi)),
        ("bridge", &mut || by_host(&mut host)),
        ("acp", &mut || by_editor(&mut editor, &opened)),
        ("mcp", &mut || by_mcp(&mut mcp)),
    ];
    for (face, turn) in faces {
        assert!(!turn().contains(ELSEWHERE), "{face}");
        let (_, session) = last(&daemon);
        let other = format!("{session}-before");
        for ending in [
            ["close", session.as_str()].as_slice(),
            &["rename", &session, &other],
        ] {
            let ended = daemon.agentctl(&[&["sessions"], ending].concat());
            assert_eq!(ended.code, Some(0), "{ended:?}");
            let told = turn();
            assert!(told.contains(ELSEWHERE), "{face} {ending:?}: {told}");
            let now = ("keeps".to_owned(), session.clone());
            assert_eq!(last(&daemon), now, "{face} {ending:?}");
            // It is said once.
            assert!(!turn().contains(ELSEWHERE), "{face}");
        }
    }
    assert_eq!(told["notes"], json!(["the session `asked` is new"]));
}

#[test]
fn forgotten_turns_are_told_by_every_face() {
    let Some(_curl) = needs("curl") else {
        return;
    };
    let daemon = daemon();
    let http = Http::start(&daemon.place);
    let mut editor = Editor::start(&daemon.place, &["--agent", "forgets"]);
    let opened = editor.open(&daemon.place);
    let mut mcp = Client::new(&daemon.place);
    let text = "chaos:say on";
    let chat = json!({"model": "forgets", "messages": [{"role": "user", "content": text}]});
    let response = json!({"model": "forgets", "input": text, "conversation": "response"});
    let run = json!({"model": "forgets", "input": text, "session_id": "run"});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask",
        "arguments": {"prompt": text, "agent": "forgets", "session": "over-http"}}});
    let job = json!({"prompt": text, "agent": "forgets", "session": "collected"});
    let mut turns = || -> Vec<(&str, String)> {
        let started = http.post("/v1/runs", &run).json();
        let run = format!("/v1/runs/{}", started["run_id"].as_str().unwrap());
        let done = wait_for("the run ends", || {
            let now = http.curl(&run, &[]).json();
            (now["status"] == "completed").then_some(now)
        });
        let jobs = mcp.call("dispatch", &json!({"jobs": [job]}));
        let jobs = json!({"jobs": [jobs["jobs"][0]["job"]]});
        let named = ["-H", "X-Agentd-Session: chat"];
        let ask = json!({"prompt": text, "agent": "forgets", "session": "asked"});
        vec![
            ("ask", mcp.call("ask", &ask)["notes"].to_string()),
            ("collect", mcp.call("collect", &jobs)["results"].to_string()),
            ("/mcp", http.post("/mcp", &call).body),
            ("acp", by_editor(&mut editor, &opened)),
            (
                "chat",
                http.post_with("/v1/chat/completions", &chat, &named).json()["agentd"].to_string(),
            ),
            (
                "response",
                http.post("/v1/responses", &response).json()["agentd"].to_string(),
            ),
            ("run", done["agentd"].to_string()),
            (
                "run's events",
                http.curl(&format!("{run}/events"), &[]).body,
            ),
        ]
    };
    for (face, told) in turns() {
        assert!(!told.contains(LOST), "{face}: {told}");
    }
    let _daemon = daemon.kill().start();
    for (face, told) in turns() {
        assert!(told.contains(LOST), "{face}: {told}");
    }
}
