//! The client library as a program uses it: turns, streams, sessions, many at once.

use std::future::Future;
use std::time::Duration;

use agentd_client::protocol::{Code, Line};
use agentd_client::{Agentd, ClientError, Endpoint, Fallback, RequestError, TurnError};

use crate::support::{DEADLINE, Daemon, Place, chaos_worker};

/// As a program with one thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, future).await.unwrap() })
}

async fn connected(place: &Place) -> Agentd {
    let endpoint = Endpoint::Local(place.socket());
    let agentd = Agentd::connect_to(endpoint, Fallback::Forbidden).await;
    agentd.unwrap()
}

#[test]
fn turn_gives_text_and_facts() {
    let daemon = Daemon::start();
    block_on(async {
        let agentd = connected(&daemon.place).await;
        let turn = agentd.turn("hello").agent("timmy").session("main");
        let result = turn.timeout(Duration::from_secs(60)).run().await.unwrap();
        assert_eq!(result.text(), "hello");
        assert_eq!(result.facts.session.as_deref(), Some("main"));
        assert_eq!(result.facts.provider.as_deref(), Some("echo"));
        assert!(result.facts.job.is_some());
        // The conversation that is over serves the next one, and many go on beside each other.
        let turns = (0..20).map(|number| agentd.turn(number.to_string()).run());
        for (number, result) in futures(turns).await.into_iter().enumerate() {
            assert_eq!(result.unwrap().text(), number.to_string());
        }
    });
}

async fn futures<T>(all: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = all.into_iter().map(Box::pin).map(Ok).collect();
    std::future::poll_fn(move |cx| {
        for one in &mut pending {
            if let Ok(future) = one
                && let std::task::Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *one = Err(Some(value));
            }
        }
        if pending.iter().any(Result::is_ok) {
            return std::task::Poll::Pending;
        }
        let values = pending
            .iter_mut()
            .filter_map(|one| one.as_mut().err()?.take());
        std::task::Poll::Ready(values.collect())
    })
    .await
}

#[test]
fn turn_refused_is_not_one_that_failed() {
    let daemon = Daemon::start();
    block_on(async {
        let agentd = connected(&daemon.place).await;
        let refused = agentd.turn("x").agent("nobody").run().await.unwrap_err();
        let TurnError::Refused(line) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(line.code, Code::UnknownAgent);
        let failed = agentd.turn("chaos: say half; exit 3").agent("chaos");
        let failed = failed.run().await.unwrap_err();
        let TurnError::Failed(line) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(line.turn.unwrap().text, "half");
    });
    let gone = Endpoint::Local(daemon.kill().socket());
    let nobody = block_on(Agentd::connect_to(gone, Fallback::Forbidden));
    assert!(matches!(nobody, Err(ClientError::Unreachable { .. })));
}

#[test]
fn stream_gives_pieces_and_survives_cancelled_waits() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    block_on(async {
        let agentd = connected(&daemon.place).await;
        let prompt = format!("chaos: say one ; wait-file {}; say two", gate.display());
        let mut stream = agentd.turn(prompt).agent("chaos").stream().await.unwrap();
        assert_eq!(stream.text().await.unwrap().as_deref(), Some("one"));
        assert!(stream.job().is_some());
        for _ in 0..3 {
            let nothing = tokio::time::timeout(Duration::from_millis(5), stream.next()).await;
            assert!(nothing.is_err(), "{nothing:?}");
        }
        std::fs::write(&gate, "").unwrap();
        assert_eq!(stream.text().await.unwrap().as_deref(), Some("two"));
        let result = stream.result().await.unwrap();
        assert_eq!(result.text(), "onetwo");
    });
}

#[test]
fn stream_goes_on_with_the_next_daemon() {
    let place = Place::new("");
    place.configure(&format!(
        "default_agent = \"chaos\"\n[agents.chaos]\nkind = \"jsonl\"\ncommand = [{:?}]\n\
         env = {{ CHAOS_LEDGER = {:?} }}\n",
        chaos_worker(),
        place.path("ledger"),
    ));
    let daemon = place.start();
    let (ledger, gate) = (daemon.path("ledger"), daemon.path("gate"));
    block_on(async {
        let agentd = connected(&daemon.place).await;
        let prompt = format!(
            "chaos: ledger x; say one; wait-file {}; say two",
            gate.display()
        );
        let mut stream = agentd.turn(prompt).retry().stream().await.unwrap();
        assert_eq!(stream.text().await.unwrap().as_deref(), Some("one"));
        let place = daemon.kill();
        std::fs::write(&gate, "").unwrap();
        let _daemon = place.start();
        let mut said = String::new();
        while let Some(line) = stream.next().await.unwrap() {
            match line {
                Line::MessageDelta { text, .. } => said.push_str(&text),
                Line::MessageEnd(end) => assert_eq!(end.turn.text, "onetwo"),
                _ => {}
            }
        }
        // What had been told isn't told again, unless it was said anew.
        assert!(said.ends_with("two"), "{said}");
        let runs = std::fs::read_to_string(ledger).unwrap();
        assert_eq!(runs.lines().count(), 2, "{runs}");
    });
}

#[test]
fn stream_that_is_aborted_ends_as_cancelled() {
    let daemon = Daemon::start();
    block_on(async {
        let agentd = connected(&daemon.place).await;
        let turn = agentd
            .turn("chaos: say one; sleep-ms 600000")
            .agent("chaos");
        let mut stream = turn.stream().await.unwrap();
        assert_eq!(stream.text().await.unwrap().as_deref(), Some("one"));
        stream.abort().await.unwrap();
        let end = stream.result().await.unwrap();
        assert_eq!(end.stop, agentd_client::protocol::line::Stop::Cancelled);
        // Before anything of it was read, too.
        let unread = agentd.turn("chaos: sleep-ms 600000").agent("chaos");
        let mut unread = unread.stream().await.unwrap();
        unread.abort().await.unwrap();
        let end = unread.result().await.unwrap();
        assert_eq!(end.stop, agentd_client::protocol::line::Stop::Cancelled);
        // What the abort was answered is nobody else's answer.
        assert_eq!(agentd.turn("next").run().await.unwrap().text(), "next");
    });
}

#[test]
fn dispatched_turns_are_collected_in_order() {
    let daemon = Daemon::start();
    block_on(async {
        let agentd = connected(&daemon.place).await;
        let turns = [
            agentd.turn("one"),
            agentd.turn("chaos: exit 3").agent("chaos"),
            agentd.turn("two"),
        ];
        let jobs = agentd.dispatch(turns).await.unwrap();
        let collected = agentd.collect(&jobs, None).await.unwrap();
        assert!(collected.pending.is_empty());
        let order: Vec<_> = collected.ended.iter().map(|ended| ended.job).collect();
        assert_eq!(order, jobs);
        let said: Vec<_> = collected
            .ended
            .iter()
            .map(|ended| ended.result.as_ref().map(|result| result.text()))
            .collect();
        assert!(matches!(said[0], Ok("one")) && matches!(said[2], Ok("two")));
        assert!(matches!(said[1], Err(TurnError::Failed(_))), "{said:?}");
        let slow = [agentd.turn("chaos: sleep-ms 600000").agent("chaos")];
        let jobs = agentd.dispatch(slow).await.unwrap();
        let none = agentd.collect(&jobs, Some(Duration::ZERO)).await.unwrap();
        assert_eq!(none.pending, jobs);
    });
}

#[test]
fn session_keeps_its_turns_and_is_closed() {
    let daemon = Daemon::start();
    block_on(async {
        let agentd = connected(&daemon.place).await;
        let session = agentd.session("mine");
        for count in ["1", "2"] {
            let turn = session.turn("chaos: count").agent("chaos");
            assert_eq!(turn.run().await.unwrap().text(), count);
        }
        session.clone().close().await.unwrap();
        let gone = session.close().await.unwrap_err();
        let RequestError::Refused(line) = gone else {
            panic!("{gone:?}")
        };
        assert_eq!(line.code, Code::UnknownSession);
    });
}
