//! Schedules at the owner's door: what is worked out for requests about them, and a connection from
//! within by which a due time is sent as any other send is.
//!
//! Owns the way there and back. Must not know when a schedule is due.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agentd_base::clock::wall_ms;
use agentd_core::Event;
use agentd_core::event::{Origin, RequestContext, Scheduling};
use agentd_core::ids::ConnId;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::request::{Abort, Decoded, Send};
use agentd_protocol::schedule::CronNamed;
use agentd_protocol::{Code, Id, JobId, Request};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cron::{self, CronConfig, Firing, Sender, prepare};
use crate::server::facts::{beside, looks_of_sends, silent_within};
use crate::server::owner::Arrival;
use crate::server::peer::{ConnCommand, Known};
use crate::server::routes::Routes;
use crate::store::{Opened, Store};

/// Names of connections from within: no socket has had so many.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1 << 62);
/// Lines of one such connection that wait: its requests are answered by one each.
const LINES: usize = 1024;

/// Where requests come in.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) inbox: mpsc::Sender<Event>,
    pub(super) arrivals: mpsc::Sender<Arrival>,
    pub(super) endpoints: PathBuf,
    /// For what is sent to `auto`.
    pub(super) routes: Arc<Routes>,
}

impl Door {
    pub(super) fn of(
        inbox: &mpsc::Sender<Event>,
        arrivals: &mpsc::Sender<Arrival>,
        endpoints: &Path,
        routes: &Arc<Routes>,
    ) -> Self {
        Self {
            inbox: inbox.clone(),
            arrivals: arrivals.clone(),
            endpoints: endpoints.to_owned(),
            routes: Arc::clone(routes),
        }
    }
}

/// Sends what is due, until the daemon stops.
pub(super) fn serve(
    opened: &Opened,
    door: Door,
    stop: &CancellationToken,
) -> impl Future<Output = ()> + std::marker::Send + use<> {
    let inbox = door.inbox.clone();
    cron::watch(CronConfig {
        store: opened.store.clone(),
        paused: Box::new(move |paused| {
            let inbox = inbox.clone();
            // Whoever is gone asks for no status.
            Box::pin(async move { drop(inbox.send(Event::SchedulesPaused { paused }).await) })
        }),
        scheduled: Arc::clone(&opened.scheduled),
        send: sender(door),
        stop: stop.clone(),
    })
}

fn sender(door: Door) -> Sender {
    Arc::new(move |firings| {
        let door = door.clone();
        Box::pin(async move {
            let count = firings.len();
            let answers = send(&door, firings).await.unwrap_or_default();
            (0..count).map(|item| answers.get(&item).cloned()).collect()
        })
    })
}

/// By a connection of its own; `None` when the owner is gone. What has no answer may have been taken.
async fn send(
    door: &Door,
    firings: Vec<Firing>,
) -> Option<BTreeMap<usize, Result<JobId, Rejected>>> {
    let conn = ConnId(CONNECTIONS.fetch_add(1, Ordering::Relaxed));
    let (commands, mut lines) = mpsc::channel(LINES);
    let arrival = Arrival {
        conn,
        origin: Origin::Socket,
        commands,
    };
    door.arrivals.send(arrival).await.ok()?;
    let mut asked = 0;
    for (item, firing) in firings.into_iter().enumerate() {
        if let Some(job) = firing.replaces {
            let abort = Request::Abort(Abort {
                job: Some(job),
                ..Abort::default()
            });
            let id = Id::text(&format!("abort-{item}"));
            post(door, conn, id, abort, Box::default()).await?;
        }
        let facts = with_facts(&door.endpoints, &door.routes, Ok(firing.scheduling)).await;
        // Which one it is, the facts say.
        let schedule = String::new();
        let run = Request::CronRun(CronNamed { schedule });
        let id = Id::number(u64::try_from(item).unwrap_or(u64::MAX));
        post(door, conn, id, run, facts).await?;
        asked += 1;
    }
    let mut answers = BTreeMap::new();
    while answers.len() < asked
        && let Some(command) = lines.recv().await
    {
        match command {
            ConnCommand::Line { body, id, .. } => {
                let item = id.and_then(|id| id.as_json().parse().ok());
                let line = serde_json::from_str(body.as_json()).ok();
                if let (Some(item), Some(sent)) = (item, line.and_then(answer)) {
                    answers.insert(item, sent);
                }
            }
            ConnCommand::Mark => door.inbox.send(Event::CaughtUp { conn }).await.ok()?,
            ConnCommand::Keep => {}
            ConnCommand::Finish | ConnCommand::Close => break,
        }
    }
    door.inbox.send(Event::Disconnected { conn }).await.ok()?;
    Some(answers)
}

async fn post(
    door: &Door,
    conn: ConnId,
    id: Id,
    request: Request,
    facts: Box<RequestContext>,
) -> Option<()> {
    let event = Event::Requested {
        conn,
        id: Some(id),
        request: Ok(Decoded {
            request,
            ignored: Vec::new(),
        }),
        facts,
    };
    door.inbox.send(event).await.ok()
}

fn answer(line: Line) -> Option<Result<JobId, Rejected>> {
    match line {
        Line::CronRun { job, .. } => Some(Ok(job)),
        Line::Error(error) => Some(Err(Rejected::new(error.code, error.error))),
        _ => None,
    }
}

/// What a request about a schedule comes to, with what has to be known of what it sends.
pub(super) fn facts(
    store: &Store,
    endpoints: &Path,
    routes: &Arc<Routes>,
    request: &Request,
) -> Known {
    let routes = Arc::clone(routes);
    let (store, endpoints, request) = (store.clone(), endpoints.to_owned(), request.clone());
    Known::Soon(Box::pin(async move {
        let worked_out = work_out(&store, request).await;
        Ok(with_facts(&endpoints, &routes, worked_out).await)
    }))
}

async fn with_facts(
    endpoints: &Path,
    routes: &Arc<Routes>,
    worked_out: Result<Scheduling, Rejected>,
) -> Box<RequestContext> {
    let send = match &worked_out {
        Ok(Scheduling::Run { send, .. }) => Some(send),
        Ok(Scheduling::Write { send, .. }) => send.as_ref(),
        Err(_) => None,
    };
    let send: Option<Send> = send.and_then(|send| serde_json::from_str(send).ok());
    let facts = Box::new(RequestContext {
        schedule: Some(worked_out),
        ..looks_of_sends(endpoints, send.iter()).await
    });
    match send {
        Some(send) => routes.weigh(Request::Send(Box::new(send)), facts).await.1,
        None => facts,
    }
}

async fn work_out(store: &Store, request: Request) -> Result<Scheduling, Rejected> {
    let failed = |why| Rejected::new(Code::StoreFailed, format!("the store can't be read: {why}"));
    let named = match &request {
        Request::CronEdit(edit) => Some(edit.schedule.clone()),
        Request::CronResume(named) | Request::CronRun(named) => Some(named.schedule.clone()),
        _ => None,
    };
    let kept = match named {
        Some(which) => {
            let kept = store.kept_schedule(which.clone()).await.map_err(failed)?;
            Some(kept.ok_or_else(|| cron::unknown(&which))?)
        }
        None => None,
    };
    // The rules of time zones are files.
    let worked_out = beside(move || {
        let now_ms = wall_ms();
        match (request, kept) {
            (Request::CronAdd(spec), _) => prepare::add(*spec, now_ms),
            (Request::CronEdit(edit), Some(kept)) => prepare::edit(&kept, &edit.set, now_ms),
            (Request::CronResume(_), Some(kept)) => prepare::resume(&kept, now_ms),
            (Request::CronRun(_), Some(kept)) => Ok(prepare::run(&kept, now_ms)),
            _ => Err(Rejected::new(Code::Internal, "nothing is to be worked out")),
        }
    });
    let silent = || Rejected::new(Code::Internal, silent_within("the rules of time zones"));
    worked_out.await.unwrap_or_else(|| Err(silent()))
}
