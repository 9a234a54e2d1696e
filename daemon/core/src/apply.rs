//! The one function that changes what is true.
//!
//! Owns the order: each event goes to the rule that knows it, then follows what follows from any.
//! Must not decide anything itself.

use std::time::Duration;

use agentd_protocol::request::Decoded;
use agentd_protocol::request_table::RequestEffect;

use crate::effect::Effect;
use crate::event::Event;
use crate::ids::Now;
use crate::outbox::timers::Timer;
use crate::peers::conn::Conn;
use crate::state::State;
use crate::worker::WorkerEvent;

impl State {
    /// Takes one event and appends what is to be done. Total: it can't fail, wait or panic.
    ///
    /// `now` is read by the caller for this event; its monotonic part must not go back.
    pub fn apply(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.see_the_time(now);
        self.outbox.swap(effects);
        // Before the event is taken apart: its rule gets its parts by value.
        let may_start = may_start(&event);
        // Before the rule: what it ends counts against the room of this event.
        self.jobs.slices().begin();
        match event {
            Event::Connected { conn, origin } => {
                self.peers.insert(conn, Conn::new(origin));
            }
            Event::Disconnected { conn } => self.disconnected(conn),
            Event::Requested {
                conn,
                id,
                request,
                facts,
            } => self.requested(conn, id, request, &facts),
            Event::CaughtUp { conn } => self.caught_up(conn),
            Event::Stored { token, stored } => self.stored(token, stored),
            Event::Loaded { token, loaded } => self.loaded(token, loaded),
            Event::StoreHealth { trouble } => self.store_health(trouble),
            Event::StoreLosses { losses } => self.settings.losses = losses,
            Event::BackupsLack { lacks } => self.settings.backups_lack = lacks,
            Event::SchedulesPaused { paused } => self.settings.schedules_paused = paused,
            Event::Recovered(recovered) => self.recovered(*recovered),
            Event::InstanceDied { instance } => self.outbox.push(Effect::Recover { instance }),
            Event::InstanceGone {
                instance,
                survivors,
            } => self.instance_gone(&instance, &survivors),
            Event::Spawned {
                worker,
                generation,
                pid,
            } => self.spawned(worker, generation, pid),
            Event::SpawnFailed {
                worker,
                generation,
                error,
                fault,
            } => self.spawn_failed(worker, generation, &error, fault),
            Event::Worker {
                worker,
                generation,
                event,
            } => self.worker_said(worker, generation, event),
            Event::WorkerStuck {
                worker,
                generation,
                why,
            } => self.worker_stuck(worker, generation, &why),
            Event::Exited {
                worker,
                generation,
                exit,
                tail,
            } => self.exited(worker, generation, exit, &tail),
            Event::AgentsFound { agents, looked_for } => self.agents_found(agents, looked_for),
            Event::FormReplaced { agent, form } => self.run_in_exec_form(&agent, *form),
            Event::ConfigTaken(taken) => self.config_taken(*taken),
            Event::MachineSeen(machine) => self.machine_seen(machine),
            Event::Ticked => {}
            Event::StopAsked => self.stop_asked(),
            Event::InputLost => self.input_lost(),
            Event::AskedLast { conn } => self.release_drain(conn),
            Event::ReaderLeft { conn } => self.reader_left(conn),
        }
        // Timers come after the event: one that it has just cleared must not ring any more. Both
        // are run, as `|` doesn't stop at the first.
        let rang = self.ring() | self.ring_those_who_wait();
        // Those whose end was decided earlier go before turns start: they may be what a session
        // waits for.
        let ended = self.go_on_ending();
        self.go_on_behind_pins();
        // A store that is behind gets no more work; its next answer lets it go on.
        if (may_start || rang || ended) && !self.outbox.store_is_behind() {
            self.schedule();
        }
        self.go_on_with_requests();
        self.ask_for_next_slice();
        self.go_on_aborting();
        // What a stop or a drain waits for is read from the indexes.
        self.update_indexes();
        self.go_on_stopping();
        // What nobody waits for shares one commit, unless another order has taken it along.
        self.outbox.tell_the_rest();
        self.listen_to_the_store();
        // What that ended is brought up to date for whoever asks next.
        self.update_indexes();
        self.outbox.swap(effects);
    }

    fn see_the_time(&mut self, now: Now) {
        self.now = Now {
            // Deadlines are sums of these two: a clock that went back would hold up every timer
            // until it had caught up. The wall clock is only shown and compared with dates, so it
            // may jump.
            mono: now.mono.max(self.now.mono),
            boot_ms: now.boot_ms.max(self.now.boot_ms),
            wall_ms: now.wall_ms,
        };
        self.began.get_or_insert(self.now);
    }

    /// What waits for processes may have what it waits for.
    fn go_on_with_requests(&mut self) {
        self.go_on_renaming();
        self.go_on_listing_models();
    }

    /// When `Ticked` is to be sent next, on the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.outbox.next_deadline()
    }

    /// Deals with every deadline that has passed; was there any?
    fn ring(&mut self) -> bool {
        // All of them at once: one that is set again for now by its own rule would never let the
        // loop end.
        let due = self.outbox.take_due(self.now.mono);
        let rang = !due.is_empty();
        for timer in due {
            match timer {
                // One before it was for the same process, and ended it.
                Timer::Slot(worker) | Timer::Idle(worker) | Timer::Retire(worker)
                    if !self.pool.contains(worker) => {}
                Timer::Unused(session) => self.session_unused(session),
                Timer::Question(question) => self.question_expired(question),
                Timer::Running(turn) => self.time_up(turn),
                Timer::Settling(turn) => self.unsettled(turn),
                Timer::Stalled(turn) => self.stalled(turn),
                Timer::Flush(turn) => self.flush_text(turn),
                Timer::Slot(worker) => self.slot_deadline(worker),
                Timer::Idle(worker) => self.slot_idle(worker),
                Timer::Retire(worker) => self.retire_now(worker),
                Timer::Recheck(number) => self.collect_again(number),
                Timer::Collect(number) => self.collect_timeout(number),
                Timer::Agents => self.look_for_agents(),
                Timer::Doubt => self.in_doubt(),
                Timer::Models(number) => self.models_timeout(number),
                Timer::Compact(worker) => self.compact_timeout(worker),
                Timer::Unfinished(turn) => self.finish_again(turn),
                Timer::Drain => self.drain_timeout(),
                Timer::Leave => self.leave_now(),
                Timer::Stop => self.stop_timeout(),
                // What they hold back is looked at after every event.
                Timer::SpawnRate
                | Timer::Schedule
                | Timer::Look
                | Timer::Spare
                | Timer::Machine
                | Timer::Breaker
                | Timer::Slice => {}
            }
        }
        rang
    }
}

/// Can a turn start because of this event? What a turn says on its way starts no other, and neither
/// does what only reads.
fn may_start(event: &Event) -> bool {
    let reads = |decoded: &Decoded| {
        let rules = decoded.request.kind().rules();
        rules.effect == RequestEffect::Reads
    };
    if let Event::Requested { request, .. } = event {
        return !request.as_ref().is_ok_and(reads);
    }
    !matches!(
        event,
        Event::CaughtUp { .. }
            | Event::Worker {
                event: WorkerEvent::Text { .. }
                    | WorkerEvent::Thinking { .. }
                    | WorkerEvent::MessageStarted { .. }
                    | WorkerEvent::ToolStarted { .. }
                    | WorkerEvent::ToolUpdated { .. }
                    | WorkerEvent::ToolEnded { .. }
                    | WorkerEvent::Other { .. }
                    | WorkerEvent::Logged { .. }
                    | WorkerEvent::Stray { .. },
                ..
            }
    )
}
