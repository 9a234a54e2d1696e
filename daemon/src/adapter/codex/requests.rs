//! What Codex asks its client: approvals and questions, which go to a person, and the rest, which is
//! refused by name.
//!
//! Owns the requests of Codex that have no answer yet. None is ever left hanging: what can't be
//! asked is answered at once, and what is open at a turn's end is declined.

use std::collections::BTreeMap;

use agentd_core::worker::{About, Asking, Lasting, QuestionKind, Reply};
use agentd_protocol::line::FileChange;
use serde_json::{Value, json};

use super::items::changed_files;
use super::{cut, shortened};
use crate::adapter::driver::Out;
use crate::adapter::object::Object;

/// Requests that may be open at once: the core has fewer questions.
const OPEN: usize = 64;
/// Longest part of a request that is kept or echoed, in bytes.
const KEPT: usize = 16 * 1024;
/// Longest id of a request: Codex's are numbers.
const ID: usize = 64;
/// Questions of one request: Codex's tool takes three.
const QUESTIONS: usize = 8;
/// Longest title, in bytes.
const TITLE: usize = 1024;
/// The decision by which commands like this one are never asked for again.
const AMENDMENT: &str = "acceptWithExecpolicyAmendment";
/// JSON-RPC's code for what isn't a request.
const NO_REQUEST: i64 = -32600;
/// JSON-RPC's code for a method that isn't there.
const NO_METHOD: i64 = -32601;
/// JSON-RPC's code for parameters that can't be used.
const BAD_PARAMS: i64 = -32602;

/// Questions by id, with their answers so far.
type Answers = Vec<(String, Option<Vec<String>>)>;

/// What an answer looks like.
#[derive(Debug)]
enum Form {
    /// `accept` or `decline`: the turn goes on without the step.
    Decision,
    /// `approved` or `denied`, of versions before threads.
    Review,
    /// What was asked for, or nothing.
    Permissions(Value),
    /// Of an MCP server.
    Elicitation,
    /// Of Codex's own tool.
    Input(Answers),
}

#[derive(Debug)]
struct Request {
    id: Value,
    form: Form,
    /// What Codex has heard when a yes is for longer.
    lasting: Vec<(Lasting, Value)>,
}

/// What became of an approval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    No,
    Once,
    For(Lasting),
}

impl Verdict {
    const fn of(reply: &Reply) -> Self {
        match reply {
            Reply::Approved => Self::Once,
            Reply::ApprovedFor(lasting) => Self::For(*lasting),
            Reply::Denied
            | Reply::Unanswered(_)
            | Reply::Chosen(_)
            | Reply::Text(_)
            | Reply::Cancelled => Self::No,
        }
    }
}

/// Why a request was refused, where that is worth telling.
pub(super) enum Refused {
    /// Another one is open under the same id: an answer to one would be taken for one to the other,
    /// which nobody saw. Both were declined, and these questions are withdrawn.
    Twice(Vec<String>),
    /// It is of a kind that this version doesn't know.
    Unserved,
}

/// Requests of Codex without an answer, by name.
#[derive(Default, Debug)]
pub(super) struct Requests(BTreeMap<String, Request>);

impl Requests {
    /// Takes a request; returns what is to be asked of a person. `about` tells what an item does.
    ///
    /// # Errors
    /// What there is to tell of a request that was refused.
    pub(super) fn take(
        &mut self,
        method: &str,
        line: &Object<'_>,
        about: impl Fn(&str) -> Option<(String, String)>,
        out: &mut Out<'_>,
    ) -> Result<Vec<Asking>, Refused> {
        let (name, id) = id(line);
        let refuse = |code, why: &str, out: &mut Out<'_>| {
            let error = json!({"code": code, "message": why});
            out.put(&json!({"id": id, "error": error}));
            Ok(Vec::new())
        };
        let Some(name) = name else {
            let why = "a request's id is a number or a short text";
            return refuse(NO_REQUEST, why, out);
        };
        if let Some(open) = self.0.get(&name) {
            let withdrawn = questions_of(&name, open);
            self.close(&name, Verdict::No, out);
            let _nothing = refuse(NO_REQUEST, "another request has this id", out);
            return Err(Refused::Twice(withdrawn));
        }
        let Some(params) = line.object("params") else {
            return refuse(BAD_PARAMS, "no parameters", out);
        };
        let text = |name| params.string(name).unwrap_or_default();
        let (form, asking) = match method {
            "item/commandExecution/requestApproval" => {
                (Form::Decision, vec![command(&name, &params)])
            }
            "item/fileChange/requestApproval" => {
                let (what, changes) = about(&text("itemId")).unwrap_or_default();
                let asking = change(&name, &what, &changes, &params);
                (Form::Decision, vec![asking])
            }
            "execCommandApproval" => (Form::Review, vec![command(&name, &params)]),
            "applyPatchApproval" => {
                let what = params.raw("fileChanges").unwrap_or_default();
                (Form::Review, vec![change(&name, what, "", &params)])
            }
            "item/permissions/requestApproval" => {
                let wanted = params.raw("permissions").unwrap_or("{}");
                if wanted.len() > KEPT {
                    return refuse(BAD_PARAMS, "too many permissions", out);
                }
                let detail = [("permissions", wanted.to_owned()), ("cwd", text("cwd"))];
                let title = "Give Codex more permissions?";
                let asking = approval(&name, title, &detail, &params);
                let wanted = serde_json::from_str(wanted).unwrap_or_else(|_| json!({}));
                (Form::Permissions(wanted), vec![asking])
            }
            "mcpServer/elicitation/request" if is_plain(&params) => {
                let title = format!("{}: {}", text("serverName"), text("message"));
                let asking = approval(&name, &title, &[("url", text("url"))], &params);
                (Form::Elicitation, vec![asking])
            }
            "mcpServer/elicitation/request" => {
                let result = elicited("decline");
                out.put(&json!({"id": id, "result": result}));
                return Err(Refused::Unserved);
            }
            "item/tool/requestUserInput" => {
                let (answers, asking) = questions(&name, &params);
                if asking.is_empty() {
                    return refuse(BAD_PARAMS, "no question can be asked", out);
                }
                (Form::Input(answers), asking)
            }
            _ => {
                let _nothing = refuse(NO_METHOD, "agentd doesn't do that", out);
                return Err(Refused::Unserved);
            }
        };
        if self.0.len() >= OPEN {
            return refuse(BAD_PARAMS, "too many requests are open", out);
        }
        let lasting = lasting(method, &params);
        let mut asking = asking;
        if !matches!(form, Form::Input(_) | Form::Elicitation) {
            for one in &mut asking {
                one.about = about_call(&params, &lasting, &one.about);
            }
        }
        let request = Request { id, form, lasting };
        self.0.insert(name, request);
        Ok(asking)
    }

    /// Codex wants no answer any more; returns the names of the questions.
    pub(super) fn resolved(&mut self, params: &Object<'_>) -> Vec<String> {
        let name = params.raw("requestId").unwrap_or_default();
        let request = self.0.remove(name);
        request.map_or_else(Vec::new, |request| questions_of(name, &request))
    }

    /// An answer to a question; one that nobody asked is dropped.
    pub(super) fn answer(&mut self, question: &str, reply: &Reply, out: &mut Out<'_>) {
        let Some((name, number)) = question.rsplit_once('/') else {
            return self.close(question, Verdict::of(reply), out);
        };
        let Some(Form::Input(answers)) = self.0.get_mut(name).map(|request| &mut request.form)
        else {
            // A string that is an id may have a slash itself.
            return self.close(question, Verdict::of(reply), out);
        };
        let number = number.parse::<usize>().ok();
        if let Some((_, answer)) = number.and_then(|number| answers.get_mut(number)) {
            *answer = Some(match reply {
                Reply::Chosen(option) => vec![option.clone()],
                Reply::Text(text) => vec![text.0.clone()],
                Reply::Approved
                | Reply::ApprovedFor(_)
                | Reply::Denied
                | Reply::Unanswered(_)
                | Reply::Cancelled => Vec::new(),
            });
        }
        if answers.iter().all(|(_, answer)| answer.is_some()) {
            self.close(name, Verdict::No, out);
        }
    }

    /// Declines whatever is open.
    pub(super) fn decline_all(&mut self, out: &mut Out<'_>) {
        let names: Vec<String> = self.0.keys().cloned().collect();
        for name in names {
            self.close(&name, Verdict::No, out);
        }
    }

    fn close(&mut self, name: &str, verdict: Verdict, out: &mut Out<'_>) {
        let Some(Request { id, form, lasting }) = self.0.remove(name) else {
            return;
        };
        let yes = verdict != Verdict::No;
        let further = lasting
            .into_iter()
            .find(|(lasting, _)| verdict == Verdict::For(*lasting));
        let result = match form {
            Form::Decision | Form::Review if further.is_some() => {
                json!({"decision": further.map(|(_, decision)| decision)})
            }
            Form::Decision => json!({"decision": if yes { "accept" } else { "decline" }}),
            Form::Review => json!({"decision": if yes { "approved" } else { "denied" }}),
            Form::Permissions(wanted) => {
                let permissions = if yes { without_null(wanted) } else { json!({}) };
                // Not for the session: who said yes saw only what this turn wants.
                json!({"permissions": permissions, "scope": "turn"})
            }
            Form::Elicitation => elicited(if yes { "accept" } else { "decline" }),
            Form::Input(answers) => {
                let answers: serde_json::Map<String, Value> = answers
                    .into_iter()
                    .map(|(id, answer)| (id, json!({"answers": answer.unwrap_or_default()})))
                    .collect();
                json!({"answers": answers})
            }
        };
        out.put(&json!({"id": id, "result": result}));
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.0.len()
    }
}

/// How far a yes can go, and what Codex hears then: where it lists its decisions, what is listed.
fn lasting(method: &str, params: &Object<'_>) -> Vec<(Lasting, Value)> {
    if method == "item/fileChange/requestApproval" {
        return vec![(Lasting::Session, json!("acceptForSession"))];
    }
    let listed: Vec<Value> = params.get("availableDecisions").unwrap_or_default();
    let known = |decision: Value| {
        if decision == "acceptForSession" {
            Some((Lasting::Session, decision))
        } else if decision.get(AMENDMENT).is_some() && decision.to_string().len() <= KEPT {
            Some((Lasting::Always, decision))
        } else {
            None
        }
    };
    listed.into_iter().filter_map(known).collect()
}

/// The call that a request is about, and how far a yes to it can go.
fn about_call(params: &Object<'_>, lasting: &[(Lasting, Value)], known: &About) -> About {
    About {
        call: params.string("itemId").or_else(|| params.string("callId")),
        data: known.data.clone(),
        lasting: lasting.iter().map(|(lasting, _)| *lasting).collect(),
    }
}

/// A request's name, if it can have one, and its id as it is echoed: `null` for what isn't an id.
fn id(line: &Object<'_>) -> (Option<String>, Value) {
    let raw = line.raw("id").filter(|raw| raw.len() <= KEPT);
    let id = raw.and_then(|raw| serde_json::from_str(raw).ok());
    let id = id.filter(|id: &Value| id.is_number() || id.is_string());
    let name = raw.filter(|raw| id.is_some() && raw.len() <= ID);
    (name.map(str::to_owned), id.unwrap_or_default())
}

/// The names of all questions of a request.
fn questions_of(name: &str, request: &Request) -> Vec<String> {
    match &request.form {
        Form::Input(answers) => (0..answers.len()).map(|n| part(name, n)).collect(),
        _ => vec![name.to_owned()],
    }
}

/// One of the questions of a request.
fn part(name: &str, number: usize) -> String {
    format!("{name}/{number}")
}

/// An elicitation that wants a yes or no, and nothing to be filled in.
fn is_plain(params: &Object<'_>) -> bool {
    match params.string("mode").as_deref() {
        Some("url") => true,
        Some("form") => params.object("requestedSchema").is_none_or(|schema| {
            let fields = schema.raw("properties").unwrap_or("{}");
            serde_json::from_str::<BTreeMap<String, Value>>(fields).is_ok_and(|f| f.is_empty())
        }),
        _ => false,
    }
}

fn elicited(action: &str) -> Value {
    // An accepted form has a content, and if nothing was to be filled in.
    let content = if action == "accept" {
        json!({})
    } else {
        Value::Null
    };
    json!({"action": action, "content": content, "_meta": null})
}

/// What is granted has no `null`, unlike what is asked for.
fn without_null(mut wanted: Value) -> Value {
    if let Value::Object(fields) = &mut wanted {
        fields.retain(|_, value| !value.is_null());
    }
    wanted
}

/// An approval whose detail has a line for each thing that is known.
fn approval(name: &str, title: &str, known: &[(&str, String)], params: &Object<'_>) -> Asking {
    let reason = params.string("reason").unwrap_or_default();
    let reason = ("reason", reason);
    let known = known.iter().chain([&reason]);
    let detail = known
        .filter(|(_, value)| !value.is_empty())
        .map(|(what, value)| format!("{what}: {}", shortened(value, KEPT)))
        .collect::<Vec<_>>();
    Asking {
        question: name.to_owned(),
        kind: QuestionKind::Approval,
        title: shortened(title, TITLE).into_owned(),
        detail: (!detail.is_empty()).then(|| detail.join("\n")),
        options: Vec::new(),
        limit: None,
        about: About::default(),
    }
}

fn command(name: &str, params: &Object<'_>) -> Asking {
    // Older versions give the words of the command one by one.
    let words: Option<Vec<String>> = params.get("command");
    let command = params.string("command").or(words.map(|w| w.join(" ")));
    let command = command.unwrap_or_default();
    let network = params.object("networkApprovalContext");
    let host = network.and_then(|network| network.string("host"));
    let title = match &host {
        Some(host) => format!("Connect to {host}?"),
        None if command.is_empty() => "Run a command?".to_owned(),
        None => format!("Run `{command}`?"),
    };
    let more = params.raw("additionalPermissions").unwrap_or_default();
    let cwd = params.string("cwd").unwrap_or_default();
    let rule: Vec<String> = params
        .get("proposedExecpolicyAmendment")
        .unwrap_or_default();
    let mut data = json!({"command": command, "cwd": cwd});
    if let Some(data) = data.as_object_mut() {
        data.retain(|_, value| *value != "");
    }
    let known = [
        ("command", command),
        ("cwd", cwd),
        ("permissions", more.to_owned()),
        // Nobody says always to what isn't shown.
        ("always would allow what begins with", rule.join(" ")),
    ];
    let mut asking = approval(name, &title, &known, params);
    asking.about.data = Some(data.to_string());
    asking
}

fn change(name: &str, what: &str, as_json: &str, params: &Object<'_>) -> Asking {
    let root = params.string("grantRoot").unwrap_or_default();
    let known = [("changes", what.to_owned()), ("all below", root)];
    let mut asking = approval(name, "Change files?", &known, params);
    asking.about.data = changes(as_json).map(|diff| json!({"diff": diff}).to_string());
    asking
}

/// Codex's changes, each a path and a diff, as a program reads them.
fn changes(input: &str) -> Option<Vec<FileChange>> {
    let changes = changed_files(&Object::parse(input.as_bytes())?);
    (!changes.is_empty()).then_some(changes)
}

/// The questions of one request, each without an answer.
fn questions(name: &str, params: &Object<'_>) -> (Answers, Vec<Asking>) {
    let questions = params.objects("questions");
    let known = questions.iter().take(QUESTIONS).enumerate();
    known
        .map(|(number, question)| {
            let options = question.objects("options");
            let label = |option: &Object<'_>| option.string("label");
            let options: Vec<String> = options.iter().filter_map(label).collect();
            let kind = if question.is_true("isSecret") {
                QuestionKind::Secret
            } else if options.is_empty() {
                QuestionKind::Text
            } else {
                QuestionKind::Choice
            };
            let title = question.string("question").unwrap_or_default();
            let asking = Asking {
                question: part(name, number),
                kind,
                title: shortened(&title, TITLE).into_owned(),
                detail: question.string("header"),
                options,
                limit: None,
                about: About::default(),
            };
            let id = question.string("id").unwrap_or_default();
            ((cut(&id, TITLE).to_owned(), None), asking)
        })
        .unzip()
}
