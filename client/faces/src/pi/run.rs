//! A run: a prompt's turn, what is said while it goes on, and the turns of what waited.
//!
//! Owns when each is told or asked. Must not know how a turn's lines become events.

use std::time::SystemTime;

use agentd_client::wire::Received;
use agentd_protocol::attachment::Attachment;
use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::line::{Line, Stop, TurnFacts};
use agentd_protocol::request::{AfterFailure, OnQuestion, Send, unix_ms};
use serde_json::{Map, Value, json};

use super::commands::{Command, Reply};
use super::message::Named;
use super::queue::{Mode, Words};
use super::turn::{End, Happened, Turn};
use super::{Asked, Pi, What, refusal};
use crate::face::{Outbox, job_of};
use crate::title::short;

/// What a request has besides its fields.
const ENVELOPE: usize = 256;
const BUSY: &str = "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message.";

impl Pi {
    pub(super) fn prompt(&mut self, command: &Command, out: &mut Outbox) -> Result<Reply, Reply> {
        if command.fields.contains_key("attachments") {
            let why = "`attachments` are of pi before 0.31: send pictures as `images`";
            return Err(Reply::failed(why));
        }
        let text = command.text("message")?;
        if self.compacting {
            let why = "Cannot submit a prompt while compaction is in progress";
            return Err(Reply::failed(why));
        }
        if self.is_busy() {
            return match command
                .fields
                .get("streamingBehavior")
                .and_then(Value::as_str)
            {
                Some("steer") => self.queue_up(command, true, out),
                Some("followUp") => self.queue_up(command, false, out),
                _ => Err(Reply::failed(BUSY)),
            };
        }
        let pictures = pictures(command.fields.get("images"))?;
        let send = self.send(Words { text, pictures });
        let length = serde_json::to_string(&send).map_or(0, |line| line.len());
        if length + ENVELOPE > MAX_LINE_IN {
            let why = format!("the prompt takes {length} bytes: expected at most {MAX_LINE_IN}");
            return Err(Reply::failed(why));
        }
        self.prompt = Some(command.clone());
        self.begin_turn(send, out);
        Ok(Reply::Later)
    }

    pub(super) fn send(&mut self, words: Words) -> Box<Send> {
        let settings = &self.settings;
        let mut send = Send {
            text: words.text,
            attachments: words.pictures,
            session: Some(self.session.clone()),
            cwd_if_new: settings.here.clone(),
            thinking: self.thinking.clone(),
            on_question: Some(OnQuestion::Wait),
            must: vec!["on_question".to_owned()],
            after_failure: AfterFailure::Run,
            ..Send::default()
        };
        // Somebody may close the session meanwhile: the one that is made then has the same.
        send.agent = self.spoken.agent(&self.session).cloned();
        if !self.exists || self.is_ours {
            send.toolsets.clone_from(&settings.toolsets);
        }
        if !self.exists {
            send.agent.clone_from(&settings.agent);
            send.system.clone_from(&settings.system);
            send.history.clone_from(&self.begins);
        }
        if self.is_pinned {
            send.provider.clone_from(&self.named.provider);
            send.model.clone_from(&self.named.model);
        }
        self.made += 1;
        send.idempotency_key = Some(format!("pi-{}-{}", self.settings.nonce, self.made));
        Box::new(send)
    }

    pub(super) fn begin_turn(&mut self, send: Box<Send>, out: &mut Outbox) {
        self.ask("send", &send, What::Turn, out);
        self.turn = Some(Turn::new(send, self.named.clone()));
    }

    pub(super) fn queue_up(
        &mut self,
        command: &Command,
        steers: bool,
        out: &mut Outbox,
    ) -> Result<Reply, Reply> {
        let text = command.text("message")?;
        let pictures = pictures(command.fields.get("images"))?;
        match steers {
            // A turn that runs takes words alone.
            true if pictures.is_empty() => self.queue.steering.push(text),
            true => self.queue.unsteered.push(Words { text, pictures }),
            false => self.queue.follow_up.push(Words { text, pictures }),
        }
        out.say(&self.queue.event());
        self.steer(out);
        Ok(Reply::Done(Some(json!({"disposition": "queued"}))))
    }

    /// Gives the agent what is to be said to the turn that runs.
    pub(super) fn steer(&mut self, out: &mut Outbox) {
        let job = self
            .turn
            .as_ref()
            .filter(|turn| !turn.aborted)
            .and_then(|turn| turn.job);
        let Some(job) = job else {
            return;
        };
        let steers = |asked: &&Asked| matches!(asked.what, What::Steer(_));
        let under_way = self.asked.values().filter(steers).count();
        let most = match self.queue.steering_mode {
            Mode::All => usize::MAX,
            Mode::OneAtATime => 1,
        };
        let due = self.queue.steering.iter().take(most).skip(under_way);
        for text in due.cloned().collect::<Vec<_>>() {
            let fields = json!({"job": job, "text": text});
            self.ask("steer", &fields, What::Steer(text), out);
        }
    }

    pub(super) fn steered(&mut self, text: &str, is_taken: bool, out: &mut Outbox) {
        if !self.queue.remove_steer(text) {
            return;
        }
        match (&mut self.turn, is_taken) {
            (Some(turn), true) => {
                let mut events = Vec::new();
                turn.user(text, ms(self.settings.clock), &mut events);
                say_all(&events, out);
            }
            // An agent that can't be steered is told it next.
            _ => self.queue.unsteered.push(Words::of(text.to_owned())),
        }
        out.say(&self.queue.event());
        self.steer(out);
        self.leave(out);
    }

    pub(super) fn clear_queue(&mut self, out: &mut Outbox) -> Reply {
        let cleared = self.queue.listed();
        for left in &self.queue.left {
            out.ask("abort", &json!({"job": left.job}));
        }
        self.queue.clear();
        out.say(&self.queue.event());
        Reply::Done(Some(cleared))
    }

    pub(super) fn abort(&mut self, command: &Command, out: &mut Outbox) -> Reply {
        if self.is_settled() {
            return Reply::Done(None);
        }
        self.recall(out);
        self.end_turn(out);
        self.settling.push_back(command.clone());
        Reply::Later
    }

    /// The turn is to end: its last line still comes.
    pub(super) fn end_turn(&mut self, out: &mut Outbox) {
        // What waits with the daemon is its turn there.
        self.queue.left.clear();
        if let Some(turn) = &mut self.turn {
            turn.aborted = true;
            out.abort(turn.job, turn.send.idempotency_key.as_deref());
        }
    }

    /// A line of the turn.
    pub(super) fn turn_line(&mut self, line: Received, out: &mut Outbox) {
        let refused = match &line.line {
            Some(Line::Error(error)) if error.turn.as_ref().is_none_or(|of| of.job.is_none()) => {
                Some(refusal(error))
            }
            None if line.ends_turn() => Some("the daemon's answer was not understood".to_owned()),
            _ => None,
        };
        if let Some(why) = refused {
            return self.fail_turn(&why, out);
        }
        let Some(turn) = &self.turn else {
            return;
        };
        // Of several that an earlier client left, one is told after the other.
        let of = line.line.as_ref().and_then(job_of);
        if of.is_some() && turn.is_accepted() && of != turn.job {
            return;
        }
        let now = ms(self.settings.clock);
        let mut events = Vec::new();
        if let Some(Line::Accepted(accepted)) = &line.line {
            self.is_ours |= !self.exists || accepted.made;
            if let Some(note) = self.spoken.accepted(accepted) {
                self.notice(&note, out);
                self.is_titled = self.title.is_none();
            }
        }
        let Some(turn) = &mut self.turn else {
            return;
        };
        let happened = turn.line(line, now, &mut events);
        say_all(&events, out);
        match happened {
            Happened::Nothing => {}
            Happened::Accepted => self.accepted(out),
            Happened::Questions(lines) => {
                for line in lines {
                    self.question(line, now, out);
                }
            }
            Happened::Ended(end) => self.end(&end, out),
        }
    }

    pub(super) fn accepted(&mut self, out: &mut Outbox) {
        let now = ms(self.settings.clock);
        self.exists = true;
        self.begins = Vec::new();
        if let Some(command) = self.prompt.take() {
            let started = Reply::Done(Some(json!({"disposition": "started"})));
            self.reply(&command, started, out);
        }
        if self.run.is_none() {
            self.run = Some(Vec::new());
            out.say(&json!({"type": "agent_start"}));
        }
        out.say(&json!({"type": "turn_start"}));
        let mut events = Vec::new();
        if let Some(turn) = &mut self.turn {
            let text = turn.send.text.clone();
            turn.user(&text, now, &mut events);
        }
        say_all(&events, out);
        if self.turn.as_ref().is_some_and(|turn| turn.aborted) {
            self.end_turn(out);
        }
        if self.title.is_some() && !self.is_titled {
            self.set_title(None, out);
        }
        self.steer(out);
        self.leave(out);
    }

    /// Once the client has left, what is to be said after the turn waits with the daemon. Where the
    /// turn before it goes on no more nothing waits for the next prompt, and that is said.
    pub(super) fn leave(&mut self, out: &mut Outbox) {
        if !self.left {
            return;
        }
        match &self.turn {
            Some(turn) if turn.aborted => self.drop_queue(out),
            Some(turn) if turn.is_accepted() => {
                while let Some(words) = self.queue.next_behind() {
                    let text = words.text.clone();
                    let send = self.send(words);
                    self.ask("send", &send, What::Left(text), out);
                }
            }
            // Its answer says more.
            Some(_) => {}
            None => self.drop_queue(out),
        }
    }

    fn drop_queue(&mut self, out: &mut Outbox) {
        let texts = self.queue.take_own();
        let texts: Vec<String> = texts.iter().map(|text| short(text)).collect();
        if !texts.is_empty() {
            let why = format!(
                "what waited behind a turn that failed or was ended is not run, send it again: `{}`",
                texts.join("`, `")
            );
            self.notice(&why, out);
        }
    }

    /// The agent asks, or nobody has to answer any more.
    pub(super) fn question(&mut self, line: Line, now: u64, out: &mut Outbox) {
        match line {
            Line::Question {
                question_id,
                kind,
                title,
                detail,
                options,
                expires_at: Some(expires_at),
                ..
            } => {
                let mut request = json!({"type": "extension_ui_request", "id": question_id});
                request["title"] = json!(title);
                match (kind.as_str(), detail) {
                    ("approval", detail) => {
                        request["method"] = json!("confirm");
                        request["message"] = json!(detail.unwrap_or_default());
                    }
                    (kind, detail) => {
                        request["method"] = json!("input");
                        if kind == "choice" {
                            request["method"] = json!("select");
                            request["options"] = json!(options);
                        }
                        // These have no other place for it.
                        if let Some(detail) = detail.filter(|detail| !detail.is_empty()) {
                            request["title"] = json!(format!("{title}\n{detail}"));
                        }
                    }
                }
                let until = unix_ms(&expires_at).and_then(|at| u64::try_from(at).ok());
                if let Some(left) = until.map(|at| at.saturating_sub(now)) {
                    request["timeout"] = json!(left);
                }
                self.questions.insert(question_id, kind);
                out.say(&request);
            }
            Line::QuestionClosed { question_id, .. } => {
                // There is no word for it: a late answer is dropped.
                self.questions.remove(&question_id);
            }
            _ => {}
        }
    }

    /// A client's answer; one to nothing is dropped, as by pi.
    pub(super) fn answer(&mut self, fields: &Map<String, Value>, out: &mut Outbox) {
        let id = fields.get("id").and_then(Value::as_str);
        let Some((id, kind)) = id.and_then(|id| self.questions.remove_entry(id)) else {
            return;
        };
        let given = |field: &str| fields.get(field).filter(|value| !value.is_null());
        let value = given("value").and_then(Value::as_str);
        let answer = match (kind.as_str(), given("confirmed"), value) {
            ("approval", Some(Value::Bool(yes)), _) => json!({"question_id": id, "approve": yes}),
            ("choice", _, Some(value)) => json!({"question_id": id, "choice": value}),
            ("text" | "secret", _, Some(value)) => json!({"question_id": id, "text": value}),
            _ => json!({"question_id": id, "cancel": true}),
        };
        self.ask("answer", &answer, What::Nobody, out);
    }

    pub(super) fn end(&mut self, end: &End, out: &mut Outbox) {
        let Some(mut turn) = self.turn.take() else {
            return;
        };
        self.questions.clear();
        let named = Named::of(&end.facts, &self.named);
        if !self.is_pinned {
            self.named = named.clone();
        }
        if end.facts.thinking.is_some() {
            self.thinking.clone_from(&end.facts.thinking);
        }
        let mut events = Vec::new();
        turn.ends(end, named, &mut events);
        say_all(&events, out);
        self.count += turn.messages.len();
        self.run.get_or_insert_default().append(&mut turn.messages);
        if !turn.aborted && self.next_left() {
            out.say(&self.queue.event());
            return self.accepted(out);
        }
        self.is_told_no_more(out);
        let goes_on = !turn.aborted && end.error.is_none() && end.stop != Stop::Cancelled;
        if let Some(words) = goes_on.then(|| self.queue.next()).flatten() {
            out.say(&self.queue.event());
            let send = self.send(words);
            return self.begin_turn(send, out);
        }
        self.settle(end.stop == Stop::Cancelled, out);
    }

    /// The run is over.
    pub(super) fn settle(&mut self, aborted: bool, out: &mut Outbox) {
        if let Some(messages) = self.run.take() {
            out.say(&json!({"type": "agent_end", "messages": messages, "willRetry": false}));
            out.say(&json!({"type": "agent_settled", "aborted": aborted}));
        }
        self.settled(out);
        self.leave(out);
    }

    /// What waited for the end of the run, or of a compaction.
    pub(super) fn settled(&mut self, out: &mut Outbox) {
        for command in std::mem::take(&mut self.settling) {
            match command.kind.as_str() {
                "abort" => self.reply(&command, Reply::Done(None), out),
                _ => self.command(command, out),
            }
        }
    }

    /// The turn was refused, or nobody tells any more what becomes of it.
    pub(super) fn fail_turn(&mut self, why: &str, out: &mut Outbox) {
        let accepted = self.turn.as_ref().is_some_and(Turn::is_accepted);
        if !accepted && let Some(command) = self.prompt.take() {
            self.turn = None;
            self.is_told_no_more(out);
            self.reply(&command, Reply::failed(why), out);
            return self.settle(false, out);
        }
        self.queue.left.clear();
        let end = End {
            stop: Stop::EndTurn,
            error: Some(why.to_owned()),
            facts: Box::new(TurnFacts::default()),
        };
        self.end(&end, out);
    }
}

/// Pictures of a prompt.
fn pictures(images: Option<&Value>) -> Result<Vec<Attachment>, Reply> {
    let refused = || Reply::failed("`images` is a list of {type: \"image\", data, mimeType}");
    let images = match images {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(images)) => images,
        Some(_) => return Err(refused()),
    };
    let picture = |image: &Value| {
        let field = |name: &str| image[name].as_str().map(str::to_owned).ok_or_else(refused);
        Ok(Attachment {
            mime: Some(field("mimeType")?),
            data: Some(field("data")?),
            ..Attachment::default()
        })
    };
    images.iter().map(picture).collect()
}

fn say_all(events: &[Value], out: &mut Outbox) {
    for event in events {
        out.say(event);
    }
}

/// Milliseconds since 1970.
fn ms(clock: fn() -> SystemTime) -> u64 {
    let since = clock()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
