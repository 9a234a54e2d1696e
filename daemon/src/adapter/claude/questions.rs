//! What Claude Code asks its user: may a tool run, and the choices of its `AskUserQuestion`.
//!
//! Owns the open permission requests and the words for a person. Must not know turns' ends.

use std::collections::BTreeMap;

use agentd_core::ids::TurnId;
use agentd_core::worker::{About, Asking, Lasting, QuestionKind, Reply, WorkerEvent};
use agentd_protocol::work::Silence;
use serde_json::{Map, Value, json};

use crate::adapter::driver::Out;
use crate::adapter::object::Object;

/// Requests that are open at once: the core takes 16 of a session.
const OPEN: usize = 16;
/// Longest input that is kept, in bytes: a choice's goes back with the answers in it, a tool's goes
/// back as it came, which 2.0 insists on.
const KEPT: usize = 1024 * 1024;
/// Longest value shown whole, in bytes, but for a command: nobody approves half a command.
const SHOWN: usize = 4 * 1024;
/// Longest argument in a title, in characters.
const TITLE: usize = 120;
/// The tool that is a question.
const ASKS: &str = "AskUserQuestion";
/// Arguments that say best what a tool is about to do.
const TELLING: &[&str] = &[
    "command",
    "file_path",
    "notebook_path",
    "path",
    "url",
    "query",
    "pattern",
    "description",
];

/// Open requests by their id.
#[derive(Default, Debug)]
pub(super) struct PermissionRequests(BTreeMap<String, Open>);

#[derive(Debug)]
enum Open {
    /// With the tool's input, and the rules that a yes for longer writes down.
    Approval(Option<String>, Vec<Value>),
    Choices {
        turn: Option<TurnId>,
        /// The tool's input.
        input: Map<String, Value>,
        answers: Map<String, Value>,
    },
}

impl PermissionRequests {
    /// The agent asks whether it may use a tool.
    pub(super) fn asked(
        &mut self,
        id: &str,
        request: &Object<'_>,
        turn: Option<TurnId>,
        out: &mut Out<'_>,
    ) {
        if let Some(open) = self.0.remove(id) {
            // An answer to one would be taken for one to the other, which nobody saw.
            out.push(withdrew(id, &open));
            return put_denial(id, "another request has this id", out);
        }
        if self.0.len() >= OPEN {
            return put_denial(id, "too many permission requests are open", out);
        }
        let tool = request.string("tool_name").unwrap_or_default();
        if tool == ASKS {
            let raw = request.raw("input").filter(|raw| raw.len() <= KEPT);
            let input = raw.and_then(|raw| serde_json::from_str(raw).ok());
            let Some(input) = input.filter(|input| question(input, 0).is_some()) else {
                return put_denial(id, "the question could not be read", out);
            };
            let answers = Map::new();
            out.push(choice(id, turn, &input, 0));
            let open = Open::Choices {
                turn,
                input,
                answers,
            };
            self.0.insert(id.to_owned(), open);
            return;
        }
        let input = request.raw("input").filter(|raw| raw.len() <= KEPT);
        let rules = rules(request);
        let about = about(&tool, request, &rules);
        let open = Open::Approval(input.map(str::to_owned), rules);
        self.0.insert(id.to_owned(), open);
        let asking = Asking {
            question: id.to_owned(),
            kind: QuestionKind::Approval,
            title: title(&tool, request),
            detail: Some(detail(request)),
            options: Vec::new(),
            limit: None,
            about,
        };
        out.push(WorkerEvent::Asked { turn, asking });
    }

    /// The agent wants no answer any more.
    pub(super) fn withdrawn(&mut self, id: &str, out: &mut Out<'_>) {
        let open = self.0.remove(id);
        out.extend(open.map(|open| withdrew(id, &open)));
    }

    /// The run is over: nobody is to answer any more.
    pub(super) fn deny_all(&mut self, out: &mut Out<'_>) {
        for (id, open) in std::mem::take(&mut self.0) {
            put_denial(&id, "The run is over.", out);
            out.push(withdrew(&id, &open));
        }
    }

    /// What became of a question. One that isn't open was of another process, or is withdrawn.
    pub(super) fn answered(&mut self, question_name: &str, reply: &Reply, out: &mut Out<'_>) {
        // The id of an approval may have a `#` itself.
        let whole = matches!(self.0.get(question_name), Some(Open::Approval(..)));
        let part = question_name.rsplit_once('#').filter(|_| !whole);
        let (id, number) = match part {
            Some((id, number)) => (id, number.parse().ok()),
            None => (question_name, None),
        };
        if !whole && matches!(self.0.get(id), Some(Open::Approval(..))) {
            return;
        }
        match self.0.remove(id) {
            None => {}
            Some(Open::Approval(input, rules)) => match allowed(reply, input, rules) {
                Ok(reply) => put_reply(id, &reply, out),
                Err(why) => put_denial(id, why, out),
            },
            Some(Open::Choices {
                answers,
                input,
                turn,
            }) if number != Some(answers.len()) => {
                // An answer to another of its questions.
                self.0.insert(
                    id.to_owned(),
                    Open::Choices {
                        turn,
                        input,
                        answers,
                    },
                );
            }
            Some(Open::Choices {
                turn,
                mut input,
                mut answers,
            }) => {
                let chosen = match reply {
                    Reply::Chosen(chosen) => json!(chosen),
                    Reply::Text(text) => json!(text),
                    Reply::Approved
                    | Reply::ApprovedFor(_)
                    | Reply::Denied
                    | Reply::Unanswered(_)
                    | Reply::Cancelled => {
                        return put_denial(id, "The user did not answer.", out);
                    }
                };
                let at = answers.len();
                let asked = question(&input, at).and_then(|asked| asked["question"].as_str());
                let asked = asked.unwrap_or_default().to_owned();
                answers.insert(asked, chosen);
                // Two questions of one wording have one answer.
                if answers.len() > at && question(&input, at + 1).is_some() {
                    out.push(choice(id, turn, &input, at + 1));
                    let open = Open::Choices {
                        turn,
                        input,
                        answers,
                    };
                    self.0.insert(id.to_owned(), open);
                    return;
                }
                input.insert("answers".to_owned(), Value::Object(answers));
                let reply = json!({"behavior": "allow", "updatedInput": input});
                put_reply(id, &reply, out);
            }
        }
    }
}

fn question(input: &Map<String, Value>, at: usize) -> Option<&Value> {
    input.get("questions")?.get(at)
}

fn name(id: &str, at: usize) -> String {
    format!("{id}#{at}")
}

fn withdrew(id: &str, open: &Open) -> WorkerEvent {
    let question = match open {
        Open::Approval(..) => id.to_owned(),
        Open::Choices { answers, .. } => name(id, answers.len()),
    };
    WorkerEvent::Withdrew { question }
}

fn choice(id: &str, turn: Option<TurnId>, input: &Map<String, Value>, at: usize) -> WorkerEvent {
    let question = question(input, at).cloned().unwrap_or_default();
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let options = question["options"].as_array().cloned().unwrap_or_default();
    let described = options
        .iter()
        .filter(|option| option["description"].is_string());
    let detail: Vec<String> = described
        .map(|option| format!("{}: {}", text(option, "label"), text(option, "description")))
        .collect();
    WorkerEvent::Asked {
        turn,
        asking: Asking {
            question: name(id, at),
            kind: QuestionKind::Choice,
            title: text(&question, "question"),
            detail: (!detail.is_empty()).then(|| detail.join("\n")),
            options: options.iter().map(|option| text(option, "label")).collect(),
            limit: None,
            about: About::default(),
        },
    }
}

/// The tool and what it is about to do.
fn title(tool: &str, request: &Object<'_>) -> String {
    let tool = request
        .string("display_name")
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| tool.to_owned());
    let tool = if tool.is_empty() { "a tool" } else { &tool };
    let input = request.object("input");
    let telling = input.and_then(|input| TELLING.iter().find_map(|name| input.string(name)));
    let tool: String = tool.chars().take(TITLE).collect();
    let Some(telling) = telling else {
        return format!("{tool}?");
    };
    let line = telling.lines().next().unwrap_or_default();
    let mut shown: String = line.chars().take(TITLE).collect();
    if shown.len() < telling.trim_end().len() {
        shown.push('…');
    }
    format!("{tool}: {shown}")
}

/// The whole input, with long values cut, and why it is asked.
fn detail(request: &Object<'_>) -> String {
    let mut input: Value = request.get("input").unwrap_or_default();
    if let Some(fields) = input.as_object_mut() {
        for (name, value) in fields {
            if let Value::String(text) = value
                && name != "command"
                && text.len() > SHOWN
            {
                let whole = text.len();
                let cut = text.floor_char_boundary(SHOWN);
                text.truncate(cut);
                text.push_str(&format!("… ({} bytes more)", whole - cut));
            }
        }
    }
    let mut detail = serde_json::to_string_pretty(&input).unwrap_or_default();
    for (field, what) in [
        ("blocked_path", "outside of what is allowed"),
        ("decision_reason", "reason"),
    ] {
        if let Some(text) = request.string(field) {
            detail.push_str(&format!("\n{what}: {text}"));
        }
    }
    // Nobody says yes for longer to what isn't shown.
    let rules: Vec<String> = rules(request).iter().map(in_words).collect();
    if !rules.is_empty() {
        let rules = rules.join(", ");
        detail.push_str(&format!("\na yes for longer would allow: {rules}"));
    }
    detail
}

/// The yes to an approval as the agent wants it, with the tool's input and the rules that it wrote
/// down for longer; or why it is none.
fn allowed(reply: &Reply, input: Option<String>, rules: Vec<Value>) -> Result<Value, &'static str> {
    let mut yes = json!({"behavior": "allow"});
    match reply {
        Reply::Approved => {}
        Reply::ApprovedFor(lasting) => {
            yes["updatedPermissions"] = json!(kept_for(*lasting, rules));
        }
        Reply::Unanswered(Silence::Expiry) => {
            return Err("The user did not allow this: nobody answered in time.");
        }
        Reply::Unanswered(Silence::Nobody | Silence::Cancel | Silence::Other) => {
            return Err("The user did not allow this: nobody was there to be asked.");
        }
        Reply::Denied | Reply::Chosen(_) | Reply::Text(_) | Reply::Cancelled => {
            return Err("The user did not allow this.");
        }
    }
    let input: Option<Value> = input.and_then(|raw| serde_json::from_str(&raw).ok());
    if let Some(input) = input {
        yes["updatedInput"] = input;
    }
    Ok(yes)
}

/// The rules that Claude Code suggests for not asking again, where they allow and no more.
fn rules(request: &Object<'_>) -> Vec<Value> {
    let suggested: Vec<Value> = request.get("permission_suggestions").unwrap_or_default();
    let allows = |rule: &Value| rule["type"] == "addRules" && rule["behavior"] == "allow";
    let rules: Vec<Value> = suggested.into_iter().filter(allows).collect();
    let short = json!(rules).to_string().len() <= SHOWN;
    if short { rules } else { Vec::new() }
}

/// For a session they stay in its memory, for always where it suggests to write them.
fn kept_for(lasting: Lasting, mut rules: Vec<Value>) -> Vec<Value> {
    if lasting == Lasting::Session {
        for rule in &mut rules {
            rule["destination"] = json!("session");
        }
    }
    rules
}

/// What a tool would do, as a program reads it, and how far a yes can go.
fn about(tool: &str, request: &Object<'_>, rules: &[Value]) -> About {
    let input: Value = request.get("input").unwrap_or_default();
    let text = |name: &str| input[name].as_str();
    let path = || text("file_path").or_else(|| text("notebook_path"));
    let data = match (tool, path()) {
        ("Bash", _) => text("command").map(|command| json!({ "command": command })),
        ("Write", Some(path)) => {
            let new = text("content");
            new.map(|new| json!({"diff": [{"path": path, "new": new}]}))
        }
        ("Edit", Some(path)) => {
            let both = text("old_string").zip(text("new_string"));
            both.map(|(old, new)| json!({"diff": [{"path": path, "old": old, "new": new}]}))
        }
        _ => None,
    };
    let is_written = |rule: &Value| rule["destination"] != "session";
    let mut lasting = Vec::new();
    if !rules.is_empty() {
        lasting.push(Lasting::Session);
        if rules.iter().all(is_written) {
            lasting.push(Lasting::Always);
        }
    }
    About {
        call: request.string("tool_use_id"),
        data: data.map(|data| data.to_string()),
        lasting,
    }
}

/// What a rule allows, as people write it.
fn in_words(rule: &Value) -> String {
    let rules = rule["rules"].as_array().into_iter().flatten();
    let word = |rule: &Value| {
        let tool = rule["toolName"].as_str().unwrap_or_default();
        match rule["ruleContent"].as_str() {
            Some(content) => format!("{tool}({content})"),
            None => tool.to_owned(),
        }
    };
    rules.map(word).collect::<Vec<_>>().join(", ")
}

fn put_denial(id: &str, message: &str, out: &mut Out<'_>) {
    put_reply(id, &json!({"behavior": "deny", "message": message}), out);
}

fn put_reply(id: &str, reply: &Value, out: &mut Out<'_>) {
    let response = json!({"subtype": "success", "request_id": id, "response": reply});
    out.put(&json!({"type": "control_response", "response": response}));
}

/// The agent asked for something that isn't offered here.
pub(super) fn put_refusal(id: &str, kind: &str, out: &mut Out<'_>) {
    let error = format!("`{kind}` is not served");
    let response = json!({"subtype": "error", "request_id": id, "error": error});
    out.put(&json!({"type": "control_response", "response": response}));
}
