//! What a list says of each session: how it began, what was said last and when.
//!
//! Owns the columns in which that is kept, so that a list reads no job that has ended. They say
//! nothing that the jobs don't: where they are missing or not up to date, which `listed_turns`
//! tells, they are made from these anew. Must not know who asks.

use std::time::{Duration, Instant};

use agentd_core::rfc3339;
use agentd_core::store::{Loaded, SessionFilter, SessionLife, SessionOrder};
use agentd_protocol::rows;
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};

use super::columns::{closed_as, int, nat, shown};
use super::lists::{Long, member, prefix, preview, session_closed, session_read};

/// Sessions. What is unfinished is asked of its own small index: an accept writes nothing into
/// the row of its session.
const SESSIONS: &str = "
    SELECT id, name, agent, cwd, model, turns, created_at,
        listed_turns IS turns AND instr(name, '#') = 0, title, preview, active_at,
        (SELECT accepted_at FROM jobs INDEXED BY jobs_unfinished
            WHERE session = sessions.id AND final_seq IS NULL ORDER BY job DESC LIMIT 1) AS open_at,
        called, context_tokens, context_window
    FROM sessions WHERE id > ?1";

/// A page of them.
pub(super) fn sessions(
    conn: &Connection,
    filter: &SessionFilter,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Loaded> {
    let named = match &filter.name {
        None => None,
        Some(name) => {
            let found = match filter.life {
                SessionLife::Open => session_read(conn, name)?,
                SessionLife::Closed => session_closed(conn, name)?,
            };
            if found.is_none() {
                return Ok(none());
            }
            found
        }
    };
    let mut statement = conn.prepare_cached(&format!("{SESSIONS}{}", chosen(filter)))?;
    let mut rows = statement.query(params![
        int(after),
        named,
        filter.agent,
        filter.cwd,
        filter.idle_since,
        int(limit as u64 + 1)
    ])?;
    let mut sessions = Vec::new();
    let mut more = false;
    let mut long = (Long::new(conn, "request"), Long::new(conn, "final"));
    while let Some(row) = rows.next()? {
        if sessions.len() == limit {
            // The next page begins behind a place, which says nothing of another order.
            more = filter.order == SessionOrder::Made;
            break;
        }
        let place = row.get(0)?;
        let kept = if row.get(7)? {
            ListedColumns {
                title: row.get(8)?,
                preview: row.get(9)?,
                active_at: row.get(10)?,
                context: [row.get(13)?, row.get(14)?],
            }
        } else {
            ListedColumns::made_anew(conn, place, &mut long)?
        };
        // What an earlier version wrote has no such time.
        if filter
            .idle_since
            .is_some_and(|since| kept.active_at > Some(since))
        {
            continue;
        }
        sessions.push((nat(place), session_row(row, kept)?));
    }
    Ok(Loaded::SessionList { sessions, more })
}

const fn none() -> Loaded {
    Loaded::SessionList {
        sessions: Vec::new(),
        more: false,
    }
}

/// Which of them, and in which order.
fn chosen(filter: &SessionFilter) -> String {
    let mut all = String::new();
    let mut and = |given: bool, condition: &str| {
        if given {
            all.push_str(" AND ");
            all.push_str(condition);
        }
    };
    and(filter.name.is_some(), "id = ?2");
    and(
        filter.name.is_none(),
        match filter.life {
            SessionLife::Open => "instr(name, '#') = 0",
            SessionLife::Closed => "instr(name, '#') > 0",
        },
    );
    and(filter.agent.is_some(), "agent = ?3");
    and(filter.cwd.is_some(), "(cwd = ?4 OR real_cwd = ?4)");
    and(
        filter.idle_since.is_some(),
        "max(created_at, ifnull(active_at, 0)) <= ?5 AND open_at IS NULL",
    );
    all.push_str(match filter.order {
        SessionOrder::Made => " ORDER BY id LIMIT ?6",
        SessionOrder::LastUsed => {
            " ORDER BY max(created_at, ifnull(active_at, 0), ifnull(open_at, 0)) DESC, id DESC
             LIMIT ?6"
        }
    });
    all
}

fn session_row(row: &Row<'_>, kept: ListedColumns) -> rusqlite::Result<rows::SessionRow> {
    let created: i64 = row.get(6)?;
    let last = kept.active_at.max(row.get(11)?);
    let name: String = row.get(1)?;
    let closed_as = closed_as(&name);
    let state = match closed_as {
        Some(_) => rows::SessionPhase::Closed,
        None => rows::SessionPhase::Idle,
    };
    Ok(rows::SessionRow {
        session: shown(name),
        agent: row.get(2)?,
        cwd: row.get(3)?,
        state,
        title: row
            .get::<_, Option<String>>(12)?
            .or(kept.title)
            .unwrap_or_default(),
        preview: kept.preview.unwrap_or_default(),
        model: row.get(4)?,
        turns: nat(row.get(5)?),
        context_tokens: kept.context[0].map(nat),
        context_window: kept.context[1].map(nat),
        created_at: rfc3339(created),
        last_active_at: rfc3339(last.map_or(created, |last| last.max(created))),
        idle_s: None,
        closed_as,
    })
}

/// The columns.
struct ListedColumns {
    /// How the first job that is kept begins; `None` without one.
    title: Option<String>,
    /// How the end of the last one begins.
    preview: Option<String>,
    /// When that was.
    active_at: Option<i64>,
    /// How many tokens its context holds then, and could.
    context: Context,
}

/// Tokens in a context, and how many fit, where that is known.
type Context = [Option<i64>; 2];

/// Each of these is one step into an index; of two at once SQLite reads all.
const ENDS_OF_SESSION: &str = "SELECT
    (SELECT min(job) FROM jobs WHERE session = ?1 AND final_seq IS NOT NULL),
    (SELECT max(job) FROM jobs WHERE session = ?1 AND final_seq IS NOT NULL),
    (SELECT min(job) FROM jobs WHERE session = ?1 AND final_seq IS NULL)";

impl ListedColumns {
    fn made_anew<'a>(
        conn: &'a Connection,
        place: i64,
        (requests, finals): &mut (Long<'a>, Long<'a>),
    ) -> rusqlite::Result<Self> {
        let ends = |row: &Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?]);
        let [first_ended, last, first_open]: [Option<i64>; 3] = conn
            .prepare_cached(ENDS_OF_SESSION)?
            .query_row([place], ends)?;
        let first = first_ended.into_iter().chain(first_open).min();
        let begins = |column: &mut Long<'a>, job: Option<i64>| {
            let beginning = job.map(|job| column.prefix(job)).transpose()?;
            Ok::<_, rusqlite::Error>(beginning.map(|object| beginning_of(&object)))
        };
        let context = last.map(|job| finals.prefix(job)).transpose()?;
        let ended = "SELECT max(accepted_at, finished_at) FROM jobs WHERE job = ?1";
        let ended = |job: i64| {
            let mut ended = conn.prepare_cached(ended)?;
            ended.query_row([job], |row| row.get(0))
        };
        Ok(Self {
            title: begins(requests, first)?,
            preview: begins(finals, last)?,
            active_at: last.map(ended).transpose()?.flatten(),
            context: context.map_or([None; 2], |line| context_of(&line)),
        })
    }
}

/// How the text of a request or of a final line begins, in a list.
pub(super) fn beginning_of(object: &str) -> String {
    preview(&member(prefix(object), "text").unwrap_or_default())
}

/// What a final line says of its session's context: in front of its text.
fn context_of(line: &str) -> Context {
    let line = prefix(line);
    let said = line.split(r#""text":""#).next().unwrap_or_default();
    ["context_tokens", "context_window"].map(|name| {
        let (_, value) = said.split_once(&format!("\"{name}\":"))?;
        // A cut may go through a number.
        let (value, _) = value.split_once([',', '}'])?;
        value.parse().ok()
    })
}

/// The first job of a session that had none is accepted.
pub(super) fn begin(conn: &Connection, place: i64, request: &str) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE sessions SET title = ?2 WHERE id = ?1")?
        .execute(params![place, beginning_of(request)])?;
    Ok(())
}

/// The end of a job, as its session's row has it.
pub(super) struct LastEnd<'a> {
    pub(super) line: &'a str,
    pub(super) at: i64,
    /// Did the job run?
    pub(super) ran: bool,
}

/// A job has ended.
pub(super) fn end(conn: &Connection, place: i64, ended: &LastEnd<'_>) -> rusqlite::Result<()> {
    let [tokens, window] = context_of(ended.line);
    // A clock that was set back makes no session look older, so the later time stays.
    let is_whole = conn
        .prepare_cached(
            "UPDATE sessions SET turns = turns + ?2, preview = ?3,
                active_at = max(ifnull(active_at, 0), ?4),
                context_tokens = ifnull(?5, context_tokens),
                context_window = ifnull(?6, context_window),
                listed_turns = CASE WHEN listed_turns = turns THEN turns + ?2 END
             WHERE id = ?1 RETURNING listed_turns IS NOT NULL",
        )?
        .query_row(
            params![
                place,
                ended.ran,
                beginning_of(ended.line),
                ended.at,
                tokens,
                window
            ],
            |row| row.get(0),
        )
        .optional()?;
    if is_whole == Some(false) {
        make_anew(conn, place)?;
    }
    Ok(())
}

/// Writes the columns of a session as its jobs have them.
pub(super) fn make_anew(conn: &Connection, place: i64) -> rusqlite::Result<()> {
    let mut open =
        conn.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1 AND instr(name, '#') = 0")?;
    if !open.exists([place])? {
        return Ok(());
    }
    let mut long = (Long::new(conn, "request"), Long::new(conn, "final"));
    let kept = ListedColumns::made_anew(conn, place, &mut long)?;
    // Jobs that were forgotten count for when it was used.
    conn.prepare_cached(
        "UPDATE sessions SET title = ?2, preview = ?3,
            active_at = coalesce(max(active_at, ?4), active_at, ?4),
            context_tokens = ifnull(?5, context_tokens),
            context_window = ifnull(?6, context_window), listed_turns = turns
         WHERE id = ?1",
    )?
    .execute(params![
        place,
        kept.title,
        kept.preview,
        kept.active_at,
        kept.context[0],
        kept.context[1]
    ])?;
    Ok(())
}

/// Sessions that nobody has looked at yet; how far that is stands in `meta`.
const NEXT: &str = "
    SELECT id, listed_turns IS turns FROM sessions WHERE id > ifnull(
        (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'listed'), 0)
    ORDER BY id";

/// Writes the columns of some more sessions that an earlier version made, until the time is over.
/// How many sessions were looked at?
pub(super) fn note(conn: &Connection, time: Duration) -> rusqlite::Result<u64> {
    let began = Instant::now();
    // A look without a lock first: mostly there is nothing to do.
    if !conn.prepare_cached(NEXT)?.exists([])? {
        return Ok(0);
    }
    let change = rusqlite::Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let (mut count, mut last) = (0, 0);
    {
        let mut statement = change.prepare_cached(NEXT)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            if !row.get::<_, bool>(1)? {
                make_anew(&change, last)?;
            }
            count += 1;
            if began.elapsed() >= time {
                break;
            }
        }
        change
            .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('listed', ?1)")?
            .execute([last.to_string()])?;
    }
    change.commit()?;
    Ok(count)
}
