//! What a session begins with: a system text and what was said elsewhere, or what another one remembers.
//!
//! Owns that each agent's model hears both, in whichever place, and the text after a new process, too.

use agentd_core::mcp::McpServing;
use serde_json::json;

use super::{Driven, Scene, Turns, text};
use crate::support::kill;
use nix::sys::signal::Signal;

/// An MCP server with a tool whose name says what was in its environment: some agents tell their model
/// no more of a tool than that.
const TIDES: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
    case $line in
    *'"initialize"'*) said='"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) said='"result":{"tools":[{"name":"tides_'$KEY'","description":"d","inputSchema":{"type":"object","properties":{}}}]}' ;;
    *) said='"error":{"code":-32601,"message":"no"}' ;;
    esac
    [ -z "$id" ] || echo '{"jsonrpc":"2.0","id":'$id','$said'}'
done
"#;

pub(super) fn is_told_how_a_session_begins(driven: &Driven) {
    let scene = Scene::of(driven, "");
    let label = &driven.label;
    let mut begins = json!({
        "type": "send",
        "session": "main",
        "system": "You are a lighthouse.",
        "history": [
            {"role": "user", "text": "What colour is the sea?"},
            {"role": "assistant", "text": "It is petrol today."},
        ],
        "text": "[[deltas=1]]",
    });
    let can = scene.kind.describe(&[]);
    let mut told = vec![
        "You are a lighthouse.",
        "What colour is the sea?",
        "It is petrol today.",
    ];
    let servers = json!([{
        "type": "stdio", "name": "harbour", "command": "/bin/sh", "args": ["-c", TIDES],
        "env": {"KEY": "low_water"},
    }]);
    if can.mcp == McpServing::Never {
        let bring = json!({"prompt": "go", "mcp_servers": servers});
        let refused = scene.daemon.ask(&bring.to_string()).remove(0);
        assert_eq!(refused["code"], "unsupported", "{label}: {refused:#}");
    } else {
        begins["mcp_servers"] = servers;
        told.push(driven.can.hears_of_tools);
    }
    let lines = scene.daemon.ask(&begins.to_string());
    assert_eq!(
        text(driven, lines.last().unwrap()).trim_end(),
        "w0",
        "{label}"
    );
    let mut before = 0;
    // Some agents also ask for a title by themselves, and without tools.
    let mut is_asked = |told: &[&str]| {
        let asked = scene.model.asked();
        let asked: Vec<String> = asked[before..]
            .iter()
            .map(|it| it.body.to_string())
            .collect();
        before += asked.len();
        let has_all = |body: &String| told.iter().all(|told| body.contains(told));
        assert!(
            asked.iter().any(has_all),
            "{label}: no {told:?} in {asked:#?}"
        );
    };
    is_asked(&told);
    let note = lines.iter().find(|line| line["code"] == "in-prompt");
    assert_eq!(note.is_none(), can.history, "{label}: {note:?}");
    scene.ask("two [[deltas=1]]");
    told.retain(|told| !told.ends_with('?'));
    is_asked(&told);
    let again = scene.daemon.ask(&begins.to_string()).remove(0);
    assert_eq!(again["code"], "invalid-request", "{label}: {again:#}");
    if driven.can.turns == Turns::InOneProcess && driven.can.keeps_young {
        let old = scene.pid();
        kill(old, Signal::SIGKILL);
        scene.daemon.until("another process", |status| {
            (super::pid(status) != Some(old)).then_some(())
        });
        scene.ask("three [[deltas=1]]");
        told.retain(|told| !told.contains(" is "));
        is_asked(&told);
    }
    scene.was_understood(driven);
}

pub(super) fn forks_a_session(driven: &Driven) {
    let scene = Scene::of(driven, "");
    let label = &driven.label;
    let ask = |line: &str| scene.daemon.ask(line).pop().unwrap();
    scene.ask("one");
    let forked = ask(r#"{"type":"session.fork","session":"main","to":"other"}"#);
    if !scene.kind.describe(&[]).forks {
        assert_eq!(forked["code"], "unsupported", "{label}: {forked:#}");
        return;
    }
    assert_eq!(forked["session"], "other", "{label}: {forked:#}");
    let other = |text: &str| {
        let line = json!({"prompt": text, "session": "other"});
        ask(&line.to_string())
    };
    let first = other("two [[recall]]");
    assert!(text(driven, &first).contains("one"), "{label}: {first:#}");
    assert_eq!(first["context"], "continued", "{label}: {first:#}");
    // Neither hears of the other from now on.
    let old = scene.ask("three [[recall]]");
    let said = text(driven, &old);
    assert!(
        said.contains("one") && !said.contains("two"),
        "{label}: {old:#}"
    );
    let new = other("four [[recall]]");
    let said = text(driven, &new);
    assert!(
        said.contains("two") && !said.contains("three"),
        "{label}: {new:#}"
    );
    let daemon = scene.daemon.kill().start();
    let again = daemon
        .ask(r#"{"prompt":"five [[recall]]","session":"other"}"#)
        .pop()
        .unwrap();
    let said = text(driven, &again);
    assert!(
        said.contains("two") && said.contains("four"),
        "{label}: {again:#}"
    );
}
