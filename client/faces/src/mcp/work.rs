//! What goes on behind one request of a client.
//!
//! Owns what such work can do: ask the daemon, tell how far it is, and put questions to the client's
//! user. Must not know which work there is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use agentd_client::ClientError;
use agentd_client::wire::Received;
use agentd_protocol::{Id, JobId};
use serde::Serialize;
use serde_json::{Value, json};

use super::outcome::Outcome;
use super::peer::Peer;
use super::question::Question;
use crate::face::{Outbox, Spoken, Ticket};
use crate::json_rpc::{self, Failure};

/// A client that is told nothing for longer may give up.
pub(super) const BEAT: Duration = Duration::from_secs(10);
/// Longest message of a client's row.
const LONGEST_MESSAGE: usize = 200;

/// What becomes of work that was given something.
pub(super) enum Step {
    /// It goes on.
    Goes,
    /// A tool is answered.
    Done(Outcome),
    /// Something else is answered.
    Answers(Value),
    /// There is no answer but this.
    Fails(Failure),
    /// Other work goes on in its place.
    Becomes(Box<dyn Work>),
}

/// What a cancelled request leaves behind.
pub(super) enum Abandoned {
    Nothing,
    /// Its own job.
    Job(JobId),
    /// Its own job, whose number isn't known yet, and this key.
    Unaccepted(Option<String>),
}

/// Work behind one request.
pub(super) trait Work: Send {
    /// It begins.
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step;

    /// A line that answers a request of it.
    fn line(&mut self, ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step;

    /// The connection is lost, and all that was asked over it with it. What only looks is asked again,
    /// and what has a key is found by it.
    fn lost(&mut self, scene: &mut Scene<'_>) -> Step {
        self.begin(scene)
    }

    /// Nobody serves.
    fn unreachable(&mut self, why: &ClientError) -> Step {
        Step::Done(nobody_serves(why, false))
    }

    /// When its time comes.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// It has come.
    fn timer(&mut self, _scene: &mut Scene<'_>) -> Step {
        Step::Goes
    }

    /// What ends with a request that is cancelled.
    fn abandoned(&self) -> Abandoned {
        Abandoned::Nothing
    }
}

/// Nobody serves, and whoever did so before may have accepted what `was_lost`: a model that took that for
/// a failure would ask again, and have it done twice.
pub(super) fn nobody_serves(why: &ClientError, was_lost: bool) -> Outcome {
    let hint = match why {
        ClientError::OneShotFailed { why: Some(why), .. } => why,
        _ => agentd_client::client::START_IT,
    };
    let why = why.to_string();
    match was_lost {
        true => {
            let hint =
                "it may have been accepted, and run: when the daemon is back, `jobs` says so";
            Outcome::unknown(&why, hint)
        }
        false => Outcome::refusal("unreachable", &why, Some(hint)),
    }
}

/// What was asked of a client, to its user.
pub(super) struct Requests {
    /// The face's own.
    nonce: String,
    last: u64,
    /// In which directories does the user work? The last time that this was asked.
    pub(super) roots: Option<Id>,
    /// Questions of agents that aren't answered here, and what they are called.
    pub(super) put: BTreeMap<String, Id>,
}

impl Requests {
    pub(super) const fn new(nonce: String) -> Self {
        Self {
            nonce,
            last: 0,
            roots: None,
            put: BTreeMap::new(),
        }
    }

    /// Asks in which directories the user works.
    pub(super) fn ask_roots(&mut self, out: &mut Outbox) {
        self.last += 1;
        let name = self.roots.insert(Id::number(self.last));
        out.say(&json_rpc::request(name, "roots/list", &json!({})));
    }

    /// Puts a question to the user.
    pub(super) fn put(&mut self, question: &Question, form: &Value, out: &mut Outbox) {
        self.last += 1;
        if let Some(name) = question.name(&format!("{}-{}", self.nonce, self.last)) {
            out.say(&json_rpc::request(&name, "elicitation/create", form));
            self.put.insert(question.id.clone(), name);
        }
    }

    /// Somebody else has answered, or nobody asks any more.
    pub(super) fn withdraw(&mut self, question_id: &str, out: &mut Outbox) {
        if let Some(name) = self.put.remove(question_id) {
            let name: Value = serde_json::from_str(name.as_json()).unwrap_or_default();
            let params = json!({"requestId": name, "reason": "the question is closed"});
            out.say(&json_rpc::notification("notifications/cancelled", &params));
        }
    }
}

/// Tells a client how far a request is, where it asked for that.
pub(super) struct Progress {
    /// As the client named it.
    token: Option<Value>,
    told: u64,
}

impl Progress {
    pub(super) const fn new(token: Option<Value>) -> Self {
        Self { token, told: 0 }
    }

    /// Says it on the request's row.
    pub(super) fn say(&mut self, message: &str, out: &mut Outbox) {
        let Some(token) = &self.token else {
            return;
        };
        self.told += 1;
        let end = message.floor_char_boundary(LONGEST_MESSAGE);
        let message = message.get(..end).unwrap_or_default();
        let params = json!({"progressToken": token, "progress": self.told, "message": message});
        out.say(&json_rpc::notification("notifications/progress", &params));
    }
}

/// What is there for work whenever it is given something.
pub(super) struct Scene<'a> {
    pub(super) now: Instant,
    pub(super) peer: &'a Peer,
    /// Are we inside a job?
    pub(super) inside: bool,
    pub(super) progress: &'a mut Progress,
    pub(super) requests: &'a mut Requests,
    pub(super) spoken: &'a mut Spoken,
    pub(super) out: &'a mut Outbox,
    /// What was asked, for whoever brings the answers.
    pub(super) tickets: &'a mut Vec<Ticket>,
}

impl Scene<'_> {
    /// Asks the daemon.
    pub(super) fn ask(&mut self, kind: &'static str, fields: &impl Serialize) -> Ticket {
        let ticket = self.out.ask(kind, fields);
        self.tickets.push(ticket);
        ticket
    }

    pub(super) fn say(&mut self, message: &str) {
        self.progress.say(message, self.out);
    }
}
