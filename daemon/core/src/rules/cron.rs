//! Schedules: the requests about them, and the job of a due time.
//!
//! Owns the refusals, and what a change is answered with. When a schedule is due is worked out before
//! a request comes here, and what is due comes as a request, too: nothing of schedules is kept here.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::request::Send;
use agentd_protocol::schedule::{CronNamed, ScheduleId};
use agentd_protocol::work::{Dispatch, Dispatched};
use agentd_protocol::{Code, Id, JobId, Request, RequestKind};

use crate::event::{RequestContext, Scheduling};
use crate::ids::ConnId;
use crate::json;
use crate::outbox::awaiting::Awaiting;
use crate::peers::lookup::Asked;
use crate::rules::queries::PAGE;
use crate::sessions::directory;
use crate::settings::Served;
use crate::state::State;
use crate::store::{Query, ScheduleWrite, Stored, Write, Written};

impl State {
    pub(crate) fn schedules(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        request: Request,
        facts: &RequestContext,
    ) {
        let kind = request.kind();
        match request {
            Request::CronPause(CronNamed { schedule: which }) => {
                self.change_named_schedule(conn, id, kind, ScheduleWrite::Pause { which });
            }
            Request::CronRemove(CronNamed { schedule: which }) => {
                self.change_named_schedule(conn, id, kind, ScheduleWrite::Remove { which });
            }
            Request::CronRun(_) => self.run_schedule(conn, id, facts),
            Request::CronList(list) => {
                let query = Query::Schedules {
                    which: list.schedule,
                    after: list.after.unwrap_or(0),
                    limit: list.limit.unwrap_or(PAGE),
                };
                self.look_up(conn, id, Asked::Schedules, query);
            }
            Request::CronRuns(runs) => {
                let query = Query::ScheduleRuns {
                    which: runs.schedule,
                    before: runs.before,
                    limit: runs.limit.unwrap_or(PAGE),
                };
                self.look_up(conn, id, Asked::Schedules, query);
            }
            _ => self.change_schedule(conn, id, kind, facts),
        }
    }

    /// A change of a schedule, as it was worked out.
    fn change_schedule(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        kind: RequestKind,
        facts: &RequestContext,
    ) {
        let write = match self.scheduling(facts) {
            Ok(Scheduling::Write { write, send }) => match self.may_be_scheduled(send, facts) {
                Ok(()) => write.clone(),
                Err(rejected) => return self.refuse(conn, id, rejected),
            },
            Ok(Scheduling::Run { .. }) => {
                let error = "a run was worked out where a change was asked for";
                return self.refuse(conn, id, Rejected::new(Code::Internal, error));
            }
            Err(rejected) => return self.refuse(conn, id, rejected),
        };
        let awaiting = Awaiting::Schedule { conn, id, kind };
        self.outbox.commit(awaiting, vec![Write::Schedule(write)]);
    }

    /// One job now: of a due time, or because somebody asks for it.
    fn run_schedule(&mut self, conn: ConnId, id: Option<Id>, facts: &RequestContext) {
        let (send, fired) = match self.scheduling(facts) {
            Ok(Scheduling::Run { send, fired }) => (json::read_back(send), fired.clone()),
            Ok(Scheduling::Write { .. }) => {
                let error = "a change was worked out where a run was asked for";
                return self.refuse(conn, id, Rejected::new(Code::Internal, error));
            }
            Err(rejected) => return self.refuse(conn, id, rejected),
        };
        let send = match send {
            Ok(send) => send,
            Err(why) => {
                let error = format!("what the schedule sends can't be read: {why}");
                return self.refuse(conn, id, Rejected::new(Code::Internal, error));
            }
        };
        let ignored = Vec::new();
        let jobs = vec![Dispatched { send, ignored }];
        let facts = RequestContext {
            fired: Some(fired),
            ..facts.clone()
        };
        self.dispatch(conn, id, Dispatch { jobs }, &facts);
    }

    fn scheduling<'a>(&self, facts: &'a RequestContext) -> Result<&'a Scheduling, Rejected> {
        if self.settings.served != Served::Daemon {
            let error = "a run without the daemon ends with its turn: it keeps no schedules";
            return Err(self.settings.served.needs_daemon(error));
        }
        match &facts.schedule {
            Some(Ok(worked_out)) => Ok(worked_out),
            Some(Err(rejected)) => Err(rejected.clone()),
            None => Err(Rejected::new(
                Code::Internal,
                "nobody worked out when the schedule is due",
            )),
        }
    }

    /// What would be refused now is refused while somebody is there to hear it.
    fn may_be_scheduled(
        &mut self,
        send: &Option<String>,
        facts: &RequestContext,
    ) -> Result<(), Rejected> {
        let Some(send) = send else { return Ok(()) };
        let send: Send = json::read_back(send).map_err(|why| Rejected::new(Code::Internal, why))?;
        directory::is_there("cwd", send.cwd.as_ref(), facts)?;
        self.may_call_back(send.callback.as_ref(), facts)?;
        self.may_bring_servers(&send, facts)?;
        if self.is_routed(&send) {
            // The routes are asked when it is due.
            return Ok(());
        }
        let agent = match (&send.agent, &send.session) {
            (Some(agent), _) => agent.clone(),
            // It is the session's, if there is one by then.
            (None, Some(_)) => return Ok(()),
            (None, None) => self.default_agent(send.provider.as_ref(), send.model.as_ref())?,
        };
        self.usable(&agent, None, &send)
    }

    pub(crate) fn schedule_stored(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        kind: RequestKind,
        stored: Stored,
    ) {
        let written = match stored {
            Stored::Committed(written) => written.into_iter().next(),
            Stored::Taken => {
                let error = "another schedule has this name";
                let rejected = Rejected::new(Code::InvalidRequest, error);
                return self.refuse(conn, id, rejected.hint("`cron.list` shows them"));
            }
            Stored::Superseded => {
                let error = "the schedule changed in the same moment; nothing was done";
                let rejected = Rejected::new(Code::SessionBusy, error);
                return self.refuse(conn, id, rejected.hint("ask again"));
            }
            Stored::Failed { code, why } => {
                let error = format!("the store can't take it: {why}");
                return self.refuse(conn, id, Rejected::new(code, error));
            }
            _ => None,
        };
        let row = match written {
            Some(Written::Schedule { row: Some(row) }) => Box::new(json::value(&row)),
            Some(Written::Schedule { row: None }) => {
                return self.refuse(conn, id, unknown("there is no such schedule"));
            }
            _ => {
                let error = "the store gave no answer about a schedule";
                return self.refuse(conn, id, Rejected::new(Code::Internal, error));
            }
        };
        let (ok, schedule) = (true, row);
        let line = match kind {
            RequestKind::CronEdit => Line::CronEdit { ok, schedule },
            RequestKind::CronPause => Line::CronPause { ok, schedule },
            RequestKind::CronRemove => Line::CronRemove { ok, schedule },
            RequestKind::CronResume => Line::CronResume { ok, schedule },
            _ => Line::CronAdd { ok, schedule },
        };
        self.answer(conn, id, &line);
    }

    /// By its name alone: nothing has to be worked out.
    fn change_named_schedule(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        kind: RequestKind,
        write: ScheduleWrite,
    ) {
        if self.settings.served != Served::Daemon {
            let error = "a run without the daemon ends with its turn: it keeps no schedules";
            return self.refuse(conn, id, self.settings.served.needs_daemon(error));
        }
        let awaiting = Awaiting::Schedule { conn, id, kind };
        let write = Write::Schedule(Box::new(write));
        self.outbox.commit(awaiting, vec![write]);
    }
}

/// How a run of a schedule is answered.
pub(crate) fn ran(schedule: u64, job: JobId, session: String) -> Line {
    Line::CronRun {
        ok: true,
        schedule: ScheduleId(schedule).to_string(),
        job,
        session,
    }
}

/// The refusal of a name that no schedule has.
pub(crate) fn unknown(why: impl Into<String>) -> Rejected {
    Rejected::new(Code::InvalidRequest, why).hint("`cron.list` shows them")
}
