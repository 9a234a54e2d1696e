//! What a session's turns are pinned to, and models that an agent doesn't take.
//!
//! Owns from when on a pin counts: from its send on, which is when the store has accepted that. And
//! whom a pin fails: those who asked for it, and nobody else. Which models there are, only the agent
//! knows.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::nearest::nearest;
use agentd_protocol::request::{Decoded, Send};
use agentd_protocol::{Code, Id, Request};

use crate::agent::Agent;
use crate::event::RequestContext;
use crate::ids::{ConnId, SessionId, TurnId, WorkerId};
use crate::jobs::job::{Phase, Repins};
use crate::outbox::awaiting::Awaiting;
use crate::pins;
use crate::pool::fit::Fit;
use crate::pool::slot::{Slot, SlotPhase};
use crate::rare::Rare;
use crate::sessions::session::{Repinning, Session};
use crate::state::State;
use crate::store::{Pins, Write};
use crate::worker::Failure;

/// Are they of the models and modes that a process offers? One that lists no models judges for itself.
///
/// # Errors
/// `unsupported`, with what is offered.
pub(crate) fn offered(slot: &Slot, pins: &Pins) -> Result<(), Rejected> {
    if let (Some(modes), Some(mode)) = (&slot.modes, &pins.mode)
        && !modes.iter().any(|row| row.id == *mode)
    {
        let ids: Vec<String> = modes.iter().map(|row| row.id.clone()).collect();
        return Err(unoffered(slot, "mode", mode, &ids));
    }
    let (Some(models), Some(model)) = (&slot.models, &pins.model) else {
        return Ok(());
    };
    let whole = |separator: &str| {
        let provider = pins.provider.as_ref()?;
        Some(format!("{provider}{separator}{model}"))
    };
    // Agents write a model with its provider in one of these ways.
    let names = [Some(model.clone()), whole("/"), whole(":")];
    if models
        .iter()
        .any(|offered| names.contains(&Some(offered.clone())))
    {
        return Ok(());
    }
    Err(unoffered(slot, "model", model, models))
}

fn unoffered(slot: &Slot, what: &str, wanted: &str, offered: &[String]) -> Rejected {
    let agent = &slot.agent;
    let shown: Vec<&str> = offered.iter().take(SHOWN).map(String::as_str).collect();
    let more = match offered.len().saturating_sub(SHOWN) {
        0 if shown.is_empty() => "none".to_owned(),
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let error = format!(
        "the agent `{agent}` offers no {what} `{wanted}`; it offers {}{more}",
        shown.join(", ")
    );
    let rejected = Rejected::new(Code::Unsupported, error);
    match nearest(wanted, offered.iter().map(String::as_str)) {
        Some(near) => rejected.hint(format!("did you mean `{near}`?")),
        None => rejected,
    }
}

/// So many models or modes are named in a refusal.
const SHOWN: usize = 12;

/// What a send asks for, with what its session and its agent have where it says nothing.
pub(crate) fn in_force(send: &Send, of_session: &Pins, agent: &Agent) -> Pins {
    // A model's name means something to its provider only.
    let own = send.provider.is_some() || send.model.is_some();
    let set = (!own).then_some(of_session);
    let pin = |given: &Option<String>, set: Option<&String>, usual: Option<&String>| {
        given.as_ref().or(set).or(usual).cloned()
    };
    let provider = set.and_then(|set| set.provider.as_ref());
    let model = set.and_then(|set| set.model.as_ref());
    let thinking = of_session.thinking.as_ref();
    let usual_model = pins::usual_model(agent, send.provider.as_ref().or(provider));
    Pins {
        provider: pin(&send.provider, provider, agent.provider.as_ref()),
        model: pin(&send.model, model, usual_model),
        thinking: pin(&send.thinking, thinking, agent.thinking.as_ref()),
        mode: pins::mode(agent, of_session),
    }
}

/// What a session's later turns are pinned to, once a send of it is accepted.
pub(crate) fn from_now_on(send: &Send, set: &Pins) -> Pins {
    let own = send.provider.is_some() || send.model.is_some();
    let (provider, model) = match own {
        true => (&send.provider, &send.model),
        false => (&set.provider, &set.model),
    };
    Pins {
        provider: provider.clone(),
        model: model.clone(),
        thinking: send.thinking.as_ref().or(set.thinking.as_ref()).cloned(),
        mode: set.mode.clone(),
    }
}

/// What only some turns asked of a process, beside what its agent's usual one is started with.
pub(crate) fn asked(fit: &Fit, usual: &Fit) -> Option<String> {
    let pins = [
        ("provider", &fit.provider, &usual.provider),
        ("model", &fit.model, &usual.model),
        ("thinking", &fit.thinking, &usual.thinking),
        ("mode", &fit.mode, &usual.mode),
    ];
    let pin = |(name, value, usual): (_, &Option<String>, _)| {
        let value = value.as_ref().filter(|_| value != usual)?;
        Some(format!("`{name}` `{value}`"))
    };
    let tools = fit.toolsets.as_ref().map(|tools| tools.join(","));
    let tools = tools.map(|tools| format!("`toolsets` `{tools}`"));
    let servers = fit.mcp_servers.named().map(|names| names.join(","));
    let servers = servers.map(|names| format!("`mcp_servers` `{names}`"));
    let asked = pins.into_iter().filter_map(pin).chain(tools).chain(servers);
    let asked: Vec<String> = asked.collect();
    (!asked.is_empty()).then(|| asked.join(", "))
}

/// With the number of a session: who counts on what it is pinned to waits for the store. In order,
/// as its `#` says.
const PINS: &str = "pins#";

impl State {
    /// Did a session's process fail for good that was started with something else than a send asks
    /// for? That says nothing of this one.
    pub(crate) fn failed_with_others(&self, session: &Session, send: &Send) -> bool {
        let slot = session.slot.and_then(|worker| self.pool.get(&worker));
        let slot = slot.filter(|slot| slot.phase == SlotPhase::Failed);
        let agent = self.settings.agents.get(&session.agent);
        slot.zip(agent).is_some_and(|(slot, agent)| {
            !slot.serves(&Fit::with(
                agent,
                session,
                in_force(send, &session.pins, agent),
            ))
        })
    }

    /// What only some turns asked of a process that is in its first start and was never ready. One
    /// whose session is gone fails so, too, and is started without it.
    pub(crate) fn pins_at_first(&self, worker: WorkerId) -> Option<String> {
        let slot = self.pool.get(&worker)?;
        // A process that was up with these pins has shown that its program takes them.
        let first = slot.restarts == 0 && slot.phase.ready_since().is_none();
        let keeps = |session| {
            slot.resuming == Some(session)
                || (self.sessions.get(&session)).is_some_and(|session| session.turns == 0)
        };
        let keeps = slot.sessions.iter().copied().all(keeps);
        let agent = self.settings.agents.get(&slot.agent)?;
        let usual = Fit::usual(agent, &slot.fit.cwd);
        asked(&slot.fit, &usual).filter(|_| first && keeps)
    }

    /// The key under which a request waits that counts on pins which are on their way to the store.
    pub(crate) fn counts_on_pins(&self, request: &Request) -> Option<String> {
        let sessions = request.sessions();
        let mut sessions = sessions.iter().filter_map(|name| self.sessions.named(name));
        // One whose first send isn't stored yet may come to nothing, and then there is nothing to set.
        let sets = matches!(request, Request::SetModel(_));
        let session = sessions.find(|session| {
            let known = self.sessions.get(session);
            known.is_some_and(|known| {
                known.repinning.is_some() || sets && !known.stored && known.jobs > 0
            })
        });
        session.map(|session| format!("{PINS}{}", session.0))
    }

    /// Lets it wait for that.
    pub(crate) fn wait_for_pins(
        &mut self,
        key: String,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &RequestContext,
    ) {
        // Nothing is to be loaded: what they wait for is on its way to the store.
        let _first = self.park(&key, &[], conn, id, decoded, facts);
    }

    /// A send is asked for again later: what comes behind it in its session waits, as it would count on
    /// what that one was to find.
    pub(crate) fn holds_up(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        if let Some(known) = found!(self.sessions.get_mut(job.session)) {
            known.repinning = Some(Repinning::Send(turn));
        }
    }

    /// Who counted on pins that were on their way to the store goes on: they are accepted, or not.
    pub(crate) fn go_on_behind_pins(&mut self) {
        for session in self.sessions.take_settled() {
            self.unpin_stored(session);
            let key = format!("{PINS}{}", session.0);
            let Some(waited) = self.sessions.unpark(&key) else {
                continue;
            };
            self.peers.loaded(&key);
            for parked in waited.parked {
                self.request(parked.conn, parked.id, parked.decoded, &parked.facts);
            }
        }
    }

    /// The store still can't say whether it has what others count on: these are refused, nothing came
    /// of them.
    pub(crate) fn pins_in_doubt(&mut self, trouble: &str) {
        for key in self.sessions.waits_under(PINS) {
            let Some(waited) = self.sessions.unpark(&key) else {
                continue;
            };
            self.peers.loaded(&key);
            for parked in waited.parked {
                let error = format!("what is before it in its session can't be stored: {trouble}");
                let rejected = Rejected::new(Code::StoreFailed, error);
                self.refuse(parked.conn, parked.id, rejected);
            }
        }
    }

    /// A send is accepted: from it on its session has other pins, if it names some.
    pub(crate) fn pinned(&mut self, turn: TurnId, to: Option<Pins>) {
        let job = expected!(self.jobs.get_mut(turn));
        let known = found!(self.sessions.get_mut(job.session));
        if let (Some(known), Some(to)) = (known, to) {
            let from = (*known.pins).clone();
            known.pins = to.clone().into();
            job.repins = (from != to).then(|| Box::new(Repins { from, to }));
        }
        self.sessions.settles(job.session, Repinning::Send(turn));
    }

    /// What a turn asked for that was refused doesn't bind its session: what was in force before it
    /// is again.
    pub(crate) fn unpin(&mut self, turn: TurnId) {
        let Some(job) = self.jobs.get_mut(&turn) else {
            return self.outbox.dangling(turn);
        };
        let (session, repins) = (job.session, job.repins.take());
        let known = self.sessions.get_mut(&session);
        if let (Some(repins), Some(known)) = (repins, self.outbox.expected(session, known)) {
            let mode = known.pins.mode.clone();
            let now = |pins: Pins| Pins {
                mode: mode.clone(),
                ..pins
            };
            // A later one may have said otherwise.
            if *known.pins != now(repins.to) {
                return;
            }
            known.pins = now(repins.from).into();
            known.unpins = true;
            if known.repinning.is_none() {
                self.unpin_stored(session);
            }
        }
    }

    /// The store has the pins of a session from which one was taken back.
    fn unpin_stored(&mut self, session: SessionId) {
        let known = self.sessions.get_mut(&session);
        if let Some(known) = known.filter(|known| known.unpins && known.repinning.is_none()) {
            known.unpins = false;
            let (session, pins) = (known.shown(), (*known.pins).clone());
            let write = Write::Model { session, pins };
            self.outbox.commit(Awaiting::Nothing, vec![write]);
        }
    }

    /// The turns that asked for what the program refused end, and it counts against nobody.
    pub(crate) fn pins_refused(&mut self, worker: WorkerId, asked: &str, why: &str, tail: &str) {
        let Some(slot) = self.pool.get(&worker).cloned() else {
            return self.outbox.dangling(worker);
        };
        let Some(agent) = self.settings.agents.get(&slot.agent).cloned() else {
            return;
        };
        let said = match tail.trim() {
            "" => String::new(),
            tail => format!("; it said: {tail}"),
        };
        let error = format!(
            "agent `{}` did not start with {asked}: {why}{said}",
            agent.name
        );
        let hint = "send without, or with others; `set_model` changes what a session is \
                    pinned to, and its toolsets are those it was begun with";
        let failure = Failure {
            hint: Some(hint.to_owned()),
            ..Failure::new(Code::WorkerStartFailed, error.clone())
        };
        let wants = |turn: &TurnId| {
            let job = self
                .jobs
                .get(turn)
                .filter(|job| job.phase == Phase::Queued)?;
            let session = self.sessions.get(&job.session)?;
            slot.serves(&Fit::of(&agent, session, job)).then_some(*turn)
        };
        let sessions = slot.sessions.iter();
        let queued = sessions.filter_map(|session| self.sessions.get(session));
        let queued = queued.flat_map(|session| &session.queue);
        let wanted: Vec<TurnId> = queued.filter_map(wants).collect();
        // Those that it has already end as with any process that is gone.
        self.end_turns(worker, why, tail);
        self.no_spares_with(&slot.agent, &slot.fit);
        for turn in wanted {
            self.fail(turn, failure.clone());
        }
        for session in &slot.sessions {
            let known = self.sessions.get_mut(session);
            if let Some(session) = self.outbox.expected(*session, known) {
                // Whoever sends without gets the usual ones.
                session.last = Rare::default();
            }
        }
        self.restarted(worker, Err(error));
        self.drop_slot(worker);
    }
}
