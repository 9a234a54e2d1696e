//! Asking a person for leave.
//!
//! Owns the questions that are open, and who answers when nobody is there: no. Must not know what
//! leave is asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentd_protocol::work::{Answer, Scope, Silence};
use serde_json::json;
use tokio::sync::oneshot;

use crate::line::Line;
use crate::model::Boxed;
use crate::tool::{Approval, Asker};

/// What a tool hears when nobody is there.
pub(crate) const NOBODY: &str = "denied: nobody is there who could allow it";
/// What it hears of a person's no.
pub(crate) const REFUSED: &str = "denied: the user said no";
/// What it hears when nobody answered in time.
const UNANSWERED: &str =
    "denied: nobody answered in time, so the user has neither allowed nor refused it";
/// What it hears when the turn ended first.
const ENDED: &str = "denied: the turn ended before anybody answered";

/// The questions of a process that are open.
#[derive(Default, Debug)]
pub(crate) struct Questions {
    open: Mutex<BTreeMap<String, oneshot::Sender<Approval>>>,
    asked: AtomicU64,
}

impl Questions {
    fn open(&self) -> MutexGuard<'_, BTreeMap<String, oneshot::Sender<Approval>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an answer; was it one to an open question?
    pub(crate) fn answer(&self, answer: &Answer) -> bool {
        let Some(waits) = self.open().remove(&answer.question_id) else {
            return false;
        };
        let approval = match answer.approve {
            Some(true) => Approval::Granted,
            _ => Approval::Denied(denied(answer).to_owned()),
        };
        // The tool may have been cancelled.
        let _gone = waits.send(approval);
        true
    }
}

/// Who said no, if anybody did.
const fn denied(answer: &Answer) -> &'static str {
    match answer.by {
        None => REFUSED,
        Some(Silence::Expiry) => UNANSWERED,
        Some(Silence::Nobody | Silence::Other) => NOBODY,
        Some(Silence::Cancel) => ENDED,
    }
}

/// Asks by a line.
#[derive(Debug)]
pub(crate) struct ByLine {
    pub(crate) line: Line,
    pub(crate) questions: Arc<Questions>,
}

/// An open question; dropped without an answer it is withdrawn.
struct OpenQuestion<'a> {
    by: &'a ByLine,
    id: String,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if self.by.questions.open().remove(&self.id).is_some() {
            let fields = json!({"question_id": self.id, "by": "cancel"});
            self.by.line.say_if_room("question_closed", fields);
        }
    }
}

impl Asker for ByLine {
    fn approve<'a>(
        &'a self,
        call: Option<&'a str>,
        title: &'a str,
        detail: &'a str,
    ) -> Boxed<'a, Approval> {
        Box::pin(async move {
            let number = self.questions.asked.fetch_add(1, Ordering::Relaxed) + 1;
            let id = format!("q{number}");
            let (tell, told) = oneshot::channel();
            self.questions.open().insert(id.clone(), tell);
            let asked = OpenQuestion {
                by: self,
                id: id.clone(),
            };
            let mut fields = json!({
                "question_id": id,
                "kind": "approval",
                "title": title,
                "detail": detail,
                "options": [],
                "scopes": [Scope::Once],
            });
            if let Some(call) = call {
                fields["tool_call_id"] = json!(call);
            }
            self.line.say("question", fields).await;
            let answer = told.await;
            drop(asked);
            answer.unwrap_or_else(|_| Approval::Denied(NOBODY.to_owned()))
        })
    }
}

/// There is nobody.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Asker for Nobody {
    fn approve<'a>(
        &'a self,
        _call: Option<&'a str>,
        _title: &'a str,
        _detail: &'a str,
    ) -> Boxed<'a, Approval> {
        Box::pin(async { Approval::Denied(NOBODY.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::task::JoinSet;

    use super::*;
    use crate::line::OutgoingLine;

    fn by_line() -> (Arc<ByLine>, mpsc::Receiver<OutgoingLine>) {
        let (out, said) = mpsc::channel(8);
        let line = Line { id: None, out };
        let questions = Arc::default();
        (Arc::new(ByLine { line, questions }), said)
    }

    fn answer(question: &str, approve: Option<bool>) -> Answer {
        Answer {
            question_id: question.to_owned(),
            approve,
            scope: None,
            choice: None,
            text: None,
            cancel: approve.is_none(),
            by: None,
        }
    }

    #[tokio::test]
    async fn question_has_its_own_id_and_answer() {
        let (by, mut said) = by_line();
        let ask = |title: &'static str| {
            let by = Arc::clone(&by);
            let mut asking = JoinSet::new();
            asking.spawn(async move { by.approve(None, title, "d").await });
            asking
        };
        let mut first = ask("a");
        assert_eq!(said.recv().await.unwrap().text("question_id"), "q1");
        let mut second = ask("b");
        assert_eq!(said.recv().await.unwrap().text("question_id"), "q2");
        assert!(by.questions.answer(&answer("q2", Some(true))));
        assert!(!by.questions.answer(&answer("q2", Some(true))), "twice");
        assert!(by.questions.answer(&answer("q1", None)));
        assert!(!by.questions.answer(&answer("q3", Some(true))));
        assert_eq!(
            second.join_next().await.unwrap().unwrap(),
            Approval::Granted
        );
        let first = first.join_next().await.unwrap().unwrap();
        assert!(matches!(first, Approval::Denied(_)));
    }

    #[tokio::test]
    async fn question_tells_a_no_from_silence() {
        for (why, says) in [
            (None, "the user said no"),
            (Some(Silence::Expiry), "nobody answered in time"),
            (Some(Silence::Nobody), "nobody is there"),
            (Some(Silence::Cancel), "the turn ended"),
        ] {
            let (by, mut said) = by_line();
            let asked = Arc::clone(&by);
            let mut asking = JoinSet::new();
            asking.spawn(async move { asked.approve(None, "a", "d").await });
            assert_eq!(said.recv().await.unwrap().kind, "question");
            let told = Answer {
                by: why,
                ..answer("q1", Some(false))
            };
            assert!(by.questions.answer(&told));
            let heard = asking.join_next().await.unwrap().unwrap();
            assert!(
                matches!(&heard, Approval::Denied(reason) if reason.contains(says)),
                "{heard:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_question_whose_asker_is_gone_is_withdrawn() {
        let (by, mut said) = by_line();
        let mut asking = JoinSet::new();
        let asked = Arc::clone(&by);
        asking.spawn(async move { asked.approve(None, "a", "d").await });
        assert_eq!(said.recv().await.unwrap().kind, "question");
        asking.shutdown().await;
        let closed = said.recv().await.unwrap();
        assert_eq!(
            (closed.kind, closed.text("question_id")),
            ("question_closed", "q1")
        );
        assert!(!by.questions.answer(&answer("q1", Some(true))));
    }
}
