//! What an event costs the owner while very many turns wait.
//!
//! Owns a store and agents that answer at once, and the processor time of the core between them.
//! Must not know how the core finds what may start.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use agentd_core::ids::{Generation, Now, TurnId, WorkerId};
use agentd_core::store::{
    Due, JobRow, JobState, LeftJob, Pins, Recovered, SessionRow, SoFar, Stored, Write, Written,
};
use agentd_core::worker::{Exit, Outcome, Traits, WorkerCommand, WorkerEvent};
use agentd_core::{Effect, Event, State, Terms};
use agentd_protocol::JobId;
use agentd_protocol::line::Stop;
use nix::time::ClockId;

use crate::report::{Figure, Limit};

#[path = "../../daemon/core/tests/core/agents.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "what the core's tests need of it"
)]
mod agents;

/// More than have their turn while it is measured.
const FEW: usize = 5_000;
const MANY: usize = 100_000;
/// That are measured.
const EVENTS: u32 = 5_000;
/// Until what waits is known and the first processes are there.
const BEFORE: usize = 50;
const REQUEST: &str = r#"{"text":"x"}"#;
/// Of the agents: a session for each process, many in one, a process for each turn.
const AGENTS: [&str; 3] = ["one", "many", "turn"];

/// The core with everything around it that it waits for.
struct Around {
    state: State,
    now: Now,
    coming: VecDeque<Event>,
    effects: Vec<Effect>,
    seq: u64,
}

impl Around {
    /// So many turns wait, each in a session of its own, when a daemon starts.
    fn new(agent: &str, waiting: usize) -> Self {
        let left = |n: usize| LeftJob {
            row: JobRow {
                job: JobId(n as u64 + 1),
                seq: n as u64 + 1,
                session: format!("s{n}"),
                agent: agent.to_owned(),
                cancelled: false,
                state: JobState::Queued {
                    expires: Due {
                        wall_ms: i64::MAX,
                        boot_ms: Some(u64::MAX),
                    },
                    start: None,
                    held: false,
                    attempt: 0,
                },
                routed: None,
            },
            terms: Terms::read(REQUEST).map(Arc::new),
            so_far: SoFar::default(),
        };
        let session = |n: usize| SessionRow {
            name: format!("s{n}"),
            agent: agent.to_owned(),
            cwd: "/".to_owned(),
            real_cwd: None,
            toolsets: None,
            system: None,
            mcp_servers: agentd_core::mcp::McpServers::default(),
            named: true,
            native: None,
            forks: None,
            turns: 0,
            pins: Pins::default(),
            lost: false,
        };
        let recovered = Recovered {
            instance: "i".to_owned(),
            sessions: (0..waiting).map(session).collect(),
            jobs: (0..waiting).map(left).collect(),
            holders: Vec::new(),
            last_seq: 0,
        };
        let gone = Event::InstanceGone {
            instance: "i".to_owned(),
            survivors: Vec::new(),
        };
        Self {
            state: State::new(agents::settings()),
            now: Now::default(),
            coming: VecDeque::from([Event::Recovered(Box::new(recovered)), gone]),
            effects: Vec::new(),
            seq: waiting as u64,
        }
    }

    /// Microseconds of this thread's processor time per event, once all that wait are known.
    fn cost(&mut self) -> f64 {
        for _ in 0..BEFORE {
            self.step();
        }
        let spent = (0..EVENTS).map(|_| self.step());
        spent.sum::<Duration>().as_secs_f64() * 1e6 / f64::from(EVENTS)
    }

    fn step(&mut self) -> Duration {
        let event = self.coming.pop_front().unwrap_or(Event::Ticked);
        let mut effects = std::mem::take(&mut self.effects);
        let begun = spent();
        self.state.apply(self.now, event, &mut effects);
        let took = spent() - begun;
        for effect in effects.drain(..) {
            self.answer(effect);
        }
        self.effects = effects;
        // More than the rate of spawns needs.
        self.now.mono += Duration::from_millis(50);
        took
    }

    fn answer(&mut self, effect: Effect) {
        match effect {
            Effect::Commit { token, writes, .. } => {
                let written = writes.into_iter().map(|write| self.write(&write));
                let stored = Stored::Committed(written.collect());
                self.coming.push_back(Event::Stored { token, stored });
            }
            Effect::Spawn {
                worker,
                generation,
                spawn,
            } => match spawn.prompt {
                Some(prompt) => {
                    self.ends(worker, generation, prompt.turn);
                    self.exits(worker, generation);
                }
                None => self.coming.push_back(Event::Spawned {
                    worker,
                    generation,
                    pid: 1,
                }),
            },
            Effect::Tell {
                worker,
                generation,
                command,
            } => match command {
                WorkerCommand::Probe => {
                    let ready = WorkerEvent::Ready(Traits::default());
                    self.says(worker, generation, ready);
                }
                WorkerCommand::Recycle => self.says(worker, generation, WorkerEvent::Recycled),
                WorkerCommand::Prompt(prompt) => self.ends(worker, generation, prompt.turn),
                _ => {}
            },
            Effect::End {
                worker, generation, ..
            } => self.exits(worker, generation),
            _ => {}
        }
    }

    fn write(&mut self, write: &Write) -> Written {
        self.seq += 1;
        let seq = self.seq;
        match write {
            Write::Start { .. } => Written::Started {
                seq,
                request: REQUEST.to_owned(),
            },
            Write::Finish { .. } | Write::Event { .. } => Written::Numbered { seq },
            _ => Written::Done,
        }
    }

    fn says(&mut self, worker: WorkerId, generation: Generation, event: WorkerEvent) {
        self.coming.push_back(Event::Worker {
            worker,
            generation,
            event,
        });
    }

    fn ends(&mut self, worker: WorkerId, generation: Generation, turn: TurnId) {
        let outcome = Box::new(Outcome::ended(Stop::EndTurn));
        self.says(worker, generation, WorkerEvent::Ended { turn, outcome });
    }

    fn exits(&mut self, worker: WorkerId, generation: Generation) {
        self.coming.push_back(Event::Exited {
            worker,
            generation,
            exit: Exit::Code(0),
            tail: String::new(),
        });
    }
}

fn spent() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().into()
}

pub(crate) fn events(repetitions: usize) -> Vec<Figure> {
    let dearest = |waiting: usize| {
        let costs = AGENTS.map(|agent| Around::new(agent, waiting).cost());
        costs.into_iter().fold(0.0, f64::max)
    };
    let (control, ours): (Vec<f64>, Vec<f64>) = (0..repetitions)
        .map(|_| (dearest(FEW), dearest(MANY)))
        .unzip();
    let figure = |name, limit| Figure {
        name,
        unit: "us",
        control: control.clone(),
        ours: ours.clone(),
        limit,
        aside: format!("{MANY} waiting; control: {FEW}"),
    };
    vec![
        figure("scheduler-event", Limit::Alone(50.0)),
        figure("scheduler-waiting", Limit::Ratio(3.0)),
    ]
}
