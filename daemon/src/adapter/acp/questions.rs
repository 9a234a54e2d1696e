//! What an agent asks of its client: permissions are questions, all else is refused.
//!
//! Owns the way there and back. No request is left without an answer: a turn's end or its cancel
//! answers what is open. Must not know who answers.

use agentd_core::worker::{About, Asking, Lasting, QuestionKind, Reply, WorkerEvent};
use serde_json::{Map, Value, json};

use super::content;
use super::turn::{NAME, Seen, Turn, seen};
use super::{Acp, NAMELESS, wire};
use crate::adapter::driver::Out;
use crate::adapter::object::Object;

/// Questions open at once: no agent has more tools running.
const OPEN: usize = 64;
/// Longest id of a request.
const ID: usize = 256;

/// A permission request without an answer.
#[derive(Debug)]
pub(super) struct Question {
    /// As the agent named its request.
    id: Value,
    /// The same as text.
    name: String,
    /// The tool call that it is about.
    call: Option<String>,
    /// What was offered: as it was shown, and its id.
    options: Vec<(String, String)>,
    /// To allow once, and to reject once, of an approval.
    once: Option<(String, Option<String>)>,
    /// To allow for longer.
    lasting: Vec<(Lasting, String)>,
}

impl Acp {
    /// A request of the agent's.
    pub(super) fn asked(&mut self, method: &str, id: &str, record: &Object<'_>, out: &mut Out<'_>) {
        let id: Value = serde_json::from_str(id).unwrap_or_default();
        let named = id.is_string() || id.is_number();
        let name = id.to_string();
        if !named || name.len() > ID {
            let why = "a request's id is a number or a short text";
            return wire::put_error(&Value::Null, wire::INVALID_PARAMS, why, out);
        }
        if method != "session/request_permission" {
            let why = "agentd offers no files, no terminals and no extensions";
            wire::put_error(&id, wire::METHOD_NOT_FOUND, why, out);
            let turn = self.driver.turn_id();
            let agent = self.name.as_deref().unwrap_or(NAMELESS);
            return out.extend(self.driver.unknown.asked(agent, method, turn));
        }
        let Some(params) = record.object("params") else {
            return wire::put_error(&id, wire::INVALID_PARAMS, "no params", out);
        };
        if let Some(at) = self.questions.iter().position(|open| open.name == name) {
            // An answer to one would be taken for one to the other, which nobody saw.
            let question = self.questions.remove(at).name;
            out.push(WorkerEvent::Withdrew { question });
            wire::put_result(&id, &wire::cancelled(), out);
            let why = "another request has this id";
            return wire::put_error(&id, wire::INVALID_PARAMS, why, out);
        }
        // Of another session, in a turn that is cancelled, or in none: nobody is there to ask.
        let ours = self.is_ours(&params) && self.questions.len() < OPEN;
        let goes_on = self
            .driver
            .turn
            .as_mut()
            .filter(|turn| ours && !turn.state.is_cancelled());
        let Some(turn) = goes_on else {
            return wire::put_result(&id, &wire::cancelled(), out);
        };
        let offered = offered(&params);
        if offered.is_empty() {
            return wire::put_result(&id, &wire::cancelled(), out);
        }
        let tool = params.object("toolCall");
        let about = tool.as_ref().map(seen).unwrap_or_default();
        let call = about.call.clone();
        let once = approval(&offered);
        let options: Vec<(String, String)> = shown(&offered);
        let lasting = once.as_ref().map(|_| lasting(&offered)).unwrap_or_default();
        let asking = Asking {
            question: name.clone(),
            kind: match once {
                Some(_) => QuestionKind::Approval,
                None => QuestionKind::Choice,
            },
            title: title(&about),
            detail: detail(tool.as_ref(), &about, turn),
            options: match once {
                Some(_) => Vec::new(),
                None => options.iter().map(|(shown, _)| shown.clone()).collect(),
            },
            limit: None,
            about: About {
                call: call.clone(),
                data: tool.as_ref().and_then(|tool| data(tool, &about, turn)),
                lasting: lasting.iter().map(|(lasting, _)| *lasting).collect(),
            },
        };
        if let Some(call) = &call {
            turn.asked_about(call, &about);
        }
        let turn = turn.state.id;
        self.questions.push(Question {
            id,
            name,
            call,
            options,
            once,
            lasting,
        });
        out.push(WorkerEvent::Asked {
            turn: Some(turn),
            asking,
        });
    }

    /// What became of a question. One that is closed, or was asked by an earlier process, is
    /// nobody's: nothing is written.
    pub(super) fn reply(&mut self, question: &str, reply: &Reply, out: &mut Out<'_>) {
        let Some(at) = self.questions.iter().position(|open| open.name == question) else {
            return;
        };
        let open = self.questions.remove(at);
        let option = open.chosen(reply);
        let allowed = matches!(
            reply,
            Reply::Approved | Reply::ApprovedFor(_) | Reply::Chosen(_)
        ) && option.is_some();
        let answer = option.map_or_else(wire::cancelled, |option| wire::selected(&option));
        wire::put_result(&open.id, &answer, out);
        if let (true, Some(call), Some(turn)) = (allowed, &open.call, &mut self.driver.turn) {
            turn.allowed(call, out);
        }
    }

    /// Answers what is open, all of it or the questions about one call: nobody will.
    pub(super) fn release(&mut self, call: Option<&str>, out: &mut Out<'_>) {
        let gone = |open: &mut Question| call.is_none() || open.call.as_deref() == call;
        for open in self.questions.extract_if(.., gone) {
            wire::put_result(&open.id, &wire::cancelled(), out);
            out.push(WorkerEvent::Withdrew {
                question: open.name,
            });
        }
    }
}

/// What is asked, with a mark where it is longer than that.
fn title(about: &Seen) -> String {
    let Some(mut title) = about.title.clone() else {
        return "May it go on?".to_owned();
    };
    if title.chars().count() == NAME {
        title.push('…');
    }
    title
}

/// All that the tool would do: nobody approves what isn't shown. The title and the content are the
/// agent's prose; what it runs is the input.
fn detail(tool: Option<&Object<'_>>, about: &Seen, turn: &Turn) -> Option<String> {
    let whole = tool.and_then(|tool| tool.string("title"));
    let cut = whole.filter(|title| title.chars().count() > NAME);
    // Some agents tell the input with the call, and not once more with the request.
    let held = about.call.as_ref().and_then(|call| turn.input_of(call));
    let input = about.input.clone().or_else(|| held.cloned());
    let parts = [
        cut,
        input.filter(|input| input != "{}"),
        about.output.clone(),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("\n"))
}

impl Question {
    /// The option that a reply means; `None` is nobody's choice.
    fn chosen(&self, reply: &Reply) -> Option<String> {
        match reply {
            Reply::Approved => self.once.as_ref().map(|(allow, _)| allow.clone()),
            Reply::ApprovedFor(wanted) => {
                let mut lasting = self.lasting.iter();
                let found = lasting.find(|(lasting, _)| lasting == wanted);
                found.map(|(_, id)| id.clone())
            }
            Reply::Denied | Reply::Unanswered(_) => {
                self.once.as_ref().and_then(|(_, reject)| reject.clone())
            }
            Reply::Chosen(name) => {
                let found = self.options.iter().find(|(shown, _)| shown == name);
                found.map(|(_, id)| id.clone())
            }
            Reply::Text(_) | Reply::Cancelled => None,
        }
    }
}

/// One option of a request.
struct Offered {
    id: String,
    name: String,
    kind: Option<String>,
}

fn offered(params: &Object<'_>) -> Vec<Offered> {
    let options = params.objects("options").into_iter().take(OPEN);
    let one = |option: Object<'_>| {
        let id = option.string("optionId")?;
        Some(Offered {
            name: option.string("name").unwrap_or_else(|| id.clone()),
            kind: option.string("kind"),
            id,
        })
    };
    options.filter_map(one).collect()
}

/// Is it about yes or no? Then what each means: never more than once, whatever else is offered. With
/// several that allow once it is a choice between these.
fn approval(offered: &[Offered]) -> Option<(String, Option<String>)> {
    let known = |option: &Offered| {
        let kinds = ["allow_once", "allow_always", "reject_once", "reject_always"];
        option
            .kind
            .as_deref()
            .is_some_and(|kind| kinds.contains(&kind))
    };
    let of = |kind: &str| {
        let found = offered
            .iter()
            .find(|option| option.kind.as_deref() == Some(kind));
        found.map(|option| option.id.clone())
    };
    let is_once = |option: &&Offered| option.kind.as_deref() == Some("allow_once");
    let one = offered.iter().filter(is_once).count() == 1;
    let allow = of("allow_once").filter(|_| one && offered.iter().all(known))?;
    Some((allow, of("reject_once")))
}

/// What allows for longer. `allow_always` is ACP's only word for that, and agents mean by it what
/// they call it: Gemini CLI's is for its session. Of two that are called alike neither is offered.
fn lasting(offered: &[Offered]) -> Vec<(Lasting, String)> {
    let always = offered
        .iter()
        .filter(|option| option.kind.as_deref() == Some("allow_always"));
    let says = |text: &str| text.to_ascii_lowercase().contains("session");
    let (session, rest): (Vec<_>, Vec<_>) =
        always.partition(|option| says(&option.name) || says(&option.id));
    let only = |lasting, options: &[&Offered]| match options {
        [one] => Some((lasting, one.id.clone())),
        _ => None,
    };
    let both = [
        only(Lasting::Session, &session),
        only(Lasting::Always, &rest),
    ];
    both.into_iter().flatten().collect()
}

/// What the tool would do: its command, where, and what it would change.
fn data(tool: &Object<'_>, about: &Seen, turn: &Turn) -> Option<String> {
    let held = about.call.as_ref().and_then(|call| turn.input_of(call));
    let input = about.input.as_ref().or(held);
    let input = input.and_then(|input| Object::parse(input.as_bytes()));
    let words = |input: &Object<'_>| -> Option<String> {
        let words: Option<Vec<String>> = input.get("command");
        input
            .string("command")
            .or(words.map(|words| words.join(" ")))
    };
    let mut data = Map::new();
    if let Some(command) = input.as_ref().and_then(words) {
        data.insert("command".to_owned(), json!(command));
    }
    if let Some(cwd) = input.as_ref().and_then(|input| input.string("cwd")) {
        data.insert("cwd".to_owned(), json!(cwd));
    }
    let diff = content::changes(tool);
    if !diff.is_empty() {
        data.insert("diff".to_owned(), json!(diff));
    }
    (!data.is_empty()).then(|| Value::Object(data).to_string())
}

/// Options by their names, or by their ids where two have one name.
fn shown(offered: &[Offered]) -> Vec<(String, String)> {
    let twice = |name: &str| offered.iter().filter(|option| option.name == name).count() > 1;
    let one = |option: &Offered| {
        let name = if twice(&option.name) {
            &option.id
        } else {
            &option.name
        };
        (name.clone(), option.id.clone())
    };
    offered.iter().map(one).collect()
}
