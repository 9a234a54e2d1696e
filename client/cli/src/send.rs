//! `send` and `agent`: a turn's lines as text, as JSON lines, or as one object.
//!
//! Owns the three views. Must not know how a turn is run (`turn`).

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

use agentd_protocol::Line;
use agentd_protocol::request::{Mode, OnQuestion, Send};
use serde_json::{Value, json};

use super::args::{AgentArgs, HowArgs, ModeArg, SendArgs};
use super::exit::Exit;
use super::stream::TextView;
use super::terminal::Asker;
use super::turn::{self, View};
use super::{compose, output, render};
use agentd_client::client::Attended;
use agentd_client::fallback::Fallback;
use agentd_client::wire::Received;

pub(super) async fn send(args: SendArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let Some(text) = text_of(args.text.as_deref())? else {
        output::error(
            "there is no text to send",
            Some("give it as an argument, or pipe it in: `agentctl send \"hi\"`"),
        );
        return Ok(Exit::Usage);
    };
    let mode = match args.mode {
        ModeArg::Queue => Mode::Queue,
        ModeArg::Reject => Mode::Reject,
    };
    let send = compose::send_of(text, &args.turn, mode, &args.how)?;
    let fallback = fallback(args.turn.no_fallback);
    if args.json {
        run(&send, socket, fallback, &mut JsonView, None).await
    } else {
        let denied = send.on_question == Some(OnQuestion::Deny);
        let asker = if denied { None } else { Asker::of_terminal() };
        run(&send, socket, fallback, &mut TextSink::new(&send), asker).await
    }
}

pub(super) async fn agent(args: AgentArgs, socket: Option<&Path>) -> io::Result<Exit> {
    if args.deliver {
        output::note("`--deliver`: there is no channel here, so the answer is only printed");
    }
    let how = HowArgs::default();
    let send = compose::send_of(args.message, &args.turn, Mode::Queue, &how)?;
    let fallback = fallback(args.turn.no_fallback);
    if args.json {
        run(&send, socket, fallback, &mut PayloadView, None).await
    } else {
        let asker = Asker::of_terminal();
        run(&send, socket, fallback, &mut TextSink::new(&send), asker).await
    }
}

fn fallback(no_fallback: bool) -> Fallback {
    if no_fallback {
        Fallback::Forbidden
    } else {
        Fallback::Allowed
    }
}

async fn run(
    send: &Send,
    socket: Option<&Path>,
    fallback: Fallback,
    view: &mut impl View,
    asker: Option<Asker>,
) -> io::Result<Exit> {
    let key = send.idempotency_key.as_deref().unwrap_or_default();
    let attended = match asker {
        Some(_) => Attended::Yes,
        None => Attended::No,
    };
    let outcome = match turn::connect_as(socket, fallback, attended).await {
        Ok(client) => turn::run(client, send, view, asker).await?,
        Err(error) => turn::TurnOutcome::Failed(error),
    };
    Ok(turn::conclude(&outcome, key))
}

/// The argument; standard input for `-`, or when it isn't a terminal and there is no argument.
pub(super) fn text_of(argument: Option<&str>) -> io::Result<Option<String>> {
    match argument {
        Some("-") => {}
        Some(text) => return Ok(Some(text.to_owned()).filter(|text| !text.trim().is_empty())),
        // Nobody is asked for a text by a cursor that blinks.
        None if io::stdin().is_terminal() => return Ok(None),
        None => {}
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

/// Text for people: streamed to a terminal, whole into a pipe; notes beside it.
struct TextSink {
    terminal: bool,
    text: TextView,
    spinner: Option<Spinner>,
}

impl TextSink {
    fn new(send: &Send) -> Self {
        let agent = send.agent.clone().unwrap_or_else(|| "the agent".to_owned());
        Self {
            terminal: output::out_is_terminal(),
            text: TextView::default(),
            spinner: output::err_is_terminal().then_some(Spinner {
                agent,
                step: 0,
                drawn: false,
            }),
        }
    }

    fn clear(&mut self) {
        if let Some(spinner) = &mut self.spinner {
            spinner.clear();
        }
    }

    fn finish(&mut self, text: &str) -> io::Result<()> {
        self.spinner = None;
        let rest = self.text.end(text);
        if self.terminal {
            output::out(&output::safe(&rest))
        } else {
            output::out(&rest)
        }
    }
}

impl View for TextSink {
    fn line(&mut self, received: &Received) -> io::Result<()> {
        let Some(line) = &received.line else {
            return Ok(());
        };
        if let Some(text) = render::side_note(line) {
            self.clear();
            output::note(&text);
        }
        match line {
            Line::MessageDelta {
                message,
                offset,
                text,
                ..
            // Into a pipe the text goes whole: what was replaced meanwhile can't be taken back
            // there.
            } if self.terminal => {
                self.clear();
                let fresh = self.text.delta(*message, *offset, text);
                output::out(&output::safe(&fresh))
            }
            Line::MessageEnd(end) => {
                self.clear();
                self.finish(&end.turn.text)?;
                if end.turn.truncated {
                    output::note("the text was too long for one line and is cut short");
                }
                if let Some(refusal) = &end.turn.refusal {
                    output::note(&format!("the model refused: {refusal}"));
                }
                Ok(())
            }
            Line::Error(error) => {
                self.clear();
                let text = error.turn.as_ref().map_or("", |turn| turn.text.as_str());
                self.finish(text)
            }
            _ => Ok(()),
        }
    }

    fn tick(&mut self, waited: Duration) {
        // The text that comes is the better sign of life.
        if self.text.is_empty()
            && let Some(spinner) = &mut self.spinner
        {
            spinner.draw(waited);
        }
    }
}

struct Spinner {
    agent: String,
    step: usize,
    drawn: bool,
}

impl Spinner {
    const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

    fn draw(&mut self, waited: Duration) {
        let frame = Self::FRAMES[self.step % Self::FRAMES.len()];
        self.step += 1;
        self.drawn = true;
        let agent = output::safe(&self.agent);
        output::err(&format!(
            "\r{frame} waiting for {agent}, {} s\x1b[K",
            waited.as_secs()
        ));
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            output::err("\r\x1b[K");
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The protocol's own lines.
struct JsonView;

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

    #[test]
    fn text_is_an_argument_that_is_not_blank() {
        assert_eq!(text_of(Some("hi")).unwrap().as_deref(), Some("hi"));
        assert_eq!(text_of(Some(" ")).unwrap(), None);
    }
}
