//! `models` and `commands`: which models and slash commands an agent has, as its own process says.
//!
//! Owns whom is asked, and for how long: a process that lives, else one that is started as for a send.
//! Must not know any model
//! or command.

use agentd_protocol::commands::{CommandRow, Commands};
use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::models::{ModeRow, ModelRow, Models};
use agentd_protocol::{Code, Id, Request, serde_json};

use crate::effect::Effect;
use crate::event::RequestContext;
use crate::ids::{ConnId, Process, SessionId, WorkerId};
use crate::indexes::lanes::Lane;
use crate::limits::{
    COMMANDS_TOLD, MODELS_ANSWERED_WITHIN, MODELS_PAGE, MODELS_TOLD, MODELS_WITHIN,
};
use crate::outbox::timers::Timer;
use crate::peers::waiting::{ModelListing, Wanted};
use crate::pins::{self, is_for_clients};
use crate::pool::fit::Fit;
use crate::pool::slot::Slot;
use crate::rules::agent_choice::per_turn;
use crate::state::State;
use crate::store::Pins;
use crate::worker::{CommandList, Failure, ModelList, WorkerCommand};

/// Who can say it.
enum Asks {
    /// This process, now.
    Process(Process),
    /// One that comes up, or gets room.
    Later,
    /// Nobody, and why.
    Nobody(Rejected),
}

impl State {
    pub(crate) fn list_of(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        asked: Models,
        wanted: Wanted,
        facts: &RequestContext,
    ) {
        let session = match &asked.session {
            None => None,
            Some(name) => {
                let again = match wanted {
                    Wanted::Models => Request::Models(asked.clone()),
                    Wanted::Commands => Request::Commands(Commands {
                        agent: None,
                        session: Some(name.clone()),
                    }),
                };
                let Some(session) = self.known_session(name, conn, &id, again, facts) else {
                    return;
                };
                Some(session)
            }
        };
        let number = self.outbox.number();
        let listing = self
            .agent_listed(&asked, wanted, session)
            .map(|(agent, pins, fit)| ModelListing {
                number,
                wanted,
                conn,
                id: id.clone(),
                agent,
                session,
                pins,
                fit,
                after: asked.after.unwrap_or(0),
                until: self.now.mono + MODELS_WITHIN,
                asked: None,
                started: None,
            });
        match listing {
            Ok(listing) => {
                self.outbox.set(Timer::Models(number), listing.until);
                // The rest follows with what follows from any event: `go_on_listing_models`.
                self.peers.lists(listing);
            }
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }

    /// Whose models, what is in force there, and what a process of it is started with.
    fn agent_listed(
        &self,
        asked: &Models,
        wanted: Wanted,
        session: Option<SessionId>,
    ) -> Result<(String, Pins, Fit), Rejected> {
        if self.mode.is_stopping() {
            return Err(self.stopping());
        }
        let known = session.and_then(|session| self.sessions.get(&session));
        let name = match (known, &asked.agent) {
            (Some(session), _) => session.agent.clone(),
            (None, Some(agent)) => agent.clone(),
            (None, None) => self.default_agent(None, None)?,
        };
        let Some(agent) = self.settings.agents.get(&name) else {
            return Err(self.unknown_agent(&name));
        };
        if let Err(why) = &agent.usable {
            let error = format!("the agent `{name}` can't be used: {why}");
            return Err(Rejected::new(Code::NoAgent, error).hint("`agents` lists what is there"));
        }
        let lists = match wanted {
            Wanted::Models => agent.describe.lists_models,
            Wanted::Commands => agent.describe.lists_commands,
        };
        if per_turn(agent) || !lists {
            return Err(lists_none(&name, wanted));
        }
        let fit = Fit::usual(agent, &self.settings.home);
        let usual = Pins {
            provider: agent.provider.clone(),
            model: agent.model.clone(),
            thinking: agent.thinking.clone(),
            mode: agent.mode.clone(),
        };
        let Some(session) = known else {
            return Ok((name, usual, fit));
        };
        let own: [&Pins; 2] = [&session.pins, &session.last];
        let set = own.into_iter().find(|pins| pins.model.is_some());
        let fit = Fit {
            cwd: session.cwd.clone(),
            ..fit
        };
        let pins = Pins {
            mode: pins::mode(agent, &session.pins),
            ..set.cloned().unwrap_or(usual)
        };
        Ok((name, pins, fit))
    }

    /// Asks those that can be asked by now for whoever waits.
    pub(crate) fn go_on_listing_models(&mut self) {
        let is_asked = |listing: &&ModelListing| {
            let process = listing.asked.and_then(|asked| {
                let slot = self.pool.get(&asked.worker)?;
                (slot.generation == asked.generation).then_some(slot)
            });
            process.is_some_and(is_there)
        };
        let waiting = self.peers.listings().iter();
        let waiting: Vec<u64> = waiting
            .filter(|listing| !is_asked(listing))
            .map(|listing| listing.number)
            .collect();
        for number in waiting {
            self.list_models(number);
        }
    }

    fn list_models(&mut self, number: u64) {
        let Some(listing) = self.peers.listing(number).cloned() else {
            return;
        };
        match self.who_lists(&listing) {
            Asks::Process(process) => {
                let until = listing.until.min(self.now.mono + MODELS_ANSWERED_WITHIN);
                self.outbox.set(Timer::Models(number), until);
                if let Some(listing) = self.peers.listing(number) {
                    listing.asked = Some(process);
                }
                self.outbox.push(Effect::Tell {
                    worker: process.worker,
                    generation: process.generation,
                    command: match listing.wanted {
                        Wanted::Models => WorkerCommand::Models {
                            number,
                            pins: Box::new(listing.pins),
                        },
                        Wanted::Commands => WorkerCommand::Commands { number },
                    },
                });
            }
            Asks::Later => {
                if let Some(listing) = self.peers.listing(number) {
                    listing.asked = None;
                }
            }
            Asks::Nobody(rejected) => self.lists(number, |_| Err(rejected)),
        }
    }

    /// Who can say which models there are; starts a process where none lives.
    fn who_lists(&mut self, listing: &ModelListing) -> Asks {
        let of_agent = |(_, slot): &(WorkerId, &Slot)| slot.agent == listing.agent;
        let session = listing
            .session
            .and_then(|session| self.sessions.get(&session));
        let own = session.and_then(|session| session.slot);
        let there = self.pool.iter().filter(of_agent);
        let there = there.filter(|(_, slot)| is_there(slot));
        // Its own process knows best; then one that works in its directory, and has nothing to do.
        let best = there.min_by_key(|(worker, slot)| {
            let elsewhere = slot.fit.cwd != listing.fit.cwd;
            (Some(*worker) != own, elsewhere, slot.turns.len())
        });
        if let Some((worker, slot)) = best {
            let lists = match listing.wanted {
                Wanted::Models => slot.lists_models,
                Wanted::Commands => slot.lists_commands,
            };
            if !lists {
                return Asks::Nobody(lists_none(&listing.agent, listing.wanted));
            }
            let generation = slot.generation;
            return Asks::Process(Process { worker, generation });
        }
        let comes = |slot: &Slot| slot.phase.comes() || slot.phase.is_stopping();
        if self
            .pool
            .iter()
            .filter(of_agent)
            .any(|(_, slot)| comes(slot))
        {
            return Asks::Later;
        }
        if let Some(failure) = self.broken_agent(&listing.agent) {
            return Asks::Nobody(failure.into());
        }
        if let Some(worker) = listing.started {
            return Asks::Nobody(self.came_to_nothing(worker, listing));
        }
        if !self.has_room_for_listing() {
            return Asks::Later;
        }
        let Some(agent) = self.settings.agents.get(&listing.agent).cloned() else {
            return Asks::Nobody(self.unknown_agent(&listing.agent));
        };
        let fit = Fit {
            revision: agent.revision,
            ..listing.fit.clone()
        };
        let worker = self.add_slot(&agent, fit);
        if let Some(listing) = self.peers.listing(listing.number) {
            listing.started = Some(worker);
        }
        self.start(worker);
        Asks::Later
    }

    /// Is there room for one more process? Ends an idle one that nobody waits for if not.
    fn has_room_for_listing(&mut self) -> bool {
        if !self.is_full() {
            return true;
        }
        let asked = |worker: WorkerId| {
            let mut all = self.peers.listings().iter();
            all.any(|listing| listing.asked.is_some_and(|asked| asked.worker == worker))
        };
        let wanted = |worker: WorkerId| !self.indexes.lanes().is_empty(&Lane::Held(worker));
        let idle = self.pool.iter().filter(|(worker, slot)| {
            slot.is_ready()
                && slot.turns.is_empty()
                && !self.is_memory(slot)
                && !self.pool.is_compacting(*worker)
                && !asked(*worker)
                && !wanted(*worker)
        });
        let leaves = self.pool.slots().any(|slot| slot.phase.leaves());
        let longest = idle.min_by_key(|(_, slot)| slot.idle_since);
        if let Some((worker, _)) = longest.filter(|_| !leaves) {
            self.retire(worker);
        }
        false
    }

    /// Why the process that was started isn't there.
    fn came_to_nothing(&self, worker: WorkerId, listing: &ModelListing) -> Rejected {
        let (agent, wanted) = (&listing.agent, listing.wanted.name());
        let mut crashes = self.counters.last_crashes.iter();
        let why = crashes.find(|crash| crash.worker == worker.0);
        let why = why.map_or_else(String::new, |crash| format!(": {}", crash.error));
        let error =
            format!("the agent `{agent}` did not come up to be asked for its {wanted}{why}");
        Rejected::new(Code::WorkerStartFailed, error)
    }

    /// An agent said which models it has, or why it can't.
    pub(crate) fn models_told(
        &mut self,
        worker: WorkerId,
        number: u64,
        result: Result<ModelList, Failure>,
    ) {
        if self.is_asked(worker, number, Wanted::Models) {
            let agent = self
                .peers
                .listing(number)
                .map(|listing| listing.agent.clone());
            let agent = agent.and_then(|agent| self.settings.agents.get(&agent));
            // Those that would be refused aren't offered.
            let fit = |row: &ModeRow| agent.is_some_and(|agent| is_for_clients(agent, row));
            let modes = result
                .iter()
                .flat_map(|list| &list.modes)
                .filter(|row| fit(row));
            let modes = modes
                .cloned()
                .filter_map(ModeRow::fitting)
                .take(ModeRow::MOST);
            let modes: Vec<ModeRow> = modes.collect();
            self.lists(number, |listing| Ok(page(listing, &result?, modes)));
        }
    }

    /// An agent said which slash commands it has, or why it can't.
    pub(crate) fn commands_told(
        &mut self,
        worker: WorkerId,
        number: u64,
        result: Result<CommandList, Failure>,
    ) {
        if self.is_asked(worker, number, Wanted::Commands) {
            self.lists(number, |listing| Ok(commands(listing, result?)));
        }
    }

    /// One that answers what it was not asked, or too late, has no say.
    fn is_asked(&mut self, worker: WorkerId, number: u64, wanted: Wanted) -> bool {
        let listing = self.peers.listing(number);
        listing.is_some_and(|listing| {
            listing.wanted == wanted && listing.asked.map(|asked| asked.worker) == Some(worker)
        })
    }

    fn lists(&mut self, number: u64, answer: impl FnOnce(&ModelListing) -> Result<Line, Rejected>) {
        self.outbox.clear(Timer::Models(number));
        let Some(listing) = self.peers.listed(number) else {
            return;
        };
        let (conn, id) = (listing.conn, listing.id.clone());
        match answer(&listing) {
            Ok(line) => self.answer(conn, id, &line),
            Err(rejected) => self.refuse(conn, id, rejected),
        }
        if let Some(session) = listing.session {
            self.forget_session_if_idle(session);
        }
    }

    pub(crate) fn models_timeout(&mut self, number: u64) {
        let Some(listing) = self.peers.listing(number).cloned() else {
            return;
        };
        let (agent, wanted) = (&listing.agent, listing.wanted.name());
        let rejected = if listing.asked.is_some() {
            let within = MODELS_ANSWERED_WITHIN.as_secs();
            let error = format!(
                "the agent `{agent}` was asked for its {wanted} and said nothing for {within} s"
            );
            Rejected::new(Code::WorkerUnresponsive, error)
        } else if listing.started.is_some() || !self.is_full() {
            let within = MODELS_WITHIN.as_secs();
            let error = format!(
                "no process of the agent `{agent}` was ready within {within} s to be asked for its {wanted}"
            );
            Rejected::new(Code::WorkerStartFailed, error).hint("`status` lists the processes")
        } else {
            let error = format!(
                "no process of the agent `{agent}` lives, and there is no room for one: others are busy"
            );
            Rejected::new(Code::QueueFull, error).hint("ask again when a turn has ended")
        };
        self.lists(number, |_| Err(rejected));
    }

    /// Who asked has gone.
    pub(crate) fn lists_nothing(&mut self, conn: ConnId) {
        let gone = self.peers.listings().iter();
        let gone: Vec<u64> = gone
            .filter(|listing| listing.conn == conn)
            .map(|listing| listing.number)
            .collect();
        for number in gone {
            self.outbox.clear(Timer::Models(number));
            self.peers.listed(number);
        }
    }
}

/// Is its process up, and does it stay for now?
fn is_there(slot: &Slot) -> bool {
    slot.phase.ready_since().is_some() && !slot.is_one_turn()
}

fn lists_none(agent: &str, wanted: Wanted) -> Rejected {
    let error = format!(
        "the agent `{agent}` can't say which {} it has",
        wanted.name()
    );
    let rejected = Rejected::new(Code::Unsupported, error);
    match wanted {
        Wanted::Models => rejected.hint("`model` of a send takes the names that it knows"),
        Wanted::Commands => rejected,
    }
}

/// The slash commands, as far as a line takes them.
fn commands(listing: &ModelListing, list: CommandList) -> Line {
    let all = list.rows.len();
    let (mut commands, mut bytes) = (Vec::new(), 0);
    for row in list.rows.into_iter().filter_map(CommandRow::fitting) {
        bytes += serde_json::to_string(&row).map_or(0, |row| row.len() + 1);
        if bytes > MODELS_PAGE || commands.len() == COMMANDS_TOLD {
            break;
        }
        commands.push(row);
    }
    let mut notes: Vec<String> = list.note.into_iter().collect();
    match all - commands.len() {
        0 if all == 0 && notes.is_empty() => {
            notes.push(format!("the agent `{}` lists no commands", listing.agent));
        }
        0 => {}
        unfit => notes.push(format!("{unfit} were left out")),
    }
    Line::Commands {
        ok: true,
        agent: listing.agent.clone(),
        commands,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    }
}

/// The models behind those of the pages before, as far as a line takes them.
fn page(listing: &ModelListing, list: &ModelList, mut modes: Vec<ModeRow>) -> Line {
    // With the first page alone.
    if listing.after > 0 {
        modes.clear();
    }
    let rows = &list.rows[..list.rows.len().min(MODELS_TOLD)];
    let default = default_of(rows, &listing.pins);
    let after = usize::try_from(listing.after).unwrap_or(usize::MAX);
    let (mut models, mut bytes, mut unfit) = (Vec::new(), 0, 0);
    let mut next = None;
    for (at, row) in rows.iter().enumerate().skip(after) {
        let Some(mut row) = row.clone().fitting() else {
            unfit += 1;
            continue;
        };
        row.default = default.map_or(row.default, |default| default == at);
        bytes += serde_json::to_string(&row).map_or(0, |row| row.len() + 1);
        if bytes > MODELS_PAGE {
            next = u64::try_from(at).ok();
            break;
        }
        models.push(row);
    }
    let mut notes: Vec<String> = list.note.iter().cloned().collect();
    if list.rows.is_empty() && notes.is_empty() {
        notes.push(format!("the agent `{}` lists no models", listing.agent));
    }
    if unfit > 0 {
        notes.push(format!(
            "{unfit} were left out: their names are none that `model` takes"
        ));
    }
    if next.is_none() && list.rows.len() > rows.len() {
        let more = list.rows.len() - rows.len();
        notes.push(format!("{more} more were left out"));
    }
    Line::Models {
        ok: true,
        agent: listing.agent.clone(),
        models,
        mode: (!modes.is_empty())
            .then(|| listing.pins.mode.clone().or_else(|| list.mode.clone()))
            .flatten(),
        modes,
        next,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    }
}

/// Which of them is what a turn asks for that names none. Where that is not said here, or isn't among
/// them, the agent's own word counts.
fn default_of(rows: &[ModelRow], pins: &Pins) -> Option<usize> {
    let model = pins.model.as_ref()?;
    let provider = pins.provider.as_ref();
    let is_it = |row: &ModelRow| {
        let same =
            provider.is_none_or(|pinned| row.provider.as_ref().is_none_or(|it| it == pinned));
        let whole = |separator: &str| {
            let of = row.provider.as_ref().or(provider)?;
            Some(format!("{of}{separator}{}", row.model))
        };
        let pinned = |separator: &str| {
            let of = provider?;
            Some(format!("{of}{separator}{model}"))
        };
        let names = [whole("/"), whole(":")];
        row.model == *model && same
            || names.contains(&Some(model.clone()))
            // It may be named with its provider.
            || ["/", ":"].iter().any(|by| pinned(by).as_ref() == Some(&row.model))
    };
    rows.iter().position(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(provider: Option<&str>, model: &str) -> ModelRow {
        ModelRow {
            provider: provider.map(str::to_owned),
            ..ModelRow::named(model)
        }
    }

    #[test]
    fn models_default_is_what_is_pinned() {
        let rows = [
            row(Some("a"), "one"),
            row(Some("b"), "one"),
            row(None, "c/two"),
            row(None, "d:two"),
        ];
        for (provider, model, expected) in [
            (Some("a"), "one", Some(0)),
            (Some("b"), "one", Some(1)),
            (None, "one", Some(0)),
            (None, "b/one", Some(1)),
            (Some("c"), "two", Some(2)),
            (Some("d"), "two", Some(3)),
            (None, "c/two", Some(2)),
            (Some("e"), "one", None),
            (None, "three", None),
        ] {
            let pins = Pins {
                provider: provider.map(str::to_owned),
                model: Some(model.to_owned()),
                ..Pins::default()
            };
            assert_eq!(default_of(&rows, &pins), expected, "{provider:?} {model}");
        }
        assert_eq!(default_of(&rows, &Pins::default()), None);
    }
}
