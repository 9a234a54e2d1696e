//! Provider `echo`: the prompt is the script.
//!
//! Owns the script's syntax and how it is played. Must not know standard input or sessions.
//!
//! Words are said one by one, and behind them what was attached. `[[tool]]` and `[[tool NAME]]` play a tool call that touches
//! nothing, `[[sleep MS]]` waits, `[[error=CODE]]` ends the turn as a failure. Anything else in
//! brackets is said as it stands.

use std::time::Duration;

use agentd_protocol::Code;
use agentd_protocol::attachment::Attachment;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::models::ModelRow;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::ECHO;
use crate::line::Line;

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
        ..ModelRow::named("scripted")
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
    let mut rest = prompt;
    while let Some((before, from)) = rest.split_once("[[") {
        let Some((inside, after)) = from.split_once("]]") else {
            break;
        };
        let Some(step) = directive(inside) else {
            let taken = rest.len() - after.len();
            steps.extend(rest[..taken].split_whitespace().map(EchoStep::Say));
            rest = after;
            continue;
        };
        steps.extend(before.split_whitespace().map(EchoStep::Say));
        steps.push(step);
        rest = after;
    }
    steps.extend(rest.split_whitespace().map(EchoStep::Say));
    steps
}

fn directive(inside: &str) -> Option<EchoStep<'_>> {
    let inside = inside.trim();
    if let Some(code) = inside.strip_prefix("error=") {
        let known = Code::ALL.iter().find(|known| known.name() == code.trim());
        return Some(EchoStep::Fail(known.copied().unwrap_or(Code::AgentFailed)));
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

/// Plays a prompt to its final line; a cancelled one ends early with the text so far.
pub(crate) async fn play(prompt: &str, cancel: &CancellationToken, line: &Line) {
    let mut text = String::new();
    let mut calls = 0_u32;
    line.say("message_start", json!({"message": 0, "role": "assistant"}))
        .await;
    for step in script(prompt) {
        let pause = match step {
            EchoStep::Say(word) => {
                let space = if text.is_empty() { "" } else { " " };
                let delta = format!("{space}{word}");
                let fields =
                    json!({"message": 0, "offset": text.len(), "text": delta, "native": true});
                line.say("message_delta", fields).await;
                text.push_str(&delta);
                Duration::ZERO
            }
            EchoStep::Tool(name) => {
                calls += 1;
                tool(line, calls, name).await;
                Duration::ZERO
            }
            EchoStep::Sleep(time) => time,
            EchoStep::Fail(code) => {
                let error = format!("the prompt asked for the error `{code}`");
                let fields = json!({"code": code, "error": error, "retryable": code.retryable(), "text": text});
                line.say("error", ending(fields)).await;
                return;
            }
        };
        // A pause of nothing still lets an abort through.
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                line.say("message_end", ending(json!({"text": text, "stop": "cancelled"}))).await;
                return;
            }
            () = pause_for(pause) => {}
        }
    }
    line.say(
        "message_end",
        ending(json!({"text": text, "stop": "end_turn"})),
    )
    .await;
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

/// What both kinds of final line say of the model.
fn ending(mut fields: serde_json::Value) -> serde_json::Value {
    fields["provider"] = json!("echo");
    fields["model"] = json!("scripted");
    fields["cost"] = json!({"usd": 0.0, "status": "actual"});
    fields["api_calls"] = json!([]);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_words_and_directives_in_order() {
        let ms = Duration::from_millis;
        for (prompt, expected) in [
            (
                "a  b\nc",
                vec![EchoStep::Say("a"), EchoStep::Say("b"), EchoStep::Say("c")],
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
                "[[error=nonsense]]",
                vec![EchoStep::Fail(Code::AgentFailed)],
            ),
            (
                "x [[what]] y",
                vec![
                    EchoStep::Say("x"),
                    EchoStep::Say("[[what]]"),
                    EchoStep::Say("y"),
                ],
            ),
            (
                "[[sleep x]] [[",
                vec![
                    EchoStep::Say("[[sleep"),
                    EchoStep::Say("x]]"),
                    EchoStep::Say("[["),
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
