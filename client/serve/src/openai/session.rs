//! In which session a turn goes on.
//!
//! Owns finding the session of clients that have none and send everything that was said each time:
//! the job that gave the last reply is found by a hash of what was said before it. Must not know what
//! becomes of the turn.

use std::collections::BTreeMap;

use agentd_faces::openai::conversation::{Before, Begins, Conversation, Sum, is_same_reply};
use agentd_faces::openai::model::ModelName;
use agentd_faces::openai::{self as face, fits_label};
use agentd_protocol::Code;
use agentd_protocol::request::{Mode, Send};
use agentd_protocol::rows::{JobPhase, JobRow, SessionPhase};
use agentd_protocol::work::Jobs;

use super::asking::{Asking, Name};
use super::plan::{ANEW, Plan};
use super::{Refusal, jobs};
use crate::app::App;

/// Jobs that are looked at: what was said alike, and answered so often.
const MOST_ALIKE: usize = 8;

/// A send that nothing was decided of but who answers, and how it is found again.
pub(super) fn blank(asking: &Asking, model: &ModelName, user: Option<&str>) -> Send {
    let mut send = Send {
        idempotency_key: asking.key.clone(),
        ..Send::default()
    };
    model.put_into(&mut send);
    label(&mut send.labels, face::REQUEST, Some(&asking.request));
    label(&mut send.labels, face::MODEL, model.word.as_deref());
    label(&mut send.labels, face::USER, user);
    send
}

/// What whoever made the client says, as a label.
pub(super) fn instructions(system: &str) -> Option<String> {
    let mut sum = Sum::default();
    sum.add(system);
    (!system.is_empty()).then(|| sum.hex())
}

/// Puts on a label what can be one.
pub(super) fn label(labels: &mut BTreeMap<String, String>, name: &str, value: Option<&str>) {
    if let Some(value) = value.filter(|value| fits_label(value)) {
        labels.insert(name.to_owned(), value.to_owned());
    }
}

/// The turn of a conversation that comes whole, of this user of the client's.
pub(super) async fn plan(
    app: &App,
    asking: &Asking,
    user: Option<&str>,
    conversation: &Conversation,
    blank: Send,
) -> Result<Plan, Refusal> {
    if let Some(name) = &asking.session {
        let alone = app.openai.attempts.alone_in(&name.session).await;
        let plan = named(app, name, conversation, blank).await?;
        return Ok(plan.alone(alone));
    }
    let mut begun = blank;
    conversation.put_into(&mut begun, Begins::Yes);
    if conversation.is_side_request() {
        // Nothing is to be done for it. Not every agent can be told so.
        let bare = Send {
            toolsets: Some(Vec::new()),
            ..begun.clone()
        };
        begun.idempotency_key = asking.other_key("side");
        return Ok(Plan::either(bare, Code::Unsupported, begun));
    }
    let agent = begun.agent.as_deref().unwrap_or_default();
    let mut scope = format!("{agent}\n{}", asking.chat.as_deref().unwrap_or_default());
    if let Some(user) = user {
        scope += "\n";
        scope += user;
    }
    let hash = conversation.label(&scope);
    label(&mut begun.labels, face::CONVERSATION, Some(&hash));
    let Some(before) = conversation.before(&scope) else {
        return Ok(Plan::only(begun));
    };
    // Others who say the same look for the same session.
    let alone = app.openai.attempts.alone_in(&before.label).await;
    let Some(row) = continued(app, &before).await? else {
        return Ok(Plan::only(begun));
    };
    let mut goes_on = begun.clone();
    conversation.put_into(&mut goes_on, Begins::No);
    goes_on.session = Some(row.session);
    // Somebody else may go on from there at the same time: what they say is no part of this.
    goes_on.mode = Mode::Reject;
    // The client sent all of it: an agent that has lost it, or never keeps it, is told again.
    goes_on.require_context = true;
    let anew = asking.other_key(ANEW);
    let plan = Plan::either(goes_on, Code::SessionBusy, begun).or_anew(anew);
    Ok(plan.alone(alone))
}

/// A turn of a session that the client names, in which it is alone meanwhile.
pub(super) async fn named(
    app: &App,
    name: &Name,
    conversation: &Conversation,
    blank: Send,
) -> Result<Plan, Refusal> {
    let mut goes_on = blank;
    goes_on.session = Some(name.session.clone());
    label(&mut goes_on.labels, face::SESSION, name.word.as_deref());
    let said = instructions(&conversation.system);
    label(&mut goes_on.labels, face::INSTRUCTIONS, said.as_deref());
    let mut begun = goes_on.clone();
    conversation.put_into(&mut goes_on, Begins::No);
    if jobs::session(app, &name.session).await?.is_some() {
        let last = jobs::last(app, &name.session).await?;
        let had = last.and_then(|mut row| row.labels.remove(face::INSTRUCTIONS));
        if said.is_some() && said != had {
            conversation
                .without_past()
                .put_into(&mut goes_on, Begins::WithNews);
        }
        return Ok(Plan::only(goes_on));
    }
    conversation.put_into(&mut begun, Begins::Yes);
    // Somebody else may begin it meanwhile: what it begins with is refused then.
    Ok(Plan::either(begun, Code::InvalidRequest, goes_on))
}

/// The job that gave the reply which the client has, if its session can go on from there.
async fn continued(app: &App, before: &Before) -> Result<Option<JobRow>, Refusal> {
    let filter = Jobs {
        label: Some(format!("{}={}", face::CONVERSATION, before.label)),
        limit: Some(MOST_ALIKE),
        ..Jobs::default()
    };
    for row in jobs::newest(app, filter).await? {
        let was_cut = match row.state {
            JobPhase::Completed => false,
            JobPhase::Cancelled => true,
            JobPhase::Queued
            | JobPhase::Held
            | JobPhase::Running
            | JobPhase::Failed
            | JobPhase::Interrupted => continue,
        };
        if !jobs::is_last(app, &row).await? {
            continue;
        }
        let Some(turn) = jobs::history(app, &row).await? else {
            continue;
        };
        let texts: Vec<&str> = turn
            .messages
            .iter()
            .map(|said| said.text.as_str())
            .collect();
        if !is_same_reply(&before.reply, &texts.concat(), was_cut) {
            continue;
        }
        let session = jobs::session(app, &row.session).await?;
        if session.is_some_and(|session| session.state == SessionPhase::Idle) {
            return Ok(Some(row));
        }
    }
    Ok(None)
}
