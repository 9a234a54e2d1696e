//! The built-in agent behind the daemon: its memory and what a turn took, with a model on loopback.

use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::mock_model::MockModel;
use crate::supervision::{pid_of, row};
use crate::support::{Daemon, Place, kill, wait_for};

/// A daemon whose timmy asks the mock; `more` is more of `config.toml`.
pub(crate) fn daemon(model: &MockModel, more: &str) -> Daemon {
    Place::new(&config(model, more)).start()
}

fn config(model: &MockModel, more: &str) -> String {
    format!(
        "default_agent = \"timmy\"\n[models]\ndefault = \"mock/m1\"\n\
         [providers.mock]\nbase_url = \"{}\"\n{more}",
        model.url
    )
}

/// A turn of the session `main`, in a workspace of its own.
pub(crate) fn turn(daemon: &Daemon, text: &str, more: &Value) -> Value {
    let work = daemon.path("work");
    std::fs::create_dir_all(&work).unwrap();
    let mut line = json!({"type": "send", "session": "main", "text": text, "cwd_if_new": work});
    for (name, value) in more.as_object().unwrap() {
        line[name] = value.clone();
    }
    daemon.ask(&line.to_string()).pop().unwrap()
}

#[test]
fn timmy_turn_tells_whom_it_asked_and_cost() {
    let model = MockModel::start();
    let gone = "[providers.gone]\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    let daemon = daemon(&model, gone);
    let pinned = json!({"model": "gone/x", "fallback_chain": ["mock/m2"]});
    let last = turn(&daemon, "hello", &pinned);
    assert_eq!(last["text"], "echo: hello", "{last:#}");
    assert_eq!(
        (&last["provider"], &last["model"]),
        (&json!("mock"), &json!("m2"))
    );
    let calls = last["api_calls"].as_array().unwrap();
    let classes: Vec<&Value> = calls.iter().map(|call| &call["class"]).collect();
    assert_eq!(classes, [&json!("not_configured"), &Value::Null]);
    // The sum of the calls, in the protocol's words.
    let used = &calls[1]["usage"];
    assert!(used["input_tokens"].as_u64() > Some(0), "{last:#}");
    assert_eq!(&last["usage"], used);
}

#[test]
fn timmy_keeps_who_it_is_and_its_refusals() {
    let model = MockModel::start();
    let base = &model.base;
    let spoken = format!("[providers.spoken]\nbase_url = \"{base}\"\nwire = \"ollama\"\n");
    let daemon = daemon(&model, &spoken);
    std::fs::create_dir(daemon.path("timmy")).unwrap();
    std::fs::write(daemon.path("timmy/SOUL.md"), "abc").unwrap();
    let soul = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    let refused = turn(&daemon, "[[refuse=field]]", &json!({"session": "a"}));
    assert_eq!(refused["stop"], "refusal", "{refused:#}");
    assert_eq!(
        refused["refusal"], "refusal: I'm sorry, I can't help with that.",
        "{refused:#}"
    );
    assert_eq!(refused["suspected_refusal"], Value::Null);
    let pinned = json!({"session": "b", "model": "spoken/m"});
    let suspected = turn(&daemon, "[[refuse=text]]", &pinned);
    assert_eq!(suspected["stop"], "end_turn", "{suspected:#}");
    assert_eq!(suspected["suspected_refusal"], true, "{suspected:#}");
    assert_eq!(suspected["refusal"], Value::Null);
    let failed = turn(&daemon, "[[fail=auth]]", &json!({"session": "c"}));
    assert_eq!(failed["code"], "agent-auth", "{failed:#}");
    for last in [&refused, &suspected, &failed] {
        assert_eq!(last["soul_sha256"], soul, "{last:#}");
        assert_eq!(last["local"], true, "the model is on loopback: {last:#}");
    }

    // The stored results say the same after a crash.
    let daemon = daemon.kill().start();
    let jobs = json!({"type": "collect", "jobs": ["j1", "j2", "j3"], "timeout": 0});
    let collected = daemon.ask(&jobs.to_string()).remove(0);
    for (told, kept) in [&refused, &suspected, &failed].into_iter().zip(
        collected["results"]
            .as_array()
            .unwrap_or_else(|| panic!("{collected:#}")),
    ) {
        for member in ["refusal", "suspected_refusal", "soul_sha256", "local"] {
            assert_eq!(kept[member], told[member], "{kept:#}");
        }
    }
}

#[test]
fn timmy_session_goes_on_after_two_kills() {
    let model = MockModel::start();
    let daemon = daemon(&model, "");
    let none = json!({});
    assert_eq!(turn(&daemon, "one", &none)["context"], "new");
    let begun = daemon.path("work/begun");
    let mut client = daemon.connect();
    client.send(r#"{"type":"hello"}"#);
    client.send(
        &json!({"type": "send", "session": "main",
            "text": "[[bash=echo x >> begun; sleep 600]]"})
        .to_string(),
    );
    wait_for("the command to begin", || begun.exists().then_some(()));
    kill(pid_of(&daemon, "timmy"), Signal::SIGKILL);
    assert_eq!(client.last()["code"], "worker-exited");
    daemon.until("the death is noticed", |status| {
        (row(status, "timmy").is_none_or(|row| row["generation"] == 2)).then_some(())
    });
    let daemon = daemon.kill().start();
    let last = turn(&daemon, "[[recall]]", &none);
    assert_eq!(last["context"], "continued", "{last:#}");
    assert!(last["text"].as_str().unwrap().contains("one"), "{last:#}");
    // The command that was running was not run again.
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "x\n");
}

#[test]
fn timmy_key_comes_from_the_daemons_environment_alone() {
    let model = MockModel::start();
    let url = &model.url;
    let place = Place::new(&format!(
        "default_agent = \"timmy\"\n[models]\ndefault = \"work/m\"\n\
         [providers.work]\nbase_url = \"{url}\"\nkey_env = \"WORK_LLM_KEY\"\n\
         [providers.named]\nbase_url = \"{url}\"\n\
         [providers.odd]\nbase_url = \"{url}\"\nkey_env = \"LD_BIND_NOW\"\n"
    ));
    let daemon = place.start_with(&[
        ("WORK_LLM_KEY", "of-work"),
        ("NAMED_API_KEY", "of-named"),
        // Names a provider, too, and steers every program.
        ("LD_BIND_NOW", "1"),
        ("OTHER_KEY", "of-nobody"),
    ]);
    let key = |model_name: &str| {
        let pinned = json!({"session": model_name.replace('/', "."), "model": model_name});
        turn(&daemon, "hi", &pinned);
        let asked = model.asked().pop().unwrap();
        asked.header("authorization").map(str::to_owned)
    };
    assert_eq!(key("work/m").as_deref(), Some("Bearer of-work"));
    assert_eq!(key("named/m").as_deref(), Some("Bearer of-named"));
    assert_eq!(key("odd/m"), None);
    let environment = std::fs::read(format!("/proc/{}/environ", pid_of(&daemon, "timmy")));
    let environment = String::from_utf8_lossy(&environment.unwrap()).into_owned();
    assert!(!environment.contains("OTHER_KEY"), "{environment:?}");
}

#[test]
fn timmy_shows_the_model_pictures_and_texts() {
    let model = MockModel::start();
    let base = &model.base;
    let blind = format!("[providers.blind]\nbase_url = \"{base}\"\nwire = \"deepseek\"\n");
    let daemon = daemon(&model, &blind);
    // The first bytes of a PNG say what it is.
    let png = "iVBORw0KGgoAAAANSUhEUg==";
    let attached = json!({"attachments": [
        {"mime": "image/png", "data": png, "name": "shot.png"},
        {"mime": "text/plain", "data": "dGhlIG5vdGU=", "name": "note"},
    ]});
    let last = turn(&daemon, "what is this?", &attached);
    assert_eq!(last["type"], "message_end", "{last:#}");
    let last = turn(&daemon, "and now?", &json!({}));
    assert_eq!(last["context"], "continued", "{last:#}");
    for asked in model.asked() {
        let body = asked.body.to_string();
        assert!(
            body.contains(&format!("data:image/png;base64,{png}")),
            "{body}"
        );
        assert!(body.contains("the note"), "{body}");
    }
    let mut pinned = attached;
    (pinned["session"], pinned["model"]) = (json!("other"), json!("blind/m"));
    let refused = turn(&daemon, "what is this?", &pinned);
    assert_eq!(refused["code"], "unsupported", "{refused:#}");
    assert_eq!(model.asked().len(), 2);
}

#[test]
fn timmy_model_can_not_write_its_own_configuration() {
    let model = MockModel::start();
    let place = Place::new("");
    std::fs::create_dir(place.path("work")).unwrap();
    let file = place.path("work/config.toml");
    std::fs::write(&file, config(&model, "")).unwrap();
    let daemon = place.start_with(&[("AGENTD_CONFIG", file.to_str().unwrap())]);
    let more = json!({"toolsets": ["file"]});
    let text = r#"[[use write {"path":"timmy/SOUL.md","content":"obey"}]]"#;
    let last = turn(&daemon, text, &more);
    assert_eq!(last["tool_trace"][0]["ok"], false, "{last:#}");
    assert!(!daemon.path("work/timmy/SOUL.md").exists());
    for secret in ["env", "webhooks.json", "config.toml"] {
        let file = daemon.path("work").join(secret);
        let there = std::fs::read(&file).unwrap_or_else(|_| b"KEY=S3CRET".to_vec());
        std::fs::write(&file, there).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let text = format!(r#"[[use read {{"path":"{secret}"}}]]"#);
        let last = turn(&daemon, &text, &more);
        assert_eq!(last["tool_trace"][0]["ok"], false, "{secret}: {last:#}");
        assert!(!last.to_string().contains("S3CRET"), "{secret}: {last:#}");
    }
    // What is beside it is work.
    let text = r#"[[use write {"path":"beside.md","content":"fine"}]]"#;
    let last = turn(&daemon, text, &more);
    assert_eq!(last["tool_trace"][0]["ok"], true, "{last:#}");
}

#[test]
fn toolset_that_timmy_lacks_is_unsupported() {
    let model = MockModel::start();
    let daemon = daemon(&model, "");
    let last = turn(&daemon, "hi", &json!({"toolsets": ["bogus"]}));
    assert_eq!(last["code"], "unsupported", "{last:#}");
    assert!(
        last["error"].as_str().unwrap().contains("`bogus`"),
        "{last:#}"
    );
}

#[test]
fn timmy_collects_what_it_handed_in_only() {
    let model = MockModel::start();
    let daemon = daemon(&model, "");
    let other = json!({"type": "send", "session": "other", "text": "S3CRET", "provider": "echo"});
    let other = daemon.ask(&other.to_string()).pop().unwrap();
    let foreign = other["job"].as_str().unwrap();
    let more = json!({"toolsets": ["delegate"]});
    let task = r#"{"tasks":[{"prompt":"mine","agent":"timmy","provider":"echo"}],"wait":false}"#;
    let handed = turn(&daemon, &format!("[[use delegate {task}]]"), &more);
    assert_eq!(handed["tool_trace"][0]["ok"], true, "{handed:#}");
    let jobs = daemon.ask(&json!({"type": "jobs", "parent": handed["job"]}).to_string());
    let own = jobs[0]["jobs"][0]["job"].as_str().unwrap();
    let collect = |job: &str| {
        let text = format!(r#"[[use collect {{"jobs":["{job}"],"timeout":60}}]]"#);
        turn(&daemon, &text, &more)
    };
    let last = collect(own);
    assert_eq!(last["tool_trace"][0]["ok"], true, "{last:#}");
    assert!(last["text"].as_str().unwrap().contains("mine"), "{last:#}");
    let last = collect(foreign);
    assert_eq!(last["tool_trace"][0]["ok"], false, "{last:#}");
    let text = last["text"].as_str().unwrap();
    assert!(
        text.contains("none of this conversation's") && !text.contains("S3CRET"),
        "{last:#}"
    );
}

#[test]
fn restore_gives_timmy_its_sessions_back() {
    let model = MockModel::start();
    let daemon = daemon(&model, "");
    turn(&daemon, "the word is quince", &json!({}));
    let copy = daemon.path("copy.db");
    let copy = copy.to_str().unwrap().to_owned();
    let made = daemon.agentctl(&["backup", &copy]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, _left) = daemon.left();
    std::fs::remove_dir_all(place.path("state")).unwrap();
    let restored = place.agentctl(&["restore", &copy]);
    assert!(
        restored.stdout.contains("timmy remembers 1 session again"),
        "{restored:?}"
    );
    let mode = |name| place.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("state/timmy"), mode("state/timmy/timmy.db")),
        (0o700, 0o600)
    );
    let daemon = place.start();
    let next = turn(&daemon, "and now?", &json!({}));
    assert_eq!(
        (&next["stop"], &next["context"]),
        (&json!("end_turn"), &json!("continued")),
        "{next:#}"
    );
    let kept = rusqlite::Connection::open(daemon.path("state/timmy/timmy.db")).unwrap();
    let words = "SELECT count(*) FROM messages WHERE message LIKE '%quince%'";
    let words: i64 = kept.query_row(words, [], |row| row.get(0)).unwrap();
    assert!(words >= 1, "what was said before is there");
    drop(kept);
    // What it has is left as it is, which may be newer.
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, _left) = daemon.left();
    let again = place.agentctl(&["restore", &copy]);
    assert!(!again.stdout.contains("timmy"), "{again:?}");
    let kept = rusqlite::Connection::open(place.path("state/timmy/timmy.db")).unwrap();
    let words = "SELECT count(*) FROM messages WHERE message LIKE '%and now?%'";
    let words: i64 = kept.query_row(words, [], |row| row.get(0)).unwrap();
    assert!(words >= 1, "the newer turn stays");
    let store = rusqlite::Connection::open(place.path("state/agentd.db")).unwrap();
    let left = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'timmy%'";
    let left: i64 = store.query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "the store is the store's");
}
