//! What is asked in a run: prompts for the chaos worker, sessions, and who may try again.
//!
//! Owns the mix, which a seed decides. Must not know connections.

use serde_json::{Value, json};

use crate::history::Retry;
use crate::random::Random;

/// Sessions that several clients use, each with its agent.
const SHARED: &[(&str, &str)] = &[
    ("shared-0", "chaos"),
    ("shared-1", "chaos-many"),
    ("shared-2", "chaos"),
    ("shared-3", "chaos-one"),
];

/// The names of all sessions that so many clients use.
pub(crate) fn sessions(clients: u64) -> impl Iterator<Item = String> {
    let shared = SHARED.iter().map(|(name, _)| (*name).to_owned());
    shared.chain((1..=clients).map(own))
}

/// The name of a session that several clients use.
pub(crate) fn shared() -> String {
    SHARED[0].0.to_owned()
}

fn own(client: u64) -> String {
    format!("own-{client}")
}

/// Scripts by how often they are wanted. `NONCE` is said first, as its answer is known by it.
const SCRIPTS: &[(u64, &str)] = &[
    (40, "say NONCE;ledger NONCE;emit 9"),
    (14, "ledger NONCE;say NONCE;tool rw;emit 3;tool ro"),
    (18, "say NONCE;ledger NONCE;emit 5;sleep-ms 30;say end"),
    (6, "say NONCE;ledger NONCE;sleep-ms 120;tool rw"),
    (4, "say NONCE;ledger NONCE;emit 3000;tool ro;emit 50"),
    (4, "junk 3;utf8bad;say NONCE;ledger NONCE;stderr-flood 4"),
    (2, "say NONCE;ledger NONCE;stale-id;two-finals"),
    (2, "say NONCE;ledger NONCE;setsid"),
    (1, "say NONCE;ledger NONCE;fork-hold"),
    (2, "say NONCE;ledger NONCE;flood 1;say end"),
    (2, "say NONCE;ledger NONCE;wrong-session;emit 2"),
];
/// The same for those that end their worker or leave it useless. Each of these costs the worker of
/// others, too, and five deaths stop an agent for ten minutes.
const DEADLY: &[(u64, &str)] = &[
    (3, "say NONCE;ledger NONCE;exit 9"),
    (3, "say NONCE;ledger NONCE;signal 9"),
    (1, "say NONCE;ledger NONCE;partial-exit"),
    (1, "say NONCE;ledger NONCE;stop"),
    (1, "say NONCE;ledger NONCE;hang"),
    (1, "say NONCE;ledger NONCE;partial"),
];
/// Seconds for a turn that won't end by itself.
const TURN_TIMEOUT: u64 = 1;

/// A `send` that may be asked again, until its end is known.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) nonce: String,
    pub(crate) key: Option<String>,
    pub(crate) retry: Retry,
    pub(crate) session: Option<String>,
    pub(crate) agent: &'static str,
    pub(crate) text: String,
    /// Who is told of the end.
    callback: Option<String>,
    timeout: Option<u64>,
    /// Where it is to work, if not where its agent would.
    cwd: Option<String>,
}

impl Request {
    pub(crate) fn line(&self, id: u64) -> Value {
        let mut line = self.item();
        line["type"] = json!("send");
        line["id"] = json!(id);
        line
    }

    /// The same as one of a `dispatch`.
    pub(crate) fn item(&self) -> Value {
        let mut line = json!({"agent": self.agent, "text": self.text});
        if let Some(session) = &self.session {
            line["session"] = json!(session);
        }
        if let Some(key) = &self.key {
            line["idempotency_key"] = json!(key);
        }
        if self.retry == Retry::Auto {
            line["retry"] = json!("auto");
        }
        if let Some(timeout) = self.timeout {
            line["timeout"] = json!(timeout);
        }
        if let Some(cwd) = &self.cwd {
            line["cwd"] = json!(cwd);
        }
        if let Some(url) = &self.callback {
            line["callback"] = json!({"url": url});
        }
        line
    }
}

/// How rough the turns of a run are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mix {
    /// Some end their workers.
    Deadly,
    /// All of them end by themselves.
    Gentle,
}

/// What one client asks, one after the other.
#[derive(Debug)]
pub(crate) struct Work {
    client: u64,
    count: u64,
    mix: Mix,
    receiver: Option<String>,
    directory: Option<String>,
    random: Random,
}

impl Work {
    pub(crate) fn new(client: u64, mix: Mix, random: Random) -> Self {
        Self {
            client,
            count: 0,
            mix,
            receiver: None,
            directory: None,
            random,
        }
    }

    /// The same with a receiver that is told of some ends.
    pub(crate) fn telling(self, receiver: &str) -> Self {
        Self {
            receiver: Some(receiver.to_owned()),
            ..self
        }
    }

    /// The same with a directory for some turns, that may not answer.
    pub(crate) fn visiting(self, directory: Option<String>) -> Self {
        Self { directory, ..self }
    }

    pub(crate) fn next(&mut self) -> Request {
        self.count += 1;
        let nonce = format!("{}-{}", self.client, self.count);
        let deadly = self.mix == Mix::Deadly && self.random.percent(2);
        let script = weighted(if deadly { DEADLY } else { SCRIPTS }, &mut self.random);
        // Half a line would spoil a line of another turn in the same process.
        let (session, agent) = if script.contains("partial") {
            (None, "chaos")
        } else {
            self.place()
        };
        // A session stays where it began.
        let visits = session.is_none() && self.random.percent(10);
        Request {
            cwd: self.directory.clone().filter(|_| visits),
            key: (!self.random.percent(3)).then(|| nonce.clone()),
            retry: if self.random.percent(20) {
                Retry::Auto
            } else {
                Retry::Never
            },
            session,
            agent,
            text: format!("chaos: {}", script.replace("NONCE", &format!("<{nonce}>"))),
            callback: self.receiver.clone().filter(|_| self.random.percent(25)),
            timeout: deadly.then_some(TURN_TIMEOUT),
            nonce,
        }
    }

    /// The same for a program, that is a turn in a session of its own and has a key.
    pub(crate) fn next_alone(&mut self) -> Request {
        let request = self.next();
        Request {
            key: Some(request.nonce.clone()),
            session: None,
            agent: "chaos",
            ..request
        }
    }

    /// The same for one of a `dispatch`, that has a key.
    pub(crate) fn next_dispatched(&mut self) -> Request {
        let request = self.next();
        Request {
            key: Some(request.nonce.clone()),
            ..request
        }
    }

    fn place(&mut self) -> (Option<String>, &'static str) {
        match self.random.below(100) {
            0..40 => {
                let (name, agent) = self.random.one_of(SHARED);
                (Some((*name).to_owned()), agent)
            }
            40..60 => (Some(own(self.client)), "chaos"),
            60..65 => (None, "chaos-one"),
            65..80 => (None, "chaos-many"),
            _ => (None, "chaos"),
        }
    }
}

fn weighted(all: &[(u64, &'static str)], random: &mut Random) -> &'static str {
    let sum = all.iter().map(|(weight, _)| weight).sum();
    let mut left = random.below(sum);
    for (weight, script) in all {
        match left.checked_sub(*weight) {
            Some(rest) => left = rest,
            None => return script,
        }
    }
    unreachable!("what is below the sum falls into one of its parts")
}
