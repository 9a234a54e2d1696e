//! The table of requests: each with its name and what holds for it whatever it says.
//!
//! Owns the list of requests and these rules; everything else that lists requests is derived from it
//! or held against it by a test. Must not know their fields (`request`), how those are read (`request/decode`), nor what is
//! done about them.

use crate::commands::Commands;
use crate::envelope::{Envelope, Ignored, Read as _, Rejected};
use crate::models::Models;
use crate::request::work::{
    Answer, Backup, Compact, Dispatch, Export, Jobs, Named, Questions, SessionFork, SessionHistory,
    SessionList, SessionNew, SessionRename, SessionSearch, SessionTitle, SetModel, Steer, Usage,
};
use crate::request::{
    Abort, Collect, DaemonStop, Drain, Hello, LogLevel, RestartWorker, Send, Status, Subscribe,
};
use crate::schedule::{CronEdit, CronList, CronNamed, CronRuns, ScheduleSpec};
use crate::webhook::{Callback, Delivery, Webhooks};

/// What became of it when no answer came, and how long one may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEffect {
    /// Nothing could have changed.
    Reads,
    /// The same, and other programs are run for it.
    Looks,
    /// It reads much, or waits for something: that takes as long as it takes.
    ReadsLong,
    /// It may have happened.
    Changes,
    /// The same, and it takes as long as it takes.
    ChangesLong,
}

impl RequestEffect {
    /// May something have happened?
    #[must_use]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Changes | Self::ChangesLong)
    }
}

/// What it means for a request that it comes from inside a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inside {
    /// Nothing: whose it is need not be known.
    Same,
    /// It has a parent, or may not say all that others may.
    Child,
    /// It is refused.
    Forbidden,
}

/// When it takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As soon as it is read.
    AtOnce,
    /// After what its connection asked before it: it touches jobs or sessions.
    InOrder,
}

/// Does it wait for a commit that may as well be refused while the store has no room?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// It has none, or looks at the room by itself.
    None,
    /// It is refused.
    Refused,
}

/// What an ssh key may do with it that may only send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOnlySshKey {
    /// It passes as it is.
    Passes,
    /// Its fields are looked at.
    Checked,
    /// It is refused.
    Refused,
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// What it is called in `type`.
    pub name: &'static str,
    /// The `type` of the line that answers it, unless that is an `error`.
    pub answer: &'static str,
    /// What it may have done.
    pub effect: RequestEffect,
    /// From inside a worker.
    pub inside: Inside,
    /// When it takes effect.
    pub order: Order,
    /// While the store has no room.
    pub commit: Commit,
    /// For an ssh key that may only send.
    pub send_only: SendOnlySshKey,
}

/// The fields of a request, bound to a name.
macro_rules! fields {
    ($named:ident $fields:ty) => {
        $named
    };
}

/// A request as its line says it: with its fields, where it has any.
macro_rules! read {
    ($envelope:ident $kind:ident) => {
        (Request::$kind, Vec::new())
    };
    ($envelope:ident $kind:ident $fields:ty) => {{
        let (fields, ignored) = <$fields>::read($envelope)?;
        (Request::$kind(fields), ignored)
    }};
}

/// What the fields of a request may say, where it has any.
#[cfg(feature = "schema")]
macro_rules! schema {
    ($generator:ident) => {
        schemars::json_schema!({"type": "object"})
    };
    ($generator:ident $fields:ty) => {
        <$fields as schemars::JsonSchema>::json_schema($generator)
    };
}

/// The session that a request names, by its last column.
macro_rules! session {
    (Session $named:ident) => {
        Some($named.session.as_str())
    };
    (IfNamed $named:ident) => {
        $named.session.as_deref()
    };
    ($other:ident $named:ident) => {
        None
    };
}

/// The turns that a request has, by its last column.
macro_rules! turns {
    (Turn $named:ident iter) => {
        vec![&**$named]
    };
    (Turn $named:ident iter_mut) => {
        vec![&mut **$named]
    };
    (Turns $named:ident iter) => {
        $named.jobs.iter().map(|job| &job.send).collect()
    };
    (Turns $named:ident iter_mut) => {
        $named.jobs.iter_mut().map(|job| &mut job.send).collect()
    };
    ($other:ident $named:ident $iter:ident) => {
        Vec::new()
    };
}

macro_rules! requests {
    ($(
        $(#[$doc:meta])*
        $kind:ident $(($fields:ty))? $name:literal $answer:literal
        $effect:ident $inside:ident $order:ident $commit:ident $send_only:ident $names:ident
    )*) => {
        /// A decoded request.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Request {
            $($(#[$doc])* $kind $(($fields))?,)*
        }

        /// Which request it is.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum RequestKind {
            $($(#[$doc])* $kind,)*
        }

        #[allow(unused_variables, reason = "most rows name nothing")]
        impl Request {
            /// Which one it is.
            #[must_use]
            pub const fn kind(&self) -> RequestKind {
                match self {
                    $(Self::$kind { .. } => RequestKind::$kind,)*
                }
            }

            /// The session that has to be there for it, where it isn't a turn's.
            #[must_use]
            pub fn session(&self) -> Option<&str> {
                match self {
                    $(Self::$kind $((fields!(named $fields)))? => session!($names named),)*
                }
            }

            /// The turns that it has.
            #[must_use]
            pub fn turns(&self) -> Vec<&Send> {
                match self {
                    $(Self::$kind $((fields!(named $fields)))? => turns!($names named iter),)*
                }
            }

            /// The same, to be changed.
            pub fn turns_mut(&mut self) -> Vec<&mut Send> {
                match self {
                    $(Self::$kind $((fields!(named $fields)))? => turns!($names named iter_mut),)*
                }
            }
        }

        impl RequestKind {
            /// Every request of protocol 1, by its name.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// What holds for it.
            #[must_use]
            pub const fn rules(self) -> &'static Rules {
                match self {
                    $(Self::$kind => &Rules {
                        name: $name,
                        answer: $answer,
                        effect: RequestEffect::$effect,
                        inside: Inside::$inside,
                        order: Order::$order,
                        commit: Commit::$commit,
                        send_only: SendOnlySshKey::$send_only,
                    },)*
                }
            }

            /// The request that a line of its name has.
            pub(crate) fn read(
                self,
                envelope: &Envelope<'_>,
            ) -> Result<(Request, Vec<Ignored>), Rejected> {
                Ok(match self {
                    $(Self::$kind => read!(envelope $kind $($fields)?),)*
                })
            }

            /// What its fields may say.
            #[cfg(feature = "schema")]
            #[must_use]
            pub(crate) fn schema(
                self,
                generator: &mut schemars::SchemaGenerator,
            ) -> schemars::Schema {
                match self {
                    $(Self::$kind => schema!(generator $($fields)?),)*
                }
            }

            /// The one of this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

// Whoever adds a row says what holds for it, and at last what it names: a session that has to be
// there, one if it is given, a turn or several, or nothing. By name, as `hello` tells them.
requests! {
    //                              name              answer            effect      inside    order   commit  send-only  names
    /// Cancel.
    Abort(Abort)                    "abort"           "abort"           Changes     Same      InOrder None    Refused   Nothing
    /// Which agents are there?
    Agents                          "agents"          "agents"          Looks       Same      AtOnce  None    Refused   Nothing
    /// The answer to a question.
    Answer(Answer)                  "answer"          "answer"          Changes     Forbidden AtOnce  None    Refused   Nothing
    /// A copy of the store.
    Backup(Backup)                  "backup"          "backup"          ChangesLong Same      AtOnce  None    Refused   Nothing
    /// The final lines of jobs.
    Collect(Collect)                "collect"         "collect"         ReadsLong   Child     AtOnce  None    Refused   Nothing
    /// Which slash commands has an agent?
    Commands(Commands)              "commands"        "commands"        Looks       Same      InOrder None    Refused   IfNamed
    /// The agent shortens what it remembers.
    Compact(Compact)                "compact"         "compact"         ChangesLong Same      InOrder None    Refused   IfNamed
    /// A schedule. What agents add would go on without anybody.
    CronAdd(Box<ScheduleSpec>)      "cron.add"        "cron.add"        Changes     Forbidden AtOnce  Refused Refused   Nothing
    /// It says something else from now on.
    CronEdit(CronEdit)              "cron.edit"       "cron.edit"       Changes     Forbidden AtOnce  Refused Refused   Nothing
    /// Which schedules are there?
    CronList(CronList)              "cron.list"       "cron.list"       Reads       Same      AtOnce  None    Refused   Nothing
    /// It isn't due until somebody resumes it.
    CronPause(CronNamed)            "cron.pause"      "cron.pause"      Changes     Forbidden AtOnce  Refused Refused   Nothing
    /// It is forgotten.
    CronRemove(CronNamed)           "cron.remove"     "cron.remove"     Changes     Forbidden AtOnce  Refused Refused   Nothing
    /// It goes on.
    CronResume(CronNamed)           "cron.resume"     "cron.resume"     Changes     Forbidden AtOnce  Refused Refused   Nothing
    /// Once now, besides.
    CronRun(CronNamed)              "cron.run"        "cron.run"        Changes     Forbidden AtOnce  None    Refused   Nothing
    /// What became of its due times?
    CronRuns(CronRuns)              "cron.runs"       "cron.runs"       Reads       Same      AtOnce  None    Refused   Nothing
    /// Stop the daemon.
    DaemonStop(DaemonStop)          "daemon.stop"     "daemon.stop"     ChangesLong Forbidden AtOnce  None    Refused   Nothing
    /// Several turns, all or none.
    Dispatch(Dispatch)              "dispatch"        "dispatch"        Changes     Child     InOrder None    Refused   Turns
    /// Start no new turn.
    Drain(Drain)                    "drain"           "drain"           ChangesLong Forbidden AtOnce  None    Refused   Nothing
    /// Everything stored.
    Export(Export)                  "export"          "export"          ReadsLong   Same      AtOnce  None    Refused   Nothing
    /// Who is there, and which protocol?
    Hello(Hello)                    "hello"           "hello"           Reads       Same      AtOnce  None    Passes    Nothing
    /// Which jobs are there?
    Jobs(Jobs)                      "jobs"            "jobs"            Reads       Same      AtOnce  None    Refused   Nothing
    /// How much the daemon logs.
    LogLevel(LogLevel)              "log_level"       "log_level"       Changes     Forbidden AtOnce  None    Refused   Nothing
    /// Which models has an agent?
    Models(Models)                  "models"          "models"          Looks       Same      InOrder None    Refused   IfNamed
    /// Answered by `pong`.
    Ping                            "ping"            "pong"            Reads       Same      AtOnce  None    Passes    Nothing
    /// What do agents ask?
    Questions(Questions)            "questions"       "questions"       Reads       Same      AtOnce  None    Refused   Nothing
    /// Replace an agent's or session's process.
    RestartWorker(RestartWorker)    "restart_worker"  "restart_worker"  ChangesLong Forbidden AtOnce  None    Refused   Nothing
    /// What would the routes make of this turn?
    Route(Box<Send>)                "route"           "route"           Reads       Same      AtOnce  None    Refused   Turn
    /// One turn.
    Send(Box<Send>)                 "send"            "message_end"     Changes     Child     InOrder None    Checked   Turn
    /// End a session's process and forget it.
    SessionClose(Named)             "session.close"   "session.close"   Changes     Same      InOrder Refused Refused   Session
    /// Another session that begins with what the agent remembers of this one.
    SessionFork(SessionFork)        "session.fork"    "session.fork"    Changes     Same      InOrder Refused Refused   Session
    /// What was said.
    SessionHistory(SessionHistory)  "session.history" "session.history" Reads       Same      AtOnce  None    Refused   Nothing
    /// Which sessions are there?
    SessionList(SessionList)        "session.list"    "session.list"    Reads       Same      AtOnce  None    Refused   Nothing
    /// A session without a turn.
    SessionNew(SessionNew)          "session.new"     "session.new"     Changes     Same      InOrder Refused Refused   Nothing
    /// Another name for a session.
    SessionRename(SessionRename)    "session.rename"  "session.rename"  ChangesLong Same     InOrder Refused Refused   Session
    /// Run the turns that are held.
    SessionResume(Named)            "session.resume"  "session.resume"  Changes     Same      InOrder Refused Refused   Session
    /// In which turns were these words said?
    SessionSearch(SessionSearch)    "session.search"  "session.search"  Reads       Same      AtOnce  None    Refused   Nothing
    /// What a session is called in lists.
    SessionTitle(SessionTitle)      "session.title"   "session.title"   Changes     Same      InOrder Refused Refused   Session
    /// Another model for a session.
    SetModel(SetModel)              "set_model"       "set_model"       ChangesLong Forbidden InOrder Refused Refused   Session
    /// End this connection when everything asked is answered.
    Shutdown                        "shutdown"        "shutdown"        Reads       Same      AtOnce  None    Passes    Nothing
    /// How is the daemon, and do its workers live?
    Status(Status)                  "status"          "status"          Reads       Same      AtOnce  None    Refused   Nothing
    /// A word to a running turn.
    Steer(Steer)                    "steer"           "steer"           ChangesLong Same      InOrder None    Refused   Nothing
    /// Live lines.
    Subscribe(Subscribe)            "subscribe"       "live"            Reads       Same      AtOnce  None    Refused   Nothing
    /// Start turns again.
    Undrain                         "undrain"         "undrain"         Changes     Forbidden AtOnce  None    Refused   Nothing
    /// No more live lines.
    Unsubscribe                     "unsubscribe"     "unsubscribe"     Reads       Same      AtOnce  None    Refused   Nothing
    /// What ended turns used.
    Usage(Usage)                    "usage"           "usage"           Reads       Same      AtOnce  None    Refused   Nothing
    /// A delivery goes out again. The URLs of others may hold secrets.
    WebhookReplay(Delivery)         "webhook.replay"  "webhook.replay"  Changes     Forbidden AtOnce  Refused Refused   Nothing
    /// A delivery that tells nothing.
    WebhookTest(Callback)           "webhook.test"    "webhook.test"    Changes     Forbidden AtOnce  Refused Refused   Nothing
    /// Which endpoints and deliveries are there? The URLs of others may hold secrets.
    Webhooks(Webhooks)              "webhooks"        "webhooks"        Reads       Forbidden AtOnce  None    Refused   Nothing
}

impl Request {
    /// The sessions that have to be known before it takes effect.
    #[must_use]
    pub fn sessions(&self) -> Vec<&str> {
        let of_turns = self.turns().into_iter();
        let of_turns = of_turns.filter_map(|send| send.session.as_deref());
        self.session().into_iter().chain(of_turns).collect()
    }
}

impl RequestKind {
    /// What it is called in `type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.rules().name
    }

    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|kind| kind.name())
    }
}

/// A request by its name, and what is wanted of the answer, which is the line of the same name:
/// `answered!(Steer { job } => job)`.
#[macro_export]
macro_rules! answered {
    ($kind:ident { $($field:ident),* } => $wanted:expr) => {
        ($crate::RequestKind::$kind, |line: $crate::Line| match line {
            $crate::Line::$kind { $($field,)* .. } => Some($wanted),
            _ => None,
        })
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../PROTOCOL.md");

    #[test]
    fn requests_are_in_the_order_of_their_names() {
        assert!(RequestKind::names().is_sorted());
        for kind in RequestKind::ALL {
            assert_eq!(RequestKind::named(kind.name()), Some(*kind));
        }
    }

    #[test]
    fn requests_forbidden_to_workers_are_those_documented() {
        let sentence = PAGE
            .lines()
            .find(|line| line.starts_with("From inside a worker `"));
        let sentence = sentence.unwrap().split(" are `forbidden`").next().unwrap();
        let mut documented: Vec<_> = sentence.split('`').skip(1).step_by(2).collect();
        documented.sort_unstable();
        let forbidden = |kind: &&RequestKind| kind.rules().inside == Inside::Forbidden;
        let all = RequestKind::ALL.iter().filter(forbidden);
        let names: Vec<_> = all.map(|kind| kind.name()).collect();
        assert_eq!(documented, names);
    }
}
