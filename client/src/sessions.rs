//! Sessions by themselves: which there are, made, closed, resumed, read again, given another model.
//!
//! Owns pages and pieces. Must not print, nor know the command line.

use agentd_protocol::limits::MAX_PAGE;
use agentd_protocol::rows::{FoundRow, MessageRow, SessionRow, TurnRow};
use agentd_protocol::work::{
    Compact, Named, SessionFork, SessionHistory, SessionList, SessionNew, SessionRename,
    SessionSearch, SessionTitle, SetModel,
};
use agentd_protocol::{JobId, Line, RequestKind, answered};

use crate::asked::{Reply, RequestError, lost_of};
use crate::client::Client;
use crate::pages::{PageTaken, Paged, Pages};

/// Sessions that one connection closes at once: together in one commit, and less than any limit of
/// requests.
const CLOSED_AT_ONCE: usize = 64;

/// A session that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// Its name.
    pub session: String,
    /// Who answers in it.
    pub agent: String,
    /// Where.
    pub cwd: String,
}

/// A session that was closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    /// The name that is free now.
    pub session: String,
    /// The name by which its past is read; none where the daemon doesn't tell it.
    pub closed_as: Option<String>,
}

/// The model in force, as the agent names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    /// Of which session.
    pub session: String,
    /// The model's provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// How hard it thinks.
    pub thinking: Option<String>,
    /// In which of the agent's own modes it works, where one was set.
    pub mode: Option<String>,
}

/// Sessions, page by page, in the order they were made.
pub type SessionPages = Pages<SessionList>;

impl Paged for SessionList {
    type Page = Vec<SessionRow>;
    type Place = u64;

    fn page() -> PageTaken<Self::Page, u64> {
        answered!(SessionList { sessions, next } => (sessions, next))
    }

    fn go_on(&mut self, from: u64) {
        self.after = Some(from);
    }
}

impl SessionPages {
    /// Some of them, so many on a page as its `limit` says. A daemon of before lists all, in the order
    /// they were made.
    #[must_use]
    pub fn of(mut asked: SessionList) -> Self {
        asked.limit.get_or_insert(MAX_PAGE);
        Self::new(asked)
    }
}

/// What was said in a session, page by page, oldest first.
pub type HistoryPages = Pages<SessionHistory>;

impl Paged for SessionHistory {
    type Page = Vec<TurnRow>;
    type Place = u64;

    fn page() -> PageTaken<Self::Page, u64> {
        answered!(SessionHistory { turns, next } => (turns, next))
    }

    fn go_on(&mut self, from: u64) {
        self.after = Some(from);
    }
}

impl HistoryPages {
    /// All of a session, or one of its turns.
    #[must_use]
    pub fn of(session: &str, job: Option<JobId>) -> Self {
        Self::new(SessionHistory {
            session: session.to_owned(),
            job,
            message: None,
            after: None,
            limit: None,
            events: false,
        })
    }

    /// With what happened besides: tools, steers, notes.
    #[must_use]
    pub fn with_events(mut self) -> Self {
        self.asked.events = true;
        self
    }

    /// Only turns that are newer than this job.
    #[must_use]
    pub fn after(mut self, job: JobId) -> Self {
        self.asked.after = Some(job.0);
        self
    }
}

/// Turns in which something was said, page by page, newest first.
pub type FoundPages = Pages<SessionSearch>;

impl Paged for SessionSearch {
    type Page = Vec<FoundRow>;
    type Place = JobId;

    fn page() -> PageTaken<Self::Page, JobId> {
        answered!(SessionSearch { turns, next } => (turns, next))
    }

    fn go_on(&mut self, from: JobId) {
        self.before = Some(from);
    }

    fn limit(&mut self) -> Option<&mut Option<usize>> {
        Some(&mut self.limit)
    }

    fn rows(page: &Self::Page) -> usize {
        page.len()
    }
}

impl Client {
    /// Another name for a session that has nothing to do; gives the names that it has and had.
    ///
    /// # Errors
    /// `session-busy` while it has unfinished turns, `session-conflict` when the name is taken.
    pub async fn session_rename(
        &mut self,
        rename: &SessionRename,
    ) -> Result<Reply<(String, String)>, RequestError> {
        let taken = answered!(SessionRename { session, was } => (session, was));
        self.answer_of(rename, taken).await
    }

    /// All sessions, in the order they were made.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn session_list(&mut self) -> Result<Vec<SessionRow>, RequestError> {
        let pages = SessionPages::of(SessionList::default()).rest(self).await?;
        Ok(pages.into_iter().flatten().collect())
    }

    /// The session of this name; one that was closed while no other has its name.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn session_named(&mut self, name: &str) -> Result<Option<SessionRow>, RequestError> {
        let mut pages = SessionPages::of(SessionList {
            session: Some(name.to_owned()),
            ..SessionList::default()
        });
        while let Some(page) = pages.next(self).await? {
            let mut rows = page.value.into_iter();
            if let Some(row) =
                rows.find(|row| row.session == name || row.closed_as.as_deref() == Some(name))
            {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// The session of this name that was closed last, whoever has the name now.
    ///
    /// # Errors
    /// When the daemon refuses, as one of before does, or doesn't answer.
    pub async fn session_closed(&mut self, name: &str) -> Result<Option<SessionRow>, RequestError> {
        let mut pages = SessionPages::of(SessionList {
            session: Some(name.to_owned()),
            closed: true,
            ..SessionList::default()
        });
        let page = pages.next(self).await?;
        let mut rows = page.into_iter().flat_map(|page| page.value);
        Ok(rows.find(|row| row.session == name && row.closed_as.is_some()))
    }

    /// Ends the processes of many sessions and forgets these, many at once; tells each as its
    /// answer comes.
    ///
    /// # Errors
    /// When the daemon goes away: of the others nothing is known then.
    pub async fn sessions_close(
        &mut self,
        sessions: &[String],
        mut told: impl FnMut(Result<Reply<Closed>, RequestError>),
    ) -> Result<(), RequestError> {
        let kind = RequestKind::SessionClose;
        let mut ids: Vec<u64> = Vec::new();
        let mut rest = sessions.iter();
        loop {
            while ids.len() < CLOSED_AT_ONCE
                && let Some(session) = rest.next()
            {
                let id = self.request(kind.name(), &named(session)).await;
                ids.push(id.map_err(|lost| lost_of(kind, lost))?);
            }
            if ids.is_empty() {
                return Ok(());
            }
            let received = self.next_within(kind).await?;
            // One that is refused needs no commit, and overtakes others.
            let Some(asked) = ids.iter().position(|id| received.answers(*id)) else {
                continue;
            };
            ids.remove(asked);
            let line = received.text;
            told(match received.line {
                Some(Line::SessionClose {
                    session, closed_as, ..
                }) => Ok(Reply {
                    value: Closed { session, closed_as },
                    line,
                }),
                Some(Line::Error(error)) => Err(RequestError::Refused(error)),
                _ => Err(RequestError::Strange(line)),
            });
        }
    }

    /// Makes a session without a turn.
    ///
    /// # Errors
    /// `session-conflict` when there is one of that name.
    pub async fn session_new(&mut self, new: &SessionNew) -> Result<Reply<Made>, RequestError> {
        let taken = answered!(SessionNew { session, agent, cwd } => Made { session, agent, cwd });
        self.answer_of(new, taken).await
    }

    /// Ends a session's process and forgets the session; gives its name.
    ///
    /// # Errors
    /// `session-busy` while it has unfinished turns.
    pub async fn session_close(&mut self, session: &str) -> Result<Reply<String>, RequestError> {
        let taken = answered!(SessionClose { session } => session);
        self.answer_of(&named(session), taken).await
    }

    /// Makes a session that begins with what the agent remembers of another one.
    ///
    /// # Errors
    /// `unsupported` where the agent can't, `session-busy` while that one has unfinished turns,
    /// `session-conflict` when the name is taken.
    pub async fn session_fork(&mut self, fork: &SessionFork) -> Result<Reply<Made>, RequestError> {
        let taken = answered!(SessionFork { session, agent, cwd } => Made { session, agent, cwd });
        self.answer_of(fork, taken).await
    }

    /// What a session is called in lists from now on; without one, how its first prompt begins. Gives
    /// it.
    ///
    /// # Errors
    /// `unknown-session`; `invalid-request` for one that is blank, too long or of several lines.
    pub async fn session_title(
        &mut self,
        title: &SessionTitle,
    ) -> Result<Reply<Option<String>>, RequestError> {
        let taken = answered!(SessionTitle { title } => title);
        self.answer_of(title, taken).await
    }

    /// Lets a session's held turns run; gives their jobs.
    ///
    /// # Errors
    /// `unknown-session`.
    pub async fn session_resume(
        &mut self,
        session: &str,
    ) -> Result<Reply<Vec<JobId>>, RequestError> {
        let taken = answered!(SessionResume { jobs } => jobs);
        self.answer_of(&named(session), taken).await
    }

    /// What was said in a session, or in one of its turns. Long messages are marked as truncated:
    /// [`Client::whole_message`] has all of them.
    ///
    /// # Errors
    /// `unknown-session`, `unknown-job`.
    pub async fn session_history(
        &mut self,
        session: &str,
        job: Option<JobId>,
    ) -> Result<Vec<TurnRow>, RequestError> {
        let pages = HistoryPages::of(session, job).rest(self).await?;
        Ok(pages.into_iter().flatten().collect())
    }

    /// One message of a turn from its first byte to its last, in as many pieces as that takes.
    ///
    /// # Errors
    /// `unknown-session`, `unknown-job`.
    pub async fn whole_message(
        &mut self,
        session: &str,
        job: JobId,
        message: u32,
    ) -> Result<String, RequestError> {
        let mut asked = SessionHistory {
            session: session.to_owned(),
            job: Some(job),
            message: Some(message),
            after: None,
            limit: None,
            events: false,
        };
        let mut text = String::new();
        loop {
            let page = self.answer_of(&asked, SessionHistory::page());
            let Reply { value, line } = page.await?;
            let (turns, next) = value;
            let pieces = turns.into_iter().flat_map(|turn| turn.messages);
            let before = text.len();
            for piece in pieces.filter(|piece| piece.message == message) {
                if !append(&mut text, &piece) {
                    return Err(RequestError::Strange(line));
                }
            }
            match next {
                // Not without anything new: it would be asked for ever.
                Some(_) if text.len() > before => asked.after = next,
                _ => return Ok(text),
            }
        }
    }

    /// Lets the agent shorten what it remembers; gives the session and the agent's summary.
    ///
    /// # Errors
    /// `session-idle`, `unsupported`.
    pub async fn compact(
        &mut self,
        compact: &Compact,
    ) -> Result<Reply<(String, Option<String>)>, RequestError> {
        let taken = answered!(Compact { session, summary } => (session, summary));
        self.answer_of(compact, taken).await
    }

    /// Another model or mode for the turns of a session from now on.
    ///
    /// # Errors
    /// `unsupported` where the agent can't.
    pub async fn set_model(&mut self, set: &SetModel) -> Result<Reply<Model>, RequestError> {
        let taken = answered!(
            SetModel { session, provider, model, thinking, mode }
                => Model { session, provider, model, thinking, mode }
        );
        self.answer_of(set, taken).await
    }
}

fn named(session: &str) -> Named {
    Named {
        session: session.to_owned(),
    }
}

/// Puts a piece where it belongs; false when something between is missing.
fn append(text: &mut String, piece: &MessageRow) -> bool {
    let have = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let known = have.checked_sub(piece.offset);
    let known = known.and_then(|known| usize::try_from(known).ok());
    match known.and_then(|known| piece.text.get(known.min(piece.text.len())..)) {
        Some(fresh) => {
            text.push_str(fresh);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::Scripted;

    fn piece(offset: u64, text: &str, next: &str) -> String {
        format!(
            r#"{{"type":"session.history","ok":true,"session":"s","turns":[{{"job":"j1","state":"completed","accepted_at":"","text":"hi","messages":[{{"message":2,"offset":{offset},"text":"{text}"}}],"final":null}}]{next}}}"#
        )
    }

    #[tokio::test]
    async fn message_is_put_together_from_pieces() {
        let first = piece(0, "one ü", r#","next":6"#);
        let second = piece(6, " two", "");
        let (mut client, asked) = Scripted::new(&[&first, &second]).connect().await;
        let whole = client.whole_message("s", JobId(1), 2).await.unwrap();
        assert_eq!(whole, "one ü two");
        drop(client);
        let asked = asked.await.unwrap();
        assert_eq!(asked[0]["message"], 2);
        assert_eq!(asked[1]["after"], 6);
    }

    #[tokio::test]
    async fn message_without_a_piece_is_not_passed_over() {
        let first = piece(0, "one", r#","next":3"#);
        let later = piece(7, "two", "");
        let (mut client, _asked) = Scripted::new(&[&first, &later]).connect().await;
        let whole = client.whole_message("s", JobId(1), 2).await;
        assert!(matches!(whole, Err(RequestError::Strange(_))));
    }

    #[tokio::test]
    async fn history_goes_on_where_the_page_before_ended() {
        let first = piece(0, "a", r#","next":1"#);
        let second = piece(0, "b", "");
        let (mut client, asked) = Scripted::new(&[&first, &second]).connect().await;
        let turns = client.session_history("s", None).await.unwrap();
        assert_eq!(turns.len(), 2);
        drop(client);
        assert_eq!(asked.await.unwrap()[1]["after"], 1);
    }
}
