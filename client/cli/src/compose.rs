//! Sends out of arguments and of lines.
//!
//! Owns what an option means in a send, and the lines that `dispatch` reads. Must not know how a
//! send travels.

use std::io;
use std::path::{Path, PathBuf};

use agentd_protocol::attachment::Attachment;
use agentd_protocol::nearest::nearest;
use agentd_protocol::request::{AfterFailure, Mode, OnQuestion, Retry, SEND_FIELDS, Send};
use agentd_protocol::webhook::Callback;
use serde_json::{Map, Value};

use super::args::{AfterFailureArg, HowArgs, OnQuestionArg, RetryArg, TurnArgs, WhoArgs};
use agentd_client::key;

/// The send that the arguments describe, with a key.
pub(super) fn send_of(
    text: String,
    turn: &TurnArgs,
    mode: Mode,
    how: &HowArgs,
) -> io::Result<Send> {
    let send = Send {
        text,
        idempotency_key: turn.idempotency_key.clone(),
        mode,
        stream: Some(true),
        ..common(&turn.who, how)
    };
    Ok(key::completed(&send)?.into_owned())
}

/// What every turn of a command has in common: all but its text and its key.
pub(super) fn common(who: &WhoArgs, how: &HowArgs) -> Send {
    let here = std::env::current_dir().ok();
    let cwd = who.cwd.as_ref();
    let cwd = cwd.map(|given| absolute(given, here.as_deref()));
    let attached = how
        .attach
        .iter()
        .map(|file| absolute(file, here.as_deref()));
    let attachments = attached.map(|file| Attachment::of_path(file.to_string_lossy()));
    let attachments = attachments.collect();
    let cwd_if_new = if cwd.is_some() { None } else { here };
    let shown = |path: PathBuf| path.to_str().map(str::to_owned);
    Send {
        session: who.session.clone(),
        agent: who.agent.clone(),
        provider: who.provider.clone(),
        model: who.model.clone(),
        thinking: who.thinking.clone(),
        fallback_chain: Some(who.fallbacks.clone()).filter(|chain| !chain.is_empty()),
        toolsets: Some(who.tools.clone()).filter(|tools| !tools.is_empty()),
        cwd: cwd.and_then(shown),
        cwd_if_new: cwd_if_new.and_then(shown),
        system: how.system.clone(),
        timeout: who.timeout,
        attachments,
        callback: how.callback.clone().map(|url| Callback {
            url,
            result: how.callback_result,
        }),
        expires: how.expires,
        start_at: how.start_at.clone(),
        labels: how.labels.iter().cloned().collect(),
        require_context: how.require_context,
        retry: match how.retry {
            Some(RetryArg::Auto) => Retry::Auto,
            Some(RetryArg::Never) | None => Retry::Never,
        },
        after_failure: match how.after_failure {
            Some(AfterFailureArg::Run) => AfterFailure::Run,
            Some(AfterFailureArg::Hold) | None => AfterFailure::Hold,
        },
        on_question: how.on_question.map(|on_question| match on_question {
            OnQuestionArg::Wait => OnQuestion::Wait,
            OnQuestionArg::Deny => OnQuestion::Deny,
        }),
        ..Send::default()
    }
}

/// Are the files there that are to go with a turn?
///
/// # Errors
/// Names the first that isn't, and why.
pub(super) fn readable(files: &[PathBuf]) -> Result<(), String> {
    for file in files {
        let why = match std::fs::metadata(file) {
            Ok(found) if found.is_dir() => "it is a directory".to_owned(),
            Ok(_) => continue,
            Err(why) => why.to_string(),
        };
        return Err(format!("`{}` can't be attached: {why}", file.display()));
    }
    Ok(())
}

/// A path as seen from a directory.
pub(super) fn absolute(given: &Path, here: Option<&Path>) -> PathBuf {
    match here {
        Some(here) => here.join(given),
        None => given.to_owned(),
    }
}

/// The sends of `dispatch`'s input, one a line, each with its number; blank lines are skipped.
///
/// # Errors
/// Names the line, counted from 1.
pub(super) fn sends_of_lines(input: &str, common: &Send) -> Result<Vec<(usize, Send)>, String> {
    let lines = input.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            let send = if line.trim_start().starts_with('{') {
                send_of_object(line, common)
            } else {
                Ok(send_of_text(line, common))
            };
            let number = number + 1;
            send.map(|send| (number, send))
                .map_err(|why| format!("line {number}: {why}"))
        })
        .collect()
}

/// A prompt as it is.
pub(super) fn send_of_text(text: &str, common: &Send) -> Send {
    Send {
        text: text.to_owned(),
        ..common.clone()
    }
}

/// What the object names goes before what the options said.
fn send_of_object(line: &str, common: &Send) -> Result<Send, String> {
    let given: Map<String, Value> =
        serde_json::from_str(line).map_err(|why| format!("not a JSON object: {why}"))?;
    let common = serde_json::to_value(common).map_err(|why| why.to_string())?;
    let Value::Object(mut all) = common else {
        return Err("the options are no object".to_owned());
    };
    all.remove("text");
    for (field, value) in given {
        let name = match field.as_str() {
            "type" if value == "send" => continue,
            // An answer to many has one `id`, and it isn't this one.
            "id" => continue,
            "prompt" | "message" => "text",
            "tools" => "toolsets",
            "cwd" => {
                all.remove("cwd_if_new");
                "cwd"
            }
            "type" => return Err(format!("`type` is {value}: expected `send`, or none")),
            name if SEND_FIELDS.contains(&name) => name,
            name => {
                let near = nearest(name, SEND_FIELDS.iter().copied());
                let near =
                    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                return Err(format!("a send has no field `{name}`{near}"));
            }
        };
        all.insert(name.to_owned(), value);
    }
    serde_json::from_value(Value::Object(all)).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(cwd: Option<&str>) -> TurnArgs {
        TurnArgs {
            who: WhoArgs {
                cwd: cwd.map(PathBuf::from),
                ..WhoArgs::default()
            },
            ..TurnArgs::default()
        }
    }

    #[test]
    fn directory_is_asked_for_or_offered() {
        let made = |cwd| {
            let how = HowArgs::default();
            send_of("hi".to_owned(), &args(cwd), Mode::Queue, &how).unwrap()
        };
        let send = made(Some("/tmp/x"));
        assert_eq!(
            (send.cwd.as_deref(), send.cwd_if_new),
            (Some("/tmp/x"), None)
        );
        let send = made(None);
        assert!(send.cwd.is_none() && send.cwd_if_new.is_some());
        assert_eq!(send.idempotency_key.map(|key| key.len()), Some(32));
    }

    #[test]
    fn tools_are_insisted_on() {
        let mut turn = args(None);
        let made = |turn: &TurnArgs| {
            send_of("hi".to_owned(), turn, Mode::Queue, &HowArgs::default()).unwrap()
        };
        assert_eq!(made(&turn).toolsets, None);
        turn.who.tools = vec!["file".to_owned()];
        let send = made(&turn);
        assert_eq!(send.toolsets, Some(vec!["file".to_owned()]));
        assert_eq!(send.must, ["toolsets"]);
    }

    #[test]
    fn a_file_is_attached_by_its_absolute_path() {
        let how = HowArgs {
            attach: vec![PathBuf::from("a.png"), PathBuf::from("/tmp/b.png")],
            ..HowArgs::default()
        };
        let send = send_of("hi".to_owned(), &args(None), Mode::Queue, &how).unwrap();
        let paths: Vec<_> = send.attachments.into_iter().map(|of| of.path).collect();
        let here = std::env::current_dir().unwrap().join("a.png");
        let here = here.to_str().unwrap().to_owned();
        assert_eq!(paths, [Some(here), Some("/tmp/b.png".to_owned())]);
    }

    #[test]
    fn what_restricts_is_insisted_on() {
        let how = HowArgs {
            on_question: Some(OnQuestionArg::Deny),
            ..HowArgs::default()
        };
        let send = send_of("hi".to_owned(), &args(None), Mode::Queue, &how).unwrap();
        assert_eq!(send.must, ["on_question"]);
    }

    #[test]
    fn line_of_dispatch_is_a_prompt_or_object() {
        let common = Send {
            agent: Some("pi".to_owned()),
            cwd_if_new: Some("/here".to_owned()),
            ..Send::default()
        };
        let input = "plain {text}\n\n  {\"prompt\":\"two\",\"agent\":\"timmy\",\"cwd\":\"/tmp\",\"type\":\"send\",\"id\":7}\n";
        let sends = sends_of_lines(input, &common).unwrap();
        let shown: Vec<_> = sends
            .iter()
            .map(|(number, send)| {
                let given = |field: &Option<String>| field.clone().unwrap_or_default();
                let (agent, cwd) = (given(&send.agent), given(&send.cwd));
                let cwd_if_new = given(&send.cwd_if_new);
                (*number, send.text.as_str(), agent, cwd, cwd_if_new)
            })
            .collect();
        let text = |text: &str| text.to_owned();
        assert_eq!(
            shown,
            [
                (1, "plain {text}", text("pi"), text(""), text("/here")),
                (3, "two", text("timmy"), text("/tmp"), text("")),
            ]
        );
    }

    #[test]
    fn line_that_is_wrong_names_what_was_meant() {
        let wrong = |input: &str| sends_of_lines(input, &Send::default()).unwrap_err();
        assert_eq!(
            wrong("ok\n{\"prompt\":\"a\",\"sesion\":\"x\"}"),
            "line 2: a send has no field `sesion`; did you mean `session`?"
        );
        assert!(wrong("{\"prompt\":").starts_with("line 1: not a JSON object: "));
        assert!(wrong("{\"agent\":\"pi\"}").contains("missing field `text`"));
        assert!(wrong("{\"type\":\"abort\",\"text\":\"a\"}").contains("expected `send`"));
    }
}
