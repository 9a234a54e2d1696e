//! `send` and `agent`: one turn, as text, as JSON lines, or as one object.
//!
//! Owns which view a command has, and the two for programs. Must not know how a turn is run
//! (`turn`), nor how it looks to people (`turn_text`).

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use agentd_protocol::request::{Mode, OnQuestion, Send, unix_ms};
use agentd_protocol::rows::SessionPhase;
use agentd_protocol::{JobId, Line};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::args::{AgentArgs, HowArgs, ModeArg, SendArgs, ShownArgs};
use super::exit::Exit;
use super::first_use::Notes;
use super::outcome::{self, Again};
use super::prompt::prompt_of;
use super::terminal::Asker;
use super::turn::{self, View};
use super::turn_text::{Shown, TurnText};
use super::{
    ask, choose, compose, config_check, connecting, first_use, last, output, render, value,
};
use agentd_client::client::{Attended, Client, ClientError, START_IT, Server};
use agentd_client::fallback::Fallback;
use agentd_client::ssh::Target;
use agentd_client::wire::Received;

pub(super) async fn send(args: SendArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let prompt = match prompt_of(args.text.as_deref(), Notes::of(args.shown.quiet))? {
        Ok(prompt) => prompt,
        Err(none) => {
            output::error(
                none.error(),
                Some("give it as an argument, or pipe it in: `agentctl send \"hi\"`"),
            );
            return Ok(Exit::Usage);
        }
    };
    if let Err(why) = compose::readable(&args.how.attach) {
        output::error(&why, None);
        return Ok(Exit::Usage);
    }
    let mode = match args.mode {
        ModeArg::Queue => Mode::Queue,
        ModeArg::Reject => Mode::Reject,
    };
    let mut send = compose::send_of(prompt.text, &args.turn, mode, &args.how)?;
    send.attachments.extend(prompt.attached);
    if let Some(start) = send.start_at.as_deref()
        && !args.shown.quiet
        && !io::stderr().is_terminal()
    {
        // On a terminal what it waits for is shown all the time.
        output::note(&match is_past(start) {
            true => format!("{start} is past: the turn starts now"),
            false => format!(
                "the turn starts at {start}, and its answer is waited for: Ctrl-C cancels it, and \
                 `dispatch` doesn't wait"
            ),
        });
    }
    // What is answered elsewhere, begins later or goes on when we leave is the daemon's.
    let of_daemon = send.on_question == Some(OnQuestion::Wait)
        || send.start_at.is_some()
        || args.wait.is_some();
    let turn = OwnTurn {
        socket,
        fallback: fallback(args.turn.no_fallback || of_daemon),
        go_on: args.go_on,
        notes: Notes::of(args.shown.quiet),
        wait: args.wait.map(Duration::from_secs_f64),
    };
    turn.shown(send, &args.shown).await
}

pub(super) async fn agent(args: AgentArgs, socket: Option<&Path>) -> io::Result<Exit> {
    if args.deliver {
        output::note("`--deliver`: there is no channel here, so the answer is only printed");
    }
    let how = HowArgs::default();
    let send = compose::send_of(args.message, &args.turn, Mode::Queue, &how)?;
    let turn = OwnTurn {
        socket,
        fallback: fallback(args.turn.no_fallback),
        go_on: false,
        notes: Notes::Told,
        wait: None,
    };
    if args.json {
        return turn.run(send, None, |_| PayloadView).await;
    }
    turn.shown(send, &ShownArgs::default()).await
}

pub(super) const fn fallback(no_fallback: bool) -> Fallback {
    if no_fallback {
        Fallback::Forbidden
    } else {
        Fallback::Allowed
    }
}

/// A turn of this command's own.
pub(super) struct OwnTurn<'a> {
    pub(super) socket: Option<&'a Path>,
    pub(super) fallback: Fallback,
    /// Is it the next one of the last session?
    pub(super) go_on: bool,
    /// What is told beside it.
    pub(super) notes: Notes,
    /// It is waited for so long at most.
    pub(super) wait: Option<Duration>,
}

impl OwnTurn<'_> {
    /// As the options say.
    pub(super) async fn shown(self, send: Send, args: &ShownArgs) -> io::Result<Exit> {
        if args.json {
            return self.run(send, None, |_| JsonView).await;
        }
        let denied = send.on_question == Some(OnQuestion::Deny);
        let asker = Asker::of_terminal().filter(|_| !denied && !args.quiet);
        let shown = shown(args, self.socket, asker.as_ref());
        let is_last = self.go_on && send.cwd.is_none();
        let view = |send: &Send| {
            let view = TurnText::new(Some(send), shown.clone());
            if is_last { view.goes_on_here() } else { view }
        };
        self.run(send, asker, view).await
    }

    async fn run<V: View>(
        self,
        mut send: Send,
        mut asker: Option<Asker>,
        view: impl Fn(&Send) -> V,
    ) -> io::Result<Exit> {
        first_use::daemon(self.socket, self.notes).await?;
        let until = self.wait.map(|wait| turn::taken_by(Instant::now(), wait));
        let asks = asker.is_some();
        let outcome = loop {
            let connected =
                connecting::connect_as(self.socket, self.fallback, attended(asker.as_ref()));
            let connected = match until {
                None => connected.await,
                Some(until) => match tokio::time::timeout_at(until, connected).await {
                    Ok(connected) => connected,
                    Err(_late) => {
                        output::error(
                            "no longer waiting: nobody was there in time to take the turn",
                            Some("nothing was run; `agentctl status` says how the daemon is"),
                        );
                        return Ok(Exit::Unreachable);
                    }
                },
            };
            let outcome = match connected {
                Ok(mut client) => {
                    if let Err(exit) = begins_no_job(&mut client, &send).await {
                        client.close().await;
                        return Ok(exit);
                    }
                    if self.notes == Notes::Told {
                        tell_older_config(&mut client).await;
                        tell_begins_anew(&mut client, &send).await;
                    }
                    if self.go_on
                        && let Err(exit) = name_last(&mut client, &mut send, self.notes).await
                    {
                        client.close().await;
                        return Ok(exit);
                    }
                    let (view, asker) = (&mut view(&send), asker.take());
                    turn::run_within(
                        client,
                        &send,
                        view,
                        asker,
                        self.wait,
                        Some(&first_use::NEXT),
                    )
                    .await?
                }
                // Who wants no run without a daemon needs one.
                Err(error @ ClientError::Unreachable { .. })
                    if self.fallback == Fallback::Forbidden =>
                {
                    return Ok(ask::tell_unconnected(&error, self.socket, START_IT).await);
                }
                Err(error) => turn::TurnOutcome::Failed(error, None),
            };
            if asks
                && send.agent.is_none()
                && let Some(choices) = choose::of(&outcome)
                && let Some(agent) = choose::ask(choices, self.socket).await?
            {
                // Nothing was accepted: the same turn, with the same key.
                send.agent = Some(agent);
                asker = Asker::of_terminal();
                continue;
            }
            break outcome;
        };
        let exit = outcome::conclude(&outcome, Again::Send(&send));
        if send.agent.is_none() && send.session.is_none() {
            choose::tell_others(&outcome, self.socket).await;
        }
        Ok(exit)
    }
}

/// A new session that is called as jobs are could be named by no command: `j1` is the job. One that
/// is there already goes on.
async fn begins_no_job(client: &mut Client, send: &Send) -> Result<(), Exit> {
    let job = send
        .session
        .as_deref()
        .filter(|name| name.parse::<JobId>().is_ok());
    let Some(name) = job else {
        return Ok(());
    };
    match client.session_named(name).await {
        Ok(None) => Err(outcome::ends(
            Exit::Usage,
            &format!("there is no session `{name}`, and a new one can't be called so: jobs are"),
            Some("choose another name, as in `--session trip`"),
        )),
        Ok(Some(_)) | Err(_) => Ok(()),
    }
}

/// Who takes the name of a closed session is told that the new one knows nothing of it.
async fn tell_begins_anew(client: &mut Client, send: &Send) {
    let Some(name) = send.session.as_deref() else {
        return;
    };
    if !output::err_is_terminal() || matches!(client.server(), Server::Remote(_)) {
        return;
    }
    let known = client.session_named(name).await;
    if let Ok(Some(one)) = known
        && one.state == SessionPhase::Closed
    {
        output::note(&format!(
            "the session `{}` was closed and begins anew: `agentctl history {}` reads its earlier \
             turns",
            output::safe(name),
            output::safe(one.name())
        ));
    }
}

/// Who has changed the configuration since the daemon started, and sees nothing of it, is told why:
/// in a script's log, too, where it is found when the turn went to the wrong model.
async fn tell_older_config(client: &mut Client) {
    let Server::Daemon(endpoint) = client.server() else {
        return;
    };
    let written = || fs::metadata(first_use::file()?).ok()?.modified().ok();
    // Where nothing was written the daemon need not be asked.
    match (written(), endpoint.held_since()) {
        (Some(written), Some(since)) if written > since => {}
        _ => return,
    }
    if let Some(unusable) = config_check::of_daemon(client).await {
        output::note(&unusable.not_in_force());
    }
}

pub(super) fn attended(asker: Option<&Asker>) -> Attended {
    match asker {
        Some(_) => Attended::Yes,
        None => Attended::No,
    }
}

/// How a turn is shown to people.
pub(super) fn shown(args: &ShownArgs, socket: Option<&Path>, asker: Option<&Asker>) -> Shown {
    let host = socket.and_then(Target::of_socket).and_then(Result::ok);
    Shown {
        quiet: args.quiet,
        notify: args.notify,
        host: host.map(|target| target.to_string()),
        attended: asker.is_some(),
    }
}

/// Puts the last session into the send, and says which that is.
async fn name_last(client: &mut Client, send: &mut Send, notes: Notes) -> Result<(), Exit> {
    let hint = "`agentctl send` without `-c` begins one; `agentctl sessions` lists those of all \
                directories, and `-s NAME` goes on with one of them";
    let (agent, cwd) = (send.agent.as_deref(), send.cwd.as_deref());
    let found = last::session(client, agent, cwd, hint).await?;
    if notes == Notes::Told {
        output::note(&format!(
            "goes on with session {} of {}, used {}",
            output::safe(&found.session),
            output::safe(&found.agent),
            value::relative(&found.last_active_at, value::now_ms())
        ));
    }
    send.session = Some(found.session);
    // It has its own.
    (send.cwd, send.cwd_if_new) = (None, None);
    Ok(())
}

/// The protocol's own lines.
pub(super) struct JsonView;

impl View for JsonView {
    fn line(&mut self, received: &Received) -> io::Result<()> {
        output::out_json(&received.text)
    }
}

/// One object in the shape that scripts of an older product parse.
struct PayloadView;

impl View for PayloadView {
    fn line(&mut self, received: &Received) -> io::Result<()> {
        let known = received.line.as_ref();
        if let Some(text) = known.and_then(render::side_note) {
            output::note(&text);
        }
        if !matches!(known, Some(Line::MessageEnd(_) | Line::Error(_))) {
            return Ok(());
        }
        let line: Value = serde_json::from_str(&received.text).unwrap_or_default();
        output::out_json(&payloads(&line).to_string())
    }
}

fn payloads(line: &Value) -> Value {
    let text = line.get("text").and_then(Value::as_str).unwrap_or("");
    let failed = line.get("type").and_then(Value::as_str) == Some("error");
    let payloads = if failed && text.is_empty() {
        json!([])
    } else {
        json!([{ "text": text, "mediaUrl": null }])
    };
    let mut meta = serde_json::Map::new();
    let names = [
        "job",
        "session",
        "agent",
        "provider",
        "model",
        "thinking",
        "stop",
        "context",
        "usage",
        "cost",
        "duration_ms",
        "queued_ms",
        "attempt",
        "served_by",
        "fallback_reason",
        "replayed",
    ];
    for name in names {
        if let Some(value) = line.get(name) {
            meta.insert(name.to_owned(), value.clone());
        }
    }
    if failed {
        let field = |name: &str| line.get(name).cloned().unwrap_or_default();
        let error = json!({ "code": field("code"), "message": field("error") });
        meta.insert("error".to_owned(), error);
    }
    json!({ "payloads": payloads, "meta": meta })
}

/// A time of `--start-at` that is over.
pub(super) fn is_past(start: &str) -> bool {
    unix_ms(start).is_some_and(|at| at <= value::now_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        payloads(&serde_json::from_str(line).unwrap()).to_string()
    }

    #[test]
    fn the_alias_prints_payloads_and_meta() {
        assert_eq!(
            shown(
                r#"{"type":"message_end","id":1,"job":"j1","session":"main","text":"hi","served_by":"daemon","seq":4}"#
            ),
            r#"{"payloads":[{"text":"hi","mediaUrl":null}],"meta":{"job":"j1","session":"main","served_by":"daemon"}}"#
        );
        assert_eq!(
            shown(r#"{"type":"error","id":1,"code":"no-agent","error":"there is none"}"#),
            r#"{"payloads":[],"meta":{"error":{"code":"no-agent","message":"there is none"}}}"#
        );
    }
}
