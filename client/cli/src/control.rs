//! The commands that ask the daemon one thing and print its answer.
//!
//! Owns the exit code of an answer. Must not know how an answer looks (`render`). None
//! falls back: only a daemon can answer them.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::RequestKind;
use agentd_protocol::request::{Drain, RestartWorker};
use agentd_protocol::work::{JobPhase, Jobs};

use super::args::{DeadlineArgs, RestartWorkersArgs};
use super::exit::Exit;
use super::{ask, output, render, typed};
use agentd_client::fallback::Fallback;
use agentd_client::wire::Nothing;

/// Whoever waits for longer wants to know why.
const QUIET_FOR: Duration = Duration::from_secs(1);
/// Turns that are named: more would hide what they ask.
const NAMED: usize = 5;

pub(super) async fn restart(args: RestartWorkersArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = RestartWorker {
        agent: args.agent,
        session: args.session,
        now: args.now,
    };
    let down = "there is nothing to restart: without a daemon each turn starts its agent anew";
    let asking = ask::change_or(down, socket, RequestKind::RestartWorker, &fields);
    tokio::pin!(asking);
    let mut told = BTreeSet::new();
    let asked = loop {
        tokio::select! {
            asked = &mut asking => break asked,
            () = tell_late(socket, &fields, "with `--now` it waits for no turn", &mut told),
                if !fields.now => {}
        }
    };
    ask::done(asked, "restarted")
}

/// Waits as long as nobody wonders, and then says what keeps a restart up, and what ends that.
pub(super) async fn tell_late(
    socket: Option<&Path>,
    restart: &RestartWorker,
    now: &str,
    told: &mut BTreeSet<String>,
) {
    tokio::time::sleep(QUIET_FOR).await;
    tell_what_keeps_it(socket, restart, now, told).await;
}

/// Which turns a restart waits for, and how to shorten that: each of them once.
async fn tell_what_keeps_it(
    socket: Option<&Path>,
    restart: &RestartWorker,
    now: &str,
    told: &mut BTreeSet<String>,
) {
    let running = Jobs {
        agent: restart.agent.clone(),
        session: restart.session.clone(),
        state: Some(JobPhase::Running),
        limit: Some(NAMED),
        ..Jobs::default()
    };
    // Who can't be asked now is asked again.
    let Ok(mut client) = ask::connect(socket).await else {
        return;
    };
    let questions = client.questions(restart.session.as_deref()).await;
    let questions = questions.map(|reply| reply.value).unwrap_or_default();
    let there = typed::which_daemon();
    for row in client.jobs(running).await.unwrap_or_default() {
        let job = row.job;
        let question = questions.iter().find(|question| question.job == job);
        let (name, why) = match question {
            Some(question) => {
                let id = &question.question_id;
                let title = render::preview(&question.title);
                (
                    id.clone(),
                    format!("{job}, which asks: {title}; `agentctl{there} answer {id}` answers it"),
                )
            }
            None => (
                job.to_string(),
                format!("{job}, which runs; `agentctl{there} attach {job}` shows it"),
            ),
        };
        let is_first = told.is_empty();
        if told.insert(name) {
            let shorter = match is_first {
                true => format!("; {now}"),
                false => String::new(),
            };
            output::note(&format!("the restart waits for {why}{shorter}"));
        }
    }
    client.close().await;
}

pub(super) async fn drain(args: DeadlineArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = Drain {
        while_connected: false,
        deadline: args.deadline,
    };
    ask::done(
        ask::ask(socket, RequestKind::Drain, &fields, Fallback::Forbidden).await,
        "drained: nothing runs, new turns wait for `agentctl undrain`",
    )
}

pub(super) async fn undrain(socket: Option<&Path>) -> io::Result<Exit> {
    let asked = ask::ask(
        socket,
        RequestKind::Undrain,
        &Nothing {},
        Fallback::Forbidden,
    )
    .await;
    ask::done(asked, "turns start again")
}
