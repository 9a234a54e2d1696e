//! What is asked well: each revision, each tool.

use std::time::Duration;

use serde_json::{Value, json};

use super::Client;
use crate::support::{AGENTCTL, Daemon, Place, finish};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

#[test]
fn mcp_every_revision_asks_and_is_answered() {
    let daemon = Daemon::start();
    for version in ["2025-06-18", "2025-11-25"] {
        let mut client = Client::initialized(&daemon.place, version, &json!({}));
        let list = client.request("tools/list", &json!({}));
        assert_eq!(list["result"]["tools"][0]["name"], "ask");
        assert!(list["result"].get("resultType").is_none(), "{list:#}");
        let done = client.call("ask", &json!({"prompt": "hello"}));
        assert_eq!(
            (&done["text"], &done["state"]),
            (&json!("hello"), &json!("completed"))
        );
        assert!(
            client.progress()[0].starts_with("timmy has it as j"),
            "{:?}",
            client.told
        );
        assert_eq!(client.ends(), Some(0));
    }
    let mut client = Client::bare(&daemon.place, &[]);
    let meta = json!({VERSION: "2026-07-28", CAPABILITIES: {}});
    let found = client.request("server/discover", &json!({"_meta": meta}));
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    let params = json!({"name": "ask", "arguments": {"prompt": "hello"}, "_meta": meta});
    let done = client.request("tools/call", &params);
    assert_eq!(
        done["result"]["structuredContent"]["text"], "hello",
        "{done:#}"
    );
    assert_eq!(done["result"]["resultType"], "complete");
}

#[test]
fn mcp_ask_that_takes_long_is_collected() {
    let daemon = Daemon::start();
    let mut client = Client::new(&daemon.place);
    let gate = daemon.path("gate");
    let prompt = format!("chaos:say half;wait-file {};say  whole", gate.display());
    let ask = json!({"prompt": prompt, "agent": "chaos", "session": "long", "wait_s": 0.3});
    let running = client.call("ask", &ask);
    assert_eq!(
        (&running["state"], &running["session"]),
        (&json!("running"), &json!("long"))
    );
    let job = running["job"].clone();
    let none = client.call("collect", &json!({"jobs": [job], "wait_s": 0}));
    assert_eq!(
        (&none["pending"], &none["results"]),
        (&json!([job]), &json!([]))
    );
    let id = client.calls("collect", &json!({"jobs": [job]}));
    std::fs::write(gate, "").unwrap();
    let done = client.answer(id);
    let results = &done["result"]["structuredContent"]["results"];
    assert_eq!(results[0]["text"], "half whole", "{done:#}");
    // And by a face that knows nothing of it.
    let again = Client::new(&daemon.place).call("collect", &json!({"jobs": [job]}));
    assert_eq!(again["results"], *results);
}

#[test]
fn mcp_work_is_dispatched_steered_and_cancelled() {
    let daemon = Daemon::start();
    let mut client = Client::new(&daemon.place);
    let jobs = json!({"jobs": [{"prompt": "one"}, {"prompt": "two", "session": "two"}]});
    let given = client.call("dispatch", &jobs);
    assert_eq!(given["jobs"][1]["session"], "two", "{given:#}");
    let jobs: Vec<Value> = [0, 1].map(|at| given["jobs"][at]["job"].clone()).into();
    let done = client.call("collect", &json!({"jobs": jobs}));
    let texts = [0, 1].map(|at| done["results"][at]["text"].clone());
    assert_eq!(texts, ["one", "two"], "{done:#}");
    let asks = json!({"prompt": "chaos:say first;steered", "agent": "chaos", "wait_s": 0});
    let job = client.call("ask", &asks)["job"].clone();
    daemon.until("the turn runs", |status| {
        (status["rpc"]["in_flight"] == 1).then_some(())
    });
    let steered = client.call("steer", &json!({"job": job, "text": " left"}));
    assert_eq!(steered["job"], job);
    let done = client.call("collect", &json!({"jobs": [job]}));
    assert_eq!(done["results"][0]["text"], "first left", "{done:#}");
    let asks = json!({"prompt": "chaos:say half;sleep-ms 60000", "agent": "chaos", "wait_s": 0});
    let job = client.call("ask", &asks)["job"].clone();
    assert_eq!(
        client.call("cancel", &json!({"job": job}))["jobs"],
        json!([job])
    );
    let done = client.call("collect", &json!({"jobs": [job]}));
    assert_eq!(done["results"][0]["state"], "cancelled", "{done:#}");
}

#[test]
fn mcp_lists_say_what_there_is() {
    let daemon = Daemon::start();
    let mut client = Client::new(&daemon.place);
    for prompt in ["one", "two"] {
        client.call("ask", &json!({"prompt": prompt, "session": "main"}));
    }
    let sessions = client.call("sessions", &json!({}));
    let first = &sessions["sessions"][0];
    assert_eq!(
        (&first["session"], &first["turns"]),
        (&json!("main"), &json!(2))
    );
    let jobs = client.call(
        "jobs",
        &json!({"session": "main", "state": "completed", "limit": 1}),
    );
    assert_eq!(
        (&jobs["jobs"][0]["job"], &jobs["next"]),
        (&json!("j2"), &json!("j2")),
        "{jobs:#}"
    );
    let agents = client.call("agents", &json!({}));
    let agents = agents["agents"].as_array().unwrap();
    let timmy = agents.iter().find(|row| row["name"] == "timmy").unwrap();
    assert_eq!(
        (&timmy["usable"], &timmy["default"]),
        (&json!(true), &json!(true))
    );
    let history = client.call("history", &json!({"session": "main"}));
    let said = [0, 1].map(|at| history["turns"][at]["text"].clone());
    assert_eq!(said, ["one", "two"], "{history:#}");
    let one = client.call("history", &json!({"session": "main", "job": "j2"}));
    assert_eq!(one["turns"][0]["prompt"], "two");
    for (tool, arguments, code) in [
        (
            "ask",
            json!({"prompt": "x", "agent": "tmmy"}),
            "unknown-agent",
        ),
        ("ask", json!({"prompt": " "}), "invalid-request"),
        ("collect", json!({"jobs": ["j99"]}), "unknown-job"),
        ("history", json!({"session": "nobody"}), "unknown-session"),
        (
            "steer",
            json!({"job": "j1", "text": "left"}),
            "session-idle",
        ),
        ("jobs", json!({"state": "lost"}), "invalid-request"),
    ] {
        assert_eq!(client.fails(tool, &arguments)["code"], code, "{tool}");
    }
}

#[test]
fn mcp_agents_work_where_their_client_does() {
    let daemon = Daemon::with("[agents.where]\nkind = \"exec\"\ncommand = [\"/bin/pwd\"]\n");
    let real = |name: &str| {
        let dir = daemon.path(name);
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        dir.canonicalize().unwrap()
    };
    let (here, project, root) = (real("here"), real("project"), real("root"));
    let ask = |client: &mut Client, more: &Value| {
        let mut arguments = json!({"prompt": "x", "agent": "where"});
        if let Value::Object(more) = more {
            arguments.as_object_mut().unwrap().extend(more.clone());
        }
        client.call("ask", &arguments)["text"]
            .as_str()
            .unwrap()
            .trim()
            .to_owned()
    };
    let mut command = daemon.place.command(AGENTCTL);
    command.args(["serve", "mcp"]).current_dir(&here);
    let mut client = Client::of(command);
    assert_eq!(ask(&mut client, &json!({})), here.to_str().unwrap());
    let sub = here.join("sub");
    assert_eq!(
        ask(&mut client, &json!({"cwd": "sub"})),
        sub.to_str().unwrap()
    );
    let mut command = daemon.place.command(AGENTCTL);
    command
        .args(["serve", "mcp"])
        .current_dir(&here)
        .env("CLAUDE_PROJECT_DIR", &project);
    assert_eq!(
        ask(&mut Client::of(command), &json!({})),
        project.to_str().unwrap()
    );
    // What the client says of its user counts most.
    let mut client = Client::initialized(&daemon.place, "2025-11-25", &json!({"roots": {}}));
    let asked = client.next();
    assert_eq!(asked["method"], "roots/list");
    let uri = format!("file://{}", root.display());
    client.says(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [{"uri": uri}]}}));
    assert_eq!(
        ask(&mut client, &json!({"session": "kept"})),
        root.to_str().unwrap()
    );
    // A session stays where it was made.
    let mut other = Client::new(&daemon.place);
    assert_eq!(
        ask(&mut other, &json!({"session": "kept"})),
        root.to_str().unwrap()
    );
}

#[test]
fn mcp_question_is_answered_by_the_user() {
    let daemon = Daemon::start();
    let asking = |kind: &str| json!({"prompt": format!("chaos:ask {kind}"), "agent": "chaos"});
    let mut client = Client::initialized(&daemon.place, "2025-06-18", &json!({"elicitation": {}}));
    for (kind, content, expected) in [
        ("approval", json!({"approve": true}), "approve=true"),
        ("choice", json!({"choice": "left"}), "choice=\"left\""),
        ("text", json!({"text": "word"}), "text=\"word\""),
    ] {
        let id = client.calls("ask", &asking(kind));
        let form = loop {
            let line = client.next();
            if line["method"] == "elicitation/create" {
                break line;
            }
        };
        let filled = json!({"action": "accept", "content": content});
        client.says(&json!({"jsonrpc": "2.0", "id": form["id"], "result": filled}));
        let done = client.answer(id);
        assert_eq!(
            done["result"]["structuredContent"]["text"], expected,
            "{done:#}"
        );
    }
    // Nobody there: denied at once.
    let mut client = Client::new(&daemon.place);
    assert_eq!(
        client.call("ask", &asking("approval"))["text"],
        "approve=false"
    );
    // The revision without requests of the server has the question for an answer.
    let mut client = Client::bare(&daemon.place, &[]);
    let meta = json!({VERSION: "2026-07-28", CAPABILITIES: {"elicitation": {"form": {}}}});
    let mut params = json!({"name": "ask", "arguments": asking("approval"), "_meta": meta});
    let asked = client.request("tools/call", &params);
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked:#}");
    let question = result["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    params["requestState"] = result["requestState"].clone();
    params["inputResponses"] =
        json!({question: {"action": "accept", "content": {"approve": true}}});
    // By another process, as after a restart.
    let mut client = Client::bare(&daemon.place, &[]);
    let done = client.request("tools/call", &params);
    assert_eq!(
        done["result"]["structuredContent"]["text"], "approve=true",
        "{done:#}"
    );
}

#[test]
fn mcp_model_answers_only_where_that_is_wanted() {
    let daemon = Daemon::start();
    let mut client = Client::new(&daemon.place);
    let params = json!({"name": "answer", "arguments": {"question_id": "j1-q1", "approve": true}});
    let refused = client.request("tools/call", &params);
    assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
    let mut asking = daemon.connect();
    asking.send(r#"{"type":"send","id":1,"agent":"chaos","text":"chaos:ask approval","on_question":"wait"}"#);
    asking.until("question");
    let mut client = Client::bare(&daemon.place, &["--answers"]);
    let open = client.call("questions", &json!({}));
    let id = &open["questions"][0]["question_id"];
    client.call("answer", &json!({"question_id": id, "approve": true}));
    assert_eq!(asking.last()["text"], "approve=true");
}

#[test]
fn mcp_runs_without_a_daemon_unless_forbidden() {
    let place = Place::new(&Daemon::config(""));
    let mut client = Client::new(&place);
    let done = client.call("ask", &json!({"prompt": "alone", "session": "s"}));
    assert_eq!(done["text"], "alone", "{done:#}");
    let again = client.call("ask", &json!({"prompt": "again", "session": "s"}));
    assert_eq!(again["text"], "again", "{again:#}");
    let work = json!({"jobs": [{"prompt": "more"}]});
    assert_eq!(client.fails("dispatch", &work)["code"], "needs-daemon");
    assert_eq!(
        client.call("sessions", &json!({}))["sessions"][0]["session"],
        "s"
    );
    assert_eq!(client.ends(), Some(0));
    let mut client = Client::bare(&place, &["--no-fallback"]);
    let refused = client.fails("ask", &json!({"prompt": "alone"}));
    assert_eq!(refused["code"], "unreachable");
    let list = client.request("tools/list", &json!({}));
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 9);
}

#[test]
fn mcp_calls_from_a_pipe_are_answered() {
    let daemon = Daemon::start();
    let mut command = daemon.place.command(AGENTCTL);
    command.args(["serve", "mcp"]);
    let params = json!({"name": "ask", "arguments": {"prompt": "piped"}});
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let done = finish(command, line.to_string().as_bytes());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("\"text\":\"piped\""), "{done:?}");
}

#[test]
fn mcp_cancelled_ask_goes_on_unless_told_otherwise() {
    let daemon = Daemon::start();
    for (more, state) in [
        (&[][..], "completed"),
        (&["--abort-cancelled"][..], "cancelled"),
    ] {
        let gate = daemon.path("gate");
        let mut client = Client::bare(&daemon.place, more);
        let prompt = format!("chaos:say half;wait-file {}", gate.display());
        let id = client.calls("ask", &json!({"prompt": prompt, "agent": "chaos"}));
        let told = client.next();
        let message = told["params"]["message"].as_str().unwrap();
        let is_job = |word: &&str| word.starts_with('j') && word.len() == 2;
        let mut words = message.split([' ', ',']);
        let job = words.find(is_job).unwrap().to_owned();
        client.says(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
        if more.is_empty() {
            client.is_unanswered(id, Duration::from_millis(100));
            std::fs::write(&gate, "").unwrap();
        }
        let done = client.call("collect", &json!({"jobs": [job]}));
        assert_eq!(done["results"][0]["state"], state, "{done:#}");
        assert!(
            client.told.iter().all(|line| line["id"] != id),
            "{:?}",
            client.told
        );
        let _made = std::fs::remove_file(gate);
    }
}
