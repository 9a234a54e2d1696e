//! An agent's questions on the terminal of `agentctl send`, with a daemon that follows a script.

use std::os::unix::net::UnixListener;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::cli_jobs::{piped, scripted};
use crate::screen::{Peer, at_terminal, ended};
use crate::start::Started;
use crate::support::{DEADLINE, Daemon, Place, wait_for};

#[test]
fn questions_are_asked_on_the_sends_terminal() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let (begin, begun) = sync_channel::<()>(1);
    let served: JoinHandle<Vec<Value>> = std::thread::spawn(move || {
        let (mut peer, hello) = Peer::accept(&listener);
        let send = peer.next();
        let id = send["id"].clone();
        peer.say(json!({"type": "accepted", "id": id, "job": "j1", "session": "s", "agent": "a"}));
        begun.recv_timeout(DEADLINE).unwrap();
        let approval = peer.ask(&id, "approval", &[]);
        let choice = peer.ask(&id, "choice", &["left", "right"]);
        let secret = peer.ask(&id, "secret", &[]);
        peer.end(&id);
        vec![hello, approval, choice, secret]
    });
    let (mut terminal, mut child) = at_terminal(&place, &["send", "hi"]);
    // Typed before the question is there: it answers nothing.
    terminal.type_in("y\n");
    terminal.until("y\r\n");
    begin.send(()).unwrap();
    terminal.until("the approval");
    terminal.until("approve? [y/N] ");
    terminal.type_in("no\n");
    terminal.until("2  right");
    terminal.until("number: ");
    terminal.type_in("5\n");
    terminal.until("a number from 1 to 2: ");
    terminal.type_in("2\n");
    terminal.until("secret (not shown): ");
    terminal.type_in("hunter2\n");
    let asked = served.join().unwrap();
    assert_eq!(ended(&mut child), (Some(0), "done\n".to_owned()));
    assert_eq!(asked[0]["answers"], true);
    assert_eq!(asked[1]["approve"], false);
    assert_eq!(asked[2]["choice"], "right");
    assert_eq!(asked[3]["text"], "hunter2");
    terminal.type_in("shown again\n");
    terminal.until("shown again");
    assert!(!terminal.all.contains("hunter2"), "{:?}", terminal.all);
}

#[test]
fn questions_answered_elsewhere_are_taken_back() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let (close, closed) = sync_channel::<()>(1);
    let served = std::thread::spawn(move || {
        let (mut peer, _) = Peer::accept(&listener);
        let id = peer.next()["id"].clone();
        peer.say(json!({"type": "accepted", "id": id, "job": "j1", "session": "s", "agent": "a"}));
        peer.say(
            json!({"type": "question", "id": id, "job": "j1", "question_id": "q1",
            "kind": "text", "title": "which?", "options": []}),
        );
        closed.recv_timeout(DEADLINE).unwrap();
        peer.say(
            json!({"type": "question_closed", "id": id, "job": "j1", "question_id": "q1",
            "by": "answer"}),
        );
        peer.end(&id);
    });
    let (mut terminal, mut child) = at_terminal(&place, &["send", "hi"]);
    terminal.until("answer: ");
    close.send(()).unwrap();
    terminal.until("the question is closed: answer");
    served.join().unwrap();
    assert_eq!(ended(&mut child), (Some(0), "done\n".to_owned()));
}

#[test]
fn questions_left_by_ctrl_d_stay_open() {
    // Alone it is the end; behind some letters it only sends them, and no line is there yet.
    for keys in ["\u{4}", "y\u{4}", "y\u{4}\u{4}"] {
        let place = Place::new("");
        let listener = UnixListener::bind(place.socket()).unwrap();
        let (close, closed) = sync_channel::<()>(1);
        let served = std::thread::spawn(move || {
            let (mut peer, _) = Peer::accept(&listener);
            let id = peer.next()["id"].clone();
            peer.say(
                json!({"type": "accepted", "id": id, "job": "j1", "session": "s", "agent": "a"}),
            );
            peer.say(
                json!({"type": "question", "id": id, "job": "j1", "question_id": "q1",
                "kind": "approval", "title": "may it?", "options": []}),
            );
            closed.recv_timeout(DEADLINE).unwrap();
            peer.say(
                json!({"type": "question_closed", "id": id, "job": "j1", "question_id": "q1",
                "by": "answer", "answer": "deny"}),
            );
            peer.end(&id);
        });
        let (mut terminal, mut child) = at_terminal(&place, &["send", "hi"]);
        terminal.until("approve? [y/N] ");
        terminal.type_in(keys);
        if keys.ends_with("y\u{4}") {
            terminal.until("y");
        } else {
            terminal.until("the question stays open");
            terminal.until("`agentctl answer q1 --approve` says yes");
        }
        close.send(()).unwrap();
        served.join().unwrap();
        assert_eq!(
            ended(&mut child),
            (Some(0), "done\n".to_owned()),
            "{keys:?}"
        );
    }
}

#[test]
fn questions_without_a_terminal_have_nobody_to_answer() {
    for (args, at_a_terminal) in [
        (&["send", "hi"][..], false),
        (&["send", "--json", "hi"], true),
        (&["send", "--on-question", "deny", "hi"], true),
    ] {
        let place = Place::new("");
        let listener = UnixListener::bind(place.socket()).unwrap();
        let served = std::thread::spawn(move || {
            let (mut peer, hello) = Peer::accept(&listener);
            let id = peer.next()["id"].clone();
            peer.end(&id);
            hello
        });
        if at_a_terminal {
            let (_terminal, mut child) = at_terminal(&place, args);
            assert_eq!(ended(&mut child).0, Some(0), "{args:?}");
        } else {
            assert_eq!(place.agentctl(args).code, Some(0), "{args:?}");
        }
        assert_eq!(served.join().unwrap()["answers"], false, "{args:?}");
    }
}

#[test]
fn agents_restart_says_what_it_waits_for() {
    let daemon = Daemon::start();
    let mut asking = daemon.connect();
    let send = json!({"type": "send", "id": 1, "agent": "chaos", "text": "chaos:ask approval",
        "on_question": "wait"});
    asking.send(&send.to_string());
    asking.until("question");
    let gate = daemon.path("gate");
    let mut busy = daemon.connect();
    let text = format!("chaos:say x;wait-file {}", gate.display());
    busy.send(&json!({"type": "send", "id": 1, "agent": "chaos", "text": text}).to_string());
    busy.until("message_delta");
    let args = ["agents", "restart", "chaos"];
    let (mut terminal, mut child) = at_terminal(&daemon.place, &args);
    terminal.until("note: the restart waits for j2, which runs; `agentctl attach j2` shows it");
    terminal.until("; with `--now` it waits for no turn");
    terminal.until("note: the restart waits for j1, which asks: ");
    terminal.until("`agentctl answer j1-q1` answers it");
    let answered = daemon.agentctl(&["answer", "j1-q1", "--approve"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    std::fs::write(gate, "").unwrap();
    assert_eq!(ended(&mut child), (Some(0), "restarted\n".to_owned()));
    assert_eq!(terminal.rest().matches("note: ").count(), 2);
}

#[test]
fn restart_waits_for_questions_anybody_may_answer() {
    let started = Started::place();
    assert_eq!(started.agentctl(&["start"]).code, Some(0));
    let first = started.pid();
    let turn = [
        "--on-question",
        "wait",
        "--agent",
        "chaos",
        "chaos:ask approval",
    ];
    let sent = started.agentctl(&[&["dispatch"], &turn[..]].concat());
    assert_eq!(sent.code, Some(0), "{sent:?}");
    wait_for("it asks", || {
        let open = started.agentctl(&["questions"]).stdout;
        open.contains("j1-q1").then_some(())
    });
    let (mut terminal, mut child) = at_terminal(&started.0, &["restart"]);
    terminal.until("note: the restart waits for j1, which asks: ");
    terminal
        .until("`agentctl answer j1-q1` answers it; `agentctl restart --now` waits for no turn");
    // What is sent meanwhile is the next daemon's.
    let later = started.agentctl(&["dispatch", "--agent", "chaos", "chaos:say later"]);
    assert_eq!(later.code, Some(0), "{later:?}");
    let answered = started.agentctl(&["answer", "j1-q1", "--approve"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert_eq!(ended(&mut child).0, Some(0));
    assert_ne!(started.pid(), first);
    for (job, text) in [("j1", "ok"), ("j2", "later")] {
        let done = started.agentctl(&["collect", "--json", job]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains(text), "{done:?}");
    }
}

#[test]
fn question_of_a_script_is_answered_elsewhere() {
    let daemon = Daemon::start();
    let asked = "may I [[ask paint the shed?]]";
    let echo = ["--agent", "timmy", "--provider", "echo"];
    let sent = daemon.agentctl(
        &[
            &["dispatch", asked, asked, "--on-question", "wait"],
            &echo[..],
        ]
        .concat(),
    );
    assert_eq!(sent.code, Some(0), "{sent:?}");
    for (question, answer, text) in [
        ("j1-q1", "--approve", "may I allowed"),
        ("j2-q1", "--deny", "may I denied: the user said no"),
    ] {
        wait_for("it asks", || {
            let open = daemon.agentctl(&["questions"]).stdout;
            (open.contains(question) && open.contains("paint the shed?")).then_some(())
        });
        let answered = daemon.agentctl(&["answer", question, answer]);
        assert_eq!(answered.code, Some(0), "{answered:?}");
        let done = daemon.agentctl(&["collect", &question[..2]]);
        assert!(done.stdout.ends_with(&format!("{text}\n")), "{done:?}");
    }
    // Nobody is there who could answer.
    let alone = [&["send", asked, "--on-question", "deny"], &echo[..]].concat();
    let denied = daemon.agentctl(&alone);
    assert!(denied.stdout.starts_with("may I denied: "), "{denied:?}");
}

#[test]
fn secret_is_read_from_standard_input_only() {
    let question = json!({"question_id": "j1-q1", "job": "j1", "session": "s", "kind": "secret",
        "title": "the token?", "options": [], "expires_at": "2100-01-01T00:00:00Z"});
    let open = json!({"type": "questions", "ok": true, "questions": [question]});
    let answered = json!({"type": "answer", "ok": true, "question_id": "j1-q1"});

    let place = Place::new("");
    let served = scripted(&place, &[open.clone(), answered]);
    let said = piped(&place, &["answer", "j1-q1", "--text", "-"], "hunter2\n");
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "answered j1-q1\n"),
        "{said:?}"
    );
    assert_eq!(served.join().unwrap()[2]["text"], "hunter2");

    let place = Place::new("");
    let served = scripted(&place, &[open]);
    let said = piped(&place, &["answer", "j1-q1", "--text", "hunter2"], "");
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(!said.stderr.contains("hunter2"), "{said:?}");
    assert_eq!(served.join().unwrap().len(), 2, "no answer left");
}
