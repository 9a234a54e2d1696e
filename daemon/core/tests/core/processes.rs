//! The processes of the world: what each is told, and what it may not be told.
//!
//! Owns the invariants of workers. Knows nothing of the core's inside.

use std::time::Duration;

use agentd_core::Event;
use agentd_core::attached::Attachments;
use agentd_core::effect::Spawn;
use agentd_core::event::{Descent, Fault, RequestContext};
use agentd_core::ids::{Generation, TurnId, WorkerId};
use agentd_core::store::Pins;
use agentd_core::worker::{Exit, Outcome, Prompt, Traits, WorkerCommand, WorkerEvent};
use agentd_protocol::JobId;
use agentd_protocol::line::Stop;

use crate::world::{Process, World};

impl World {
    pub fn spawned(&mut self, worker: WorkerId, generation: Generation, spawn: Spawn) {
        assert!(
            !self.processes.keys().any(|(other, _)| *other == worker),
            "two live generations of {worker:?}"
        );
        if let Some(last) = self.seen_generations.insert(worker, generation) {
            assert!(generation > last, "a generation was used twice");
        }
        assert!(self.processes.len() < 4, "more processes than allowed");
        assert!(!self.exited, "a spawn after the exit");
        self.spawns += 1;
        let mut process = Process {
            agent: spawn.agent.clone(),
            cwd: spawn.cwd.clone(),
            resume: spawn.resume.clone(),
            mode: spawn.mode.clone(),
            forks: spawn.forks,
            system: spawn.system.as_deref().map(str::to_owned),
            mcp_servers: spawn.mcp_servers.named(),
            ..Process::default()
        };
        if let Some(prompt) = spawn.prompt {
            process.per_turn = true;
            process.ready = true;
            self.prompted(
                &mut process,
                (worker, generation),
                prompt.turn,
                prompt.job,
                &prompt.session,
                prompt.native.as_ref(),
            );
            self.carried(prompt.turn, &prompt.session, prompt.native);
        }
        self.processes.insert((worker, generation), process);
    }

    fn prompted(
        &mut self,
        process: &mut Process,
        me: (WorkerId, Generation),
        turn: TurnId,
        job: JobId,
        session: &str,
        native: Option<&String>,
    ) {
        let stored = self
            .jobs
            .get(&job)
            .expect("a prompt without a committed job");
        assert!(
            stored.running,
            "{job} was started before its running mark was durable"
        );
        assert!(stored.last.is_none(), "{job} was started after its end");
        let again = stored.request.contains("\"retry\":\"auto\"");
        let times = self.prompts.entry(job).or_default();
        *times += 1;
        self.began.push(job);
        assert!(
            *times == 1 || (again && *times <= 3),
            "{job} ran {times} times"
        );
        if self.sessions.get(session).is_some_and(|row| row.named)
            && let Some((before, at)) =
                (self.holder).insert(session.to_owned(), (me, self.now.mono))
        {
            // One that is reopened by its id leaves a process that it hasn't used for long.
            let left = native.is_some() && self.now.mono - at >= Duration::from_secs(600);
            assert!(
                before == me || left || !self.processes.contains_key(&before),
                "the session {session} is open in two processes"
            );
        }
        process.turns.push(turn);
        process.jobs.push(job);
        process.sessions.insert(session.to_owned());
    }

    /// A turn's session, and the agent's own id of it: never another one's.
    fn carried(&mut self, turn: TurnId, session: &str, native: Option<String>) {
        let other = native.as_ref().and_then(|native| native.split_once('#'));
        assert!(
            other.is_none_or(|(of, _)| of == session),
            "a turn of {session} carries {native:?}"
        );
        self.turns.insert(turn, session.to_owned());
        self.natives.push(native);
    }

    pub fn told(&mut self, worker: WorkerId, generation: Generation, command: WorkerCommand) {
        let Some(mut process) = self.processes.remove(&(worker, generation)) else {
            return;
        };
        match command {
            WorkerCommand::Prompt(prompt) => {
                assert!(process.ready, "a prompt before ready");
                assert!(
                    process.told_to_end.is_none(),
                    "a prompt to a process that was told to end"
                );
                self.texts_told.push(prompt.text.clone());
                process.given.push(Prompt::clone(&prompt));
                if prompt.attachments == Attachments::InStore {
                    self.attached.push(prompt.job);
                }
                self.prompted(
                    &mut process,
                    (worker, generation),
                    prompt.turn,
                    prompt.job,
                    &prompt.session,
                    prompt.native.as_ref(),
                );
                self.carried(prompt.turn, &prompt.session, prompt.native);
                let most = process.takes.concurrent_sends;
                let most = most.unwrap_or(self.at_once[&process.agent]) as usize;
                assert!(process.turns.len() <= most, "too many turns at once");
                assert!(
                    process.takes.cwd_per_turn || process.cwd == prompt.cwd,
                    "a turn in another directory"
                );
            }
            WorkerCommand::Recycle => assert!(process.turns.is_empty(), "recycled in a turn"),
            WorkerCommand::Switch(pins) => {
                assert!(process.turns.is_empty(), "switched in a turn");
                process.switched.push(*pins);
            }
            WorkerCommand::Cancel { turn } => process.cancelled.push(turn),
            WorkerCommand::Probe => {}
            WorkerCommand::Answer { question, reply } => process.heard.push((question, reply)),
            WorkerCommand::Steer { turn, steer, text } => {
                assert!(process.turns.contains(&turn), "a steer of another's turn");
                process.steers.push((steer, text));
            }
            WorkerCommand::Models { number, pins } => {
                assert!(process.ready, "asked for models before it was ready");
                process.listings.push((number, *pins));
            }
            WorkerCommand::Commands { number } => {
                assert!(process.ready, "asked for commands before it was ready");
                process.listings.push((number, Pins::default()));
            }
            WorkerCommand::Compact { session, .. } => {
                assert!(process.turns.is_empty(), "compacted in a turn");
                process.compacting = Some(session);
            }
        }
        self.processes.insert((worker, generation), process);
    }

    pub fn worker(&mut self, (worker, generation): (WorkerId, Generation), event: WorkerEvent) {
        self.event(Event::Worker {
            worker,
            generation,
            event,
        });
    }

    pub fn get_ready(&mut self, process: (WorkerId, Generation)) {
        self.get_ready_as(process, Traits::default());
    }

    /// A process gets ready and says what it can do.
    pub fn get_ready_as(&mut self, process: (WorkerId, Generation), traits: Traits) {
        let Some(known) = self.processes.get_mut(&process) else {
            return;
        };
        if !known.ready {
            known.takes = traits.clone();
        }
        known.ready = true;
        let (worker, generation) = process;
        self.event(Event::Spawned {
            worker,
            generation,
            pid: 100 + u32::try_from(worker.0).unwrap(),
        });
        self.worker(process, WorkerEvent::Ready(traits));
    }

    /// Facts of a peer that runs inside a worker's process.
    pub fn inside((worker, _): (WorkerId, Generation)) -> RequestContext {
        Self::descends_from(vec![7, 100 + u32::try_from(worker.0).unwrap(), 1])
    }

    pub fn descends_from(ancestry: Vec<u32>) -> RequestContext {
        RequestContext {
            descent: Descent {
                ancestry,
                marked: false,
                unseen: false,
            },
            ..RequestContext::default()
        }
    }

    /// Every process gets ready and ends its turns, until none has any.
    pub fn work(&mut self) {
        for _ in 0..100 {
            let processes: Vec<_> = self.processes.keys().copied().collect();
            for process in processes {
                match self.processes.get(&process) {
                    Some(known) if !known.ready => self.get_ready(process),
                    // It may have been asked whether it still lives.
                    Some(_) => self.worker(process, WorkerEvent::Ready(Traits::default())),
                    None => {}
                }
                self.end_turn(process);
            }
        }
    }

    /// The worker ends its oldest turn.
    pub fn end_turn(&mut self, process: (WorkerId, Generation)) {
        let Some(known) = self.processes.get_mut(&process) else {
            return;
        };
        if known.turns.is_empty() {
            return;
        }
        let turn = known.turns.remove(0);
        let per_turn = known.per_turn;
        let outcome = Box::new(Outcome::ended(Stop::EndTurn));
        self.worker(process, WorkerEvent::Ended { turn, outcome });
        if per_turn {
            self.exit(process, Exit::Code(0));
        }
    }

    /// Takes the look that was asked for, if one was.
    pub fn take_look(&mut self) {
        assert!(self.looks <= 1, "a look is asked for while one is taken");
        if std::mem::take(&mut self.looks) == 1 {
            let agents = std::mem::take(&mut self.to_find);
            let looked_for = "Looked for: everything".to_owned();
            self.event(Event::AgentsFound { agents, looked_for });
        }
    }

    /// Takes the look at the machine that was asked for, if one was.
    pub fn look_at_machine(&mut self) {
        assert!(
            self.machine_asked <= 1,
            "it is looked at while it is looked at"
        );
        if std::mem::take(&mut self.machine_asked) == 1 {
            self.event(Event::MachineSeen(self.machine.clone()));
        }
    }

    /// No process came of it.
    pub fn spawn_fails(&mut self, process: (WorkerId, Generation), fault: Fault) {
        if let Some(known) = self.processes.remove(&process) {
            if matches!(fault, Fault::Missing | Fault::Short) {
                // Nobody ran them.
                let unrun = known.jobs.iter();
                unrun.for_each(|job| *self.prompts.entry(*job).or_insert(1) -= 1);
            }
            let (worker, generation) = process;
            self.event(Event::SpawnFailed {
                worker,
                generation,
                error: "why".to_owned(),
                fault,
            });
        }
    }

    pub fn exit(&mut self, process: (WorkerId, Generation), exit: Exit) {
        if self.processes.remove(&process).is_some() {
            let (worker, generation) = process;
            self.event(Event::Exited {
                worker,
                generation,
                exit,
                tail: "its last words".to_owned(),
            });
        }
    }
}
