//! Provider `echo`: the prompt is the script.
//!
//! Owns the script's syntax and how it is played. Must not know standard input or sessions.
//!
//! Words are said one by one with the white space around them, and behind them what was attached.
//! `[[tool]]` and `[[tool NAME]]` play a tool call that touches nothing, `[[sleep MS]]` waits,
//! `[[ask WORDS]]` asks for leave and says the answer, `[[error=CODE]]` ends the turn as a failure;
//! what is before and behind one of them is a space apart. Anything else in brackets is said as it
//! stands.

use std::time::Duration;

use agentd_protocol::Code;
use agentd_protocol::attachment::Attachment;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::models::ModelRow;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::ECHO;
use crate::line::Line;
use crate::tool::{Approval, Asker};

/// What it is called in what is kept and told.
pub(crate) const PROVIDER: &str = ECHO;
/// Its only model.
pub(crate) const MODEL: &str = "scripted";
/// Said once in each session.
pub(crate) const NOTE: &str = "echo provider: no model was used";
/// Longest `[[sleep]]`: a turn's own default deadline.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// One thing to do.
#[derive(PartialEq, Eq, Debug)]
enum EchoStep<'a> {
    Say(&'a str),
    Tool(&'a str),
    Sleep(Duration),
    Ask(&'a str),
    Fail(Code),
}

/// Is the scripted provider wanted?
///
/// # Errors
/// It is, and for a model that it doesn't have.
pub(crate) fn is_wanted(provider: Option<&str>, model: Option<&str>) -> Result<bool, Rejected> {
    let by_model = || model.is_some_and(|model| model.starts_with("echo/"));
    // A provider that is named goes before what a model's name seems to say.
    if !provider.map_or_else(by_model, |name| name == ECHO) {
        return Ok(false);
    }
    match model {
        None | Some("scripted" | "echo/scripted") => Ok(true),
        Some(name) => {
            let error = format!("provider `echo` has no model `{name}`");
            Err(Rejected::new(Code::InvalidRequest, error).hint("its only model is `scripted`"))
        }
    }
}

/// Its only model.
pub(crate) fn row() -> ModelRow {
    ModelRow {
        provider: Some(ECHO.to_owned()),
        label: Some("says the prompt back, without any model".to_owned()),
        input: Some(vec!["text".to_owned()]),
        default: true,
        ..ModelRow::named(MODEL)
    }
}

/// What went with a prompt, to be said behind it.
pub(crate) fn attached(attachments: &[Attachment]) -> String {
    let shown = |of: &Attachment| {
        let name = of.name.as_deref().unwrap_or("attachment");
        let mime = of.mime.as_deref().unwrap_or("unknown");
        // Four letters of base64 are three bytes (RFC 4648): the length is known without them.
        let data = of.data.as_deref().unwrap_or_default().trim_end_matches('=');
        format!(" [{name}: {mime}, {} bytes]", data.len() * 3 / 4)
    };
    attachments.iter().map(shown).collect()
}

fn script(prompt: &str) -> Vec<EchoStep<'_>> {
    let mut steps = Vec::new();
    // What is said next begins here, and is looked at from there on.
    let (mut begun, mut at) = (0, 0);
    while let Some(before) = prompt[at..].find("[[") {
        let open = at + before;
        let inside = open + "[[".len();
        let Some(length) = prompt[inside..].find("]]") else {
            break;
        };
        at = inside + length + "]]".len();
        if let Some(step) = directive(&prompt[inside..inside + length]) {
            say(&mut steps, prompt[begun..open].trim_end());
            steps.push(step);
            let behind = &prompt[at..];
            begun = at + behind.len() - behind.trim_start().len();
        }
    }
    say(&mut steps, &prompt[begun..]);
    steps
}

/// Each word with the white space before it; the last one has what is behind it, too.
fn say<'a>(steps: &mut Vec<EchoStep<'a>>, text: &'a str) {
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.len() - rest.trim_start().len();
        let end = rest[word..].find(char::is_whitespace);
        let end = end.map_or(rest.len(), |length| word + length);
        let end = match rest[end..].trim_start().is_empty() {
            true => rest.len(),
            false => end,
        };
        steps.push(EchoStep::Say(&rest[..end]));
        rest = &rest[end..];
    }
}

fn directive(inside: &str) -> Option<EchoStep<'_>> {
    let inside = inside.trim();
    if let Some(code) = inside.strip_prefix("error=") {
        let known = Code::ALL.iter().find(|known| known.name() == code.trim());
        return Some(EchoStep::Fail(known.copied().unwrap_or(Code::AgentFailed)));
    }
    if let Some(asked) = inside.strip_prefix("ask ") {
        return Some(EchoStep::Ask(asked.trim_start()));
    }
    let mut words = inside.split_whitespace();
    let step = match (words.next()?, words.next()) {
        ("tool", name) => EchoStep::Tool(name.unwrap_or("echo")),
        ("sleep", Some(ms)) => {
            EchoStep::Sleep(Duration::from_millis(ms.parse().ok()?).min(LONGEST_SLEEP))
        }
        _ => return None,
    };
    words.next().is_none().then_some(step)
}

/// What a script is told while it is played, and whom it asks.
pub(crate) struct EchoControl<'a> {
    pub(crate) line: &'a Line,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) asker: &'a dyn Asker,
    /// Hears the session's native id, if it has one, before the final line.
    pub(crate) opened: &'a (dyn Fn(&str) + Sync),
}

/// What was played, but for its final line.
pub(crate) struct Played {
    kind: &'static str,
    fields: Value,
}

impl Played {
    fn new(kind: &'static str, mut fields: Value, text: String) -> Self {
        fields["text"] = json!(text);
        fields["provider"] = json!(PROVIDER);
        fields["model"] = json!(MODEL);
        fields["cost"] = json!({"usd": 0.0, "status": "actual"});
        fields["api_calls"] = json!([]);
        Self { kind, fields }
    }

    /// All that was said.
    pub(crate) fn text(&self) -> &str {
        self.fields["text"].as_str().unwrap_or_default()
    }

    /// Says how it ended.
    pub(crate) async fn say(self, line: &Line) {
        line.say(self.kind, self.fields).await;
    }
}

/// Plays a prompt up to its final line; a cancelled one ends early with the text so far.
pub(crate) async fn play(prompt: &str, control: &EchoControl<'_>) -> Played {
    let EchoControl { line, cancel, .. } = control;
    let mut text = String::new();
    let mut calls = 0_u32;
    let mut apart = "";
    line.say("message_start", json!({"message": 0, "role": "assistant"}))
        .await;
    for step in script(prompt) {
        let pause = match step {
            EchoStep::Say(word) => {
                say_word(&mut text, apart, word, line).await;
                apart = "";
                Duration::ZERO
            }
            EchoStep::Ask(title) => {
                let asked = control.asker.approve(None, title, "");
                match cancel.run_until_cancelled(asked).await {
                    Some(Approval::Granted) => say_word(&mut text, " ", "allowed", line).await,
                    Some(Approval::Denied(why)) => say_word(&mut text, " ", &why, line).await,
                    None => {}
                }
                apart = " ";
                Duration::ZERO
            }
            EchoStep::Tool(name) => {
                calls += 1;
                apart = " ";
                tool(line, calls, name).await;
                Duration::ZERO
            }
            EchoStep::Sleep(time) => {
                apart = " ";
                time
            }
            EchoStep::Fail(code) => {
                let error = format!("the prompt asked for the error `{code}`");
                let fields = json!({"code": code, "error": error, "retryable": code.retryable()});
                return Played::new("error", fields, text);
            }
        };
        // A pause of nothing still lets an abort through.
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                return Played::new("message_end", json!({"stop": "cancelled"}), text);
            }
            () = pause_for(pause) => {}
        }
    }
    Played::new("message_end", json!({"stop": "end_turn"}), text)
}

/// One word more, a space apart from what was said before, if anything was.
async fn say_word(text: &mut String, apart: &str, word: &str, line: &Line) {
    let space = if text.is_empty() { "" } else { apart };
    let delta = format!("{space}{word}");
    let fields = json!({"message": 0, "offset": text.len(), "text": delta, "native": true});
    line.say("message_delta", fields).await;
    text.push_str(&delta);
}

async fn pause_for(time: Duration) {
    if time.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}

async fn tool(line: &Line, number: u32, name: &str) {
    let call = format!("c{number}");
    let start = json!({"tool_call_id": call, "name": name, "input": {}, "read_only": true});
    line.say("tool_start", start).await;
    let end = json!({"tool_call_id": call, "ok": true, "output": "echo", "truncated": false, "duration_ms": 0});
    line.say("tool_end", end).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_words_and_directives_in_order() {
        let ms = Duration::from_millis;
        for (prompt, expected) in [
            (
                " a  b\n\nc \n",
                vec![
                    EchoStep::Say(" a"),
                    EchoStep::Say("  b"),
                    EchoStep::Say("\n\nc \n"),
                ],
            ),
            (" \n", vec![EchoStep::Say(" \n")]),
            (
                "a \n[[tool]]\n b ",
                vec![
                    EchoStep::Say("a"),
                    EchoStep::Tool("echo"),
                    EchoStep::Say("b "),
                ],
            ),
            (
                "a[[tool]]b",
                vec![
                    EchoStep::Say("a"),
                    EchoStep::Tool("echo"),
                    EchoStep::Say("b"),
                ],
            ),
            (
                "[[tool ls]] [[sleep 200]]",
                vec![EchoStep::Tool("ls"), EchoStep::Sleep(ms(200))],
            ),
            (
                "[[error=rate-limit]]",
                vec![EchoStep::Fail(Code::RateLimit)],
            ),
            (
                "[[ask  may I? ]] [[ask]]",
                vec![EchoStep::Ask("may I?"), EchoStep::Say("[[ask]]")],
            ),
            (
                "[[error=nonsense]]",
                vec![EchoStep::Fail(Code::AgentFailed)],
            ),
            (
                "x [[what]] y",
                vec![
                    EchoStep::Say("x"),
                    EchoStep::Say(" [[what]]"),
                    EchoStep::Say(" y"),
                ],
            ),
            (
                "[[sleep x]] [[",
                vec![
                    EchoStep::Say("[[sleep"),
                    EchoStep::Say(" x]]"),
                    EchoStep::Say(" [["),
                ],
            ),
            ("[[]]", vec![EchoStep::Say("[[]]")]),
            (
                "[[sleep 99999999999]]",
                vec![EchoStep::Sleep(LONGEST_SLEEP)],
            ),
        ] {
            assert_eq!(script(prompt), expected, "{prompt}");
        }
    }
}
