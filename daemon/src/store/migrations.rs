//! How the tables came to be what they are, one script per version.
//!
//! Owns the scripts: a new one is added, one that was released is never edited. Must not know who
//! runs them; they run in one transaction, without regard to references between tables.

use std::borrow::Cow;

/// Each entry leads from the version that is its index to the next one.
pub(super) const MIGRATIONS: &[&str] = &[
    VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6, VERSION_7, VERSION_8,
    VERSION_9, VERSION_10, VERSION_11, VERSION_12, VERSION_13, VERSION_14,
];

/// What is known here. A build that can be made to fail can be the next version, too.
pub(super) fn known() -> Cow<'static, [&'static str]> {
    wrong!("next-version", {
        const NEXT: &str = "ALTER TABLE jobs ADD COLUMN of_the_next_version TEXT;";
        return [MIGRATIONS, &[NEXT]].concat().into();
    });
    MIGRATIONS.into()
}

/// Versions to which a script leads that only adds what is filled later: no copy is made before it,
/// and it takes no longer in a large store than in a small one.
pub(super) const ADDED_TO: &[usize] = &[7, 8, 9, 10, 11, 13, 14];

const VERSION_1: &str = "
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('epoch', lower(hex(randomblob(8))));

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    cwd TEXT NOT NULL,
    toolsets TEXT,
    named INTEGER NOT NULL,
    native TEXT,
    turns INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,
    instance TEXT,
    last_seq INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_leased ON sessions (instance) WHERE instance IS NOT NULL;

-- A row is its job's `accepted` event, and with `final` its last one too.
CREATE TABLE jobs (
    job INTEGER PRIMARY KEY AUTOINCREMENT,
    seq INTEGER NOT NULL UNIQUE,
    session_seq INTEGER NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (id),
    request TEXT NOT NULL,
    key TEXT UNIQUE,
    hash BLOB NOT NULL,
    state TEXT NOT NULL CHECK
        (state IN ('queued', 'running', 'completed', 'cancelled', 'failed', 'interrupted')),
    instance TEXT NOT NULL,
    worker INTEGER,
    generation INTEGER,
    attempt INTEGER NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0,
    accepted_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    finished_at INTEGER,
    final TEXT,
    final_seq INTEGER UNIQUE,
    final_session_seq INTEGER
) STRICT;
CREATE INDEX jobs_unfinished ON jobs (instance, job) WHERE final_seq IS NULL;
CREATE INDEX jobs_waiting ON jobs (session) WHERE final_seq IS NULL;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    session_seq INTEGER NOT NULL,
    job INTEGER NOT NULL REFERENCES jobs (job) ON DELETE CASCADE,
    line TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_job ON events (job, seq);

-- Pieces while the turn is in flight, one row per message and kind afterwards.
CREATE TABLE texts (
    job INTEGER NOT NULL REFERENCES jobs (job) ON DELETE CASCADE,
    message INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    at INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (job, message, kind, at)
) STRICT, WITHOUT ROWID;
";

/// Times by the clock of a boot, labels, parents, held jobs, a session's model, lists.
///
/// What an accept writes is a row, its number and its place among the unfinished jobs: every other
/// index is of ended jobs, or of those that have what it is about. Long columns come last, so that
/// nothing else has to be read past them. No constraint leads from jobs to sessions: forgetting a
/// session would look through all jobs.
const VERSION_2: &str = "
CREATE TABLE jobs_2 (
    job INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    state TEXT NOT NULL CHECK
        (state IN ('queued', 'running', 'completed', 'cancelled', 'failed', 'interrupted')),
    held INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL,
    at_once INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    instance TEXT NOT NULL,
    worker INTEGER,
    generation INTEGER,
    parent INTEGER,
    accepted_at INTEGER NOT NULL,
    finished_at INTEGER,
    final_seq INTEGER,
    expires_at INTEGER NOT NULL,
    start_at INTEGER,
    boot TEXT,
    expires_boot INTEGER,
    start_boot INTEGER,
    key TEXT,
    hash BLOB,
    labels TEXT,
    request TEXT NOT NULL,
    final TEXT
) STRICT;
INSERT INTO jobs_2 (job, seq, session, state, held, attempt, cancelled, instance, worker,
        generation, accepted_at, finished_at, final_seq, expires_at, key, hash, request, final)
    SELECT job, seq, session, state,
        state = 'queued' AND final_seq IS NULL
            AND session IN (SELECT id FROM sessions WHERE held),
        attempt, cancelled, instance, worker, generation, accepted_at,
        max(finished_at, accepted_at), final_seq, expires_at, key,
        CASE WHEN key IS NOT NULL THEN hash END, request, final
    FROM jobs ORDER BY job;
DROP TABLE jobs;
ALTER TABLE jobs_2 RENAME TO jobs;
CREATE UNIQUE INDEX jobs_keyed ON jobs (key) WHERE key IS NOT NULL;
CREATE INDEX jobs_unfinished ON jobs (session) WHERE final_seq IS NULL;
CREATE UNIQUE INDEX jobs_ended ON jobs (final_seq) WHERE final_seq IS NOT NULL;
CREATE INDEX jobs_ended_at ON jobs (finished_at) WHERE final_seq IS NOT NULL;
CREATE INDEX jobs_ended_so ON jobs (state) WHERE final_seq IS NOT NULL;
CREATE INDEX jobs_ended_in ON jobs (session) WHERE final_seq IS NOT NULL;
CREATE INDEX jobs_of_parent ON jobs (parent) WHERE parent IS NOT NULL;

CREATE TABLE labels (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    job INTEGER NOT NULL REFERENCES jobs (job) ON DELETE CASCADE,
    PRIMARY KEY (key, value, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_of_job ON labels (job);

ALTER TABLE events DROP COLUMN session_seq;
ALTER TABLE sessions DROP COLUMN last_seq;
ALTER TABLE sessions DROP COLUMN held;
ALTER TABLE sessions ADD COLUMN provider TEXT;
ALTER TABLE sessions ADD COLUMN model TEXT;
ALTER TABLE sessions ADD COLUMN thinking TEXT;
";

/// The states spelled out: a list of six is a table of its own, made anew for each row that is
/// written, which cost a fifth of an accept.
const VERSION_3: &str = "
CREATE TABLE jobs_3 (
    job INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    state TEXT NOT NULL CHECK
        (state = 'queued' OR state = 'running' OR state = 'completed' OR state = 'cancelled'
            OR state = 'failed' OR state = 'interrupted'),
    held INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL,
    at_once INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    instance TEXT NOT NULL,
    worker INTEGER,
    generation INTEGER,
    parent INTEGER,
    accepted_at INTEGER NOT NULL,
    finished_at INTEGER,
    final_seq INTEGER,
    expires_at INTEGER NOT NULL,
    start_at INTEGER,
    boot TEXT,
    expires_boot INTEGER,
    start_boot INTEGER,
    key TEXT,
    hash BLOB,
    labels TEXT,
    request TEXT NOT NULL,
    final TEXT
) STRICT;
INSERT INTO jobs_3 SELECT * FROM jobs ORDER BY job;
DROP TABLE jobs;
ALTER TABLE jobs_3 RENAME TO jobs;
CREATE UNIQUE INDEX jobs_keyed ON jobs (key) WHERE key IS NOT NULL;
CREATE INDEX jobs_unfinished ON jobs (session) WHERE final_seq IS NULL;
CREATE UNIQUE INDEX jobs_ended ON jobs (final_seq) WHERE final_seq IS NOT NULL;
CREATE INDEX jobs_ended_at ON jobs (finished_at) WHERE final_seq IS NOT NULL;
CREATE INDEX jobs_ended_so ON jobs (state) WHERE final_seq IS NOT NULL;
CREATE INDEX jobs_ended_in ON jobs (session) WHERE final_seq IS NOT NULL;
CREATE INDEX jobs_of_parent ON jobs (parent) WHERE parent IS NOT NULL;
";

/// Sessions that lost turns; and the contents of attachments, in a table of their own: a job without
/// any costs what it did, and no list reads past them. What they are is in the job's request. With a
/// rowid, as it keeps long rows out of the tree that is searched.
const VERSION_4: &str = "
ALTER TABLE sessions ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;

CREATE TABLE attachments (
    job INTEGER NOT NULL REFERENCES jobs (job) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (job, place)
) STRICT;
";

/// Fewer pages for the end of a job, each of which is synced while its sender waits. What ended
/// when is told by the index of the order in which it did, and one of states needs no completed
/// ones: most are.
const VERSION_5: &str = "
DROP INDEX jobs_ended;
DROP INDEX jobs_ended_at;
DROP INDEX jobs_ended_so;
CREATE INDEX jobs_ended ON jobs (final_seq, finished_at) WHERE final_seq IS NOT NULL;
CREATE INDEX jobs_ended_badly ON jobs (state)
    WHERE final_seq IS NOT NULL AND state <> 'completed';
";

/// Deliveries: a row is written with its job's end and outlives the job, as it says all that is to be
/// told. A test has no job.
const VERSION_6: &str = "
CREATE TABLE webhooks (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    job INTEGER UNIQUE,
    url TEXT NOT NULL,
    host TEXT NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state = 'pending' OR state = 'delivered' OR state = 'dead'),
    attempts INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    last_at INTEGER,
    status INTEGER,
    error TEXT
) STRICT;
CREATE INDEX webhooks_due ON webhooks (host, due_at) WHERE state = 'pending';
CREATE INDEX webhooks_ended ON webhooks (state, last_at) WHERE state <> 'pending';
";

/// What ended turns used, a narrow row each, to be added up without the turns' long lines. It says
/// nothing that they don't, and is filled behind them when nobody waits: `used_seq` in `meta` says
/// how far.
const VERSION_7: &str = "
CREATE TABLE used (
    job INTEGER PRIMARY KEY REFERENCES jobs (job) ON DELETE CASCADE,
    accepted_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    agent TEXT NOT NULL,
    provider TEXT,
    model TEXT,
    local INTEGER,
    input_tokens INTEGER,
    output_tokens INTEGER,
    usd REAL,
    cost_unknown INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    others TEXT
) STRICT;
";

/// Where a session's directory led when it was made, if that was elsewhere: whoever writes it in
/// another way means the same.
///
/// And what a list says of a session, so that it reads no jobs: how its first prompt and its last
/// answer begin, and when that was. All of it holds as of `listed_turns`; of sessions of earlier
/// versions, and after a turn that one ran meanwhile, it is another number, and the rest is made
/// anew when nobody waits. Behind the columns that an accept looks at.
const VERSION_8: &str = "
ALTER TABLE sessions ADD COLUMN real_cwd TEXT;
ALTER TABLE sessions ADD COLUMN listed_turns INTEGER;
ALTER TABLE sessions ADD COLUMN active_at INTEGER;
ALTER TABLE sessions ADD COLUMN title TEXT;
ALTER TABLE sessions ADD COLUMN preview TEXT;
";

/// What a session's agent is told before the conversation, what people call the session, and the
/// agent's id of the one that it begins as a copy of. Behind the columns that an accept looks at.
const VERSION_9: &str = "
ALTER TABLE sessions ADD COLUMN system TEXT;
ALTER TABLE sessions ADD COLUMN called TEXT;
ALTER TABLE sessions ADD COLUMN forks TEXT;
";

/// MCP servers that a session brings to its agent.
const VERSION_10: &str = "
ALTER TABLE sessions ADD COLUMN mcp_servers TEXT;
";

/// How full a session's context is, as its agent said last, for lists.
const VERSION_11: &str = "
ALTER TABLE sessions ADD COLUMN context_tokens INTEGER;
ALTER TABLE sessions ADD COLUMN context_window INTEGER;
";

/// Texts out of the tree that is searched: SQLite reads a row of a table without a rowid, and an
/// entry of an index, whole wherever it is compared with, and a search of a few steps read megabytes
/// of what other turns had said.
const VERSION_12: &str = "
CREATE TABLE texts_12 (
    job INTEGER NOT NULL REFERENCES jobs (job) ON DELETE CASCADE,
    message INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    at INTEGER NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (job, message, kind, at)
) STRICT;
INSERT INTO texts_12 SELECT job, message, kind, at, text FROM texts
    ORDER BY job, message, kind, at;
DROP TABLE texts;
ALTER TABLE texts_12 RENAME TO texts;
";

/// In which of its own modes a session's agent works.
const VERSION_13: &str = "
ALTER TABLE sessions ADD COLUMN mode TEXT;
";

/// Schedules, and what became of their due times. A due time that became a job is never another one's:
/// the index says so, too. What a schedule says is read whole only where it is due or asked for.
const VERSION_14: &str = "
CREATE TABLE schedules (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    revision INTEGER NOT NULL DEFAULT 1,
    name TEXT UNIQUE,
    state TEXT NOT NULL CHECK (state = 'active' OR state = 'paused' OR state = 'done'),
    why TEXT,
    anchor_at INTEGER NOT NULL,
    due_at INTEGER,
    fires_at INTEGER,
    upcoming TEXT NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    failed_at INTEGER,
    created_at INTEGER NOT NULL,
    spec TEXT NOT NULL
) STRICT;
CREATE INDEX schedules_due ON schedules (fires_at) WHERE state = 'active' AND fires_at IS NOT NULL;
CREATE INDEX schedules_paused ON schedules (id) WHERE state = 'paused' AND why IS NOT NULL;

CREATE TABLE schedule_runs (
    run INTEGER PRIMARY KEY,
    schedule INTEGER NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
    due_at INTEGER NOT NULL,
    at INTEGER NOT NULL,
    late INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome = 'job' OR outcome = 'skipped' OR outcome = 'refused'),
    job INTEGER UNIQUE,
    by_hand INTEGER NOT NULL DEFAULT 0,
    ended TEXT,
    times INTEGER NOT NULL DEFAULT 1,
    why TEXT
) STRICT;
CREATE INDEX schedule_runs_of ON schedule_runs (schedule);
CREATE INDEX schedule_runs_open ON schedule_runs (schedule) WHERE job IS NOT NULL AND ended IS NULL;
CREATE UNIQUE INDEX schedule_runs_due ON schedule_runs (schedule, due_at)
    WHERE job IS NOT NULL AND NOT by_hand;
";
