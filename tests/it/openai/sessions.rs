//! Whose session it is: clients that send everything each time, front ends, names.

use serde_json::{Value, json};

use super::{chat, content, error, header, said};
use crate::http::{jobs, served};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// Asks with these messages, and gives what was said and in which session.
fn talk(http: &crate::http::Http, messages: &Value, more: &[&str]) -> (String, String) {
    let body = json!({"messages": messages});
    let answer = http.post_with("/v1/chat/completions", &body, more);
    let session = header(&answer, "x-agentd-session").unwrap().to_owned();
    (content(&answer), session)
}

#[test]
fn chat_finds_its_session_again() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let (text, first) = talk(&http, &json!([user("one")]), &[]);
    assert_eq!(text, "one");
    let more = json!([user("one"), assistant("one"), user("two")]);
    let (text, second) = talk(&http, &more, &[]);
    assert_eq!((text.as_str(), &second), ("two", &first));
    // What was said before goes on from there only once.
    let (text, branch) = talk(&http, &more, &[]);
    assert!(
        text.starts_with("# What was said before ## User one"),
        "{text}"
    );
    assert_ne!(branch, first);
    let more = json!([
        user("one"),
        assistant("one"),
        user("two"),
        assistant(" two\n"),
        user("three")
    ]);
    let (text, third) = talk(&http, &more, &[]);
    assert_eq!((text.as_str(), &third), ("three", &first));
    // Edited, or heard elsewhere: told from the beginning.
    let edited = json!([user("one"), assistant("uno"), user("two")]);
    let (text, other) = talk(&http, &edited, &[]);
    assert!(
        text.contains("## Assistant uno") && other != first,
        "{text}"
    );
    let system = json!([{"role": "system", "content": "be terse"}, user("hi")]);
    let (text, begun) = talk(&http, &system, &[]);
    assert!(text.starts_with("# Instructions be terse"), "{text}");
    let more = json!([{"role": "system", "content": "be terse"}, user("hi"), assistant(&text), user("on")]);
    assert_eq!(talk(&http, &more, &[]), ("on".to_owned(), begun));
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
        assert_eq!(text == "c", header.contains("Hermes"), "{text}");
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
