//! Every limit of the core, with its reason. The numbers are those of the architecture's table.

use std::time::Duration;

use agentd_protocol::limits::{MAX_QUESTION_DETAIL, MAX_QUESTION_TITLE};

/// Sends in flight per connection: a script that dispatches more uses several or waits.
pub const SENDS_PER_CONNECTION: usize = 64;

/// Waiting turns of one session: more is a runaway loop.
pub const QUEUED_PER_SESSION: usize = 256;

/// Waiting turns in all: at about half a KiB each, 50 MiB, as their texts are in the store.
pub const QUEUED_IN_ALL: usize = 100_000;

/// Jobs in all whose time to start has not come: they take the room of no turn that could run.
pub const SCHEDULED_IN_ALL: usize = 10_000;

/// Bytes that waiting turns take in memory: as many as there may be, of some 500 bytes each, and as
/// much again for those that are on their way to the store.
pub const QUEUED_BYTES: usize = 128 * 1024 * 1024;

/// What the maps take in which a job has its place, about.
pub const JOB_PLACES: usize = 256;

/// Jobs whose terms are compared with a new one's: senders of many sorts at once are few.
pub const SHARED_TERMS: usize = 16;

/// Bytes of requests that wait until the store has said what it knows of their sessions: it answers
/// within milliseconds, so this is a store that is stuck.
pub const PARKED_BYTES: usize = 32 * 1024 * 1024;

/// Bytes on their way to readers that don't take them: as much as a thousand may have each.
pub const UNSENT_BYTES: usize = 256 * 1024 * 1024;

/// Commits outstanding before sends are refused: the disk is stuck.
pub const COMMITS_OUTSTANDING: usize = 4_096;

/// Turns that end in one event, and marks that one commit of an `abort` holds: what fails, expires or
/// is aborted together may be all that waits, each end is a commit, and others wait for it.
pub const ENDED_AT_ONCE: usize = 256;

/// Final lines of those on their way to the store: more would make others wait behind them.
pub const ENDS_IN_FLIGHT: usize = 4 * ENDED_AT_ONCE;

/// Numbered events of one process that the store has not answered, before its output is read no
/// more: with [`MAX_WORKERS`] of them half of what may be outstanding in all.
pub const EVENTS_UNSTORED: usize = 128;

/// With so many left it is read again: not for each of them.
pub const EVENTS_READ_AGAIN: usize = 32;

/// A turn whose end the store could not take is ended again after this time.
pub const FINISH_AGAIN: Duration = Duration::from_secs(5);

/// Jobs of one `collect`, as many as a `dispatch` makes.
pub const COLLECT_JOBS: usize = 256;

/// Bytes a reader may lie behind before it is refilled from the store.
pub const READER_QUEUE: usize = 256 * 1024;

/// Sessions that nobody named which one process goes on knowing without being kept for them: a person
/// goes on with one of the last, and a script may begin thousands.
pub const LINGERING_SESSIONS: usize = 32;

/// Processes at most: an agent takes 100 to 300 MB.
pub const MAX_WORKERS: usize = 16;

/// Spawns so far apart in all, on and on, but for processes that have ended a turn well: that protects
/// the machine and the model's API from a crash loop …
pub const SPAWN_EVERY: Duration = Duration::from_millis(100);

/// … and so many at once after a time without: sessions that begin together wait for none, twice as
/// many as there may be processes.
pub const SPAWNS_AT_ONCE: usize = 2 * MAX_WORKERS;

/// Running time of a turn that names none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Waiting time of a turn that names none.
pub const DEFAULT_EXPIRES: Duration = Duration::from_secs(3600);

/// A turn's output in all (text, thinking, tools), in bytes: more is a loop.
pub const OUTPUT_PER_TURN: usize = 64 * 1024 * 1024;

/// Each thing a turn says costs so much of that besides its text: a line is more than its text.
pub const EVENT_BYTES: usize = 256;

/// Longest name or id that is kept of a worker: of a tool, a call, a model, a provider.
pub const NAME_BYTES: usize = 1024;

/// Files that one tool call is said to be about, and to change.
pub const TOOL_LOCATIONS: usize = 16;

/// All calls of models in a final line: it holds 1 MiB, and the text and the tools have their parts.
pub const API_CALLS_BYTES: usize = 64 * 1024;

/// Of the messages that a final line lists, as encoded: half of what its trace of tools may have.
pub const MESSAGES_BYTES: usize = 128 * 1024;

/// First restart delay; doubles with each death in a row.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(500);

/// Longest restart delay.
pub const BACKOFF_MOST: Duration = Duration::from_secs(60);

/// A process healthy this long restarts at once, and its deaths before don't count.
pub const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// So many deaths …
pub const BREAKER_DEATHS: usize = 5;

/// … within this time open the breaker,
pub const BREAKER_WINDOW: Duration = Duration::from_secs(180);

/// and so do so many …
pub const BREAKER_EARLY_DEATHS: usize = 3;

/// … within this time of their start.
pub const BREAKER_EARLY: Duration = Duration::from_secs(10);

/// Sends that have ended whose ids a connection's `abort` may still name.
pub const ENDED_SENDS: usize = 64;

/// A new spare process waits for the turn that took the last one, at most this long: starting an
/// agent takes a core for a second.
pub const SPARE_WAITS: Duration = Duration::from_secs(3);

/// Spares that nobody configured take this part of the machine's memory together, unless
/// `[pool] memory` says otherwise: on 8 GiB three of Claude Code's size, or seven of Codex's.
pub const SPARE_SHARE: u64 = 8;

/// One of which no process was measured yet counts as this much; most agents take less.
pub const SPARE_UNMEASURED: u64 = 256 << 20;

/// They leave at least this part of the memory to whatever else may come.
pub const SPARE_LEAVES: u64 = 10;

/// While programs wait for memory for this many percent of the time there are none.
pub const SPARE_STALLS: u32 = 10;

/// While there are any, or should be, the machine is looked at this often.
pub const MACHINE_EVERY: Duration = Duration::from_secs(30);

/// A look at it is good for so long when one is to be started.
pub const MACHINE_HOLDS: Duration = Duration::from_secs(10);

/// One that died unused is started again after this time, and twice that each time after …
pub const SPARE_AGAIN: Duration = Duration::from_secs(10);

/// … up to this.
pub const SPARE_AGAIN_MOST: Duration = Duration::from_secs(600);

/// It lets so much time go by after a turn, too: the final line is written and told in it, and what
/// an agent has yet to do after its turn.
pub const SPARE_LETS: Duration = Duration::from_millis(50);

/// The first process of an agent that may take many turns at once has so long to say how many, before
/// one more is started for others that wait.
pub const SAYS_WITHIN: Duration = Duration::from_secs(1);

/// A turn that has waited for room so long has a shared process of another agent take no new ones …
pub const MAKES_WAY_AFTER: Duration = Duration::from_secs(5);

/// … for so long at a time: its turns may go on for an hour.
pub const MAKES_WAY_FOR: Duration = Duration::from_secs(10);

/// An open breaker lets one probe through after this time.
pub const BREAKER_RETRY: Duration = Duration::from_secs(600);

/// An agent's program that isn't there is looked for so often: an upgrade moves it away and back.
pub const MISSING_LOOK: Duration = Duration::from_millis(500);

/// Turns wait so long for a program that isn't there; who comes later is told at once.
pub const MISSING_WAITS: Duration = Duration::from_secs(10);

/// Turns wait so long for a machine that is short of processes, memory or descriptors: whoever took
/// them all is ended by then, or nobody ends it.
pub const SHORT_WAITS: Duration = Duration::from_secs(60);

/// After that it is tried again after so long, for whoever asks.
pub const MISSING_RETRY: Duration = Duration::from_secs(2);

/// Between two looks at which agents there are: each goes through all directories of PATH. Whoever
/// has just mended one and sends again waits so long at most.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Each rung of the stop ladder, and each of settling, gets this long.
pub const RUNG: Duration = Duration::from_secs(5);

/// A worker idle longer than this is asked right before its next turn …
pub const PROBE_AFTER: Duration = Duration::from_secs(15);

/// … and has this long to answer.
pub const PROBE_WITHIN: Duration = Duration::from_secs(2);

/// No progress for this long is noted.
pub const STALLED_AFTER: Duration = Duration::from_secs(600);

/// A process that can take no new turns is ended after this time at the latest.
pub const RETIRE_WITHIN: Duration = Duration::from_secs(30);

/// Text of a turn that was told is on the disk after this time …
pub const TEXT_STORED_WITHIN: Duration = Duration::from_millis(250);

/// … of which it is kept back for so long here, and for the rest of it in the store's queue …
pub const TEXT_FLUSH_AFTER: Duration = Duration::from_millis(150);

/// … or until it is this many bytes.
pub const TEXT_FLUSH_BYTES: usize = 4 * 1024;

/// Text of one turn on its way to the store; more waits in the turn, which has it anyway. Twice what
/// the store writes at once, so that it need not wait.
pub const TEXT_ON_ITS_WAY: usize = 2 * 1024 * 1024;

/// Text of one turn that isn't on its way yet, before its process's output is read no more: it is
/// written with the turn's end at the latest, and others wait for that commit …
pub const TEXT_UNSTORED: usize = 2 * TEXT_ON_ITS_WAY;

/// … and with so much left it is read again.
pub const TEXT_READ_AGAIN: usize = TEXT_ON_ITS_WAY / 2;

/// A turn's text up to this size is written once more with its end, as a whole.
pub const TEXT_REWRITTEN: usize = 512 * 1024;

/// Whoever waits for a store that can't say what it wrote is let go after this time.
pub const DOUBT_WITHIN: Duration = Duration::from_secs(10);

/// Running turns get this long when the daemon stops and nobody says how long; then a rung more, and
/// their processes are killed: 15 s in all, of those that a service manager waits.
pub const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Before a stop that others follow, whoever was let in says what it wants within this time.
pub const SERVED_BEFORE_A_STOP: Duration = Duration::from_millis(100);

/// `drain` without a deadline.
pub const DRAIN_WITHIN: Duration = Duration::from_secs(600);

/// Attempts of a turn with `retry: auto`.
pub const ATTEMPTS: u32 = 3;

/// Questions open in one session; the next is dismissed.
pub const QUESTIONS_PER_SESSION: usize = 16;

/// A question waits no longer for its answer: who comes back later finds a turn that went on. No
/// longer than [`STALLED_AFTER`], so that a turn that asks is not called stalled.
pub const QUESTION_WAITS: Duration = Duration::from_secs(600);

/// Closed questions that are remembered, to tell who comes late from who is wrong.
pub const QUESTIONS_CLOSED: usize = 1024;

/// Longest title, detail and list of options of a question, as encoded bytes: sixteen of a session
/// fit into a line.
pub const QUESTION_TITLE: usize = MAX_QUESTION_TITLE;

/// See [`QUESTION_TITLE`].
pub const QUESTION_DETAIL: usize = MAX_QUESTION_DETAIL;

/// See [`QUESTION_TITLE`]. Longer lists can't be cut, as the answer is one of them.
pub const QUESTION_OPTIONS: usize = 16 * 1024;

/// Steers of a running turn that its agent has not taken; one more is a loop.
pub const STEERS_PER_TURN: usize = 16;

/// Models that are told of one agent: those of all providers that anybody has are fewer.
pub const MODELS_TOLD: usize = 10_000;

/// Slash commands that are told of one agent, likewise; there are no pages of them.
pub const COMMANDS_TOLD: usize = 1000;

/// Of one page of either, as encoded: half of what a line takes.
pub const MODELS_PAGE: usize = 512 * 1024;

/// Whoever asks for an agent's models hears of them, or why not, within this time, with the start of
/// a process if none lives: less than clients wait for what runs programs (30 s).
pub const MODELS_WITHIN: Duration = Duration::from_secs(25);

/// An agent that is there says which models it has, or doesn't know the question.
pub const MODELS_ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// An agent that shortens its memory calls a model: as long as a model may take.
pub const COMPACTS_WITHIN: Duration = Duration::from_secs(600);

/// A worker that retries starting permanently: `EX_CONFIG`, and s6's permanent failure.
pub const PERMANENT_EXITS: [i32; 2] = [78, 125];

/// A script whose program or interpreter isn't there, or may not be run (POSIX, `sh` and `env`).
pub const MISSING_EXITS: [i32; 2] = [126, 127];

/// Jobs that agents made out of jobs: so deep an agent may delegate.
pub const DELEGATION_DEPTH: usize = 3;
