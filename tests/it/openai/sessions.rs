//! Whose session it is: clients that send everything each time, front ends, names.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{beginning, chat, content, error, header, said};
use crate::http::{Http, jobs, served};
use crate::native;
use crate::supervision::pid_of;
use crate::support::{Daemon, Place, kill, needs, wait_for};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// Asks with these messages, and gives what was said and in which session.
fn talk(http: &Http, messages: &Value, more: &[&str]) -> (String, String) {
    let body = json!({"messages": messages});
    let answer = http.post_with("/v1/chat/completions", &body, more);
    let session = header(&answer, "x-agentd-session").unwrap().to_owned();
    (content(&answer), session)
}

#[test]
fn chat_finds_its_session_again() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let nothing = (Value::Null, Vec::new());
    let before = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let (text, first) = talk(&http, &json!([user("one")]), &[]);
    assert_eq!(
        (text.as_str(), beginning(&daemon)),
        ("one", nothing.clone())
    );
    let more = json!([user("one"), assistant("one"), user("two")]);
    let (text, second) = talk(&http, &more, &[]);
    assert_eq!((text.as_str(), &second), ("two", &first));
    assert_eq!(beginning(&daemon), nothing);
    // What was said before goes on from there only once.
    let (text, branch) = talk(&http, &more, &[]);
    assert!(text == "two" && branch != first, "{text} in {branch}");
    assert_eq!(beginning(&daemon), (Value::Null, before(&["one", "one"])));
    let more = json!([
        user("one"),
        assistant("one"),
        user("two"),
        assistant(" two\n"),
        user("three")
    ]);
    let (text, third) = talk(&http, &more, &[]);
    // In both of them it was said, and in the newest it goes on.
    assert_eq!((text.as_str(), &third), ("three", &branch));
    // Edited, or heard elsewhere: told from the beginning.
    let edited = json!([user("one"), assistant("uno"), user("two")]);
    assert_ne!(talk(&http, &edited, &[]).1, first);
    assert_eq!(beginning(&daemon), (Value::Null, before(&["one", "uno"])));
    let system = json!([{"role": "system", "content": "be terse"}, user("hi")]);
    let (text, begun) = talk(&http, &system, &[]);
    assert_eq!(
        (text.as_str(), beginning(&daemon)),
        ("hi", (json!("be terse"), Vec::new()))
    );
    let more = json!([{"role": "system", "content": "be terse"}, user("hi"), assistant(&text), user("on")]);
    assert_eq!(talk(&http, &more, &[]), ("on".to_owned(), begun));
}

#[test]
fn chat_of_another_user_goes_on_elsewhere() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let asked = |who: &Value, more: &[&str], messages: &Value| {
        let mut body = json!({"model": "timmy", "messages": messages});
        for (name, value) in who.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = http.post_with("/v1/chat/completions", &body, more);
        header(&answer, "x-agentd-session").unwrap().to_owned()
    };
    let both = [
        [(json!({"user": "alice"}), ""), (json!({"user": "bob"}), "")],
        [
            (json!({"safety_identifier": "alice"}), ""),
            (json!({"safety_identifier": "bob"}), ""),
        ],
        [
            (json!({}), "X-OpenWebUI-User-Id: alice"),
            (json!({}), "X-OpenWebUI-User-Id: bob"),
        ],
    ];
    for (turn, pair) in both.iter().enumerate() {
        let first = json!([user(&format!("one {turn}"))]);
        let more = json!([first[0], assistant(&format!("one {turn}")), user("two")]);
        let headers = pair.each_ref().map(|(_, header)| match *header {
            "" => Vec::new(),
            header => vec!["-H", header],
        });
        let begun = [0, 1].map(|at| asked(&pair[at].0, &headers[at], &first));
        let later = [0, 1].map(|at| asked(&pair[at].0, &headers[at], &more));
        assert_eq!(begun, later, "{pair:?}");
    }
}

#[test]
fn side_requests_stay_out_of_a_chat() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let chat = ["-H", "X-OpenWebUI-Chat-Id: 0cb47e33"];
    let (_, title) = talk(
        &http,
        &json!([user("### Task:\nGenerate a concise title")]),
        &chat,
    );
    let (_, session) = talk(&http, &json!([user("hello")]), &chat);
    let (_, tags) = talk(
        &http,
        &json!([user("### Task:\nGenerate 1-3 broad tags")]),
        &chat,
    );
    assert!(session != title && session != tags && title != tags);
    let more = json!([user("hello"), assistant("hello"), user("more")]);
    let other = ["-H", "X-OpenWebUI-Chat-Id: another"];
    assert_ne!(talk(&http, &more, &other).1, session);
    assert_eq!(talk(&http, &more, &chat), ("more".to_owned(), session));
}

#[test]
fn session_that_is_named_gets_the_last_words() {
    let Some((daemon, http)) = served() else {
        return;
    };
    for header in ["X-Agentd-Session: main", "X-Hermes-Session-Id: main"] {
        let messages = json!([user("a"), assistant("b"), user("c")]);
        let (text, session) = talk(&http, &messages, &["-H", header]);
        assert_eq!(session, "main");
        let (_, before) = beginning(&daemon);
        let told = if header.contains("Hermes") { 0 } else { 2 };
        assert_eq!((text.as_str(), before.len()), ("c", told), "{header}");
    }
    // The session began without instructions: those that come later stand in the prompt, once.
    for told in ["# Instructions be terse # What the user says now d", "d"] {
        let system = json!({"role": "system", "content": "be terse"});
        let messages = json!([system, user("a"), assistant("b"), user("d")]);
        let (text, _) = talk(&http, &messages, &["-H", "X-Agentd-Session: main"]);
        assert_eq!(text, told);
    }
    let (_, odd) = talk(
        &http,
        &json!([user("a")]),
        &["-H", "X-Agentd-Session: my chat"],
    );
    assert!(odd.starts_with("openai-"), "{odd}");
    let row = daemon.ask(r#"{"type":"jobs","limit":1}"#).remove(0);
    assert_eq!(row["jobs"][0]["labels"]["openai.session"], "my chat");
    let mut body = said("x");
    body["model"] = "chaos".into();
    let refused = http.post_with(
        "/v1/chat/completions",
        &body,
        &["-H", "X-Agentd-Session: main"],
    );
    assert_eq!(error(&refused), (400, "session-conflict".to_owned(), None));
}

#[test]
fn chat_asked_twice_at_once_is_not_interleaved() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let (_, first) = talk(&http, &json!([user("one")]), &[]);
    let body = json!({"messages": [user("one"), assistant("one"), user("[[sleep 300]] two")]});
    let sessions: Vec<String> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    header(&chat(&http, &body), "x-agentd-session")
                        .unwrap()
                        .to_owned()
                })
            })
            .collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(
        sessions.iter().filter(|session| **session == first).count(),
        1,
        "{sessions:?}"
    );
    assert_eq!(jobs(&daemon), 5);
}

/// Agents that remember nothing, and those whose process is gone that did: a client that sends
/// everything is answered by one that was told everything.
#[test]
fn chat_is_told_anew_where_it_was_forgotten() {
    let exec = "[agents.cat]\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\n";
    if needs("curl").is_none() {
        return;
    }
    let daemon = Daemon::with(exec);
    let http = Http::start(&daemon.place);
    for stream in [false, true] {
        let first = json!([user("one")]);
        let ask = |messages: &Value| {
            chat(
                &http,
                &json!({"model": "cat", "messages": messages, "stream": stream}),
            )
        };
        let answer = ask(&first);
        let session = header(&answer, "x-agentd-session").unwrap().to_owned();
        let more = json!([user("one"), assistant("one"), user("two")]);
        let answer = ask(&more);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_ne!(header(&answer, "x-agentd-session"), Some(session.as_str()));
        let (system, before) = beginning(&daemon);
        assert_eq!((system, before), (Value::Null, vec!["one".to_owned(); 2]));
        assert!(answer.body.contains("# Conversation so far"), "{answer:?}");
        let job = header(&answer, "x-agentd-job").unwrap();
        assert_eq!(job, format!("j{}", jobs(&daemon)), "{answer:?}");
    }
    assert_eq!(jobs(&daemon), 4, "none was made in vain");
}

/// Its first attempt's server is gone: whoever asks again finds the turn before its agent says that it
/// has lost what was said.
#[test]
fn chat_retry_is_told_anew_where_forgotten() {
    if needs("curl").is_none() {
        return;
    }
    let kept = tempfile::tempdir().unwrap();
    let daemon = Place::new(&native::keeps(kept.path(), "")).start();
    let http = Http::start(&daemon.place);
    let ask = |http: &Http, messages: &Value, count: &str| {
        let body = json!({"model": "keeps", "messages": messages});
        let count = format!("x-stainless-retry-count: {count}");
        http.post_with("/v1/chat/completions", &body, &["-H", &count])
    };
    assert_eq!(content(&ask(&http, &json!([user("one")]), "0")), "one");
    for file in std::fs::read_dir(kept.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let agent = pid_of(&daemon, "keeps");
    kill(agent, Signal::SIGSTOP);
    let more = json!([user("one"), assistant("one"), user("two")]);
    let stopped = std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(&http, &more, "0"));
        wait_for("it is taken", || (jobs(&daemon) == 2).then_some(()));
        kill(http.pid(), Signal::SIGTERM);
        first.join().unwrap()
    });
    assert_eq!(stopped.status, 503, "{stopped:?}");
    assert!(http.left().success());
    let next = Http::start(&daemon.place);
    let again = std::thread::scope(|scope| {
        let again = scope.spawn(|| ask(&next, &more, "1"));
        daemon.until("the turn is listened to", |status| {
            (status["rpc"]["clients"]["agentd-http"] == 2).then_some(())
        });
        kill(agent, Signal::SIGCONT);
        again.join().unwrap()
    });
    let told = "# Conversation so far ## User one ## Assistant one # Prompt two";
    assert_eq!(content(&again), told, "{again:?}");
    assert_eq!(header(&again, "x-agentd-job"), Some("j3"));
    assert_eq!(jobs(&daemon), 3);
}

#[test]
fn openai_requests_at_once_are_ordered() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let at_once = |path: &str, bodies: [&Value; 2], more: &[&str]| {
        let http = &http;
        std::thread::scope(|scope| {
            let asked = bodies.map(|body| scope.spawn(move || http.post_with(path, body, more)));
            asked.map(|asked| asked.join().unwrap())
        })
    };
    for round in 0..4 {
        // One key is one run, though its session is there when it is asked again.
        let run = json!({"input": "go", "session_id": format!("run {round}"), "instructions": "be terse"});
        let key = format!("Idempotency-Key: k{round}");
        let runs = at_once("/v1/runs", [&run, &run], &["-H", &key]);
        let [one, other] = runs.map(|answer| (answer.status, answer.json()["run_id"].clone()));
        assert_eq!((one.0, &one), (202, &other));
        // Two begin a conversation.
        let name = format!("talk {round}");
        let begins =
            |said: &str| json!({"input": said, "conversation": name, "instructions": "be terse"});
        let begun = at_once("/v1/responses", [&begins("a"), &begins("b")], &[]);
        assert_eq!(begun.map(|answer| answer.status), [200, 200]);
        // Two go on from one response, which only one of them can.
        let first = http
            .post_with("/v1/responses", &json!({"input": "one"}), &[])
            .json();
        let goes_on = |said: &str| json!({"input": said, "previous_response_id": first["id"]});
        let on = at_once("/v1/responses", [&goes_on("a"), &goes_on("b")], &[]);
        let mut statuses = on.map(|answer| answer.status);
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 400]);
    }
    // Where its session is closed, nobody else answers instead.
    let first = http.post_with(
        "/v1/responses",
        &json!({"input": "one", "conversation": "c"}),
        &[],
    );
    daemon.agentctl(&["sessions", "close", "c"]);
    let id = &first.json()["id"];
    let more = json!({"input": "two", "previous_response_id": id});
    let (status, code, param) = error(&http.post_with("/v1/responses", &more, &[]));
    assert_eq!(
        (status, param.as_deref()),
        (404, Some("previous_response_id")),
        "{code}"
    );
}
