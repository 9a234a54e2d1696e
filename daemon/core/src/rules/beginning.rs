//! What a session begins with: a system text, and what was said before elsewhere.
//!
//! Owns when a send may say so, and how an agent that has no place for it is told all the same. Must
//! not know how an agent takes it that has one.

use std::fmt::Write as _;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::{Earlier, Send, Speaker};

use crate::agent::SystemText;
use crate::jobs::job::Job;
use crate::jobs::said::Notice;
use crate::pool::slot::Slot;
use crate::sessions::session::Session;
use crate::state::State;
use crate::worker::Begins;

/// Is it the send that begins its session, if it says what that begins with?
pub(crate) fn may_begin(session: &Session, send: &Send) -> Result<(), Rejected> {
    if !send.begins() || session.turns == 0 && session.jobs == 0 {
        return Ok(());
    }
    let field = match send.system {
        Some(_) => "system",
        None => "history",
    };
    let error = format!(
        "`{field}` is given, but the session `{}` has begun",
        session.shown()
    );
    let hint = "leave `system` and `history` out, or begin another session";
    Err(Rejected::new(Code::InvalidRequest, error).hint(hint))
}

/// Takes what a session begins with out of its first send: as its process takes it, and the rest in
/// front of the prompt, of which the sender is told.
pub(crate) fn begun(
    session: &Session,
    slot: &Slot,
    given: &mut Send,
) -> (Option<Begins>, Option<Notice>) {
    let mut begins = Begins::default();
    let (mut system, mut history) = (None, std::mem::take(&mut given.history));
    match slot.system {
        SystemText::AtStart => {}
        SystemText::WithTurn => begins.system = session.system.as_deref().map(str::to_owned),
        SystemText::InPrompt => system = session.system.as_deref(),
    }
    if slot.history {
        begins.history = std::mem::take(&mut history);
    }
    let lacks = match (system.is_some(), !history.is_empty()) {
        (false, false) => None,
        (true, false) => Some("no system text: it stands"),
        (false, true) => Some("no earlier messages: they stand"),
        (true, true) => Some("neither a system text nor earlier messages: they stand"),
    };
    let notice = lacks.map(|lacks| {
        given.text = in_prompt(system, &history, &given.text);
        let agent = &slot.agent;
        let text = format!("the agent `{agent}` takes {lacks} at the beginning of the prompt");
        Notice::info("in-prompt", text)
    });
    (
        Some(begins).filter(|begins| *begins != Begins::default()),
        notice,
    )
}

/// A prompt with what an agent has no other place for, each under its heading.
fn in_prompt(system: Option<&str>, history: &[Earlier], prompt: &str) -> String {
    let mut text = String::new();
    if let Some(system) = system {
        let _infallible = write!(text, "# System\n\n{}\n\n", system.trim_end());
    }
    if !history.is_empty() {
        text.push_str("# Conversation so far\n\n");
    }
    for earlier in history {
        let who = match earlier.role {
            Speaker::User => "User",
            Speaker::Assistant => "Assistant",
        };
        let _infallible = write!(text, "## {who}\n\n{}\n\n", earlier.text.trim_end());
    }
    text + "# Prompt\n\n" + prompt
}

impl State {
    /// What a send said that wasn't accepted is no beginning of its session.
    pub(crate) fn never_begun(&mut self, job: &Job) {
        let Some(new) = &job.accept else { return };
        if new.system.is_none() && new.reserves.is_none() {
            return;
        }
        if let Some(session) = found!(self.sessions.get_mut(job.session)) {
            if new.system.is_some() {
                session.system = None;
            }
            if let Some(reserves) = &new.reserves {
                session.mcp_servers.clone_from(&reserves.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_stands_in_a_prompt_under_headings() {
        let said = |role, text: &str| Earlier {
            role,
            text: text.to_owned(),
        };
        let history = [said(Speaker::User, "hi\n"), said(Speaker::Assistant, "ho")];
        assert_eq!(
            in_prompt(Some("be brief"), &history, "go"),
            "# System\n\nbe brief\n\n# Conversation so far\n\n## User\n\nhi\n\n\
             ## Assistant\n\nho\n\n# Prompt\n\ngo"
        );
        assert_eq!(
            in_prompt(Some("s"), &[], "go"),
            "# System\n\ns\n\n# Prompt\n\ngo"
        );
    }
}
