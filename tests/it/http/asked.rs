//! What is asked well: each route, keys, waits, streams.

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value, json};

use super::{Answer, Http, jobs, served};
use crate::support::{Daemon, Place, needs, wait_for};

#[test]
fn http_turn_is_handed_in_and_read_again() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let turn = json!({"prompt": "hello", "session": "main", "labels": {"run": "7"}});
    let answer = http.post("/v1/dispatch?wait=20", &turn);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("\r\nlocation: /v1/jobs/j1\r\n"));
    let done = answer.json();
    assert_eq!(done["jobs"][0]["job"], "j1");
    assert_eq!(done["results"][0]["text"], "hello");
    assert_eq!(done["pending"], json!([]));
    let one = http.curl("/v1/jobs/j1", &[]).json();
    assert_eq!(
        (&one["state"], &one["session"], &one["result"]["text"]),
        (&json!("completed"), &json!("main"), &json!("hello"))
    );
    let list = http.curl("/v1/jobs?label=run=7&session=main&limit=1", &[]);
    assert_eq!(list.json()["jobs"][0]["job"], "j1");
    assert_eq!(
        http.curl("/v1/jobs?label=run=8", &[]).json()["jobs"],
        json!([])
    );
    let agents = http.curl("/v1/agents", &[]).json();
    let names = agents["agents"].as_array().unwrap();
    assert!(names.iter().any(|row| row["name"] == "chaos"), "{agents}");
    let detailed = http.curl("/health/detailed", &[]).json();
    assert_eq!(detailed["status"], "ready");
    assert_eq!(detailed["rpc"]["clients"]["agentd-http"], 1);
    assert!(detailed.get("id").is_none());
    let metrics = http.curl("/metrics", &[]);
    assert!(metrics.body.contains("\nagentd_up 1\n"), "{metrics:?}");
    let document = http.curl("/openapi.json", &[]).json();
    assert_eq!(document["openapi"], "3.1.0");
}

#[test]
fn http_names_the_agents_that_could_answer() {
    if needs("curl").is_none() {
        return;
    }
    let agent = |name: &str| format!("[agents.{name}]\nkind = \"exec\"\ncommand = [\"cat\"]\n");
    let daemon = Place::new(&(agent("one") + &agent("two"))).start();
    let http = Http::start(&daemon.place);
    let refused = http.post("/v1/dispatch", &json!({"prompt": "hi"}));
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (422, "ambiguous")
    );
    let problem = refused.json();
    assert_eq!(problem["choices"], json!(["one", "two", "timmy"]));
    let hint = problem["hint"].as_str().unwrap();
    assert!(
        hint.contains("`agent`") && !hint.contains("agentctl"),
        "{hint}"
    );
}

#[test]
fn http_turns_are_accepted_all_or_none() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let turns = json!({"jobs": [{"prompt": "one"}, {"prompt": "two", "agent": "tmmy"}]});
    let refused = http.post("/v1/dispatch", &turns);
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (422, "unknown-agent")
    );
    assert_eq!(refused.json()["hint"], "did you mean `timmy`?");
    assert_eq!(jobs(&daemon), 0);
    for turns in [
        json!({"jobs": [{"prompt": "one"}, {"prompt": "two"}]}),
        json!([{"prompt": "one"}, {"prompt": "two"}]),
    ] {
        let answer = http.post("/v1/dispatch?wait=20", &turns).json();
        let texts: Vec<_> = answer["results"].as_array().unwrap().iter().collect();
        assert_eq!(
            (&texts[0]["text"], &texts[1]["text"]),
            (&json!("one"), &json!("two"))
        );
    }
    let answer = http.post("/v1/dispatch", &json!([{"prompt": "a [[sleep 600000]]"}]));
    assert_eq!(answer.status, 202);
    assert_eq!(answer.json()["pending"], json!(["j5"]));
    let failed = http.post(
        "/v1/dispatch?wait=20",
        &json!({"prompt": "[[error=rate-limit]]"}),
    );
    assert_eq!(
        (failed.status, &failed.json()["results"][0]["code"]),
        (200, &json!("rate-limit"))
    );
}

#[test]
fn the_same_key_is_the_same_job() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let turn = json!({"prompt": "once"});
    let asked: Vec<Value> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let more = ["-H", "Idempotency-Key: monday-1"];
                    http.post_with("/v1/dispatch?wait=20", &turn, &more).json()
                })
            })
            .collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(jobs(&daemon), 1);
    let first = |one: &&Value| one["jobs"][0]["replayed"] == false;
    assert_eq!(asked.iter().filter(first).count(), 1, "{asked:#?}");
    assert!(asked.iter().all(|one| one["results"][0]["text"] == "once"));
    // In quotes, as structured fields have it.
    let quoted = ["-H", r#"Idempotency-Key: "monday-1""#];
    let again = http.post_with("/v1/dispatch", &turn, &quoted).json();
    assert_eq!(
        (&again["jobs"][0]["job"], &again["jobs"][0]["replayed"]),
        (&json!("j1"), &json!(true))
    );
    // Whoever didn't hear the answer hears the result with it.
    let again = http.post_with("/v1/dispatch", &turn, &quoted);
    assert_eq!(
        (again.status, &again.json()["results"][0]["text"]),
        (200, &json!("once"))
    );
    let other = json!({"prompt": "twice"});
    let refused = http.post_with("/v1/dispatch", &other, &quoted);
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (422, "idempotency-conflict")
    );
    // Several have it with numbers, and one that has its own keeps it.
    let turns = json!([{"prompt": "once", "idempotency_key": "monday-1"}, {"prompt": "b"}]);
    let more = ["-H", "Idempotency-Key: tuesday"];
    let several = http.post_with("/v1/dispatch", &turns, &more).json();
    assert_eq!(
        (&several["jobs"][0]["job"], &several["jobs"][1]["job"]),
        (&json!("j1"), &json!("j2"))
    );
    let second = json!({"prompt": "b", "idempotency_key": "tuesday 2/2"});
    assert_eq!(
        http.post("/v1/dispatch", &second).json()["jobs"][0]["job"],
        "j2"
    );
    // A list of one is that one; a longer list is another request.
    let more = ["-H", "Idempotency-Key: monday-1"];
    let one = http.post_with("/v1/dispatch", &json!([turn]), &more).json();
    assert_eq!(one["jobs"][0]["job"], "j1");
    let turns = json!([turn, turn]);
    let two = http.post_with("/v1/dispatch", &turns, &more).json();
    assert_eq!(two["jobs"][0]["job"], "j3");
    for key in ["", "\"\"", "tuesday 2/2", "a\"b", &"k".repeat(256)] {
        let more = ["-H", &format!("Idempotency-Key; {key}")];
        let more = match key {
            "" => ["-H", "Idempotency-Key;"],
            _ => [more[0], &more[1].replace(';', ":")],
        };
        assert_eq!(
            http.post_with("/v1/dispatch", &turn, &more).status,
            422,
            "{key}"
        );
    }
}

/// The events of a job as (id, event, data).
fn events(http: &Http, job: &str, after: Option<&str>) -> (u16, Vec<(String, String, Value)>) {
    let cursor = after.map(|after| format!("Last-Event-ID: {after}"));
    let words: Vec<&str> = cursor.iter().flat_map(|cursor| ["-H", cursor]).collect();
    let answer = http.curl(&format!("/v1/jobs/{job}/events"), &words);
    let mut body = answer.body.as_str();
    let mut found = Vec::new();
    if answer.status == 200 {
        assert!(answer.head.contains("content-type: text/event-stream"));
        while let Some((event, rest)) = body.split_once("\n\n") {
            let field = |name: &str| {
                let mut lines = event.lines();
                let line = lines.find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default().to_owned()
            };
            let data = serde_json::from_str(&field("data: ")).unwrap();
            found.push((field("id: "), field("event: "), data));
            body = rest;
        }
        assert_eq!(body, "", "{answer:?}");
    }
    (answer.status, found)
}

#[test]
fn http_events_go_on_behind_the_last_read() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let turn = json!({"prompt": "[[tool ls]] said"});
    assert_eq!(http.post("/v1/dispatch?wait=20", &turn).status, 200);
    let (status, all) = events(&http, "j1", None);
    assert_eq!(status, 200);
    let names: Vec<&str> = all.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(
        (names.first(), names.last()),
        (Some(&"accepted"), Some(&"message_end"))
    );
    assert!(
        names.contains(&"tool_end") && names.contains(&"message_delta"),
        "{names:?}"
    );
    for (id, name, data) in &all {
        assert_eq!(data["type"], *name);
        assert!(data.get("id").is_none(), "{data}");
        let seq = data["seq"].as_u64().map(|seq| seq.to_string());
        assert_eq!(id.split('.').next().unwrap(), seq.unwrap_or_default());
    }
    let numbered: Vec<_> = all.iter().filter(|(id, ..)| !id.is_empty()).collect();
    let (middle, _, _) = numbered[2];
    let (_, later) = events(&http, "j1", Some(middle));
    let later: Vec<_> = later.iter().filter(|(id, ..)| !id.is_empty()).collect();
    assert_eq!(later, numbered[3..]);
    let (last, _, _) = numbered.last().unwrap();
    assert_eq!(events(&http, "j1", Some(last)), (204, Vec::new()));
    assert_eq!(events(&http, "j2", None).0, 404);
    assert_eq!(events(&http, "x", None).0, 404);
    assert_eq!(events(&http, "j1", Some("1.another-store")).0, 409);
    assert_eq!(events(&http, "j1", Some("1000000")).0, 409);
    assert_eq!(events(&http, "j1", Some("soon")).0, 422);
}

#[test]
fn http_stream_is_live_and_its_job_cancelled() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let turn = json!({"prompt": "begun [[sleep 600000]]"});
    http.post("/v1/dispatch", &turn);
    let mut stream = http.connect();
    let request = http.head("GET /v1/jobs/j1/events") + "\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut said = String::new();
    while !said.contains("\"text\":\"begun") {
        assert!(reader.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let aborted = http.curl("/v1/jobs/j1/abort", &["-X", "POST"]);
    assert_eq!(
        (aborted.status, aborted.json()),
        (200, json!({"jobs": ["j1"]}))
    );
    while !said.contains("\"stop\":\"cancelled\"") {
        assert!(reader.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let one = http.curl("/v1/jobs/j1?wait=20", &[]).json();
    assert_eq!(
        (&one["state"], &one["result"]["stop"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    let again = http.post("/v1/jobs/j1/abort", &json!({}));
    assert_eq!((again.status, again.json()), (200, json!({"jobs": []})));
    assert_eq!(http.curl("/v1/jobs/j9/abort", &["-X", "POST"]).status, 404);
    assert_eq!(
        http.post("/v1/jobs/j1/abort", &json!({"queued": true}))
            .status,
        422
    );
    daemon.until("nothing runs", |status| {
        (status["rpc"]["in_flight"] == 0).then_some(())
    });
}

#[test]
fn model_of_a_session_is_set() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let turn = json!({"prompt": "chaos:say a", "agent": "chaos", "session": "team/main"});
    http.post("/v1/dispatch?wait=20", &turn);
    let path = "/v1/sessions/team%2Fmain/model";
    let set = http.post(path, &json!({"model": "large", "thinking": "low"}));
    assert_eq!(set.status, 200, "{set:?}");
    let told = set.json();
    assert_eq!(
        (&told["session"], &told["model"], &told["thinking"]),
        (&json!("team/main"), &json!("large"), &json!("low"))
    );
    let unknown = http.post("/v1/sessions/nobody/model", &json!({"model": "large"}));
    assert_eq!(
        (unknown.status, unknown.code().as_str()),
        (404, "unknown-session")
    );
    let kept = http.post(path, &json!({"thinking": "high"})).json();
    assert_eq!(
        (&kept["model"], &kept["thinking"]),
        (&json!("large"), &json!("high"))
    );
    assert_eq!(http.post(path, &json!({})).status, 422);
}

#[test]
fn http_session_is_titled_and_forked() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let turn = json!({"prompt": "a", "session": "team/main"});
    http.post("/v1/dispatch?wait=20", &turn);
    let of = |session: &str, what: &str| format!("/v1/sessions/{session}/{what}");
    let title = of("team%2Fmain", "title");
    let set = http.post(&title, &json!({"title": "Ours"}));
    assert_eq!(
        (set.status, set.json()),
        (200, json!({"session": "team/main", "title": "Ours"}))
    );
    let unset = http.post(&title, &json!({"title": null})).json();
    assert_ne!(unset["title"], "Ours");
    assert_eq!(http.post(&title, &json!({"title": " "})).status, 422);
    let fork = http.post(&of("team%2Fmain", "fork"), &json!({"to": "other"}));
    let told = (fork.status, fork.json()["session"].clone());
    assert_eq!(told, (200, json!("other")), "{fork:?}");
    for what in ["title", "fork"] {
        let unknown = http.post(&of("nobody", what), &json!({}));
        assert_eq!(
            (unknown.status, unknown.code().as_str()),
            (404, "unknown-session"),
            "{what}"
        );
    }
}

#[test]
fn an_agents_question_is_answered() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let turn = json!({"prompt": "chaos:ask choice", "agent": "chaos", "on_question": "wait"});
    http.post("/v1/dispatch", &turn);
    let question = wait_for("it asks", || {
        let asked = daemon.ask(r#"{"type":"questions"}"#).remove(0);
        asked["questions"][0]["question_id"]
            .as_str()
            .map(str::to_owned)
    });
    let path = format!("/v1/questions/{question}");
    for (body, code) in [
        (json!({"choice": "up"}), "invalid-request"),
        (json!({}), "invalid-request"),
        (json!({"choice": "left", "cancel": true}), "invalid-request"),
        (json!({"chose": "left"}), "invalid-request"),
    ] {
        let refused = http.post(&path, &body);
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (422, code),
            "{body}"
        );
    }
    let answered = http.post(&path, &json!({"choice": "left"}));
    assert_eq!(
        (answered.status, answered.json()),
        (200, json!({"question_id": question}))
    );
    assert_eq!(http.post(&path, &json!({"choice": "left"})).status, 409);
    assert_eq!(
        http.post("/v1/questions/j1-q9", &json!({"cancel": true}))
            .status,
        404
    );
    let one = http.curl("/v1/jobs/j1?wait=20", &[]).json();
    assert_eq!(one["result"]["text"], "choice=\"left\"");
}

#[test]
fn http_turn_takes_content_and_a_callback() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let content = json!({"mime": "text/plain", "data": "aGVsbG8=", "name": "greeting"});
    let turn = json!({"prompt": "chaos:attached", "agent": "chaos", "attachments": [content]});
    let answer = http.post("/v1/dispatch?wait=20", &turn).json();
    assert_eq!(
        answer["results"][0]["text"],
        "text/plain greeting 8 aGVsbG8=\n"
    );
    let turn = json!({"prompt": "a", "attachments": [{"path": "/etc/passwd"}]});
    assert_eq!(http.post("/v1/dispatch", &turn).status, 422);
    let turn = json!({"prompt": "a", "callback_url": "nonsense"});
    let refused = http.post("/v1/dispatch", &turn);
    let code = refused.code();
    assert!(
        ["unsupported", "invalid-request"].contains(&code.as_str()),
        "{refused:?}"
    );
}

/// What a browser does for a page of an origin that is allowed, and of one that isn't.
fn pages_ask_across_origins(http: &Http) {
    let allows = |answer: &Answer| {
        let line = |line: &&str| line.starts_with("access-control-allow-origin: ");
        answer.head.lines().find(line).map(str::to_owned)
    };
    let page = "Origin: https://agents.example";
    let preflight = |origin: &str| {
        let asks = [
            "-X",
            "OPTIONS",
            "-H",
            origin,
            "-H",
            "Sec-Fetch-Site: cross-site",
            "-H",
            "Access-Control-Request-Method: POST",
            "-H",
            "Access-Control-Request-Headers: authorization,x-stainless-os",
        ];
        http.bare_curl("/v1/chat/completions", &asks)
    };
    let told = preflight(page);
    assert_eq!((told.status, told.body.as_str()), (204, ""), "{told:?}");
    let allowed = Some("access-control-allow-origin: https://agents.example".to_owned());
    assert_eq!(allows(&told), allowed, "{told:?}");
    for line in [
        "access-control-allow-headers: authorization,x-stainless-os",
        "access-control-allow-methods: get, post, delete",
        "vary: origin",
    ] {
        assert!(told.head.contains(line), "{line}: {told:?}");
    }
    let refused = preflight("Origin: https://evil.example");
    assert_eq!(
        (refused.status, allows(&refused)),
        (403, None),
        "{refused:?}"
    );
    let asked = ["-H", page, "-H", "Sec-Fetch-Site: cross-site"];
    let answer = http.curl("/v1/models", &asked);
    assert_eq!(
        (answer.status, allows(&answer)),
        (200, allowed.clone()),
        "{answer:?}"
    );
    // The page hears why, too.
    let stranger = http.bare_curl("/v1/models", &asked);
    assert_eq!(
        (stranger.status, allows(&stranger)),
        (401, allowed),
        "{stranger:?}"
    );
    assert_eq!(allows(&http.curl("/v1/models", &[])), None);
}

#[test]
fn http_page_and_proxy_that_are_allowed_ask() {
    if needs("curl").is_none() {
        return;
    }
    let daemon = Daemon::start();
    let more = [
        "--allow-host",
        "agents.example",
        "--allow-origin",
        "HTTPS://agents.example",
        "--allow-host",
        "[::1]:80",
    ];
    let http = Http::with(&daemon.place, &more);
    let headers = [
        "-H",
        "Host: agents.example",
        "-H",
        "Origin: https://agents.example",
    ];
    let answer = http.curl("/v1/jobs", &headers);
    assert_eq!(answer.status, 200);
    pages_ask_across_origins(&http);
    let headers = [
        "-H",
        "Host: agents.example:80",
        "-H",
        "Origin: https://agents.example",
    ];
    assert_eq!(http.curl("/v1/jobs", &headers).status, 421);
}

#[test]
fn http_is_not_served_openly_to_others() {
    let place = Place::new("");
    for (words, code, said) in [
        (&["--listen", "0.0.0.0:0"][..], 78, "other machines reach"),
        (&["--listen", "[::]:0"], 78, "other machines reach"),
        (&["--listen", "192.0.2.1:0"], 78, "other machines reach"),
        (
            &["--listen", "[::ffff:127.0.0.1]:0"],
            78,
            "other machines reach",
        ),
        (
            &["--listen", "192.0.2.1:0", "--behind-tls-proxy"],
            78,
            "cannot listen",
        ),
        (&["--listen", "localhost:0"], 2, "invalid value"),
        (&["--allow-origin", "agents.example"], 2, "is no origin"),
        (
            &["--allow-origin", "https://agents.example/"],
            2,
            "is no origin",
        ),
        (&["--allow-origin", "https://*"], 2, "is no origin"),
        (&["--allow-origin", "https://me@x"], 2, "is no origin"),
        (&["--allow-host", ""], 2, "is no host"),
        (&["--allow-host", "https://x.example/"], 2, "is no host"),
        (&["--allow-host", "x.example:70000"], 2, "is no host"),
    ] {
        let words: Vec<&str> = ["serve", "http"].iter().chain(words).copied().collect();
        let done = place.agentctl(&words);
        assert_eq!(done.code, Some(code), "{words:?}: {done:?}");
        assert!(done.stderr.contains(said), "{words:?}: {done:?}");
    }
    let done = place.agentctl(&["--host", "mac", "serve", "http"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let done = place.agentctl(&["serve", "http", "--listen", &at]);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.stderr.contains("somebody listens on"), "{done:?}");
}
