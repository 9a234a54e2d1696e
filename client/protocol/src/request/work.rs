//! The requests about work that outlives its connection: jobs, sessions, questions, models.
//!
//! Owns their fields and syntax. Must not know which jobs or sessions there are.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::check::{check_limit, check_seconds, check_session, check_session_read, check_words};
use crate::envelope::{Checked, Ignored, Rejected, invalid};
use crate::ids::JobId;
use crate::limits::{MAX_DISPATCH, MAX_TEXT, MAX_TITLE};
pub use crate::request::copies::{Backup, Export};
use crate::request::{McpServer, Send};
pub use crate::rows::JobPhase;
use crate::sums::By;

/// `dispatch`: several sends in one commit, all or none.
#[derive(Clone, PartialEq, Debug)]
pub struct Dispatch {
    /// 1 to [`MAX_DISPATCH`] of them.
    pub jobs: Vec<Dispatched>,
}

/// One send of a `dispatch`.
#[derive(Clone, PartialEq, Debug)]
pub struct Dispatched {
    /// The send.
    pub send: Send,
    /// Fields of it that nobody here knows.
    pub ignored: Vec<Ignored>,
}

/// Several of them, or the fields of one in place of the list.
#[cfg(feature = "schema")]
impl schemars::JsonSchema for Dispatch {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Dispatch".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let send = generator.subschema_for::<Send>();
        schemars::json_schema!({
            "type": "object",
            "description": "Several turns, all or none.",
            "properties": {"jobs": {
                "type": "array", "items": send, "minItems": 1, "maxItems": MAX_DISPATCH,
                "description": "In place of them the fields of one may stand beside `type`.",
            }},
        })
    }
}

impl Dispatch {
    pub(crate) fn check(self) -> Result<Self, Rejected> {
        if self.jobs.is_empty() || self.jobs.len() > MAX_DISPATCH {
            let count = self.jobs.len();
            return Err(invalid(format!(
                "`jobs` has {count} entries, expected 1 to {MAX_DISPATCH}"
            )));
        }
        Ok(self)
    }
}

/// `jobs`: which jobs there are, newest first.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Jobs {
    /// Of one session.
    pub session: Option<String>,
    /// Of one agent.
    pub agent: Option<String>,
    /// So far.
    pub state: Option<JobPhase>,
    /// With this label: `key` or `key=value`.
    pub label: Option<String>,
    /// Sent from inside this job's worker.
    pub parent: Option<JobId>,
    /// Accepted no longer ago than so many seconds.
    pub since: Option<f64>,
    /// At most so many; 50 when absent.
    pub limit: Option<usize>,
    /// Older than this one: the `next` of the page before.
    pub before: Option<JobId>,
}

impl Checked for Jobs {
    fn check(&self) -> Result<(), Rejected> {
        self.session.as_deref().map_or(Ok(()), check_session_read)?;
        check_seconds("since", self.since)?;
        check_limit(self.limit)
    }
}

/// `usage`: what turns that have ended used, newest first, in pages as large as a line takes.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Accepted no longer ago than so many seconds.
    pub since: Option<f64>,
    /// Older than this one: the `next` of the page before.
    pub before: Option<JobId>,
    /// Added up by this, rather than each by itself, where that is quick.
    pub by: Option<By>,
    /// Only in this session.
    pub session: Option<String>,
}

impl Checked for Usage {
    fn check(&self) -> Result<(), Rejected> {
        self.session.as_deref().map_or(Ok(()), check_session)?;
        check_seconds("since", self.since)
    }
}

/// `steer`: a word to a running turn. Without a target, this connection's last send, else the only
/// live one.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steer {
    /// The turn in flight of a session.
    pub session: Option<String>,
    /// One job.
    pub job: Option<JobId>,
    /// What to tell it.
    #[serde(alias = "prompt", alias = "message")]
    pub text: String,
}

impl Checked for Steer {
    fn check(&self) -> Result<(), Rejected> {
        self.session.as_deref().map_or(Ok(()), check_session)?;
        if self.text.trim().is_empty() {
            return Err(invalid("`text` is blank: expected what to tell the agent"));
        }
        Ok(())
    }
}

/// `questions`: what agents ask and nobody answered yet.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Questions {
    /// Of one session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// What a person wrote for an agent's eyes only: a password, mostly. `Debug` says nothing of it,
/// and neither does the error about one that isn't a string.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Private(pub String);

impl std::fmt::Debug for Private {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Private")
    }
}

impl<'de> Deserialize<'de> for Private {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("`text` must be a string")),
        }
    }
}

/// `answer`: to one question, with just one of the four.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Answer {
    /// Which.
    pub question_id: String,
    /// To an `approval`.
    pub approve: Option<bool>,
    /// With `approve:true`: how far the yes goes; once when absent.
    pub scope: Option<Scope>,
    /// To a `choice`: one of its options.
    pub choice: Option<String>,
    /// To a `text` or a `secret`.
    pub text: Option<Private>,
    /// To any: there will be no answer. An approval is denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel: bool,
    /// A daemon says so to its worker: nobody answered, and why.
    pub by: Option<Silence>,
}

impl Answer {
    /// To this question; what it says is still to be set.
    #[must_use]
    pub const fn to(question_id: String) -> Self {
        Self {
            question_id,
            approve: None,
            scope: None,
            choice: None,
            text: None,
            cancel: false,
            by: None,
        }
    }
}

/// How far a yes to an approval goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// For what was asked.
    Once,
    /// For the like of it, as long as the agent has the session open.
    Session,
    /// For the like of it, from now on: the agent writes it down.
    Always,
}

impl Scope {
    /// Each of them, the narrowest first.
    pub const ALL: &'static [Self] = &[Self::Once, Self::Session, Self::Always];

    /// As it stands on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

/// Why nobody answered a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Silence {
    /// Somebody could have, and didn't in time.
    Expiry,
    /// Nobody was there.
    Nobody,
    /// The turn ended, or was about to.
    Cancel,
    /// A reason of a later version.
    #[serde(other)]
    Other,
}

impl Silence {
    /// As it stands on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expiry => "expiry",
            Self::Nobody => "nobody",
            Self::Cancel => "cancel",
            Self::Other => "other",
        }
    }
}

impl Checked for Answer {
    fn check(&self) -> Result<(), Rejected> {
        let given = usize::from(self.approve.is_some())
            + usize::from(self.choice.is_some())
            + usize::from(self.text.is_some())
            + usize::from(self.cancel);
        if given != 1 {
            return Err(invalid(format!(
                "{given} of `approve`, `choice`, `text` and `cancel` are given: expected just one"
            )));
        }
        if self.scope.is_some() && self.approve != Some(true) {
            return Err(invalid("`scope` is given without `approve:true`"));
        }
        let text = self.text.as_ref();
        if text.is_some_and(|text| text.0.len() > MAX_TEXT) {
            return Err(invalid(format!("`text` is longer than {MAX_TEXT} bytes")));
        }
        Ok(())
    }
}

/// `compact`: the agent shortens what it remembers of a session.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compact {
    /// Which; without, this connection's last send's.
    pub session: Option<String>,
    /// What to keep.
    pub instructions: Option<String>,
}

/// `set_model`: for the turns of a session accepted after it; its mode for those that begin after it.
/// At least one of model, thinking and mode; what isn't named stays.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetModel {
    /// Which.
    pub session: String,
    /// The model provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// How hard to think.
    pub thinking: Option<String>,
    /// In which of the agent's own modes to work.
    pub mode: Option<String>,
}

impl Checked for SetModel {
    fn check(&self) -> Result<(), Rejected> {
        check_session(&self.session)?;
        check_words(&[
            ("provider", &self.provider),
            ("model", &self.model),
            ("thinking", &self.thinking),
            ("mode", &self.mode),
        ])?;
        let named = [&self.model, &self.thinking, &self.mode];
        if named.iter().all(|field| field.is_none()) {
            let error = "`model` is missing: expected it, or `thinking` or `mode`";
            return Err(invalid(error));
        }
        if self.provider.is_some() && self.model.is_none() {
            let error = "`provider` is given without `model`: a model's name means something to its provider only";
            return Err(invalid(error));
        }
        Ok(())
    }
}

/// `session.list`: in the order they were made.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionList {
    /// Only this one, also when it was closed, while no other has its name, or by its `closed_as`.
    pub session: Option<String>,
    /// Of one agent.
    pub agent: Option<String>,
    /// In one directory, as it was named or as it really is.
    pub cwd: Option<String>,
    /// With nothing to do for so many seconds.
    pub idle_for: Option<f64>,
    /// Those used last first: one page, without a next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newest: bool,
    /// Only those that were closed, and none of the others; with `session` the last of that name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// At most so many; 50 when absent.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub after: Option<u64>,
}

impl Checked for SessionList {
    fn check(&self) -> Result<(), Rejected> {
        self.session.as_deref().map_or(Ok(()), check_session_read)?;
        check_seconds("idle_for", self.idle_for)?;
        check_limit(self.limit)?;
        if self.closed && self.idle_for.is_some() {
            return Err(invalid(
                "`closed` doesn't go with `idle_for`: expected one of them",
            ));
        }
        if self.newest && self.after.is_some() {
            return Err(invalid(
                "`after` goes with the order in which sessions were made, and `newest` has another one",
            ));
        }
        Ok(())
    }
}

/// `session.new`: a session without a turn.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionNew {
    /// Its name; one is made when absent.
    pub session: Option<String>,
    /// Who answers.
    pub agent: Option<String>,
    /// Working directory: absolute, existing.
    pub cwd: Option<String>,
    /// Restricts the agent's tools.
    #[serde(default, alias = "tools", skip_serializing_if = "Option::is_none")]
    pub toolsets: Option<Vec<String>>,
    /// What the agent is told before the conversation.
    pub system: Option<String>,
    /// What it has besides its own.
    pub mcp_servers: Option<Vec<McpServer>>,
}

/// A session by its name: `session.close`, `session.resume`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Named {
    /// Which.
    pub session: String,
}

impl Checked for Named {
    fn check(&self) -> Result<(), Rejected> {
        check_session(&self.session)
    }
}

/// `session.rename`: another name for a session that has nothing to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionRename {
    /// Which.
    pub session: String,
    /// What it is called from now on.
    pub to: String,
}

impl Checked for SessionRename {
    fn check(&self) -> Result<(), Rejected> {
        check_session(&self.session)?;
        check_to(&self.to)?;
        if self.session == self.to {
            return Err(invalid("`to` is the name that the session has"));
        }
        Ok(())
    }
}

/// `session.fork`: another session that begins with what the agent remembers of this one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionFork {
    /// Which.
    pub session: String,
    /// What the new one is called; a name is made when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Checked for SessionFork {
    fn check(&self) -> Result<(), Rejected> {
        check_session(&self.session)?;
        let Some(to) = &self.to else {
            return Ok(());
        };
        check_to(to)?;
        if self.session == *to {
            return Err(invalid("`to` is the name that the session has"));
        }
        Ok(())
    }
}

/// Checks another session's name.
fn check_to(to: &str) -> Result<(), Rejected> {
    check_session(to).map_err(|rejected| Rejected {
        error: rejected.error.replacen("`session`", "`to`", 1),
        ..rejected
    })
}

/// `session.title`: what a session is called in lists.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionTitle {
    /// Which.
    pub session: String,
    /// Its title from now on; without one it is how its first prompt begins.
    pub title: Option<String>,
}

impl Checked for SessionTitle {
    fn check(&self) -> Result<(), Rejected> {
        check_session(&self.session)?;
        let Some(title) = &self.title else {
            return Ok(());
        };
        if title.trim().is_empty() || title.len() > MAX_TITLE {
            let bytes = title.len();
            return Err(invalid(format!(
                "`title` has {bytes} bytes: expected 1 to {MAX_TITLE}, not blank, or null for none"
            )));
        }
        match title.chars().any(char::is_control) {
            true => Err(invalid(
                "`title` contains control characters: expected one line",
            )),
            false => Ok(()),
        }
    }
}

/// `session.search`: turns with all these words in the prompt or the answer, newest first.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionSearch {
    /// 1 to [`Self::MOST_WORDS`] of them; capital and small letters are the same.
    pub words: Vec<String>,
    /// Of one session.
    pub session: Option<String>,
    /// At most so many turns; 50 when absent.
    pub limit: Option<usize>,
    /// Older than this one: the `next` of the page before.
    pub before: Option<JobId>,
}

impl SessionSearch {
    /// More than anybody looks for at once: each costs a look through all that was said.
    pub const MOST_WORDS: usize = 16;
    /// Bytes of one of them.
    pub const LONGEST_WORD: usize = 256;
}

impl Checked for SessionSearch {
    fn check(&self) -> Result<(), Rejected> {
        self.session.as_deref().map_or(Ok(()), check_session_read)?;
        check_limit(self.limit)?;
        let count = self.words.len();
        if !(1..=Self::MOST_WORDS).contains(&count) {
            let most = Self::MOST_WORDS;
            return Err(invalid(format!(
                "`words` has {count} entries, expected 1 to {most}"
            )));
        }
        let fits = |word: &String| !word.trim().is_empty() && word.len() <= Self::LONGEST_WORD;
        match self.words.iter().find(|word| !fits(word)) {
            None => Ok(()),
            Some(word) => Err(invalid(format!(
                "`words` has a word of {} bytes: expected 1 to {}, not blank",
                word.len(),
                Self::LONGEST_WORD
            ))),
        }
    }
}

/// `session.history`: what was said, oldest first; or one message from some byte on.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionHistory {
    /// Which; of one that was closed its `closed_as`, too.
    pub session: String,
    /// One turn.
    pub job: Option<JobId>,
    /// With `job`: one message of it, whole, in pieces.
    pub message: Option<u32>,
    /// The `next` of the page before: a job's number, with `message` a byte offset.
    pub after: Option<u64>,
    /// At most so many turns; 50 when absent.
    pub limit: Option<usize>,
    /// With what happened besides: tools, questions, notes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub events: bool,
}

impl Checked for SessionHistory {
    fn check(&self) -> Result<(), Rejected> {
        check_session_read(&self.session)?;
        check_limit(self.limit)?;
        if self.message.is_some() && self.job.is_none() {
            return Err(invalid("`message` is given without `job`"));
        }
        Ok(())
    }
}
