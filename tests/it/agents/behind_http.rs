//! An agent as the model of OpenAI's clients: what it is told first, and its tools, which are done.
//!
//! Owns what such a client sees of a real agent. How requests are read is tested without one.

use serde_json::{Value, json};

use super::{Asks, Driven, Scene, WORK};
use crate::http::{Answer, Http};
use crate::openai::{chunks, header, words};
use crate::support::needs;

pub(super) fn answers_openais_clients(driven: &Driven) {
    if needs("curl").is_none() {
        return;
    }
    let scene = Scene::of(driven, "");
    let http = Http::start(&scene.daemon.place);
    chats(driven, &scene, &http);
    responds_with_a_tool(driven, &scene, &http);
    scene.was_understood(driven);
}

/// What a streamed chat says; nothing in it asks the client for anything.
#[track_caller]
fn streamed(answer: &Answer, finish: &str, label: &str) -> (String, Vec<Value>) {
    let (chunks, done) = chunks(answer);
    assert!(done, "{label}: {answer:?}");
    let mut text = String::new();
    for chunk in &chunks {
        let choice = &chunk["choices"][0];
        assert!(choice["delta"]["tool_calls"].is_null(), "{label}: {chunk}");
        text += choice["delta"]["content"].as_str().unwrap_or_default();
    }
    let last = &chunks.last().unwrap()["choices"][0];
    assert_eq!(last["finish_reason"], finish, "{label}: {chunks:#?}");
    (text, chunks)
}

fn chats(driven: &Driven, scene: &Scene, http: &Http) {
    let label = &driven.label;
    let mut messages = json!([
        {"role": "system", "content": "You are a lighthouse."},
        {"role": "user", "content": "What colour is the sea?"},
        {"role": "assistant", "content": "It is petrol today."},
        {"role": "user", "content": "[[deltas=5]]"},
    ]);
    let chat = |messages: &Value| {
        let body = json!({"model": "it", "stream": true, "messages": messages});
        http.post("/v1/chat/completions", &body)
    };
    let answer = chat(&messages);
    let (text, _) = streamed(&answer, "stop", label);
    assert_eq!(text.trim_end(), "w0 w1 w2 w3 w4", "{label}");
    let asked = scene.model.asked().last().unwrap().body.to_string();
    for told in [
        "You are a lighthouse.",
        "What colour is the sea?",
        "It is petrol today.",
    ] {
        assert!(asked.contains(told), "{label}: no {told:?} in {asked}");
    }
    let more = messages.as_array_mut().unwrap();
    more.push(json!({"role": "assistant", "content": text}));
    more.push(json!({"role": "user", "content": "two [[deltas=1]]"}));
    let next = chat(&messages);
    let session = |answer: &Answer| header(answer, "x-agentd-session").unwrap().to_owned();
    // Where its turns are lost, all that was said is told once more, in another one.
    let goes_on = session(&next) == session(&answer);
    assert!(goes_on || !driven.can.keeps_young, "{label}: {next:?}");
    let (text, _) = streamed(&next, "stop", label);
    assert_eq!(text.trim_end(), "w0", "{label}");
    let asked = scene.model.asked().last().unwrap().body.to_string();
    for told in ["You are a lighthouse.", "[[deltas=5]]"] {
        assert!(asked.contains(told), "{label}: no {told:?} in {asked}");
    }
}

/// The agent's tools are items that are done; where it asks, nobody is there who says yes.
fn responds_with_a_tool(driven: &Driven, scene: &Scene, http: &Http) {
    let label = &driven.label;
    let made = scene.daemon.path(WORK).join("made");
    let input = format!("[[bash=touch {} && echo from-the-tool]]", made.display());
    let body = json!({"model": "it", "input": input, "stream": true});
    let answer = http.post("/v1/responses", &body);
    let (events, _) = chunks(&answer);
    let last = events.last().unwrap();
    let is_run = driven.can.asks != Asks::Always;
    // Some agents end their turn with the denial.
    let is_whole = is_run || !driven.can.denied.contains("cancelled");
    let end = if is_whole {
        "response.completed"
    } else {
        "response.incomplete"
    };
    assert_eq!(last["type"], end, "{label}: {events:#?}");
    let output = last["response"]["output"].as_array().unwrap();
    let of = |kind: &str| output.iter().filter(|item| item["type"] == kind).count();
    assert_eq!(of("function_call"), 0, "{label}: {output:#?}");
    let said = output.iter().rfind(|item| item["type"] == "message");
    // After a denial opencode ends its turn without a word.
    let said = said.map_or_else(String::new, |said| words(&said["content"][0]["text"]));
    assert_eq!(made.exists(), is_run, "{label}: {output:#?}");
    assert_eq!(said.contains("from-the-tool"), is_run, "{label}: {said}");
    let call = output.iter().find(|item| item["type"] == "mcp_call");
    // Of a call that was denied not every agent tells.
    let is_told = driven.can.tool.is_some() && is_run;
    assert!(call.is_some() || !is_told, "{label}: {output:#?}");
    if let Some(call) = call {
        let status = if is_run { "completed" } else { "failed" };
        assert_eq!(call["name"].as_str(), driven.can.tool, "{label}: {call}");
        assert_eq!(call["status"], status, "{label}: {call}");
        let arguments = call["arguments"].as_str().unwrap();
        assert!(arguments.contains("echo from-the-tool"), "{label}: {call}");
    }
    let path = format!("/v1/responses/{}", last["response"]["id"].as_str().unwrap());
    let again = http.curl(&path, &[]).json();
    assert_eq!(again["output"], last["response"]["output"], "{label}");
    let chat =
        json!({"model": "it", "stream": true, "messages": [{"role": "user", "content": input}]});
    let finish = if is_whole { "stop" } else { "length" };
    let (_, chunks) = streamed(&http.post("/v1/chat/completions", &chat), finish, label);
    let tools = chunks.iter().filter(|chunk| !chunk["agentd"].is_null());
    assert!(tools.count() > 0 || !is_told, "{label}: {chunks:#?}");
}
