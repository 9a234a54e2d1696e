//! A session as the gateway tells it: in lists, in `session.info`, in prose.
//!
//! Owns these shapes, and what a session used. Must not know how any of it is asked for.

use agentd_protocol::line::TurnFacts;
use agentd_protocol::models::full_name;
use agentd_protocol::request::unix_ms;
use agentd_protocol::rows::{SessionPhase, SessionRow};
use serde_json::{Value, json};

use super::{Gateway, Session, event};
use crate::face::Outbox;

/// Which list.
#[derive(Debug)]
pub(super) enum Lists {
    All,
    Active(Option<String>),
    Newest,
}

impl Session {
    pub(super) fn of(row: &SessionRow) -> Self {
        Self {
            agent: row.agent.clone(),
            cwd: row.cwd.clone(),
            model: row.model.clone(),
            title: row.title.clone(),
            state: row.state,
            is_empty: row.turns == 0,
            context: row.context_tokens.zip(row.context_window),
            ..Self::default()
        }
    }

    /// Adds what a turn used.
    pub(super) fn count(&mut self, facts: &TurnFacts) {
        self.is_empty = false;
        self.turns += 1;
        self.used.add(facts.usage.unwrap_or_default());
        if let Some(model) = &facts.model {
            self.provider.clone_from(&facts.provider);
            self.model = Some(model.clone());
        }
        if let Some(context) = facts.context_tokens.zip(facts.context_window) {
            self.context = Some(context);
        }
    }

    pub(super) fn shown_model(&self) -> String {
        match &self.model {
            Some(model) => full_name(self.provider.as_deref(), model),
            // Nobody said more yet.
            None => self.agent.clone(),
        }
    }
}

/// What the session used so far, as far as it was told here.
pub(super) fn usage(session: &Session) -> Value {
    let (input, output) = (session.used.input_tokens, session.used.output_tokens);
    let mut usage = json!({
        "model": session.shown_model(),
        "input": input,
        "output": output,
        "reasoning": session.used.reasoning_tokens,
        "prompt": input,
        "completion": output,
        "total": input.saturating_add(output),
        "calls": session.turns,
    });
    if let Some((tokens, window)) = session.context.filter(|(_, window)| *window > 0) {
        usage["context_used"] = json!(tokens);
        usage["context_max"] = json!(window);
        usage["context_percent"] = json!(tokens.saturating_mul(100) / window);
    }
    usage
}

/// Seconds since 1970.
pub(super) fn seconds(at: &str) -> f64 {
    unix_ms(at).map_or(0.0, |ms| ms as f64 / 1000.0)
}

/// What a session does, in the switcher's words.
pub(super) const fn status(state: SessionPhase) -> &'static str {
    match state {
        SessionPhase::Starting => "starting",
        SessionPhase::Working => "working",
        SessionPhase::Waiting => "waiting",
        SessionPhase::Idle | SessionPhase::Held | SessionPhase::Closed => "idle",
    }
}

/// Has it a turn in flight?
pub(super) const fn is_working(state: SessionPhase) -> bool {
    matches!(
        state,
        SessionPhase::Starting | SessionPhase::Working | SessionPhase::Waiting
    )
}

impl Gateway {
    pub(super) fn info(&self, name: &str) -> Value {
        let Some(session) = self.sessions.get(name) else {
            return json!({});
        };
        json!({
            "model": session.shown_model(),
            "provider": session.provider.as_deref().unwrap_or(&session.agent),
            "reasoning_effort": session.thinking.as_deref().unwrap_or_default(),
            "tools": {},
            "skills": {},
            "cwd": session.cwd,
            "branch": "",
            "project": null,
            "title": session.title,
            "running": is_working(session.state),
            "stored_session_id": name,
            "profile_name": session.agent,
            "usage": usage(session),
        })
    }

    pub(super) fn tell_info(&self, name: &str, out: &mut Outbox) {
        event("session.info", Some(name), Some(&self.info(name)), out);
    }

    pub(super) fn listed(&self, lists: &Lists, mut rows: Vec<SessionRow>) -> Value {
        let is_open = |row: &SessionRow| self.sessions.contains_key(&row.session);
        if let Lists::Active(current) = lists {
            rows.retain(|row| is_open(row) || is_working(row.state));
            // In an order that stays.
            rows.sort_by(|a, b| (&a.created_at, &a.session).cmp(&(&b.created_at, &b.session)));
            let rows = rows.iter().map(|row| {
                json!({"id": row.session, "session_key": row.session,
                    "current": Some(&row.session) == current.as_ref(), "status": status(row.state),
                    "title": row.title, "preview": row.preview, "message_count": 2 * row.turns,
                    "model": row.model.as_ref().unwrap_or(&row.agent),
                    "started_at": seconds(&row.created_at),
                    "last_active": seconds(&row.last_active_at)})
            });
            return json!({"sessions": rows.collect::<Vec<_>>()});
        }
        // In one that nobody ever spoke in nothing can be gone on with.
        rows.retain(|row| row.turns > 0 || is_open(row));
        let mut rows = rows.iter().map(|row| {
            json!({"id": row.session, "title": row.title, "preview": row.preview,
                "started_at": seconds(&row.created_at), "message_count": 2 * row.turns,
                "source": row.agent})
        });
        match lists {
            Lists::Newest => match rows.next() {
                Some(mut row) => {
                    row["session_id"] = row["id"].take();
                    row
                }
                None => json!({"session_id": null}),
            },
            Lists::All | Lists::Active(_) => json!({"sessions": rows.collect::<Vec<_>>()}),
        }
    }
}

/// A session for people.
pub(super) fn prose(row: &SessionRow) -> String {
    let context = match row.context_tokens.zip(row.context_window) {
        Some((tokens, window)) => format!("\nContext: {tokens} of {window} tokens"),
        None => String::new(),
    };
    format!(
        "Session: {}\nTitle: {}\nAgent: {}\nModel: {}\nDirectory: {}\nCreated: {}\nLast activity: {}\nTurns: {}\nState: {}{context}",
        row.session,
        row.title,
        row.agent,
        row.model.as_deref().unwrap_or("the agent's default"),
        row.cwd,
        row.created_at,
        row.last_active_at,
        row.turns,
        status(row.state),
    )
}
