//! What happens in the middle of a turn, without an agent: questions, cancels, tools, messages.

use agentd_core::worker::{QuestionKind, Reply, ToolAbout, WorkerCommand};
use agentd_protocol::line::ToolKind;
use serde_json::json;

use super::replay::Replay;
use super::*;
use crate::adapter::testing::{cancel, prompt};

const ALL: &[&str] = &["allow_always", "allow_once", "reject_once"];

#[test]
fn approval_allows_or_rejects_once_and_never_more() {
    for (reply, outcome) in [
        (
            Reply::Approved,
            json!({"outcome": "selected", "optionId": "o-allow_once"}),
        ),
        (
            Reply::Denied,
            json!({"outcome": "selected", "optionId": "o-reject_once"}),
        ),
        (Reply::Cancelled, json!({"outcome": "cancelled"})),
    ] {
        let mut replay = Replay::running();
        replay.permission(&json!("q"), "c1", ALL);
        let WorkerEvent::Asked { asking, turn } = &replay.events[0] else {
            panic!("{:?}", replay.events)
        };
        assert_eq!(
            (asking.kind, *turn),
            (QuestionKind::Approval, Some(TurnId(1)))
        );
        assert_eq!(asking.detail.as_deref(), Some(r#"{"command":"ls"}"#));
        let question = asking.question.clone();
        replay.reply(&question, reply);
        let answer = replay.wrote.last().unwrap();
        assert_eq!(
            (&answer["id"], &answer["result"]["outcome"]),
            (&json!("q"), &outcome)
        );
        // Twice is nobody's.
        let wrote = replay.wrote.len();
        replay.reply(&question, Reply::Approved);
        assert_eq!(replay.wrote.len(), wrote);
    }
}

#[test]
fn options_of_another_kind_are_a_choice() {
    let mut replay = Replay::running();
    replay.permission(&json!(7), "c1", &["allow_once", "of_its_own"]);
    let WorkerEvent::Asked { asking, .. } = &replay.events[0] else {
        panic!("{:?}", replay.events)
    };
    assert_eq!(asking.kind, QuestionKind::Choice);
    assert_eq!(asking.options, ["allow_once", "of_its_own"]);
    replay.reply("7", Reply::Chosen("of_its_own".into()));
    let outcome = &replay.wrote.last().unwrap()["result"]["outcome"];
    assert_eq!(outcome["optionId"], "o-of_its_own");
}

/// How many notes say this.
fn noted(replay: &Replay, said: &str) -> usize {
    let noted = |event: &&WorkerEvent| matches!(event, WorkerEvent::Noted { text, .. } if text.contains(said));
    replay.events.iter().filter(noted).count()
}

#[test]
fn every_request_is_answered() {
    let mut replay = Replay::running();
    for method in [
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "_x/y",
        "session/update",
    ] {
        replay.hear(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}));
        assert_eq!(
            replay.wrote.last().unwrap()["error"]["code"],
            -32601,
            "{method}"
        );
    }
    assert_eq!(noted(&replay, "terminal/create"), 1, "{:?}", replay.events);
    replay.hear(&json!({"jsonrpc": "2.0", "id": {"a": 1}, "method": "x"}));
    assert_eq!(replay.wrote.last().unwrap()["error"]["code"], -32602);
    // With nothing to choose from, of another session, or without a turn, nobody is asked.
    replay.permission(&json!(2), "c1", &[]);
    assert_eq!(
        replay.wrote.last().unwrap()["result"]["outcome"]["outcome"],
        "cancelled"
    );
    let mut idle = Replay::ready();
    idle.permission(&json!(3), "c1", ALL);
    assert_eq!(
        idle.wrote.last().unwrap()["result"]["outcome"]["outcome"],
        "cancelled"
    );
    assert!(idle.events.is_empty());
}

#[test]
fn notification_that_is_unknown_is_noted_once() {
    let mut replay = Replay::running();
    for method in ["session/from_the_future", "_x/y", "$/progress"] {
        for _ in 0..2 {
            replay.hear(&json!({"jsonrpc": "2.0", "method": method, "params": {}}));
        }
    }
    assert_eq!(noted(&replay, "session/from_the_future"), 1);
    assert_eq!(replay.events.len(), 1, "{:?}", replay.events);
}

#[test]
fn session_opened_without_its_history_is_lost() {
    for repeats in [false, true] {
        let mut replay = Replay::begun(Some("s1"));
        replay.initialized(true);
        replay.answer(&json!({}));
        if repeats {
            replay.says("old");
            replay.refuse(-32601, "no such method");
        }
        for _ in 0..2 {
            assert!(replay.events.is_empty());
            replay.refuse(-32601, "no such method");
        }
        let lost = |event: &&WorkerEvent| {
            matches!(
                event,
                WorkerEvent::Noted {
                    code: "context-lost",
                    ..
                }
            )
        };
        let lost = replay.events.iter().filter(lost).count();
        assert_eq!(lost, usize::from(!repeats));
        assert!(matches!(replay.events.pop(), Some(WorkerEvent::Ready(_))));
        replay.tell(&prompt(1, "hi"));
        assert_eq!(replay.written().last(), Some(&"session/prompt"));
    }
}

#[test]
fn two_requests_under_one_id_are_both_refused() {
    let mut replay = Replay::running();
    replay.wrote.clear();
    replay.permission(&json!(9), "c1", ALL);
    replay.permission(&json!(9), "c2", ALL);
    let withdrew = |event: &WorkerEvent| matches!(event, WorkerEvent::Withdrew { question } if question == "9");
    assert!(replay.events.iter().any(withdrew), "{:?}", replay.events);
    assert_eq!(replay.wrote[0]["result"]["outcome"]["outcome"], "cancelled");
    assert_eq!(replay.wrote[1]["error"]["code"], -32602);
    replay.reply("9", Reply::Approved);
    assert_eq!(replay.wrote.len(), 2, "{:?}", replay.wrote);
}

#[test]
fn question_shows_all_that_would_run() {
    let mut replay = Replay::running();
    let title = "t".repeat(1025) + "end";
    let content = json!([{"type": "content", "content": {"type": "text", "text": "tidies up"}}]);
    let call = json!({"toolCallId": "c1", "title": title, "kind": "execute", "status": "pending",
        "rawInput": {"command": "rm -rf /precious"}});
    let update = json!({"sessionId": "s1", "update": {"sessionUpdate": "tool_call",
        "toolCallId": "c2", "title": "x", "status": "pending", "rawInput": {"command": "dd"}}});
    replay.hear(&json!({"jsonrpc": "2.0", "method": "session/update", "params": update}));
    let mut first = call.clone();
    first["content"] = content.clone();
    // The other's input was told before.
    let second = json!({"toolCallId": "c2", "content": content});
    let options = json!([{"optionId": "y", "name": "y", "kind": "allow_once"}]);
    for (id, call) in [(1, first), (2, second)] {
        let params = json!({"sessionId": "s1", "toolCall": call, "options": options});
        replay.hear(&json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}));
    }
    let asked: Vec<_> = replay
        .events
        .iter()
        .filter_map(|event| match event {
            WorkerEvent::Asked { asking, .. } => Some(asking),
            _ => None,
        })
        .collect();
    assert!(asked[0].title.ends_with('…'), "{}", asked[0].title);
    let detail = asked[0].detail.as_deref().unwrap();
    for shown in [&*title, "rm -rf /precious", "tidies up"] {
        assert!(detail.contains(shown), "{shown}: {detail}");
    }
    let detail = asked[1].detail.as_deref().unwrap();
    assert!(
        detail.contains("dd") && detail.contains("tidies up"),
        "{detail}"
    );
}

#[test]
fn update_of_a_newer_agent_is_noted_once() {
    let mut replay = Replay::running();
    for _ in 0..3 {
        replay.update(&json!({"sessionUpdate": "answer_from_the_future", "text": "x"}));
    }
    assert_eq!(noted(&replay, "answer_from_the_future"), 1);
    for known in ["image", "text"] {
        replay.update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": known}}));
    }
    for _ in 0..2 {
        replay
            .update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "scent"}}));
        let parts =
            json!([{"type": "terminal"}, {"type": "content", "content": {"type": "taste"}}]);
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": "c", "content": parts});
        replay.update(&call);
    }
    for said in [
        "`agent_message_chunk with scent`",
        "`tool_call with taste`",
        "",
    ] {
        let times = if said.is_empty() { 3 } else { 1 };
        assert_eq!(noted(&replay, said), times, "{said}: {:?}", replay.events);
    }
}

#[test]
fn update_of_a_newer_agent_waits_between_turns() {
    let mut replay = Replay::ready();
    replay.update(&json!({"sessionUpdate": "dream", "text": "x"}));
    assert!(replay.events.is_empty(), "{:?}", replay.events);
    replay.tell(&prompt(1, "x"));
    assert_eq!(noted(&replay, "`dream`"), 1, "{:?}", replay.events);
}

#[test]
fn cancel_answers_questions_and_the_session_goes_on() {
    let mut replay = Replay::running();
    replay.permission(&json!(5), "c1", ALL);
    replay.tell(&cancel(1));
    assert_eq!(replay.written(), ["session/prompt", "-", "session/cancel"]);
    assert_eq!(replay.wrote[1]["result"]["outcome"]["outcome"], "cancelled");
    assert!(replay.wrote[2].get("id").is_none(), "a notification");
    assert!(replay.outcomes().is_empty());
    // An agent that hadn't begun goes on: it is told once more, and no more.
    replay.says("a");
    replay.says("b");
    let cancels = replay
        .written()
        .iter()
        .filter(|method| **method == "session/cancel")
        .count();
    assert_eq!(cancels, 2);
    replay.permission(&json!(6), "c2", ALL);
    assert_eq!(
        replay.wrote.last().unwrap()["result"]["outcome"]["outcome"],
        "cancelled"
    );
    replay.answer(&json!({"stopReason": "cancelled"}));
    replay.tell(&prompt(2, "y"));
    replay.answer(&json!({"stopReason": "end_turn"}));
    let stops: Vec<_> = replay
        .outcomes()
        .iter()
        .map(|outcome| outcome.result.clone())
        .collect();
    assert_eq!(stops, [Ok(Stop::Cancelled), Ok(Stop::EndTurn)]);
}

#[test]
fn call_begins_when_it_runs_and_tells_news() {
    let text = |text: &str| json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let mut replay = Replay::running();
    // As opencode tells it: pending without its input, then with it; output comes whole each time.
    replay.update(&json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "bash", "kind": "execute", "status": "pending"}));
    assert!(replay.events.is_empty());
    replay.update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress", "rawInput": {"command": "ls"}}));
    for output in ["a", "ab", "ab"] {
        replay.update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress", "content": text(output)}));
    }
    replay.update(
        &json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}),
    );
    let (turn, call) = (TurnId(1), "c".to_owned());
    let updated = |offset, output: &str| WorkerEvent::ToolUpdated {
        turn,
        call: call.clone(),
        offset,
        output: output.into(),
    };
    assert_eq!(
        replay.events,
        [
            WorkerEvent::ToolStarted {
                turn,
                call: call.clone(),
                name: "execute".into(),
                input: r#"{"command":"ls"}"#.into(),
                read_only: false,
                about: ToolAbout {
                    kind: ToolKind::Execute,
                    ..ToolAbout::default()
                },
            },
            updated(0, "a"),
            updated(1, "b"),
            WorkerEvent::ToolEnded {
                turn,
                call: call.clone(),
                ok: true,
                output: "ab".into(),
                sandbox: None,
                diff: Vec::new(),
            },
        ]
    );
}

#[test]
fn call_tells_its_kind_places_and_changes() {
    let diff = |path: &str, new: &str| json!({"type": "diff", "path": path, "oldText": "a", "newText": new});
    for (status, new, expected) in [
        ("completed", "b", 1),
        ("failed", "b", 0),
        ("completed", "b".repeat(20_000).as_str(), 0),
    ] {
        let mut replay = Replay::running();
        replay.update(&json!({"sessionUpdate": "tool_call", "toolCallId": "c", "kind": "delete", "status": "in_progress",
            "locations": [{"path": "/f", "line": 3}, {"path": "/g"}, {"line": 1}], "content": [diff("/f", new), {"type": "diff", "path": "/g"}]}));
        replay.update(
            &json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": status}),
        );
        let [
            WorkerEvent::ToolStarted { about, .. },
            ..,
            WorkerEvent::ToolEnded { diff, .. },
        ] = &replay.events[..]
        else {
            panic!("{:?}", replay.events)
        };
        assert_eq!(about.kind, ToolKind::Delete);
        let places = about.locations.iter();
        let places: Vec<_> = places.map(|one| (one.path.as_str(), one.line)).collect();
        assert_eq!(places, [("/f", Some(3)), ("/g", None)]);
        assert_eq!(diff.len(), expected, "{status}");
    }
}

#[test]
fn call_ended_unstarted_begins_with_its_diff_text() {
    let mut replay = Replay::running();
    replay.update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "edit it", "status": "failed",
        "content": [{"type": "diff", "path": "/f", "oldText": "a", "newText": "b\nc"}]}));
    let [
        WorkerEvent::ToolStarted { name, input, .. },
        WorkerEvent::ToolEnded { ok, output, .. },
    ] = &replay.events[..]
    else {
        panic!("{:?}", replay.events)
    };
    assert_eq!(
        (name.as_str(), input.as_str(), *ok),
        ("edit it", r#"{"title":"edit it"}"#, false)
    );
    assert_eq!(output, "--- /f\n+++ /f\n-a\n+b\n+c\n");
}

#[test]
fn messages_are_told_apart_by_ids_or_tools() {
    let mut replay = Replay::running();
    let started = |replay: &Replay| {
        replay
            .events
            .iter()
            .filter(|event| matches!(event, WorkerEvent::MessageStarted { .. }))
            .count()
    };
    replay.update(
        &json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}),
    );
    replay.says("a");
    replay.says("b");
    assert_eq!(started(&replay), 1);
    replay
        .update(&json!({"sessionUpdate": "tool_call", "toolCallId": "c", "status": "in_progress"}));
    replay.says("c");
    assert_eq!(started(&replay), 2);
    for (id, count) in [("m1", 2), ("m1", 2), ("m2", 3)] {
        replay.update(&json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": {"type": "text", "text": "d"}}));
        assert_eq!(started(&replay), count, "{id}");
    }
    // What has the name of the last one goes on with it, a tool between them or not.
    replay
        .update(&json!({"sessionUpdate": "tool_call", "toolCallId": "e", "status": "in_progress"}));
    for (id, count) in [("m2", 3), ("m3", 4)] {
        replay.update(&json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": {"type": "text", "text": "d"}}));
        assert_eq!(started(&replay), count, "{id}");
    }
}

#[test]
fn stray_lines_and_other_sessions_are_passed_over() {
    let mut replay = Replay::running();
    replay.hear(&json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "other", "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}}}));
    assert!(replay.events.is_empty());
    let id = replay.last_id();
    replay.answer(&json!({"stopReason": "end_turn"}));
    replay.hear(&json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": "end_turn"}}));
    replay.says("late");
    let strays = replay
        .events
        .iter()
        .filter(|event| matches!(event, WorkerEvent::Stray { .. }))
        .count();
    assert_eq!(
        (replay.outcomes().len(), strays, replay.text()),
        (1, 2, String::new())
    );
}

#[test]
fn answer_for_an_earlier_process_writes_nothing() {
    let mut replay = Replay::running();
    replay.reply("7", Reply::Approved);
    assert_eq!(replay.written(), ["session/prompt"]);
}

#[test]
fn an_agent_that_answers_anything_is_there() {
    let mut replay = Replay::ready();
    replay.tell(&WorkerCommand::Probe);
    replay.refuse(-32601, "no such method");
    assert!(matches!(&replay.events[..], [WorkerEvent::Ready(_)]));
}

#[test]
fn call_waiting_for_permission_holds_no_long_input() {
    let mut replay = Replay::running();
    for call in 0..8 {
        let tool = json!({"toolCallId": format!("c{call}"), "title": "write it", "rawInput": {"text": "x".repeat(1 << 20)}});
        let options = json!([{"optionId": "a", "name": "a", "kind": "allow_once"}]);
        let params = json!({"sessionId": "s1", "toolCall": tool, "options": options});
        replay.hear(&json!({"id": call, "method": "session/request_permission", "params": params}));
    }
    let held = replay.adapter.driver.turn.as_ref().map_or(0, Turn::held);
    assert!(held <= 8 * 64 * 1024, "{held}");
    replay.reply("0", Reply::Approved);
    let Some(WorkerEvent::ToolStarted { input, .. }) = replay.events.last() else {
        panic!("{:?}", replay.events.last())
    };
    assert_eq!(input, r#"{"title":"write it"}"#);
}

#[test]
fn a_call_that_is_not_followed_begins_once() {
    let mut replay = Replay::running();
    let mut tell = |kind: &str, call: u32, status: &str| {
        replay.update(&json!({"sessionUpdate": kind, "toolCallId": format!("c{call}"), "title": "t", "status": status}));
    };
    for call in 0..66 {
        let status = if call == 65 { "pending" } else { "in_progress" };
        tell("tool_call", call, status);
    }
    for call in [64, 65, 64, 65] {
        tell("tool_call_update", call, "in_progress");
    }
    // There is room again, but both have begun.
    tell("tool_call_update", 0, "completed");
    for status in ["in_progress", "completed"] {
        tell("tool_call_update", 64, status);
        tell("tool_call_update", 65, status);
    }
    tell("tool_call", 66, "in_progress");
    let count = |wanted: &str| {
        let of = |event: &&WorkerEvent| match event {
            WorkerEvent::ToolStarted { call, .. } | WorkerEvent::ToolEnded { call, .. } => {
                call == wanted
            }
            _ => false,
        };
        replay.events.iter().filter(of).count()
    };
    assert_eq!(["c0", "c64", "c65", "c66"].map(count), [2, 2, 2, 1]);
}

#[test]
fn output_of_terminals_comes_in_pieces_and_whole() {
    let mut replay = Replay::running();
    let call = |kind: &str, status: &str, meta: Value| {
        json!({"sessionUpdate": kind, "toolCallId": "c", "kind": "execute", "status": status,
               "content": [{"type": "terminal", "terminalId": "c"}], "_meta": meta})
    };
    let piece = |name: &str, data: &str| json!({name: {"terminal_id": "c", "data": data}});
    replay.update(&call(
        "tool_call",
        "in_progress",
        json!({"terminal_info": {}}),
    ));
    for (name, data) in [
        ("terminal_output_delta", "one\n"),
        ("terminal_output", "two\n"),
    ] {
        replay.update(&call("tool_call_update", "in_progress", piece(name, data)));
    }
    replay.update(&call(
        "tool_call_update",
        "completed",
        piece("terminal_output_delta", "end"),
    ));
    let told = replay.events.iter().filter_map(|event| match event {
        WorkerEvent::ToolUpdated { offset, output, .. } => Some((*offset, output.as_str())),
        WorkerEvent::ToolEnded { output, .. } => Some((u64::MAX, output.as_str())),
        _ => None,
    });
    let expected = [(0, "one\n"), (4, "two\n"), (u64::MAX, "one\ntwo\nend")];
    assert_eq!(told.collect::<Vec<_>>(), expected);

    let mut replay = Replay::running();
    replay.update(&call("tool_call", "in_progress", json!({})));
    let long = "ä".repeat(20 * 1024);
    for _ in 0..4 {
        replay.update(&call(
            "tool_call_update",
            "in_progress",
            piece("terminal_output", &long),
        ));
    }
    replay.update(&call("tool_call_update", "completed", json!({})));
    let ended = replay.events.iter().find_map(|event| match event {
        WorkerEvent::ToolEnded { output, .. } => Some(output),
        _ => None,
    });
    let output = ended.unwrap();
    assert!(output.len() <= 64 * 1024 && output.len() > 60 * 1024);
    assert!(output.starts_with("ää") && output.ends_with("[the rest was not kept]"));
}
