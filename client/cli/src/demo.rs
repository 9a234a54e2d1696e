//! `demo`: one turn by the built-in agent, without any key or network.
//!
//! Owns what it says. The turn itself goes the way of every other one.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use agentd_protocol::Line;
use agentd_protocol::line::MessageEnd;
use agentd_protocol::request::Mode;

use super::args::{HowArgs, TurnArgs, WhoArgs};
use super::exit::Exit;
use super::outcome::{self, Again};
use super::turn::{self, TurnOutcome, View};
use super::{compose, connecting, output, render};
use agentd_client::fallback::Fallback;
use agentd_client::wire::Received;

const TEXT: &str = "hello from agentctl demo";

struct Silent;

impl View for Silent {
    fn line(&mut self, _: &Received) -> io::Result<()> {
        Ok(())
    }
}

pub(super) async fn run(socket: Option<&Path>) -> io::Result<Exit> {
    let who = WhoArgs {
        agent: Some("timmy".to_owned()),
        provider: Some("echo".to_owned()),
        ..WhoArgs::default()
    };
    let args = TurnArgs {
        who,
        ..TurnArgs::default()
    };
    let how = HowArgs::default();
    let send = compose::send_of(TEXT.to_owned(), &args, Mode::Queue, &how)?;
    let begun = Instant::now();
    let (outcome, server) = match connecting::connect(socket, Fallback::Allowed).await {
        Ok(client) => {
            let server = client.hello.pid;
            (turn::run(client, &send, &mut Silent, None).await?, server)
        }
        Err(error) => (TurnOutcome::Failed(error, None), 0),
    };
    if let TurnOutcome::Final(received, _) = &outcome
        && let Some(Line::MessageEnd(end)) = &received.line
    {
        output::out(&told(end, server, begun.elapsed()))?;
    }
    Ok(outcome::conclude(&outcome, Again::Send(&send)))
}

fn told(end: &MessageEnd, pid: u32, took: Duration) -> String {
    let turn = &end.turn;
    let by = if turn.served_by == "oneshot" {
        "a one-shot `agentd --stdio`".to_owned()
    } else {
        format!("the daemon (pid {pid})")
    };
    let job = turn
        .job
        .map_or_else(String::new, |job| format!(", job {job}"));
    let next = if turn.served_by == "oneshot" {
        "`agentctl start` starts the daemon, `agentctl status` shows it"
    } else {
        "`agentctl agents` lists your agents, `agentctl send \"hi\"` asks one"
    };
    format!(
        "sent      \"{TEXT}\" to agent `timmy`, provider `echo`\n\
         answered  \"{}\"\n\
         served    by {by} in {} ms{job}\n\
         cost      nothing: no key, no network, no model\n\
         next      {next}\n",
        render::preview(&turn.text),
        took.as_millis(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_says_where_it_was_served() {
        let json = r#"{"type":"message_end","job":"j1","text":"echo: hi","served_by":"daemon"}"#;
        let Line::MessageEnd(end) = serde_json::from_str(json).unwrap() else {
            panic!("not an end");
        };
        assert_eq!(
            told(&end, 7, Duration::from_millis(12)),
            "\
sent      \"hello from agentctl demo\" to agent `timmy`, provider `echo`
answered  \"echo: hi\"
served    by the daemon (pid 7) in 12 ms, job j1
cost      nothing: no key, no network, no model
next      `agentctl agents` lists your agents, `agentctl send \"hi\"` asks one
"
        );
    }
}
