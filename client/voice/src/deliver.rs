//! From the spool to a daemon: in order, each once, within a time.
//!
//! Owns the order of asking and what each answer means for a file that waits. A file goes when a
//! daemon has accepted it: asked again before that, its key finds the same turn. Must not know the
//! command line, nor print.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use agentd_protocol::line::{ErrorLine, Stop};
use agentd_protocol::{Code, JobId, Line};
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use super::Utterance;
use super::age;
use super::link::{self, Link};
use super::spool::{Name, Spool, SpoolLock};
use agentd_client::call::Call;
use agentd_client::client::{Attended, Client, ClientError, Options};
use agentd_client::connection::LostError;
use agentd_client::fallback::Fallback;
use agentd_client::oneshot::Asks;
use agentd_client::ssh::Target;
use agentd_client::wire::Received;

/// A note that a restarted worker or daemon was noticed begins with it, to be found in a log.
pub const RESTART_TAG: &str = "[rpc-restart]";

const NOBODY: &str = "nobody answered in time";

/// Where, until when, and what is too old.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The socket, or `ssh://` and the machine; empty for this machine's own.
    pub to: String,
    /// What waited longer isn't delivered.
    pub max_age: Duration,
    /// Then it is given up for now.
    pub until: Instant,
    /// Our name, for the daemon's log.
    pub name: String,
}

/// What became of an utterance.
pub enum Outcome {
    /// It has its final line, or was refused: an `error` without a job.
    Ended(Box<Received>),
    /// The daemon has it; its answer takes longer.
    Accepted(JobId, Box<Received>),
    /// Nobody has it, or it isn't known that anybody has: it has to be asked again.
    Waits {
        /// Why.
        why: String,
        /// Was it handed in? Then somebody may have it.
        asked: bool,
    },
}

/// What became of an utterance that was just said.
pub struct Forwarded {
    /// Of the turn.
    pub outcome: Outcome,
    /// Why it isn't on the disk, if it isn't.
    pub lost: Option<String>,
    /// Did it run without a daemon?
    pub alone: bool,
    /// To be closed when the answer was shown: who served without a daemon takes time to leave.
    pub client: Option<Client>,
}

/// What a delivery of all that waits came to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Flushed {
    /// As many were taken.
    pub delivered: usize,
    /// As many weren't delivered and never will be; the notes say why.
    pub aside: usize,
    /// As many wait, because of this.
    pub left: Option<(usize, String)>,
}

/// What a person would want to know of, in order.
pub type Notes = Vec<String>;

/// What [`Delivery::begin`] began: ended when dropped.
pub struct Calling(Result<Result<Option<Call>, Stopped>, Elapsed>);

/// Where a delivery is, should its time be over.
#[derive(Default)]
struct Progress {
    link: Option<Link>,
    /// Was the utterance handed in that is being sent?
    asked: bool,
    alone: bool,
    accepted: Option<(JobId, Box<Received>)>,
    flushed: Flushed,
}

/// Why a delivery stops here. What wasn't delivered waits.
enum Stopped {
    Waits(String),
    Lost(LostError),
    Spool(io::Error),
}

impl From<LostError> for Stopped {
    fn from(lost: LostError) -> Self {
        Self::Lost(lost)
    }
}

impl From<io::Error> for Stopped {
    fn from(why: io::Error) -> Self {
        Self::Spool(why)
    }
}

impl Delivery {
    /// Delivers what waits for this destination.
    pub async fn flush(&self, spool: &Spool, notes: &mut Notes) -> Flushed {
        let mut progress = Progress::default();
        let all = self.deliver_before(spool, None, &mut progress, notes);
        let ended = tokio::time::timeout_at(self.until, all).await;
        let why = match ended {
            Ok(Ok(_held)) => None,
            Ok(Err(stopped)) => Some(self.why(stopped, &mut progress).await),
            Err(_late) => Some(self.late(&mut progress).await),
        };
        let Progress {
            link, mut flushed, ..
        } = progress;
        if let Some(mut link) = link {
            if why.is_none() {
                link.hear_status().await;
            }
            self.tell_restarts(&link, Some(spool), notes);
            link.client.close().await;
        }
        if let Some(why) = why {
            let left = spool.waiting().unwrap_or_default();
            let left = left
                .iter()
                .filter(|(_, one)| self.is_there(one.as_ref().ok()));
            flushed.left = Some((left.count(), why));
        }
        flushed
    }

    /// Calls another machine, which takes some milliseconds, and doesn't wait for it: what is to be
    /// said is kept meanwhile. Nothing is asked.
    pub async fn begin(&self) -> Calling {
        Calling(tokio::time::timeout_at(self.until, self.call()).await)
    }

    /// Keeps `own`, delivers what waits in front of it, then `own`, and waits for its answer. It is
    /// asked only when it is kept. Without a spool, or when that doesn't keep it, it is sent all the
    /// same.
    pub async fn forward(
        &self,
        Calling(calling): Calling,
        spool: io::Result<&Spool>,
        own: &Utterance,
        notes: &mut Notes,
    ) -> Forwarded {
        let kept = spool.and_then(|spool| Ok((spool, spool.put(own)?)));
        let (queued, lost) = match &kept {
            Ok((spool, name)) => (Some((*spool, name)), None),
            Err(why) => (None, Some(why.to_string())),
        };
        let mut progress = Progress::default();
        let begun = async {
            let mut early = None;
            match calling.map_err(|_late| Stopped::Waits(NOBODY.to_owned()))?? {
                None => progress.link = Some(self.connect().await?),
                Some(mut call) => {
                    if let Some((spool, name)) = queued {
                        early = self.say_early(&mut call, spool, name, own).await?;
                        progress.asked = early.is_some();
                    }
                    // Answered while the utterance is committed there, it is in nobody's way.
                    let status = match &early {
                        Some(_) => call.request("status", &link::STATUS).await.ok(),
                        None => None,
                    };
                    let client = call.answered().await.map_err(stopped)?;
                    progress.link = Some(Link::new(client).asked_before(status));
                }
            }
            Ok::<_, Stopped>(early)
        };
        let began = tokio::time::timeout_at(self.until, begun).await;
        let outcome = match began {
            Ok(Ok(early)) => self.say(queued, own, early, &mut progress, notes).await,
            Ok(Err(stopped)) => self.waits(Ok(stopped), &mut progress).await,
            Err(late) => self.waits(Err(late), &mut progress).await,
        };
        Forwarded {
            outcome,
            lost,
            alone: progress.alone,
            client: progress.link.map(|link| link.client),
        }
    }

    async fn waits(&self, stopped: Result<Stopped, Elapsed>, progress: &mut Progress) -> Outcome {
        let why = match stopped {
            Ok(stopped) => self.why(stopped, progress).await,
            Err(_late) => self.late(progress).await,
        };
        Outcome::Waits {
            why,
            asked: progress.asked,
        }
    }

    /// Another machine is called, and not waited for.
    async fn call(&self) -> Result<Option<Call>, Stopped> {
        let options = self.options();
        let Some(target) = options.socket.as_deref().and_then(Target::of_socket) else {
            return Ok(None);
        };
        let target = target.map_err(Stopped::Waits)?;
        Ok(Some(Call::begin(&target, options).await.map_err(stopped)?))
    }

    /// Asks before it is known who answers, if it is nobody's turn before. It is on the disk, and
    /// its key finds it, whatever comes of the call.
    async fn say_early(
        &self,
        call: &mut Call,
        spool: &Spool,
        name: &Name,
        own: &Utterance,
    ) -> Result<Option<(SpoolLock, u64)>, Stopped> {
        let Some(held) = spool.try_hold(&self.to)? else {
            return Ok(None);
        };
        let waiting = spool.waiting()?;
        let is_first = |(found, one): &(Name, Result<Utterance, String>)| {
            found >= name || !self.is_there(one.as_ref().ok())
        };
        // What can't be read is put aside on the longer way.
        if !waiting.iter().all(|one| one.1.is_ok() && is_first(one)) {
            return Ok(None);
        }
        // Why it can't be written, the end of the call says.
        let asked = call.request("send", &own.send).await.ok();
        Ok(asked.map(|id| (held, id)))
    }

    /// Says it over the connection, behind what waits.
    async fn say(
        &self,
        queued: Option<(&Spool, &Name)>,
        own: &Utterance,
        early: Option<(SpoolLock, u64)>,
        progress: &mut Progress,
        notes: &mut Notes,
    ) -> Outcome {
        let all = async {
            // Who delivers meanwhile may deliver ours: then it is found by its key.
            let (held, id) = match (early, queued) {
                (Some((held, id)), _) => (Some(held), Some(id)),
                (None, None) => (None, None),
                (None, Some((spool, name))) => {
                    let before = self.deliver_before(spool, Some(name), progress, notes);
                    (Some(before.await?), None)
                }
            };
            let link = self.link(&mut progress.link).await?;
            // Before it is written: cut off in the middle, it may have come through.
            progress.asked = true;
            let id = match id {
                Some(id) => id,
                None => link.ask(own).await?,
            };
            link.ask_status().await?;
            let first = link.first(id).await?;
            let job = match &first.line {
                Some(Line::Accepted(accepted)) => accepted.job,
                _ => {
                    let refused = Box::new(first);
                    if let Some((spool, name)) = queued {
                        if let Some(Line::Error(error)) = &refused.line
                            && is_for_later(error)
                        {
                            progress.asked = false;
                            return Err(Stopped::Waits(error.error.clone()));
                        }
                        spool.remove(name)?;
                    }
                    return Ok(refused);
                }
            };
            let alone = link.client.is_alone();
            progress.alone = alone;
            progress.accepted = Some((job, Box::new(first)));
            if let (Some((spool, name)), false) = (queued, alone) {
                spool.remove(name)?;
                // It is in the session's queue: whoever comes next may hand in theirs.
                drop(held);
            }
            let last = link.last(id).await?;
            // A run without a daemon ends with us: until its last line nobody has it.
            if let (Some((spool, name)), true) = (queued, alone) {
                spool.remove(name)?;
            }
            Ok::<_, Stopped>(Box::new(last))
        };
        let ended = tokio::time::timeout_at(self.until, all).await;
        let stopped = match ended {
            Ok(Ok(last)) => {
                if let Some(link) = &mut progress.link {
                    // A fast turn's last line may come before it.
                    link.hear_status().await;
                    self.tell_restarts(link, queued.map(|(spool, _)| spool), notes);
                }
                tell_death(&last, notes);
                return Outcome::Ended(last);
            }
            Ok(Err(stopped)) => Ok(stopped),
            Err(late) => Err(late),
        };
        let waits = self.waits(stopped, progress).await;
        match progress.accepted.take() {
            Some((job, first)) => Outcome::Accepted(job, first),
            None => waits,
        }
    }

    /// Delivers what waits there in front of `own`, or all. Nobody else delivers there meanwhile,
    /// nor while what comes of it is held.
    async fn deliver_before(
        &self,
        spool: &Spool,
        own: Option<&Name>,
        progress: &mut Progress,
        notes: &mut Notes,
    ) -> Result<SpoolLock, Stopped> {
        let held = spool.hold(&self.to).await?;
        for (name, found) in spool.waiting()? {
            if own.is_some_and(|own| name >= *own) {
                break;
            }
            let utterance = match found {
                Ok(utterance) if utterance.to == self.to => utterance,
                Ok(_) => continue,
                Err(why) => {
                    notes.push(format!(
                        "an utterance can't be read, and is put aside: {why}"
                    ));
                    spool.put_aside(&name)?;
                    progress.flushed.aside += 1;
                    continue;
                }
            };
            let age = age::since(utterance.moment.as_ref(), utterance.said_at);
            if age > self.max_age {
                notes.push(format!(
                    "the utterance `{}` is {} min old, and is put aside",
                    utterance.id,
                    age.as_secs() / 60
                ));
                spool.put_aside(&name)?;
                progress.flushed.aside += 1;
                continue;
            }
            let link = self.link(&mut progress.link).await?;
            let id = link.ask(&utterance).await?;
            link.ask_status().await?;
            let first = link.first(id).await?;
            if let Some(Line::Error(error)) = &first.line {
                if is_for_later(error) {
                    return Err(Stopped::Waits(error.error.clone()));
                }
                notes.push(format!(
                    "the utterance `{}` was refused, and is put aside: {}",
                    utterance.id, error.error
                ));
                spool.put_aside(&name)?;
                progress.flushed.aside += 1;
                continue;
            }
            // A run without a daemon ends what it has begun, and nothing else: what it failed at
            // nobody tries again.
            if link.client.is_alone() {
                let last = link.last(id).await?;
                tell_death(&last, notes);
                if let Some(Line::Error(error)) = &last.line {
                    notes.push(format!(
                        "the turn of the utterance `{}` failed, and it is put aside: {}",
                        utterance.id, error.error
                    ));
                    spool.put_aside(&name)?;
                    progress.flushed.aside += 1;
                    continue;
                }
            }
            // Only now: killed before, it is handed in once more, and its key finds the same turn.
            spool.remove(&name)?;
            progress.flushed.delivered += 1;
        }
        Ok(held)
    }

    /// Made when it is needed first.
    async fn link<'a>(&self, link: &'a mut Option<Link>) -> Result<&'a mut Link, Stopped> {
        let made = match link.take() {
            Some(link) if link.takes_more() => link,
            // Its turns go on; another connection takes as many again.
            Some(full) => {
                full.client.close().await;
                self.connect().await?
            }
            None => self.connect().await?,
        };
        Ok(link.insert(made))
    }

    async fn connect(&self) -> Result<Link, Stopped> {
        let client = Client::connect_or_oneshot(self.options()).await;
        Ok(Link::new(client.map_err(stopped)?))
    }

    fn options(&self) -> Options {
        Options {
            socket: Some(PathBuf::from(&self.to)).filter(|to| !to.as_os_str().is_empty()),
            fallback: Fallback::Allowed,
            name: self.name.clone(),
            attended: Attended::No,
            asks: Asks::Anything,
        }
    }

    /// Says when the daemon, or a worker of it, isn't what it was the last time.
    fn tell_restarts(&self, link: &Link, spool: Option<&Spool>, notes: &mut Notes) {
        let (Some(now), Some(spool)) = (link.seen, spool) else {
            return;
        };
        let text = match spool.seen(&self.to, now) {
            Some(before) if before.pid != now.pid => {
                format!(
                    "the daemon was restarted: pid {}, before {}",
                    now.pid, before.pid
                )
            }
            Some(before) if before.restarts < now.restarts => {
                let times = now.restarts - before.restarts;
                format!("a worker was restarted, {times} times since the last utterance")
            }
            _ => return,
        };
        notes.push(format!("{RESTART_TAG} {}{text}", self.where_()));
    }

    fn where_(&self) -> String {
        match self.to.as_str() {
            "" => String::new(),
            to => format!("`{}`: ", to.trim_start_matches("ssh://")),
        }
    }

    fn is_there(&self, utterance: Option<&Utterance>) -> bool {
        utterance.is_some_and(|utterance| utterance.to == self.to)
    }

    async fn why(&self, stopped: Stopped, progress: &mut Progress) -> String {
        match stopped {
            Stopped::Waits(why) => why,
            Stopped::Spool(why) => why.to_string(),
            Stopped::Lost(lost) => self.with_last_words(lost.to_string(), progress).await,
        }
    }

    async fn late(&self, progress: &mut Progress) -> String {
        let why = match (&progress.link, &progress.accepted) {
            (Some(_), None) => "it did not say in time that it has it",
            (None, _) => NOBODY,
            (Some(_), Some(_)) => "its answer takes longer",
        };
        self.with_last_words(why.to_owned(), progress).await
    }

    /// Ends the connection, and asks what carried it.
    async fn with_last_words(&self, why: String, progress: &mut Progress) -> String {
        let said = match progress.link.take() {
            Some(link) => link.client.abandon().await,
            None => String::new(),
        };
        match said.as_str() {
            "" => why,
            said => format!("{why}: {said}"),
        }
    }
}

fn stopped(error: ClientError) -> Stopped {
    match error {
        ClientError::Unreachable {
            error,
            hint: Some(hint),
        } => Stopped::Waits(format!("{error}; {hint}")),
        other => Stopped::Waits(other.to_string()),
    }
}

/// A refusal that says nothing about the utterance.
fn is_for_later(error: &ErrorLine) -> bool {
    let accepted = error.turn.as_ref().is_some_and(|turn| turn.job.is_some());
    !accepted && (error.retryable || error.code == Code::NeedsDaemon)
}

/// Says when a turn ended because its worker did, or was ended without anybody who speaks here.
fn tell_death(last: &Received, notes: &mut Notes) {
    match &last.line {
        Some(Line::Error(error))
            if matches!(
                error.code,
                Code::WorkerExited
                    | Code::WorkerUnresponsive
                    | Code::WorkerStartFailed
                    | Code::CrashLooped
                    | Code::Interrupted
            ) =>
        {
            notes.push(format!("{RESTART_TAG} {}: {}", error.code, error.error));
        }
        Some(Line::MessageEnd(end)) if end.stop == Stop::Cancelled => {
            notes.push("the turn was cancelled".to_owned());
        }
        _ => {}
    }
}
